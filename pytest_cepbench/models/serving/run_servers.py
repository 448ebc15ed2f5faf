"""The servers of a run: each is started once, by the first process that needs an answer of it.

The processes of a run share a server by a folder, which holds its state, its locks and, by name,
its log; `supervisor` ends it when none of them is left.
"""

from __future__ import annotations

import atexit
import fcntl
import http.client
import json
import os
import secrets
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from functools import cache
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from pytest_cepbench.errors import CepError, ModelError, WriteError
from pytest_cepbench.escapes import one_line
from pytest_cepbench.files import keep_out_of_git
from pytest_cepbench.models.api.endpoint import Endpoint, OwnServer, Secret, mask_keys
from pytest_cepbench.models.api.responses import read_json, read_models
from pytest_cepbench.models.protocols import RoleName
from pytest_cepbench.models.serving import supervisor
from pytest_cepbench.models.serving.engines import HOST, ServerPlan
from pytest_cepbench.models.serving.supervisor import (
    ALIVE,
    COMMAND,
    ENDED,
    READY,
    RUN,
    TERMINATION,
    USERS,
    descendants,
    write_state,
)

_LOGS = 10  # that are kept

_POLL = 0.1  # seconds

_LONGEST_END = 3 * TERMINATION

_TAIL_BYTES, _TAIL_LINES, _TAIL_LETTERS = 16_384, 6, 900

_SECONDS, _MOST_BYTES = 5.0, 1 << 20  # of one answer

_LISTENING = "0A"  # <include/net/tcp_states.h>

