"""The socket of a page's server, bound before the server starts. Standard library only."""

from __future__ import annotations

import socket

from pytest_cepbench.errors import SpecError

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
    except (OSError, OverflowError) as error:
        listener.close()
        raise SpecError(
            f"port {port} of {host} cannot be used ({error}): name another with --port"
        ) from error
    return listener
