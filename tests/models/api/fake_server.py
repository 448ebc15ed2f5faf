"""A server that speaks the OpenAI API on a free port and misbehaves as a test wants it to.

It is real: sockets, HTTP, one thread for each request. Only its answers are made up.
"""

from __future__ import annotations

import io
import json
import math
import threading
import time
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from PIL import Image


@dataclass(frozen=True)
class Seen:
    """A request: its path, headers in lower case, JSON body, and when it came."""

    path: str
    headers: Mapping[str, str]
    body: Mapping[str, Any]
    at: float

    @property
    def text(self) -> str:
        """All texts that the last message of a chat holds."""
        parts = self.body["messages"][-1]["content"]
        return "\n".join(part["text"] for part in parts if part["type"] == "text")

    @property
    def images(self) -> list[Image.Image]:
        """The images in the last message of a chat."""
        parts = self.body["messages"][-1]["content"]
        urls = [part["image_url"]["url"] for part in parts if part["type"] == "image_url"]
        return [Image.open(io.BytesIO(b64decode(url.partition(",")[2]))) for url in urls]


@dataclass(frozen=True)
class Answer:
    """What is sent back. cut: bytes of the body after which the line goes dead. after: seconds.

    drip: seconds between the bytes of the body.
    """

    body: bytes
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    cut: int | None = None
    after: float = 0.0
    drip: float = 0.0


Answering = Callable[[Seen], Answer]


def document(value: Any, status: int = 200, *, after: float = 0.0, **headers: str) -> Answer:
    """A JSON body; header names are written with _ for -."""
    named = {name.replace("_", "-"): text for name, text in headers.items()}
    return Answer(json.dumps(value).encode(), status, named, after=after)


def chat_answer(
    content: Any = "a red circle", *, ended: str | None = "stop", tokens: int = 20, **more: Any
) -> Answer:
    """A chat completion; tokens: that were written; more: of the message."""
    message = {"role": "assistant", "content": content, **more}
    return document(
        {
            "model": "tiny-2026",
            "system_fingerprint": "fp_1",
            "choices": [{"index": 0, "message": message, "finish_reason": ended}],
            "usage": {"prompt_tokens": 100, "completion_tokens": tokens},
        }
    )


Token = tuple[str, Mapping[str, float]]
"""A token, and the probabilities of those that could have stood there."""


def likely(text: str, *tokens: Token) -> Answer:
    """A chat completion with log-probabilities, as OpenAI's API words them."""
    content = [
        {
            "token": token,
            "logprob": math.log(others.get(token, 1.0)),
            "top_logprobs": [{"token": t, "logprob": math.log(p)} for t, p in others.items()],
        }
        for token, others in tokens
    ]
    message = {"role": "assistant", "content": text}
    return document(
        {
            "model": "tiny",
            "choices": [{"message": message, "finish_reason": "stop",
                         "logprobs": {"content": content}}],
        }
    )  # fmt: skip


def drawn(image: Image.Image | None = None, *, data: str | None = None) -> Answer:
    """An image, or what stands in its place."""
    if data is None:
        stream = io.BytesIO()
        (image or Image.new("RGB", (8, 8), "red")).save(stream, "PNG")
        data = b64encode(stream.getvalue()).decode()
    return document({"created": 1, "data": [{"b64_json": data}]})


def fault(
    status: int, message: str = "no", code: str = "", param: str = "", **headers: str
) -> Answer:
    """An error as OpenAI words it."""
    error = {"message": message, "type": "an_error", "code": code or None, "param": param or None}
    return document({"error": error}, status, after=0.0, **headers)


def web_page(status: int = 200) -> Answer:
    """What a web site that is no API answers."""
    page = "<!DOCTYPE html><html><title>Welcome to nginx!</title></html>"
    return Answer(page.encode(), status, {"content-type": "text/html"})


def _usual(seen: Seen) -> Answer:
    return drawn() if seen.path.endswith("/images/generations") else chat_answer()


class FakeServer:
    """The server. answer: makes the answer to each request but those for the list of models.

    models: the answer to that; None leaves it to `answer` too. most: requests that were on the way
    together at most.
    """

    def __init__(self, port: int = 0) -> None:
        self.answer: Answering = _usual
        self.models: Answer | None = document(
            {"object": "list", "data": [{"id": "tiny"}, {"id": "large"}]}
        )
        self.seen: list[Seen] = []
        self.most = 0
        self._busy = 0
        self._lock = threading.Lock()
        self._http = ThreadingHTTPServer(("127.0.0.1", port), self._handler())
        self._http.daemon_threads = True
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        """Where the API begins."""
        return f"http://127.0.0.1:{self._http.server_port}/v1"

    def spec(self, query: str = "", model: str = "tiny") -> str:
        """A spec that names it; waits are short unless the query says otherwise."""
        options = f"&{query}" if query else ""
        short = "" if "max_retry_wait" in options else "&max_retry_wait=0.01"
        known = "" if "revision=" in options or "weights=" in options else "&revision=1"
        return f"openai:{model}?base_url={self.url}{short}{known}{options}"

    def in_turn(self, *answers: Answer | Answering) -> None:
        """Answer so one after another; the last one stays."""
        left = list(answers)

        def answer(seen: Seen) -> Answer:
            with self._lock:
                next_answer = left.pop(0) if len(left) > 1 else left[0]
            return next_answer if isinstance(next_answer, Answer) else next_answer(seen)

        self.answer = answer

    def close(self) -> None:
        """Take the port back."""
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()

    def _deal_with(self, seen: Seen) -> Answer:
        if seen.path.endswith("/models") and self.models is not None:
            return self.models
        with self._lock:
            self.seen.append(seen)
            self._busy += 1
            self.most = max(self.most, self._busy)
        try:
            answer = self.answer(seen)
            time.sleep(answer.after)
            return answer
        finally:
            with self._lock:
                self._busy -= 1

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True  # else a body waits 40 ms behind its headers

            def log_message(self, *_: object) -> None:
                """Say nothing."""

            def do_GET(self) -> None:
                self._send(server._deal_with(self._seen({})))

            def do_POST(self) -> None:
                length = int(self.headers["content-length"])
                self._send(server._deal_with(self._seen(json.loads(self.rfile.read(length)))))

            def _seen(self, body: Mapping[str, Any]) -> Seen:
                headers = {name.lower(): value for name, value in self.headers.items()}
                return Seen(self.path, headers, body, time.monotonic())

            def _send(self, answer: Answer) -> None:
                headers = {"content-type": "application/json"} | dict(answer.headers)
                self.send_response(answer.status)
                for name, value in (headers | {"content-length": str(len(answer.body))}).items():
                    self.send_header(name, value)
                try:
                    self.end_headers()
                    step = 1 if answer.drip else len(answer.body) or 1
                    for low in range(0, len(answer.body[: answer.cut]), step):
                        self.wfile.write(answer.body[: answer.cut][low : low + step])
                        time.sleep(answer.drip)
                except OSError:  # who asked has gone
                    self.close_connection = True
                if answer.cut is not None:
                    self.close_connection = True

        return Handler


@contextmanager
def serving() -> Iterator[FakeServer]:
    """A running server."""
    server = FakeServer()
    try:
        yield server
    finally:
        server.close()
