"""The pages of a study and their server; imports Starlette and uvicorn, which nothing else needs.

Requests are answered to this machine alone, or to the names that the organizer gave, and to people
who have a token. What is sent to them holds no name of a model, of a file or of a sample.
"""

from __future__ import annotations

import gc
import re
import secrets
import socket
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from importlib import resources
from itertools import zip_longest
from typing import Any
from urllib.parse import urlsplit

import jinja2
import msgspec
import uvicorn
from markdown_it import MarkdownIt
from markupsafe import Markup
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from pytest_cepbench.artifacts.answer import cut_into_steps
from pytest_cepbench.artifacts.outcome import ANSWER_ERRORS
from pytest_cepbench.errors import DatasetError, WriteError
from pytest_cepbench.escapes import one_line, visible
from pytest_cepbench.ratings.folder import Votes
from pytest_cepbench.ratings.live_study import MOST_WORDS, LiveStudy, ShownItem, parse_answer
from pytest_cepbench.ratings.records import Part, Study, Task, option_name
from pytest_cepbench.ratings.summary import LEAST_SHARED, shares, summarize

# -- what a page shows of an item: texts, opaque names of images, and nothing of where it comes from
# All texts are escaped by the templates and `visible`; markup of models stays text.


_PACKAGE = "pytest_cepbench.ratings"

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


@cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader(_PACKAGE, "pages"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_displayed,
    )
    environment.globals |= {"most_words": MOST_WORDS, "least_agreement": LEAST_SHARED}
    environment.globals["answer_errors"] = ANSWER_ERRORS
    return environment


def render(template: str, **values: Any) -> str:
    """A page or a part of one, from a template of `ratings/pages`."""
    return _environment().get_template(template).render(**values)


def page_file(name: str) -> str:
    """A style or a script of the pages."""
    folder = "" if name == "page.css" else "ratings/pages/"
    return resources.files("pytest_cepbench").joinpath(f"{folder}{name}").read_text("utf-8")


def render_item(shown: ShownItem, study: Study, image_name: Callable[[str], str]) -> str:
    """What is shown of an item, with the controls of its task.

    image_name: the opaque name of an image.
    """

    def pieces(parts: Sequence[Part]) -> list[dict[str, str]]:
        """Texts and images in reading order."""
        return [
            {"text": part.text} if part.text is not None else {"image": image_name(str(part.image))}
            for part in parts
        ]

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
    return render(
        "item.html.jinja",
        task=study.kind,
        question=pieces(item.question),
        options=[steps(option.parts) for option in options],
        rows=list(zip_longest(*(steps(option.parts) for option in options))),
        verdicts=VERDICTS.get(study.kind, ()),
        names=offered,
        # Items whose answer is known may be of another world than the closed list.
        others=[] if item.known else [name for name in study.names if name not in offered],
        practice=shown.kind == "practice",
    )


# Neither links nor images nor HTML: these stay text.
_MARKDOWN = MarkdownIt("zero").enable(["heading", "list", "emphasis"])


def to_html(text: str) -> Markup:
    """Headings, paragraphs, lists and emphasis of Markdown as HTML; all else stays text."""
    rendered = _MARKDOWN.render(visible(text.replace("\r\n", "\n")))
    return Markup(rendered)  # noqa: S704 - it escapes all but its own tags


def _displayed(value: object) -> object:
    """Any text of the page with nothing hidden in it."""
    if isinstance(value, str) and not isinstance(value, Markup):
        return visible(value.replace("\r\n", "\n"))
    return value


REASONS = ("broken image", "offensive or disturbing", "cannot be decided", "other")
"""Why an item is skipped."""

_RESTS = 20
"""The operator's page is not computed anew before this many times its own duration."""

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
    "operator.js": "text/javascript",
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