_SUPERVISORS: list[subprocess.Popen[bytes]] = []
"""Kept, since Python complains of processes that are forgotten while they run."""


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
        self._logs = logs
        self._unleased = unleased
        self._show = show
        self._is_controller = is_controller
        self._servers: dict[str, _Server] = {}
        self._run: int | None = None  # the file whose lock says that the controller lives

    def join(self, plan: ServerPlan) -> _Server:
        """Count as a user of a server, which is not started by this: it then lives until `close`.

        Raises WriteError.
        """
        if self._is_controller and self._run is None:
            self._run = _lock_shared(self._folder / RUN, plan.label)
        if plan.digest not in self._servers:
            self._servers[plan.digest] = _Server(plan, self._folder / plan.digest)
        return self._servers[plan.digest]

    def running(self, plan: ServerPlan, role: RoleName) -> Endpoint:
        """The model on its server, which is started where no process of the run has done so.

        Raises ModelError where it does not start, or has ended; IdentityError where its files
        changed meanwhile; SpecError for devices that it cannot have.
        """
        server, title = self.join(plan), plan.engine.title
        try:
            try:
                server.start.acquire(timeout=0)
            except Timeout:
                self._show(f"waiting for {title}")
                server.start.acquire()
            ready = server.read(READY)
            if ready is None and server.read(ENDED) is None:
                try:
                    with plan.files.unchanged("the server was started"):
                        self._start(server)
                except CepError as error:  # the other processes are told why
                    server.end()
                    with suppress(WriteError):
                        server.write(READY, {"failed": str(error)})
                    raise
            if ready is not None and "failed" in ready:
                raise ModelError(ready["failed"])
            ready = server.read(READY)
            server.check()
        finally:
            server.start.release()
            self._show("")
        if ready is None:
            raise ModelError(
                f"{plan.label}: its server ends, since the controller of the run has ended"
            )
        files = plan.files if plan.engine.maps_files else None
        own = OwnServer(plan.label, {"engine": title}, ready["log"], server.check, files)
        key = None if ready["key"] is None else Secret(ready["key"])
        url = f"http://{HOST}:{ready['port']}/v1"
        return Endpoint(plan.served_name, role, url, key, own=own)

    def close(self) -> None:
        """Use the servers no more; those that no other process uses end."""
        for server in self._servers.values():
            os.close(server.users)
        self._servers = {}
        if self._run is not None:
            os.close(self._run)
            self._run = None
        if self._is_controller:
            # Also those that only other processes have used, which may have left just now.
            for path in self._folder.glob("*"):
                _wait_for_end(path)
        # Those that have ended are no children of this process any more.
        _SUPERVISORS[:] = [process for process in _SUPERVISORS if process.poll() is None]

    def _start(self, server: _Server) -> None:
        """Start the server and wait until it answers; take over from a process that was killed.

        An answer counts where it is healthy, the process that was started, and lists what was asked
        for.
        """
        plan, title, started = server.plan, server.plan.engine.title, time.monotonic()
        command = server.read(COMMAND) if _is_supervised(server.path) else None
        command = self._launch(server) if command is None else command
        port = command["port"]
        while server.end_reason is None:
            process = server.supervisor
            if process is not None and listens(process, port) and _get(port, "/health") is not None:
                listed = _get(port, "/v1/models", command["key"]) or b""
                if not plan.engine.lists_model or plan.served_name in read_models(
                    read_json(listed)
                ):
                    server.write(READY, command)
                    return
            seconds = time.monotonic() - started
            if seconds > plan.serve.start_timeout:
                server.end()
                raise ModelError(
                    f"{plan.label}: {title} gave no answer within {plan.serve.start_timeout:g} s "
                    f"(start_timeout= in its spec). {server.log_end()}"
                )
            self._show(f"starting {title}, {seconds:.0f} s")
            time.sleep(_POLL if seconds < 10 else 5 * _POLL)
        raise ModelError(
            f"{plan.label}: {title} did not start ({server.end_reason}). {server.log_end()}"
        )

    def _launch(self, server: _Server) -> dict[str, Any]:
        """Start the supervisor; returns the command, as the folder has it."""
        plan = server.plan
        environment = plan.environment(self._unleased)
        with closing(socket.socket()) as probe:
            probe.bind((HOST, 0))
            port = probe.getsockname()[1]
        key = None if plan.engine.key_variable is None else secrets.token_hex(24)
        if key is not None and plan.engine.key_variable:
            environment[plan.engine.key_variable] = key
        log = self._new_log(plan)
        command = {"argv": plan.argv(port, key), "log": str(log), "port": port, "key": key}
        for name in (READY, ENDED):  # of an earlier server
            (server.path / name).unlink(missing_ok=True)
        server.write(COMMAND, command)
        shown = plan.argv(port, None if key is None else "[key]")
        log.write_bytes(f"$ {shlex.join(shown)}\n".encode("utf-8", "surrogateescape"))
        try:
            with (server.path / ALIVE).open("wb") as alive, log.open("ab") as stream:
                # Locked for the supervisor, which inherits the lock with the file: it counts as
                # alive from its first moment.
                fcntl.flock(alive, fcntl.LOCK_EX)
                process = subprocess.Popen(  # noqa: S603 - a script of this package
                    # The standard library is all that it needs, whatever the environment holds.
                    [
                        *(sys.executable, "-I", "-S", supervisor.__file__),
                        *(str(server.path), str(alive.fileno())),
                    ],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=stream,
                    pass_fds=[alive.fileno()],
                    cwd=server.path,  # `python -m` would find the modules of a project first
                    env=environment,
                    start_new_session=True,  # Ctrl-C is for the run
                )
        except OSError as error:
            raise ModelError(
                f"{plan.label}: the supervisor of its server could not be started: {error}"
            ) from error
        _SUPERVISORS.append(process)
        return command

    def _new_log(self, plan: ServerPlan) -> Path:
        """A new log, for its owner alone; the oldest ones make room. Raises WriteError."""
        now = time.strftime("%Y%m%d-%H%M%S")
        name = f"{now}-{plan.serve.engine}-{plan.folder.name}-{plan.digest[:4]}.log"
        path = self._logs / name
        try:
            self._logs.mkdir(parents=True, exist_ok=True)
            keep_out_of_git(self._logs.parent, path)
            for old in sorted(self._logs.glob("*.log"))[: 1 - _LOGS]:
                old.unlink(missing_ok=True)
            path.touch(mode=0o600)
        except OSError as error:
            raise WriteError(
                f"{plan.label}: the log of its server, {path}, cannot be written: {error}"
            ) from error
        return path


