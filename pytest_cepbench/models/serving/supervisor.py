"""The process beside a server: starts it, and ends it when no process of the run uses it any more.

Run as a script, `supervisor.py FOLDER LOCK`, with the standard library alone. Every process of the
run that may use the server holds a lock on `users.lock`, its controller one on `run.lock` too, and
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
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

COMMAND = "command.json"
"""How the server is started (argv, log), and how it is asked (port, key)."""

READY = "ready.json"
"""There once the server answers, or with the reason why it did not start (`failed`); written by the
process of the run that waited for it."""

ENDED = "ended.json"
"""How the server ended, where it did so by itself."""

USERS, ALIVE, RUN = "users.lock", "alive.lock", "run.lock"
"""Locked by every process that may use the server; by the supervisor as long as it lives, with its
process id in it; and, in the folder of all servers of the run, by the run's controller."""

TERMINATION = 5.0
"""Seconds that a server has to end by itself."""

_INTERVAL = 0.1

_SET_DEATH_SIGNAL, _SET_SUBREAPER = 1, 36  # prctl, <linux/prctl.h>


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


def supervise(folder: Path, alive: int) -> None:
    """Start one server, stay until it or its last user has ended, and end all that it started.

    folder: with the command and the locks.
    alive: the open file whose lock says that this process lives.
    """
    own = os.getpid()
    os.write(alive, str(own).encode())
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
        while not asked_to_end and not any(map(_lock, locks)):
            code = server.poll()
            if code is not None:
                how = f"killed by signal {-code}" if code < 0 else f"exit code {code}"
                with suppress(OSError):  # the folder was removed: the run is over
                    write_state(folder / ENDED, {"reason": how})
                break
            time.sleep(_INTERVAL)
    finally:
        _end(server)
        (folder / READY).unlink(missing_ok=True)


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
    supervise(Path(sys.argv[1]), int(sys.argv[2]))
