"""The pages of a study and their server; imports Starlette and uvicorn, which nothing else needs.

Requests are answered to this machine alone, or to the names that the organizer gave, and to people
whose address has their token. What is sent holds no name of a model, of a file or of a sample.
"""

from __future__ import annotations

import re
import secrets
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from itertools import zip_longest
from typing import Any, Literal
from urllib.parse import urlsplit

import jinja2
import msgspec
import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route

from pytest_cepbench.artifacts.answer import cut_into_steps
from pytest_cepbench.artifacts.outcome import ANSWER_ERRORS
from pytest_cepbench.errors import DatasetError, WriteError
from pytest_cepbench.escapes import one_line, visible
from pytest_cepbench.ratings.live_study import MOST_WORDS, Key, LiveStudy, ShownItem, parse_answer
from pytest_cepbench.ratings.records import Part, Study, Task, option_name

VERDICTS: dict[Task, tuple[tuple[str, str], ...]] = {
    "pair": (
        ("A", "A is better"),
        ("Tie(A)", "Tie, A slightly"),
        ("Tie(B)", "Tie, B slightly"),
        ("B", "B is better"),
    ),
    "caption": (("C1", "Caption 1 is better"), ("B", "Comparable"), ("C2", "Caption 2 is better")),
}
"""Task -> verdicts and what their buttons say, in the order of their keys 1, 2, ..."""

REASONS = ("broken image", "offensive or disturbing", "cannot be decided", "other")
"""Why an item is skipped."""

MOST_BODY = 256 * 1024
"""Bytes of a request."""

_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}

_IMAGE_HEADERS = _HEADERS | {"Cache-Control": "private, max-age=86400, immutable"}

_ASSETS = {
    "page.css": "text/css",  # of every page of this package
    "rate.css": "text/css",
    "rate.js": "text/javascript",
}

_SHORTCUTS = {
    "pair": [("1 2 3 4", "A is better; tie, A slightly; tie, B slightly; B is better")],
    "caption": [("1 2 3", "caption 1 is better; comparable; caption 2 is better")],
    "grades": [
        ("g m p", "good, medium, poor, of the marked output"),
        ("1 2 3 ...", "its rank"),
        ("arrows", "mark another output"),
        ("Enter", "save"),
    ],
    "describe": [("Ctrl Enter", "save")],
    "verify": [("1 2 3 ...", "tick a name, or take the tick away"), ("Enter", "save")],
}

_COMMON_SHORTCUTS = [
    ("space", "enlarge the images, or make them small again"),
    ("u", "take the last answer back"),
    ("s", "skip this item"),
    ("n", "write a note on this item"),
    ("?", "this help"),
]


# -- what a page shows of an item: texts, opaque names of images, and nothing of where it comes from
# All texts are escaped by the templates and `visible`; markup of models stays text.


@cache
def _environment() -> jinja2.Environment:
    def displayed(value: object) -> object:
        """Any text of the page with nothing hidden in it."""
        return visible(value.replace("\r\n", "\n")) if type(value) is str else value

    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("pytest_cepbench.ratings", "pages"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=displayed,
    )
    environment.globals |= {"most_words": MOST_WORDS, "answer_errors": ANSWER_ERRORS}
    return environment


def render_item(shown: ShownItem, study: Study, image_name: Callable[[str], str]) -> str:
    """What is shown of an item, with the controls of its task.

    image_name: the opaque name of an image.
    """

    def steps(parts: Sequence[Part]) -> list[dict[str, str]]:
        """Steps of a text and its image; a sequence of both is cut after each image."""
        texts_and_parts = [part.text if part.text is not None else part for part in parts]
        return [
            {"text": text, "image": "" if part is None else image_name(str(part.image))}
            for text, part in cut_into_steps(texts_and_parts)
        ]

    item = shown.item
    sides = {"first": 0, "second": 1}
    places = shown.order or range(len(item.options))  # numbers of the options, or their names
    options = [item.options[sides[side] if isinstance(side, str) else side] for side in places]
    offered = [option_name(option) for option in item.options]
    return (
        _environment()
        .get_template("item.html.jinja")
        .render(
            task=study.kind,
            question=[
                {"text": part.text}
                if part.text is not None
                else {"image": image_name(str(part.image))}
                for part in item.question
            ],
            options=[steps(option.parts) for option in options],
            rows=list(zip_longest(*(steps(option.parts) for option in options))),
            verdicts=VERDICTS.get(study.kind, ()),
            names=offered,
            others=[(n, name) for n, name in enumerate(study.names) if name not in offered],
        )
    )


# -- what is answered ------------------------------------------------------------------------------


def make_app(live: LiveStudy, hosts: Sequence[str]) -> Starlette:
    """The application. hosts: names by which browsers may call it."""
    pages = _Pages(live)
    return Starlette(
        routes=[
            Route("/a/{token}/", pages.page),
            Route("/a/{token}/upcoming", pages.upcoming),
            Route("/a/{token}/image/{image}", pages.image),
            Route("/a/{token}/vote", pages.vote, methods=["POST"]),
            Route("/a/{token}/undo", pages.undo, methods=["POST"]),
            Route("/page/{file}", _asset),
        ],
        middleware=[Middleware(TrustedHostMiddleware, allowed_hosts=list(hosts))],
        exception_handlers={
            HTTPException: _refused,
            DatasetError: _refused,
            WriteError: _refused,
            ClientDisconnect: _refused,  # nobody reads it; else the organizer would see a traceback
        },
    )


