"""The pages of a project as an application; imports Starlette, which only the server needs."""

from __future__ import annotations

import mimetypes
from dataclasses import dataclass

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, PlainTextResponse, Response
from starlette.routing import Route

from pytest_cepbench.errors import HistoryError
from pytest_cepbench.escapes import visible
from pytest_cepbench.report.history.page import SCRIPT, running_script
from pytest_cepbench.report.history.site import Site

_HEADERS = {"X-Content-Type-Options": "nosniff", "Cache-Control": "no-cache"}


def make_app(site: Site, host: str) -> Starlette:
    """The application. It answers requests to this machine alone, whatever a name resolves to.

    host: address that it listens on.
    """
    pages = _Pages(site)
    return Starlette(
        routes=[
            Route("/", pages.index),
            Route("/runs/{name}", pages.report),
            Route("/runs/{run}/{file:path}", pages.page_file),
            Route("/running", pages.running),
            Route("/running/{run}", pages.running),
            Route(f"/{SCRIPT}", pages.script),
        ],
        middleware=[Middleware(TrustedHostMiddleware, allowed_hosts=[host, "localhost"])],
        exception_handlers={HistoryError: _unreadable},
    )


@dataclass(frozen=True)
class _Pages:
    """What is answered to each request."""

    site: Site

    def index(self, _: Request) -> Response:
        """The history, and the runs that have not ended."""
        return HTMLResponse(self.site.index(), headers=_HEADERS)

    def report(self, request: Request) -> Response:
        """A run's report, or what the run has done so far."""
        name: str = request.path_params["name"]
        path = self.site.report(name)
        if path is not None:
            return FileResponse(path, headers=_HEADERS)
        page = self.site.running_page(name)
        if page is not None:
            return HTMLResponse(page, headers=_HEADERS)
        return _missing("no report of this run is left: a later run may have replaced it")

    def page_file(self, request: Request) -> Response:
        """A run's page in a folder, or a file beside it."""
        name: str = request.path_params["file"]
        content = self.site.page_file(request.path_params["run"], name)
        if content is None:
            return _missing("this run has no such file, or a later run may have replaced it")
        return Response(content, headers=_HEADERS, media_type=mimetypes.guess_type(name)[0])

    def running(self, request: Request) -> Response:
        """The part of a page about runs that have not ended."""
        part = self.site.running(request.path_params.get("run", ""))
        return _missing("this run has ended") if part is None else HTMLResponse(part, 200, _HEADERS)

    def script(self, _: Request) -> Response:
        """The script that follows those runs."""
        return Response(running_script(), headers=_HEADERS, media_type="text/javascript")


def _missing(words: str) -> Response:
    return PlainTextResponse(words, 404, headers=_HEADERS)


def _unreadable(_: Request, error: Exception) -> Response:
    return PlainTextResponse(visible(str(error)), 503, headers=_HEADERS)
