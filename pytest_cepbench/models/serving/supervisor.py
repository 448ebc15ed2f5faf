"""The process beside a server: starts it, and ends it when no process of the run uses it any more;
and what shows that a server is ready.

Run as a script, `supervisor.py FOLDER`, with the standard library alone. Every process of the run
that may use the server holds a lock on `users.lock`, its controller one on `run.lock` too, and
loses it when it ends, also where it crashes, is killed or times out. When the supervisor gets one
of these locks, it ends the server's process group and whatever else the server started. Should the
supervisor itself be killed, the kernel kills the server.
"""

from __future__ import annotations

import ctypes
import fcntl
import json
import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

HOST = "127.0.0.1"

COMMAND = "command.json"
"""What is to be started: argv, log."""

RUNNING = "running.json"
"""Process ids, from the start of the server to its end."""

READY = "ready.json"
"""Where the server answers; written by the process of the run that waited for it."""

ENDED = "ended.json"
"""How the server ended, where it did so by itself."""

USERS, ALIVE, RUN = "users.lock", "alive.lock", "run.lock"
"""Locked by every process that may use the server; by the supervisor as long as it lives; and, in
the folder of all servers of the run, by the run's controller."""

TERMINATION = 5.0
"""Seconds that a server has to end by itself."""

_INTERVAL = 0.1

_LOOK = 2.0  # seconds, far more than a look at a lock takes

_SET_DEATH_SIGNAL, _SET_SUBREAPER = 1, 36  # prctl, <linux/prctl.h>

_SECONDS, _MOST_BYTES = 5.0, 1 << 20  # of one answer

_LISTENING = "0A"  # <include/net/tcp_states.h>


def read_state(path: Path) -> dict[str, Any] | None:
    """A file of the folder; None where it is not there, or not whole."""
    try:
        state = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return state if isinstance(state, dict) else None


def write_state(path: Path, state: dict[str, Any]) -> None:
    """Write a file of the folder at once, for its owner alone: it may hold a key."""
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    file = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(file, "w", encoding="utf-8") as stream:
        json.dump(state, stream)
    fresh.replace(path)


def descendants(process: int) -> list[int]:
    """Ids of the processes below one, as /proc lists them."""
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with suppress(OSError, ValueError, IndexError):  # it has ended
                # The name of a program, in brackets, may hold anything.
                fields = (entry / "stat").read_text("latin-1").rpartition(")")[2]
                parents.setdefault(int(fields.split()[1]), []).append(int(entry.name))
    below, level = [], [process]
    while level:
        level = [child for parent in level for child in parents.get(parent, ())]
        below += level
    return below


def free_port() -> int:
    """A port that no process listens on now."""
    with closing(socket.socket()) as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port


def is_free(port: int) -> bool:
    """Whether a server could listen on a port."""
    with closing(socket.socket()) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as servers do
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
        return True


def get(port: int, path: str, key: str | None = None) -> bytes | None:
    """The body of a page, asked without any proxy; None where there is no good answer yet."""
    import http.client  # here, since the script does without it

    headers = {} if key is None else {"Authorization": f"Bearer {key}"}
    connection = http.client.HTTPConnection(HOST, port, timeout=_SECONDS)
    with closing(connection), suppress(OSError, http.client.HTTPException):
        connection.request("GET", path, headers=headers)
        response = connection.getresponse()
        if response.status == 200:
            return response.read(_MOST_BYTES)
    return None


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


def supervise(folder: Path) -> None:
    """Start one server, stay until it or its last user has ended, and end all that it started.

    folder: with the command and the locks.
    """
    alive = os.open(folder / ALIVE, os.O_RDWR | os.O_CREAT, 0o600)
    until = time.monotonic() + _LOOK
    while True:
        try:
            fcntl.flock(alive, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except BlockingIOError:  # another supervisor, or a process of the run has just looked
            if time.monotonic() > until:
                return
            time.sleep(_INTERVAL / 10)
    libc = ctypes.CDLL(None)
    libc.prctl(_SET_SUBREAPER, 1, 0, 0, 0)  # daemons of the server become children of this
    asked_to_end: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: asked_to_end.append(number))
    for ignored in (signal.SIGINT, signal.SIGHUP):
        signal.signal(ignored, signal.SIG_IGN)
    locks = [os.open(folder / USERS, os.O_RDWR | os.O_CREAT, 0o600)]
    with suppress(FileNotFoundError):  # the controller does not know of this server
        locks.append(os.open(folder.parent / RUN, os.O_RDWR))
    command = json.loads((folder / COMMAND).read_text(encoding="utf-8"))
    own = os.getpid()

    def die_with_supervisor() -> None:
        libc.prctl(_SET_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != own:
            os._exit(1)

    try:
        with open(command["log"], "ab") as log:  # noqa: PTH123 - a path as text
            server = subprocess.Popen(  # noqa: S603 - the engine that the user named
                command["argv"],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=die_with_supervisor,  # noqa: PLW1509 - there are no threads
            )
    except (OSError, subprocess.SubprocessError) as error:
        write_state(folder / ENDED, {"reason": str(error)})
        return
    try:
        with suppress(OSError):  # the folder was removed: the run is over
            write_state(folder / RUNNING, {"supervisor": own, "server": server.pid})
        while not asked_to_end:
            code = server.poll()
            if code is not None:
                how = f"killed by signal {-code}" if code < 0 else f"exit code {code}"
                with suppress(OSError):
                    write_state(folder / ENDED, {"reason": how})
                break
            if any(map(_lock, locks)):
                break
            time.sleep(_INTERVAL)
    finally:
        _end(server)
        for name in (READY, RUNNING):
            (folder / name).unlink(missing_ok=True)


def _end(server: subprocess.Popen[bytes]) -> None:
    """End the server's group, then all that it started outside of it."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(OSError):  # it has ended
            os.killpg(server.pid, number)
        if number is signal.SIGTERM:
            with suppress(subprocess.TimeoutExpired):
                server.wait(TERMINATION)
    until = time.monotonic() + TERMINATION
    while (left := descendants(os.getpid())) and time.monotonic() < until:
        for process in left:
            with suppress(OSError):
                os.kill(process, signal.SIGKILL)
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        time.sleep(0.01)


def _lock(file: int) -> bool:
    """Lock what no other process has locked; False where one has."""
    try:
        # Of a process, not of a file: a child that a user forked does not keep it.
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        return False
    return True


if __name__ == "__main__":
    supervise(Path(sys.argv[1]))
