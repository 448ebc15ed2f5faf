"""Values of options that plugin and command line read alike; standard library only."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterable
from pathlib import Path

LEAST_ALPHA = 4e-6
"""The smallest error that a user may ask for, and that a case among many may have: of at most 2^18
sign flips one always shows as much, so at less than 2^-18 nothing would ever fail."""

LONGEST_SERIES = 25_000
"""The most checkpoints for which a series may be begun: the last of so many has 1e-5 of alpha."""

_NAMED = re.compile(r"([a-z0-9][a-z0-9_-]*)=(.+)")

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://|[a-z0-9]+::")


def check_not_blind(alpha: float, setting: str) -> None:
    """Raise ValueError for an error probability at which nothing could fail.

    It is of what a user asks for; the share of a case among many may be smaller.
    setting: its name and value.
    """
    if alpha < LEAST_ALPHA:
        raise ValueError(
            f"{setting}: no drop could be told from noise, so nothing would ever fail; give "
            f"{LEAST_ALPHA:g} or more, such as 0.05"
        )


def split_name(text: str) -> tuple[str | None, str]:
    """Name and spec of `NAME=SPEC`; no name where there is none, or the text is an existing path.

    A name is made of lower-case letters, digits, - and _.
    """
    match = _NAMED.fullmatch(text)
    return (None, text) if match is None or Path(text).exists() else (match[1], match[2])


def named_specs(texts: Iterable[str]) -> tuple[str | None, dict[str, str]]:
    """The last spec without a name, and specs by name; see `split_name`."""
    unnamed: str | None = None
    named: dict[str, str] = {}
    for name, spec in map(split_name, texts):
        if name is None:
            unnamed = spec
        else:
            named[name] = spec
    return unnamed, named


def split_pair(text: str, source: str) -> tuple[str, str]:
    """Name and path of `NAME=PATH`.

    source: the option or setting that the text comes from, for the error.
    Raises ValueError for any other form.
    """
    name, equals, path = text.partition("=")
    if not (name and equals and path):
        raise ValueError(f"{source} {text!r}: NAME=PATH is expected, such as folder=photos")
    return name, path


def is_url(text: str) -> bool:
    """True for a URL, as buckets have; False for a path."""
    return _URL.match(text) is not None


# -- addresses -------------------------------------------------------------------------------------


HOST = "127.0.0.1"
"""This machine alone."""


def bind(port: int, host: str = HOST) -> socket.socket:
    """The socket of a server. port: 0 for any free one. host: address of this machine.

    Raises SpecError where the port is not free, or either is none.
    """
    # asyncio turns Nagle's algorithm off for sockets that say their protocol; with it, each reply
    # on a connection that is kept waits 40 ms.
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen()  # requests wait from here on until the application is up
    except (OSError, OverflowError, TypeError) as error:  # TypeError: no name that a host can have
        listener.close()
        from pytest_cepbench.errors import SpecError  # every pytest loads this module

        raise SpecError(
            f"port {port} of {host} cannot be used ({error}): name another with --port"
        ) from error
    return listener
