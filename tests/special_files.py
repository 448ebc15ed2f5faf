"""What can lie in place of a file that a run reads: no file, or endless, or breaking a parser."""

from __future__ import annotations

import os
import socket
from pathlib import Path

DEPTH, DIGITS = 100_000, 5_000
"""Brackets in one another, and digits of a number, that Python's parsers do not take."""


def a_pipe(path: Path) -> None:
    """Has no writer: to open it for reading waits for ever."""
    os.mkfifo(path)


def a_link_to_an_endless_device(path: Path) -> None:
    """To read it never ends."""
    path.symlink_to("/dev/zero")


def a_link_to_a_pipe(path: Path) -> None:
    """Behind a link it is no better."""
    a_pipe(path.with_name("pipe"))
    path.symlink_to("pipe")


def a_socket(path: Path) -> None:
    """Cannot be opened at all."""
    with socket.socket(socket.AF_UNIX) as listener:
        here = Path.cwd()
        os.chdir(path.parent)  # names of sockets are short
        try:
            listener.bind(path.name)
        finally:
            os.chdir(here)


def a_folder(path: Path) -> None:
    """Can be opened, and not read."""
    path.mkdir()


def a_sparse_file(path: Path) -> None:
    """Takes no space, and 30 GB to read."""
    with path.open("wb") as stream:
        stream.truncate(30 * 2**30)


def a_pointer(path: Path) -> None:
    """What Git has in the place of a large file until `git lfs pull` brings that."""
    path.write_text(
        f"version https://git-lfs.github.com/spec/v1\noid sha256:{'4d7a' * 16}\nsize 3438167540\n"
    )
