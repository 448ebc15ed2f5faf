"""How soon people who rate have the next item: 2,000 items, 20 annotators, a server of their own.

    python -m benchmarks.rating_server

A study in which every annotator judges every item is served by `cepbench rate` in a process of its
own, and simulated browsers answer: one person alone, and all at once with a second between answers,
which is several times faster than people are. Once at the start, and once with 97 % of all votes
given, after a restart that reads them. A vote is timed until its reply, which comes when the vote
is on the disk and which holds the items that follow.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from statistics import median, quantiles
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import urlsplit

import numpy as np

from benchmarks.whole_runs import machine
from pytest_cepbench.artifacts import ImageArtifact
from pytest_cepbench.ratings.assignment import Order
from pytest_cepbench.ratings.consent import write_texts
from pytest_cepbench.ratings.folder import Ratings, read_ratings
from pytest_cepbench.ratings.items import make_item, write_study
from pytest_cepbench.ratings.records import Part, Study, Vote, record_line

RESULTS = Path(__file__).parent / "results"

GOAL = 0.05
"""Seconds until the next item is there, at most."""

_SHARE_GIVEN = 0.97

_WATCH_KEYS = """() => {
  window.shown = [];
  document.addEventListener("keydown", () => {
    const began = performance.now();
    requestAnimationFrame(() => requestAnimationFrame(() => {
      const whole = [...document.querySelectorAll("img.picture")].every((image) => image.complete);
      window.shown.push([performance.now() - began, whole]);
    }));
  }, true);
}"""
"""Script that keeps, of each key, the time to the second frame after it."""

_SHOWN = ("median ms", "95 % ms", "most ms")


def main() -> None:
    """Measure, and write the figures as JSON and as a page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--items", type=int, default=2000)
    parser.add_argument("--annotators", type=int, default=20)
    parser.add_argument("--votes", type=int, default=30, help="of each simulated person")
    parser.add_argument("--dry-run", action="store_true", help="print the figures only")
    arguments = parser.parse_args()
    figures: dict[str, Any] = {
        "machine": machine(),
        "items": arguments.items,
        "annotators": arguments.annotators,
    }
    with TemporaryDirectory() as name:
        ratings = make_study(Path(name) / "study", arguments.items, arguments.annotators)
        figures["at the start"] = measure(ratings, arguments.votes)
        figures["in Chromium"] = measure_page(ratings, arguments.votes)
        given = give_votes(ratings, _SHARE_GIVEN)
        figures["votes given before"] = given
        figures["near the end"] = measure(ratings, arguments.votes)
    text = json.dumps(figures, indent=1) + "\n"
    print(text)
    if not arguments.dry_run:
        if figures["in Chromium"] is None:
            sys.exit("the page needs Chromium and Playwright: nothing was written")
        (RESULTS / "rating_server.json").write_text(text, encoding="utf-8")
        (RESULTS / "rating_server.md").write_text(page(figures), encoding="utf-8")


def make_study(folder: Path, items: int, annotators: int) -> Ratings:
    """A study of pairs of texts and images; each annotator judges each item."""
    rng = np.random.default_rng(0)
    images = {}
    made = []
    for number in range(items):
        options = []
        for _ in range(2):
            pixels = rng.integers(0, 255, (8, 8, 3), np.uint8).repeat(32, axis=0).repeat(32, axis=1)
            image = ImageArtifact(pixels)
            images[image.digest] = image
            options.append([Part(text="A step of an answer. " * 20), Part(image=image.digest)])
        made.append(make_item("pair", [Part(text=f"Question {number}?")], options))
    names = tuple(f"a{number + 1}" for number in range(annotators))
    study = Study(kind="pair", annotators=names, overlap=annotators, share=1.0, practice=0)
    write_study(folder, study, made, images)
    write_texts(folder, "pair")
    return read_ratings(folder)


