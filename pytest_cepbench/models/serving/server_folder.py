"""The folder by which the processes of a run share one server: its state, its locks, its log."""

from __future__ import annotations

import fcntl
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pytest_cepbench.errors import ModelError, WriteError
from pytest_cepbench.escapes import HIDDEN, mask_secrets, one_line
from pytest_cepbench.models.serving.supervisor import (
    ALIVE,
    COMMAND,
    ENDED,
    READY,
    RUNNING,
    TERMINATION,
    USERS,
    read_state,
    write_state,
)

FAILED = "failed.json"
"""Why the server did not start: said by the process that tried, to all others."""

_STARTING = "start.lock"

_POLL = 0.1  # seconds

_LONGEST_END = 3 * TERMINATION

_TAIL_BYTES, _TAIL_LINES, _TAIL_LETTERS = 16_384, 6, 900


@dataclass
class ServerFolder:
    """A server of the run, as one of its processes uses it.

    path: of the folder, which is made where it is absent.
    name: of the server, for people.
    Raises WriteError where the folder cannot be written, or knows no locks.
    """

    path: Path
    name: str
    _users: int = field(init=False)

    def __post_init__(self) -> None:
        self._users = lock_shared(self.path / USERS, self.name)

    def leave(self) -> None:
        """Use the server no more; it ends when no process uses it."""
        os.close(self._users)

    @contextmanager
    def starting(self, waiting: Callable[[], None]) -> Iterator[None]:
        """Be the one process that starts the server. waiting: called while another one does."""
        file = os.open(self.path / _STARTING, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            while True:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    waiting()
                    time.sleep(_POLL)
            yield
        finally:
            # Closing is not enough where a process was forked meanwhile.
            fcntl.flock(file, fcntl.LOCK_UN)
            os.close(file)

    @property
    def is_supervised(self) -> bool:
        """Whether the supervisor lives, and with it the server, or its end."""
        return is_supervised(self.path)

    def read(self, name: str) -> dict[str, Any] | None:
        """A file of the folder; None where there is none."""
        return read_state(self.path / name)

    def write(self, name: str, state: dict[str, Any]) -> None:
        """Write a file of the folder at once. Raises WriteError."""
        try:
            write_state(self.path / name, state)
        except OSError as error:
            raise WriteError(
                f"{self.name}: {self.path / name} cannot be written: {error}"
            ) from error

    def forget(self) -> None:
        """Remove what is known of an earlier server."""
        for name in (RUNNING, READY, ENDED):
            (self.path / name).unlink(missing_ok=True)

    def end(self) -> None:
        """End the server now, for all processes."""
        state = self.read(RUNNING)
        if state is not None and self.is_supervised:
            with suppress(OSError):
                os.kill(state["supervisor"], signal.SIGTERM)
        wait_for_end(self.path)

    @property
    def end_reason(self) -> str | None:
        """How the server ended by itself; None while it lives."""
        ended = self.read(ENDED)
        if ended is None and self.is_supervised:
            return None
        return "its supervisor was killed" if ended is None else str(ended["reason"])

    def check(self) -> None:
        """Raise ModelError where a server has ended that should be there."""
        reason = self.end_reason
        if reason is not None:
            msg = f"{self.name}: its server ended while the run needed it ({reason}). "
            raise ModelError(msg + self.log_end())

    def log_end(self) -> str:
        """The last lines of the server's log and its path, in a sentence."""
        path, lines = (self.read(COMMAND) or {}).get("log", ""), self.log_lines()[-_TAIL_LINES:]
        if not lines:
            return f"Its log is empty: {path}"
        shown = " | ".join(one_line(line, _TAIL_LETTERS) for line in lines)
        # Its end says what went wrong.
        shown = shown if len(shown) <= _TAIL_LETTERS else f"...{shown[3 - _TAIL_LETTERS :]}"
        return f"The end of its log, {path}: {shown}"

    def log_lines(self) -> list[str]:
        """The lines at the end of the server's log, without keys; none where it has no log."""
        command = self.read(COMMAND) or {}
        try:
            with Path(command["log"]).open("rb") as stream:
                stream.seek(max(0, os.fstat(stream.fileno()).st_size - _TAIL_BYTES))
                text = stream.read().decode("utf-8", "replace")
        except (OSError, KeyError):
            return []
        text = mask_secrets(text)
        if command["key"]:
            text = text.replace(command["key"], HIDDEN)
        return [line.strip() for line in text.splitlines() if line.strip()]

    def mask_log(self) -> None:
        """Take keys of the environment out of the log of a server that has ended."""
        with suppress(OSError, KeyError):  # it has none, or not any more
            path = Path((self.read(COMMAND) or {})["log"])
            text = path.read_text("utf-8", "surrogateescape")
            if (masked := mask_secrets(text)) != text:
                path.write_text(masked, "utf-8", "surrogateescape")


def lock_shared(path: Path, name: str) -> int:
    """A file that is locked as long as this process has it open; made where it is absent.

    Opened once in a process: the kernel drops the lock when any handle of the file is closed. Waits
    for the end of a server whose last user has just left.
    name: of the server, for people.
    Raises WriteError.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        while True:
            try:
                fcntl.lockf(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except (BlockingIOError, PermissionError):
                time.sleep(_POLL)
            else:
                return file
    except OSError as error:
        raise WriteError(
            f"{name}: the folder of its server, {path.parent}, cannot be used: {error}"
        ) from error


def wait_for_end(folder: Path) -> None:
    """Wait until the server of a folder has ended, which nobody uses any more."""
    until = time.monotonic() + _LONGEST_END
    while is_supervised(folder) and time.monotonic() < until:
        time.sleep(_POLL / 4)


def is_supervised(folder: Path) -> bool:
    """Whether the supervisor lives, and with it the server, or its end."""
    try:
        file = os.open(folder / ALIVE, os.O_RDWR | os.O_CLOEXEC)
    except OSError:  # none was started, or the run's folder is gone
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    else:
        return False
    finally:
        os.close(file)