def make_app(live: LiveStudy, hosts: Sequence[str], *, peek: bool = False) -> Starlette:
    """The application.

    hosts: names by which browsers may call it.
    peek: whether the operator sees verdicts.
    """
    people, operator = _People(live), _Operator(live, peek)
    return Starlette(
        routes=[
            Route("/a/{token}/", people.page),
            Route("/a/{token}/upcoming", people.upcoming),
            Route("/a/{token}/image/{name}", people.image),
            Route("/a/{token}/vote", people.vote, methods=["POST"]),
            Route("/a/{token}/undo", people.undo, methods=["POST"]),
            Route("/a/{token}/agree", people.agree, methods=["POST"]),
            Route("/o/{token}/", operator.page),
            Route("/o/{token}/part", operator.part),
            Route("/page/{name}", _asset),
        ],
        middleware=[Middleware(TrustedHostMiddleware, allowed_hosts=list(hosts))],
        exception_handlers={
            HTTPException: _refused,
            DatasetError: _refused,
            WriteError: _refused,
            404: _missing,
        },
    )


@dataclass(frozen=True)
class _People:
    """What is answered to annotators. All of it runs in one thread, so that states do not mix."""

    live: LiveStudy

    async def page(self, request: Request) -> Response:
        """The page, which asks for everything else."""
        annotator = self._annotator(request)
        task = self.live.ratings.study.kind
        consents = self.live.consents
        return _page(
            "rate.html.jinja",
            task=task,
            annotator=annotator,
            agreed=annotator in consents,
            consent=to_html(consents.consent),
            instructions=to_html(consents.instructions),
            reasons=REASONS,
            shortcuts=_SHORTCUTS[task] + _COMMON_SHORTCUTS,
        )

    async def upcoming(self, request: Request) -> Response:
        """The items that a person is shown now and next."""
        return _json(self._upcoming(self._agreed(request)))

    async def image(self, request: Request) -> Response:
        """An image, by its opaque name."""
        self._annotator(request)
        data = self.live.image_bytes(request.path_params["name"])
        if data is None:
            raise HTTPException(404, "there is no such image")
        kind = "image/webp" if data[:4] == b"RIFF" else "image/png"
        return Response(data, headers=_IMAGE_HEADERS, media_type=kind)

    async def vote(self, request: Request) -> Response:
        """Save an answer: the response comes when it is on the disk."""
        annotator = self._agreed(request)
        answer = parse_answer(await _body(request))
        feedback = self.live.save(annotator, answer)
        own = {} if feedback is None else {"feedback": asdict(feedback)}
        return _json({"saved": True} | own | self._upcoming(annotator))

    async def undo(self, request: Request) -> Response:
        """Withdraw the last answer, and send what it had, so that the page can be filled again."""
        annotator = self._agreed(request)
        undone = self.live.undo(annotator, _key(await _body(request)))
        own = {} if undone is None else {"answer": asdict(undone)}
        return _json({"undone": undone is not None} | own | self._upcoming(annotator))

    async def agree(self, request: Request) -> Response:
        """Keep that a person agrees to take part."""
        annotator = self._annotator(request)
        await _body(request)
        self.live.consents.agree(annotator)
        return _json({"saved": True})

    def _upcoming(self, annotator: str) -> dict[str, Any]:
        shown = self.live.upcoming(annotator)
        done, about = self.live.assignment.progress(annotator)
        study = self.live.ratings.study
        pages = [(item, render_item(item, study, self.live.image_name)) for item in shown]
        waiting = not shown and self.live.assignment.is_waiting(annotator)
        return {
            "items": [
                {
                    "slot": item.slot,
                    "html": html,
                    "images": re.findall(r'src="image/([0-9a-f]{32})"', html),
                    "practice": item.kind == "practice",
                }
                for item, html in pages
            ],
            "state": "open" if shown else "waiting" if waiting else "done",
            "progress": {"done": done, "about": about},
        }

    def _annotator(self, request: Request) -> str:
        annotator = self.live.session.annotators.get(request.path_params["token"])
        if annotator is None:
            raise HTTPException(404, "this address is not known: ask the organizer for yours")
        return annotator

    def _agreed(self, request: Request) -> str:
        annotator = self._annotator(request)
        if annotator not in self.live.consents:
            raise HTTPException(403, "read the first page and agree to it before you begin")
        return annotator


