"""A server of the pages of a project, for the browser of this machine only."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

from pytest_cepbench.errors import MissingDependencyError, SpecError

if TYPE_CHECKING:
    from pytest_cepbench.report.history.site import Site

HOST = "127.0.0.1"


def bind(port: int) -> socket.socket:
    """The socket of the server. port: 0 for any free one.

    Raises SpecError where the port is not free, or is none.
    """
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((HOST, port))
        listener.listen()  # requests wait from here on until the application is up
    except (OSError, OverflowError) as error:
        listener.close()
        msg = f"port {port} of {HOST} cannot be used ({error}): name another with --port"
        raise SpecError(msg) from error
    return listener


def serve(site: Site, listener: socket.socket) -> None:
    """Serve until the process is interrupted. Raises MissingDependencyError."""
    try:
        import uvicorn

        from pytest_cepbench.report.history.app import make_app
    except ImportError as error:
        msg = 'cepbench view needs packages: pip install "pytest-cepbench[view]"'
        raise MissingDependencyError(msg) from error
    uvicorn.Server(uvicorn.Config(make_app(site, HOST), log_level="warning")).run(
        sockets=[listener]
    )