def give_votes(ratings: Ratings, share: float) -> int:
    """Write the first votes of every annotator, in their own order. Returns how many there are."""
    order = Order(ratings.study, list(ratings.items.values()))
    total = 0
    for name in ratings.study.annotators:
        items = order.of(name, "item")
        given = items[: int(len(items) * share)]
        with ratings.vote_path(name).open("wb") as stream:
            for number, digest in enumerate(given):
                shown = order.shown(ratings.items[digest], name, "item")
                vote = Vote(
                    task="pair", item=digest, annotator=name, key=f"{name}-{number:08d}",
                    seconds=7.4, at="2026-11-22T10:00:00.000Z", page="pair/1", shown=shown,
                    verdict="A", winner="first" if shown[0] == "first" else "second", tie=False,
                )  # fmt: skip
                stream.write(record_line(vote))
        total += len(given)
    return total


def measure(ratings: Ratings, votes: int) -> dict[str, Any]:
    """Serve the study and let people answer: seconds until the server is up, and milliseconds."""
    began = time.perf_counter()
    with served(ratings.path) as addresses:
        started = time.perf_counter() - began
        people = [
            Person(address, name) for name, address in addresses.items() if name != "operator"
        ]
        for person in people:
            person.begin()
        alone = [seconds for _ in range(votes) for seconds in people[0].vote(0.0)]
        operator = Person(addresses["operator"], "operator")
        with ThreadPoolExecutor(len(people) + 2) as pool:
            watching = pool.submit(operator.watch, votes)
            syncing = pool.submit(probe_disk, ratings.path / "probe", votes)
            together = [
                seconds
                for own in pool.map(lambda person: person.work(votes), people)
                for seconds in own
            ]
            watched, synced = watching.result(), syncing.result()
    return {
        "seconds until it serves": round(started, 2),
        "one person": spread(alone),
        "all at once": spread(together),
        "operator's page": spread(watched),
        "a bare fsync": spread(synced),
    }


def measure_page(ratings: Ratings, votes: int) -> dict[str, Any] | None:
    """Milliseconds from a key to the next item on the screen; None without Chromium or Playwright.

    Beside it, of how many items all images had been loaded by then.
    """
    program = shutil.which("chromium")
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        return None
    if program is None:
        return None
    with served(ratings.path) as addresses, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        page = browser.new_page()
        page.goto(addresses[ratings.study.annotators[-1]])
        page.wait_for_selector("#agree, main[data-slot]")
        if page.locator("#agree").count():
            page.click("#agree")
        page.wait_for_selector("main[data-slot]")
        page.evaluate(_WATCH_KEYS)
        for _ in range(votes):
            page.wait_for_timeout(700)
            before = page.locator("main").get_attribute("data-slot")
            page.keyboard.press("1")
            page.wait_for_selector(f"main[data-slot]:not([data-slot='{before}'])")
        page.wait_for_timeout(700)
        taken = page.evaluate("window.shown")
        browser.close()
    own = spread([milliseconds / 1000 for milliseconds, _ in taken])
    return own | {"with all images": sum(whole for _, whole in taken)}


def probe_disk(path: Path, seconds: float) -> list[float]:
    """Seconds of adding a line to a file and syncing it, five times a second."""
    taken = []
    with path.open("ab", buffering=0) as stream:
        for _ in range(int(seconds * 5)):
            time.sleep(0.2)
            began = time.perf_counter()
            stream.write(b"x" * 400)
            os.fsync(stream.fileno())
            taken.append(time.perf_counter() - began)
    return taken