@dataclass
class _Operator:
    """What is answered to the person who watches a study.

    latest: what was last shown, again until a time.
    """

    live: LiveStudy
    peek: bool
    latest: dict[str, Any] = field(default_factory=dict)
    until: float = 0.0

    async def page(self, request: Request) -> Response:
        """Progress, agreement, checks."""
        content = await self._content(request)
        return _page("operator.html.jinja", title=self.live.ratings.path.name, **content)

    async def part(self, request: Request) -> Response:
        """What of the page changes."""
        content = await self._content(request)
        return HTMLResponse(render("operator_part.html.jinja", **content), headers=_HEADERS)

    async def _content(self, request: Request) -> dict[str, Any]:
        # As bytes: of texts, which an address may have any of, only ASCII could be compared.
        token, own_token = request.path_params["token"], self.live.session.operator
        if not secrets.compare_digest(token.encode("utf-8", "surrogatepass"), own_token.encode()):
            raise HTTPException(404, "this address is not known")
        live = self.live
        wanted = live.assignment.wanted.values()
        complete = sum(judged >= people for judged, people in wanted)
        now = time.monotonic()
        if now >= self.until:
            # Of copies, in another thread: people do not wait for this page.
            own = await run_in_threadpool(self._results, live.votes, complete)
            taken = time.monotonic() - now
            self.latest, self.until = own, now + _RESTS * taken
        return self.latest | {"leased": live.leased, "peek": self.peek}

    def _results(self, votes: Votes, complete: int) -> dict[str, Any]:
        return {
            "summary": summarize(self.live.ratings, votes, complete),
            "remarks": votes.remarks.lines,
            "shares": list(shares(votes.answers())) if self.peek else [],
        }


async def _asset(request: Request) -> Response:
    name: str = request.path_params["name"]
    if name not in _ASSETS:
        raise HTTPException(404, "there is no such file")
    return Response(page_file(name), headers=_HEADERS, media_type=_ASSETS[name])


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


def _key(data: bytes) -> str:
    try:
        content = msgspec.json.decode(data, type=dict[str, str])
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise HTTPException(400, "a request that cannot be read") from error
    key = content.get("key", "")
    if not 8 <= len(key) <= 64:
        raise HTTPException(400, "a request has a key of 8 to 64 characters")
    return key


def _page(template: str, **values: Any) -> Response:
    nonce = secrets.token_urlsafe(16)
    policy = (
        f"default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; "
        "img-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'"
    )
    html = render(template, nonce=nonce, **values)
    return HTMLResponse(html, headers=_HEADERS | {"Content-Security-Policy": policy})


def _json(content: dict[str, Any]) -> Response:
    return JSONResponse(content, headers=_HEADERS)


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


def _missing(_: Request, __: Exception) -> Response:
    return PlainTextResponse("there is no such page", 404, headers=_HEADERS)


# -- the server of a study: one process, one folder, until it is interrupted -----------------------


def serve(
    live: LiveStudy, listener: socket.socket, hosts: Sequence[str], *, peek: bool = False
) -> None:
    """Serve until the process is interrupted. Parameters as of `make_app`."""
    app = make_app(live, hosts, peek=peek)
    config = uvicorn.Config(
        app, log_level="warning", access_log=False, server_header=False, timeout_graceful_shutdown=5
    )
    # People who vote do not wait for the thread that sums up for the operator: it gives way after
    # half a millisecond, and not after five at each of the steps of a reply.
    sys.setswitchinterval(0.0005)
    # Nor do they wait for the garbage collector, which looks through all votes and all items while
    # nothing else runs: 0.2 s at 40,000 votes. What is there now stays until the end.
    gc.collect()
    gc.freeze()
    uvicorn.Server(config).run(sockets=[listener])
