"""A run as its processes share it: its name, its folder, and what they leave there for one another.

Standard library only: this is imported in every pytest that has the plugin installed.
"""

from __future__ import annotations

import json
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

from pytest_cepbench.errors import IdentityError, WriteError
from pytest_cepbench.evaluation.settings import RunSettings
from pytest_cepbench.files import first_text, keep_out_of_git, replace_small

if TYPE_CHECKING:
    from pytest_cepbench.models.binding import BoundRole

STOP = "stop"
"""Written by the controller when the run is to stop."""

CASES = "cases.json"
"""Written by the worker that ends collection first: what its cases need, for the scheduler."""

UNKNOWN_NAME = "unknown-name"
"""Written by workers where an option names what no suite of the run knows: the message."""

_INTERVAL = 0.2  # seconds between two looks at the file system


@dataclass(frozen=True)
class RunContext:
    """One run, as one of its processes knows it.

    settings: what the engineer asked for.
    run_id: shared by all processes of the run.
    started: when the run began, in seconds since the epoch.
    workers: number of processes that share this machine.
    worker: name of this one among them; empty for the only one.
    unleased: variables of devices and threads as the controller has them, where this process has a
        lease; None in the controller.
    """

    settings: RunSettings
    run_id: str = field(default_factory=lambda: uuid4().hex)
    started: float = field(default_factory=time.time)
    workers: int = 1
    worker: str = ""
    unleased: Mapping[str, str] | None = None

    @property
    def is_worker(self) -> bool:
        """Whether this is one of several processes of the run, which share its work."""
        return bool(self.worker)

    @property
    def folder(self) -> Path:
        """Where the processes of the run leave messages for one another; removed when it ends."""
        return self.settings.home / "runs" / self.run_id

    def make_folder(self) -> Path:
        """The folder, made where it is absent."""
        self.folder.mkdir(parents=True, exist_ok=True)
        keep_out_of_git(self.settings.home, self.folder)
        return self.folder

    def remove_folder(self) -> None:
        """Remove the folder at the end of the run, and those around it that held nothing else."""
        home, folder = self.settings.home, self.folder
        shutil.rmtree(folder, ignore_errors=True)
        with suppress(OSError):  # another run may be going on, or there never was a folder
            folder.parent.rmdir()
            if [path.name for path in home.iterdir()] == [".gitignore"]:
                (home / ".gitignore").unlink()
                home.rmdir()


def stop_flag(folder: Path) -> Callable[[], bool]:
    """Tells whether work that no case of this process waits for is to end.

    Read from the folder of the run, five times a second at most.
    """
    is_set, next_look = False, 0.0

    def look() -> bool:
        nonlocal is_set, next_look
        now = time.monotonic()
        if not is_set and now >= next_look:
            is_set, next_look = (folder / STOP).exists(), now + _INTERVAL
        return is_set

    return look


@contextmanager
def interrupted(stopped: Callable[[], bool]) -> Iterator[None]:
    """Interrupt the main thread, wherever it is, when it should stop.

    A shard of a large model takes minutes, and what is lost of it is one batch.
    """
    ending, over = threading.Lock(), threading.Event()
    main = threading.main_thread().ident
    assert main is not None

    def watch() -> None:
        while not over.wait(_INTERVAL):
            if stopped():
                with ending:  # not after the work has ended of itself
                    if not over.is_set():
                        # A signal also ends a sleep and a wait, as no exception from outside does.
                        signal.pthread_kill(main, signal.SIGINT)
                return

    handler = signal.getsignal(signal.SIGINT)
    if handler == signal.SIG_IGN:  # as shells have it in what they start in the background
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:  # from here on, the interrupt may come in any line
        threading.Thread(target=watch, name="cepbench-stop", daemon=True).start()
        try:
            yield
        finally:
            with ending:
                over.set()
    finally:
        if handler == signal.SIG_IGN:
            signal.signal(signal.SIGINT, signal.SIG_IGN)


def write_message(folder: Path, name: str, text: str) -> None:
    """Write a file of the folder at once: no process reads a part of it."""
    replace_small(folder / name, text.encode())


# -- one identity per role -------------------------------------------------------------------------


def identities_of(bound_roles: Iterable[BoundRole]) -> dict[str, str]:
    """Role and spec -> adapter and fingerprint, of each model."""
    return {f"{b.role} {b.spec}": f"{b.adapter} {b.fingerprint}" for b in bound_roles}


def check_identity(context: RunContext, known: Mapping[str, str], bound: BoundRole) -> None:
    """Raise IdentityError where another process of the run bound another model by this name.

    The first process that binds a model sets its identity. The controller binds the models that
    were named on the command line before any worker starts, and sends their identities to the
    workers; of the models of suites, the worker that binds one first leaves its identity in the
    folder of the run. Devices and precisions may differ between processes; files may not.

    context: the run, as the worker knows it.
    known: `identities_of` the controller's models.
    """
    from pytest_cepbench.artifacts import digest_text

    ((name, own),) = identities_of([bound]).items()
    if name in known:
        first, process = known[name], "the controller"
    else:
        try:
            folder = context.make_folder() / "models"
            folder.mkdir(exist_ok=True)
            entry = json.dumps([own, f"worker {context.worker}"])
            first, process = json.loads(first_text(folder / digest_text(name), entry))
        except OSError as error:
            raise WriteError(
                f"the folder of the run, {context.folder}, cannot be written: {error}"
            ) from error
    if first != own:
        raise IdentityError(
            f"the {bound.role} {bound.spec} is {own} for worker {context.worker}, and "
            f"was {first} when {process} bound it: it changed while the run started, and cases "
            "of two models must not meet in one report. Copy the checkpoint to a folder of its "
            "own and gate the copy, or gate it when the trainer has finished; then run again"
        )