class Person:
    """A simulated browser, which keeps its connection open as browsers do."""

    def __init__(self, address: str, name: str) -> None:
        parts = urlsplit(address)
        self._path, self._name = parts.path, name
        self._connection = HTTPConnection("127.0.0.1", parts.port or 0, timeout=60)
        self._slot, self._count = "", 0
        self._rng = random.Random(name)

    def begin(self) -> None:
        """Agree, and ask what is shown."""
        self._send("agree", {})
        self._slot = self._send("upcoming")["items"][0]["slot"]

    def work(self, votes: int) -> list[float]:
        """Answer so many items, a second for each on average. Returns seconds of the replies."""
        return [seconds for _ in range(votes) for seconds in self.vote(self._rng.uniform(0.5, 1.5))]

    def vote(self, thinking: float) -> Iterator[float]:
        """Think, answer, and take the next item; the seconds of the reply."""
        time.sleep(thinking)
        self._count += 1
        key = f"{self._name}-new-{self._count:06d}-{self._slot[:8]}"
        body = {"key": key, "slot": self._slot, "verdict": self._rng.choice("AB"), "seconds": 5.0}
        began = time.perf_counter()
        reply = self._send("vote", body)
        yield time.perf_counter() - began
        self._slot = reply["items"][0]["slot"]

    def watch(self, seconds: float) -> list[float]:
        """Look at the operator's page for so long, as its script does. Returns seconds of each."""
        taken = []
        for _ in range(max(2, int(seconds / 5))):
            began = time.perf_counter()
            self._request("part", None)
            taken.append(time.perf_counter() - began)
            self._connection.close()  # the server closes it after 5 s without a request
            time.sleep(5)
        return taken

    def _send(self, path: str, body: object = None) -> Any:
        return json.loads(self._request(path, body))

    def _request(self, path: str, body: object) -> bytes:
        headers = {
            "Content-Type": "application/json",
            "X-Cepbench": "1",
            "Sec-Fetch-Site": "same-origin",
        }
        data = None if body is None else json.dumps(body)
        self._connection.request("POST" if data else "GET", self._path + path, data, headers)
        response = self._connection.getresponse()
        content = response.read()
        if response.status != 200:
            sys.exit(f"{response.status}: {content!r}")
        return content


@contextmanager
def served(folder: Path) -> Iterator[dict[str, str]]:
    """Addresses of the people of a server process."""
    command = [sys.executable, "-m", "pytest_cepbench.cli", "rate", str(folder), "--port=0"]
    environment = os.environ | {"PYTHONPATH": str(RESULTS.parents[1])}
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stderr is not None
        addresses = {}
        for line in process.stderr:
            if line.startswith("serving "):
                break
            if match := re.match(r"(\S+): (http://\S+)$", line):
                addresses[match[1]] = match[2]
        try:
            yield addresses
        finally:
            process.terminate()
            process.communicate()


def spread(seconds: Sequence[float]) -> dict[str, float]:
    """Median, 95th percentile and maximum, in milliseconds, and how many exceed the goal."""
    ordered = sorted(1000 * second for second in seconds)
    return {
        "replies": len(ordered),
        "median ms": round(median(ordered), 1),
        "95 % ms": round(quantiles(ordered, n=20, method="inclusive")[18], 1),
        "most ms": round(ordered[-1], 1),
        "over the goal": sum(milliseconds > 1000 * GOAL for milliseconds in ordered),
    }


_PAGE = """\
# The server of ratings

`benchmarks/rating_server.py` serves {items:,} items to {annotators} annotators, who all judge every
item. Times are those of a vote until its reply, which comes when the vote is on the disk (fsync)
and holds the items that follow. Goal: {goal:.0f} ms. "All at once" is {annotators} people with a
second between answers. Meanwhile somebody watches the operator's page, which is loaded anew every
5 s, and a thread beside them adds a line of the same size to a file and syncs it: that is what the
machine itself takes at that time.

{machine}.

| when | who | replies | median | 95 % | most | over {goal:.0f} ms |
|---|---|---:|---:|---:|---:|---:|
{rows}

In Chromium, the next item was on the screen {page[median ms]} ms after the key in the median, and
{page[95 % ms]} ms in 95 % of {page[replies]} answers, with all of its images in
{page[with all images]} of them: it had been loaded while the item before it was judged.

Near the end, {given:,} votes had been given. The server had read them and was up after {end} s,
against {start} s for an empty study; both with the start of Python.
"""


def page(figures: dict[str, Any]) -> str:
    """The figures as Markdown."""
    rows = []
    for when in ("at the start", "near the end"):
        for who in ("one person", "all at once", "operator's page", "a bare fsync"):
            row = figures[when][who]
            times = " | ".join(f"{row[name]} ms" for name in _SHOWN)
            rows.append(f"| {when} | {who} | {row['replies']} | {times} | {row['over the goal']} |")
    return _PAGE.format(
        items=figures["items"],
        annotators=figures["annotators"],
        goal=1000 * GOAL,
        machine=figures["machine"],
        rows="\n".join(rows),
        given=figures["votes given before"],
        page=figures["in Chromium"],
        start=figures["at the start"]["seconds until it serves"],
        end=figures["near the end"]["seconds until it serves"],
    )


if __name__ == "__main__":
    main()
