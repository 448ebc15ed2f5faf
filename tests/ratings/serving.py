"""Servers of studies in a process of their own, requests to them, and what people do on pages."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Server:
    """A server process.

    addresses: name of a person -> address of the page.
    """

    process: subprocess.Popen[str]
    addresses: Mapping[str, str]

    @property
    def port(self) -> int:
        """On which it listens."""
        return urlsplit(next(iter(self.addresses.values()))).port or 0


@contextmanager
def served(
    folder: Path,
    *options: str,
    command: Sequence[str] = (),
    words: Sequence[str] = ("rate", "ask"),
) -> Iterator[Server]:
    """A server of a ratings folder, ended at the end where it is not yet.

    command: run before the program, such as one that gives it a small disk.
    words: of the program's command that serves the folder.
    """
    program = [sys.executable, "-m", "pytest_cepbench.cli", *words, str(folder)]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    port = () if any(option.startswith("--port") for option in options) else ("--port=0",)
    with subprocess.Popen(
        [*command, *program, *port, *options], stderr=subprocess.PIPE, text=True, env=environment
    ) as process:
        assert process.stderr is not None
        lines: list[str] = []
        try:
            for line in process.stderr:
                lines.append(line)
                if line.startswith("serving "):
                    break
            else:
                raise AssertionError("".join(lines))
            matches = (re.match(r"(\S+): (http://\S+)$", line) for line in lines)
            yield Server(process, {match[1]: match[2] for match in matches if match})
        finally:
            process.terminate()
            process.communicate(timeout=30)


@dataclass(frozen=True)
class Reply:
    """A response. content: of JSON."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def content(self) -> Any:
        """The body as JSON."""
        return json.loads(self.body)


def request(
    address: str, path: str = "", body: object = None, *, headers: Mapping[str, str] | None = None
) -> Reply:
    """A request below an address, as the page sends it. body: sent as JSON, by POST.

    headers: in the place of the page's own.
    """
    parts = urlsplit(address)
    own = {"Content-Type": "application/json", "X-Cepbench": "1", "Sec-Fetch-Site": "same-origin"}
    connection = HTTPConnection("127.0.0.1", parts.port or 0, timeout=30)
    try:
        data = None if body is None else body if isinstance(body, bytes) else json.dumps(body)
        connection.request(
            "GET" if data is None else "POST",
            parts.path + path,
            data,
            dict(own if headers is None else headers),
        )
        response = connection.getresponse()
        return Reply(response.status, dict(response.getheaders()), response.read())
    finally:
        connection.close()


def slots(address: str) -> list[str]:
    """Opaque names of what a person is shown now and next."""
    return [item["slot"] for item in request(address, "upcoming").content["items"]]


def records(folder: Path, annotator: str = "a1") -> list[dict[str, Any]]:
    """The lines of a person's file of votes."""
    path = folder / "votes" / f"{annotator}.jsonl"
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line]


def slot(page: Any) -> str:
    """The opaque name of what is shown; waits for it."""
    name: str = page.locator("main[data-slot]").get_attribute("data-slot", timeout=10_000)
    return name


def see(page: Any) -> None:
    """Look at what is shown for as long as an answer to it needs at least."""
    page.wait_for_timeout(300)


def press(page: Any, *keys: str) -> None:
    """Press keys, the last of which answers; waits until the answer is saved and the next shown."""
    before = slot(page)
    see(page)
    with page.expect_response(re.compile("/vote$")) as sent:
        for key in keys:
            page.keyboard.press(key)
    assert sent.value.status == 200
    page.wait_for_selector(f"main[data-slot]:not([data-slot='{before}'])")
    page.get_by_text("saved", exact=True).wait_for()
