"""The process of a gate: an environment without the training's, a log file, an end for certain.

Its pytest loads this module with `-p` as well, and ends when the training that started it is gone.
A training that is killed cannot end its gate, which would go on to use a device and to write into
the folder in which the restarted training gates. The kernel counts the thread that started the
process: a training in a thread takes its gate along when that thread ends.
"""

from __future__ import annotations

import ctypes
import os
import re
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from pytest_cepbench.errors import TrainingGateError
from pytest_cepbench.escapes import mask_secrets

_LEFT_OUT = re.compile(
    r"((LOCAL|GROUP|NODE|ROLE)_)?RANK|((LOCAL|GROUP|ROLE)_)?WORLD_SIZE|ROLE_NAME"
    r"|MASTER_(ADDR|PORT)|(TORCHELASTIC|ACCELERATE|FSDP|PL|PYTEST_XDIST)_.*|PYTEST_CURRENT_TEST"
    r"|GITHUB_STEP_SUMMARY"
)
"""Variables by which a launcher tells a process that it is a rank of a training, and that of the
page of a CI job, which the gates of a training would fill with their tables."""

_GRACE = 10.0  # seconds for a process that is interrupted to end
_OUTPUT = 64 * 1024  # bytes of the log that a verdict shows


class GateProcess(subprocess.Popen[bytes]):
    """A command of the gate at work.

    arguments: program and arguments.
    log: file for what it prints; what is there already stays.
    env: variables besides those of this process; they take precedence. Left out are what would make
        the gate a rank of the training, and the page of a CI job.
    Raises TrainingGateError where it cannot be started.
    """

    def __init__(
        self, arguments: Sequence[str], log: Path, env: Mapping[str, str | os.PathLike[str]]
    ) -> None:
        inherited = {k: v for k, v in os.environ.items() if not _LEFT_OUT.fullmatch(k)}
        try:
            log.parent.mkdir(parents=True, exist_ok=True)
            with log.open("ab") as stream:
                super().__init__(
                    arguments,
                    stdin=subprocess.DEVNULL,
                    stdout=stream,
                    stderr=subprocess.STDOUT,
                    env={**inherited, **env, PARENT: str(os.getpid())},
                    start_new_session=True,  # Ctrl-C is for the training, which ends the gate
                )
        except OSError as error:
            raise TrainingGateError(f"the gate cannot be started: {error}") from error

    def end(self) -> None:
        """End the process: interrupt it, so that it ends its own; kill it after a while."""
        for number, patience in ((signal.SIGINT, _GRACE), (signal.SIGKILL, None)):
            if self.poll() is None:
                with suppress(ProcessLookupError):
                    os.killpg(self.pid, number)
                with suppress(subprocess.TimeoutExpired):
                    self.wait(patience)


def read_output(log: Path) -> str:
    """The end of a log, without keys."""
    try:
        with log.open("rb") as stream:
            # From before what is shown: half a key at its start would not be found.
            stream.seek(max(0, log.stat().st_size - 2 * _OUTPUT))
            return mask_secrets(stream.read().decode("utf-8", "replace"))[-_OUTPUT:]
    except OSError:
        return ""


# -- in the process itself -------------------------------------------------------------------------


PARENT = "PYTEST_CEPBENCH_PARENT"
"""Environment variable with the process id of the training."""

_PR_SET_PDEATHSIG = 1  # <linux/prctl.h>


def pytest_load_initial_conftests() -> None:
    """Have the kernel kill this process when its parent ends, as early as pytest can be told to."""
    parent = os.environ.pop(PARENT, None)
    if parent is None:  # an xdist worker: it ends with its controller
        return
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != int(parent):  # gone before the kernel was told
        os.kill(os.getpid(), signal.SIGKILL)