class _Server:
    """A server of the run, as this process uses it.

    plan: how it is started.
    path: of its folder, which is made where it is absent.
    users: the open file whose lock counts this process as a user.
    start: lock of the one process that starts the server.
    Raises WriteError where the folder cannot be written, or knows no locks.
    """

    def __init__(self, plan: ServerPlan, path: Path) -> None:
        self.plan = plan
        self.path = path
        self.users = _lock_shared(path / USERS, plan.label)
        self.start = FileLock(path / "start.lock", mode=0o600)

    def read(self, name: str) -> dict[str, Any] | None:
        """A file of the folder; None where it is not there, or not whole."""
        try:
            state = json.loads((self.path / name).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        return state if isinstance(state, dict) else None

    def write(self, name: str, state: dict[str, Any]) -> None:
        """Write a file of the folder at once. Raises WriteError."""
        try:
            write_state(self.path / name, state)
        except OSError as error:
            raise WriteError(
                f"{self.plan.label}: {self.path / name} cannot be written: {error}"
            ) from error

    @property
    def supervisor(self) -> int | None:
        """The process id of the supervisor; None before it has begun, and where none lives."""
        try:
            return int((self.path / ALIVE).read_text()) if _is_supervised(self.path) else None
        except (OSError, ValueError):
            return None

    def end(self) -> None:
        """End the server now, for all processes."""
        process = self.supervisor
        if process is not None:
            with suppress(OSError):
                os.kill(process, signal.SIGTERM)
        _wait_for_end(self.path)

    @property
    def end_reason(self) -> str | None:
        """How the server ended by itself; None while it lives."""
        ended = self.read(ENDED)
        if ended is None and _is_supervised(self.path):
            return None
        # Written, perhaps, between the two looks.
        ended = self.read(ENDED) if ended is None else ended
        return "its supervisor was killed" if ended is None else str(ended["reason"])

    def check(self) -> None:
        """Raise ModelError where a server has ended that should be there."""
        reason = self.end_reason
        if reason is not None:
            raise ModelError(
                f"{self.plan.label}: its server ended while the run needed it ({reason}). "
                + self.log_end()
            )

    def log_end(self) -> str:
        """The last lines of the server's log and its path, without keys, in a sentence."""
        command = self.read(COMMAND) or {}
        path, text = command.get("log", ""), ""
        with suppress(OSError), Path(path).open("rb") as stream:
            stream.seek(max(0, os.fstat(stream.fileno()).st_size - _TAIL_BYTES))
            text = mask_keys(stream.read().decode("utf-8", "replace"), command.get("key"))
        lines = [line for line in text.splitlines() if line.strip()][-_TAIL_LINES:]
        if not lines:
            return f"Its log is empty: {path}"
        shown = " | ".join(one_line(line.strip(), _TAIL_LETTERS) for line in lines)
        # The end says what went wrong.
        shown = shown if len(shown) <= _TAIL_LETTERS else f"...{shown[3 - _TAIL_LETTERS :]}"
        return f"The end of its log, {path}: {shown}"


def _lock_shared(path: Path, name: str) -> int:
    """A file that is locked as long as this process has it open; made where it is absent.

    Opened once in a process: the kernel drops the lock when any handle of the file is closed. Waits
    for the end of a server whose last user has just left.
    name: of the server, for people.
    Raises WriteError.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.lockf(file, fcntl.LOCK_SH)
    except OSError as error:
        raise WriteError(
            f"{name}: the folder of its server, {path.parent}, cannot be used: {error}"
        ) from error
    return file


def _wait_for_end(folder: Path) -> None:
    """Wait until the server of a folder has ended, which nobody uses any more."""
    until = time.monotonic() + _LONGEST_END
    while _is_supervised(folder) and time.monotonic() < until:
        time.sleep(_POLL / 4)


def _is_supervised(folder: Path) -> bool:
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


def listens(process: int, port: int) -> bool:
    """Whether a process, or one that it started, is who listens on a port.

    Another program may have taken the port just before the server did, and would answer for it.
    """
    listening = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        with suppress(OSError):  # no IPv6
            for line in Path(table).read_text("ascii").splitlines()[1:]:
                fields = line.split()
                local, state, inode = fields[1], fields[3], fields[9]
                if state == _LISTENING and int(local.rpartition(":")[2], 16) == port:
                    listening.add(f"socket:[{inode}]")
    for each in (process, *descendants(process)) if listening else ():
        with suppress(OSError):  # it has ended
            for entry in Path(f"/proc/{each}/fd").iterdir():
                with suppress(OSError):
                    if str(entry.readlink()) in listening:
                        return True
    return False


def _get(port: int, path: str, key: str | None = None) -> bytes | None:
    """The body of a page, asked without any proxy; None where there is no good answer yet."""
    headers = {} if key is None else {"Authorization": f"Bearer {key}"}
    connection = http.client.HTTPConnection(HOST, port, timeout=_SECONDS)
    with closing(connection), suppress(OSError, http.client.HTTPException):
        connection.request("GET", path, headers=headers)
        response = connection.getresponse()
        if response.status == 200:
            return response.read(_MOST_BYTES)
    return None


@cache
def own_servers() -> RunServers:
    """Servers of this process alone, where there is no run around it; they end with it."""
    folder = Path(tempfile.mkdtemp(prefix="cepbench-servers-"))
    servers = RunServers(folder / "run", folder / "logs")
    atexit.register(servers.close)
    return servers