@dataclass(frozen=True)
class _Pages:
    """What is answered to annotators. All of it runs in one thread, so that states do not mix."""

    live: LiveStudy

    async def page(self, request: Request) -> Response:
        """The page, which asks for everything else."""
        annotator, task = self._annotator(request), self.live.ratings.study.kind
        nonce = secrets.token_urlsafe(16)
        policy = (
            f"default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; "
            "img-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'none'; "
            "frame-ancestors 'none'"
        )
        template = _environment().get_template("rate.html.jinja")
        shortcuts = _SHORTCUTS[task] + _COMMON_SHORTCUTS
        html = template.render(
            nonce=nonce, task=task, annotator=annotator, reasons=REASONS, shortcuts=shortcuts
        )
        return HTMLResponse(html, headers=_HEADERS | {"Content-Security-Policy": policy})

    async def upcoming(self, request: Request) -> Response:
        """The items that a person is shown now and next."""
        return JSONResponse(self._upcoming(self._annotator(request)), headers=_HEADERS)

    async def image(self, request: Request) -> Response:
        """An image, by its opaque name."""
        self._annotator(request)
        data = self.live.image_bytes(request.path_params["image"])
        if data is None:
            raise HTTPException(404, "there is no such image")
        return Response(data, headers=_IMAGE_HEADERS, media_type="image/webp")

    async def vote(self, request: Request) -> Response:
        """Save an answer: the response comes when it is on the disk."""
        annotator = self._annotator(request)
        self.live.save(annotator, parse_answer(await _body(request)))
        return JSONResponse({"saved": True} | self._upcoming(annotator), headers=_HEADERS)

    async def undo(self, request: Request) -> Response:
        """Withdraw the last answer, and send the text of a description, so that it can change."""
        annotator = self._annotator(request)
        try:
            sent = msgspec.json.decode(await _body(request), type=dict[Literal["key"], Key])
            key = sent["key"]
        except (msgspec.MsgspecError, UnicodeDecodeError, KeyError) as error:
            raise HTTPException(400, "a request that cannot be read") from error
        undone = self.live.undo(annotator, key)
        own = {} if undone is None else {"answer": undone}
        reply = {"undone": undone is not None} | own | self._upcoming(annotator)
        return JSONResponse(reply, headers=_HEADERS)

    def _upcoming(self, annotator: str) -> dict[str, Any]:
        shown = self.live.upcoming(annotator)
        done, about = self.live.assignment.progress(annotator)
        pages = [render_item(i, self.live.ratings.study, self.live.image_name) for i in shown]
        return {
            "items": [
                {
                    "slot": item.slot,
                    "html": html,
                    "images": re.findall(r'src="image/([0-9a-f]{32})"', html),
                }
                for item, html in zip(shown, pages, strict=True)
            ],
            "state": "open" if shown else "done",
            "progress": {"done": done, "about": about},
        }

    def _annotator(self, request: Request) -> str:
        name = self.live.people.get(request.path_params["token"])
        if name is None:
            raise HTTPException(404, "this address is not known: ask the organizer for yours")
        return name


async def _asset(request: Request) -> Response:
    name: str = request.path_params["file"]
    if name not in _ASSETS:
        raise HTTPException(404, "there is no such file")
    folder = "" if name == "page.css" else "ratings/pages/"
    text = resources.files("pytest_cepbench").joinpath(f"{folder}{name}").read_text("utf-8")
    return Response(text, headers=_HEADERS, media_type=_ASSETS[name])


async def _body(request: Request) -> bytes:
    """The body of a request that a page of this server has sent.

    A page elsewhere can send neither this content type nor another header of its own without asking
    first, which is not answered; and browsers say where a request comes from.
    """
    site = request.headers.get("sec-fetch-site")
    try:
        place = urlsplit(request.headers.get("origin", "")).netloc
    except ValueError:
        place = ""
    if site != "same-origin" and (not place or place != request.url.netloc):
        raise HTTPException(403, "a request from another page is refused")
    if "x-cepbench" not in request.headers:
        raise HTTPException(403, "a request without the page's header is refused")
    data = b""
    async for chunk in request.stream():
        data += chunk
        if len(data) > MOST_BODY:
            raise HTTPException(413, f"a request has at most {MOST_BODY:,} bytes")
    return data


def _refused(_: Request, error: Exception) -> Response:
    """Why, in a line without what lies where on this machine."""
    if isinstance(error, WriteError):
        full = any(words in str(error) for words in ("No space left", "the disk is full"))
        why = "the server's disk is full" if full else "the server could not write to its disk"
        reason, status = f"{why}; tell the organizer", 507
    elif isinstance(error, HTTPException):
        reason, status = error.detail, error.status_code
    else:
        reason, status = one_line(str(error)), 400
    return JSONResponse({"saved": False, "reason": reason}, status, headers=_HEADERS)


def serve(live: LiveStudy, listener: socket.socket, hosts: Sequence[str]) -> None:
    """Serve a study until the process is interrupted. Parameters as of `make_app`."""
    config = uvicorn.Config(
        make_app(live, hosts),
        log_level="warning", access_log=False, server_header=False, timeout_graceful_shutdown=5,
    )  # fmt: skip
    uvicorn.Server(config).run(sockets=[listener])
