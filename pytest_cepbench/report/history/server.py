"""A server of the pages of a project, for the browser of this machine only."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

from pytest_cepbench.errors import HistoryError, MissingDependencyError, SpecError
from pytest_cepbench.escapes import visible
from pytest_cepbench.report.history.running_page import SCRIPT, running_script

if TYPE_CHECKING:
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response

    from pytest_cepbench.report.history.site import Site

HOST = "127.0.0.1"

_HEADERS = {"X-Content-Type-Options": "nosniff", "Cache-Control": "no-cache"}


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

        app = make_app(site)
    except ImportError as error:
        msg = 'cepbench view needs packages: pip install "pytest-cepbench[view]"'
        raise MissingDependencyError(msg) from error
    uvicorn.Server(uvicorn.Config(app, log_level="warning")).run(sockets=[listener])


def make_app(site: Site) -> Starlette:
    """The application. It answers requests to this machine alone, whatever a name resolves to."""
    from starlette.applications import Starlette
    from starlette.middleware import Middleware
    from starlette.middleware.trustedhost import TrustedHostMiddleware
    from starlette.responses import FileResponse, HTMLResponse, PlainTextResponse
    from starlette.routing import Route

    def index(_: Request) -> Response:
        try:
            return HTMLResponse(site.index(), headers=_HEADERS)
        except HistoryError as error:
            return PlainTextResponse(visible(str(error)), 503, headers=_HEADERS)

    def report(request: Request) -> Response:
        try:
            path = site.report(request.path_params["name"])
        except HistoryError:
            path = None
        if path is None:
            page = site.running_page(request.path_params["name"])
            if page is not None:
                return HTMLResponse(page, headers=_HEADERS)
            words = "no report of this run is left: a later run may have replaced it"
            return PlainTextResponse(words, 404, headers=_HEADERS)
        return FileResponse(path, headers=_HEADERS)

    def running(request: Request) -> Response:
        part = site.running(request.path_params.get("run", ""))
        if part is None:
            return PlainTextResponse("this run has ended", 404, headers=_HEADERS)
        return HTMLResponse(part, headers=_HEADERS)

    def script(_: Request) -> Response:
        headers = _HEADERS | {"Content-Type": "text/javascript; charset=utf-8"}
        return PlainTextResponse(running_script(), headers=headers)

    return Starlette(
        routes=[
            Route("/", index),
            Route("/runs/{name}", report),
            Route("/running", running),
            Route("/running/{run}", running),
            Route(f"/{SCRIPT}", script),
        ],
        middleware=[Middleware(TrustedHostMiddleware, allowed_hosts=[HOST, "localhost"])],
    )
