"""The servers of a run: each is started once, by the first process that needs an answer of it."""

from __future__ import annotations

import atexit
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

from pytest_cepbench.errors import CepError, ModelError, WriteError
from pytest_cepbench.models.serving.engines import HOST
from pytest_cepbench.models.serving.launch import ServerLauncher
from pytest_cepbench.models.serving.server_folder import (
    FAILED,
    ServerFolder,
    lock_shared,
    wait_for_end,
)
from pytest_cepbench.models.serving.server_plan import ServerPlan
from pytest_cepbench.models.serving.supervisor import ENDED, READY, RUN


@dataclass(frozen=True)
class RunningServer:
    """A server that answers.

    url: where its API begins.
    key: that it asks for; None for none.
    version: of its engine; empty where that is unknown.
    log: path of its log.
    check: raises ModelError where it has ended, with the last lines of its log.
    """

    url: str
    key: str | None
    version: str
    log: str
    check: Callable[[], None]


class RunServers:
    """The servers of a run, as one of its processes uses them.

    folder: that all processes of the run share; made where it is absent.
    logs: folder of the servers' logs, which stay.
    unleased: variables as they are without the lease of this process; None where it has none.
    show: called with what is waited for, and with an empty text afterwards.
    is_controller: whether servers end with this process at the latest, which waits for their end.
    """

    def __init__(
        self,
        folder: Path,
        logs: Path,
        *,
        unleased: Mapping[str, str] | None = None,
        show: Callable[[str], None] = lambda _: None,
        is_controller: bool = True,
    ) -> None:
        self._folder = folder
        self._launcher = ServerLauncher(logs, unleased, show)
        self._show = show
        self._is_controller = is_controller
        self._folders: dict[str, ServerFolder] = {}
        self._run: int | None = None  # the file whose lock says that the controller lives

    def join(self, plan: ServerPlan) -> ServerFolder:
        """Count as a user of a server, which is not started by this: it then lives until `close`.

        Raises WriteError.
        """
        if self._is_controller and self._run is None:
            self._run = lock_shared(self._folder / RUN, plan.label)
        if plan.digest not in self._folders:
            self._folders[plan.digest] = ServerFolder(self._folder / plan.digest, plan.label)
        return self._folders[plan.digest]

    def running(self, plan: ServerPlan) -> RunningServer:
        """The server, started where no process of the run has done so.

        Raises ModelError where it does not start, or has ended; IdentityError where its files
        changed meanwhile; SpecError for a port or devices that it cannot have;
        MissingDependencyError where its interpreter has no such engine.
        """
        folder = self.join(plan)
        waiting = partial(self._show, f"waiting for {plan.engine.title}")
        with self._shown(), folder.starting(waiting):
            failed = folder.read(FAILED)
            if failed is not None:
                raise ModelError(failed["reason"])
            if folder.read(READY) is None and folder.read(ENDED) is None:
                with _reported(folder), plan.files.unchanged("the server was started"):
                    self._launcher.start(plan, folder)
            ready = folder.read(READY)
            folder.check()
        if ready is None:
            raise ModelError(
                f"{plan.label}: its server ends, since the controller of the run has ended"
            )
        return RunningServer(
            f"http://{HOST}:{ready['port']}/v1",
            ready["key"],
            ready["version"],
            ready["log"],
            folder.check,
        )

    def close(self) -> None:
        """Use the servers no more; those that no other process uses end."""
        folders, self._folders = self._folders, {}
        for folder in folders.values():
            folder.leave()
        if self._run is not None:
            os.close(self._run)
            self._run = None
        # Also those that only other processes have used, which may have left just now.
        for path in self._folder.glob("*") if self._is_controller else ():
            wait_for_end(path)
        for folder in folders.values() if self._is_controller else ():
            folder.mask_log()

    @contextmanager
    def _shown(self) -> Iterator[None]:
        try:
            yield
        finally:
            self._show("")


@contextmanager
def _reported(folder: ServerFolder) -> Iterator[None]:
    """End a server that was not started well, and tell the other processes of the run why."""
    try:
        yield
    except CepError as error:
        folder.end()
        with suppress(WriteError):
            folder.write(FAILED, {"reason": str(error)})
        raise


@cache
def own_servers() -> RunServers:
    """Servers of this process alone, where there is no run around it; they end with it."""
    folder = Path(tempfile.mkdtemp(prefix="cepbench-servers-"))
    servers = RunServers(folder / "run", folder / "logs")
    atexit.register(servers.close)
    return servers
