"""A server of the pages of a project, for the browser of this machine only."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

from pytest_cepbench.errors import MissingDependencyError
from pytest_cepbench.option_values import HOST

if TYPE_CHECKING:
    from pytest_cepbench.report.history.site import Site


def serve(site: Site, listener: socket.socket) -> None:
    """Serve until the process is interrupted. Raises MissingDependencyError."""
    try:
        import uvicorn

        from pytest_cepbench.report.history.app import make_app
    except ImportError as error:
        raise MissingDependencyError(
            'cepbench view needs packages: pip install "pytest-cepbench[view]"'
        ) from error
    uvicorn.Server(uvicorn.Config(make_app(site, HOST), log_level="warning")).run(
        sockets=[listener]
    )
