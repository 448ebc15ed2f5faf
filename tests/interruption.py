"""Ending a process, or failing it, at a chosen change that it makes in the file system."""

from __future__ import annotations

import os
import resource
import signal
import sys
from collections.abc import Callable

from pytest_cepbench.errors import WriteError

CHANGES = ("os.mkdir", "os.rename", "os.link", "os.remove", "os.rmdir")
"""Events of Python's audit hooks, beside `open` for writing a new file."""


def in_child(act: Callable[[], object]) -> int:
    """How a process ends that does this: minus a signal, or its exit code; 1 for WriteError."""
    child = os.fork()
    if child == 0:
        code = 3
        try:
            act()
            code = 0
        except WriteError:
            code = 1
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def limit_files(most: int) -> None:
    """Let the files that this process writes have so many bytes and no more, as on a full disk."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))


def at_change(number: int, act: Callable[[], None], *others: str) -> None:
    """Act before the process changes anything in the file system for the so many-th time.

    others: events that count as well.
    """
    seen = 0

    def watch(event: str, args: tuple[object, ...]) -> None:
        nonlocal seen
        writes = event == "open" and isinstance(args[2], int) and args[2] & os.O_CREAT
        if event in (*CHANGES, *others) or writes:
            seen += 1
            if seen == number:
                act()

    sys.addaudithook(watch)
