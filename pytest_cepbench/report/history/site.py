"""The history and the reports of a project as pages: one page, a folder of them, or served.

The first page is that of the history. Each run whose report is still there has a page in `runs/`.
While a run goes on, the served site has a page of what it has done so far in the same place; a
small script fetches that again, and without it the browser loads the page again. Such a page says
in words that there is no verdict yet.
"""

from __future__ import annotations

import mimetypes
import os
import shutil
import socket
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import groupby
from pathlib import Path
from threading import Lock
from typing import NamedTuple
from urllib.parse import quote, unquote, urlsplit

from markupsafe import Markup

from pytest_cepbench.errors import HistoryError, WriteError
from pytest_cepbench.escapes import visible
from pytest_cepbench.option_values import HOST
from pytest_cepbench.report.headline import in_tolerances
from pytest_cepbench.report.history.file import (
    SUFFIX,
    History,
    HistoryRun,
    many_objects,
    read_history,
    report_digest,
)
from pytest_cepbench.report.history.running import (
    RUN_ID,
    RUNNING,
    ListedRun,
    RunningWork,
    RunState,
    list_running,
)
from pytest_cepbench.report.history.timeline import (
    LinkOf,
    Selection,
    Timeline,
    break_reasons,
    curves_of,
    draw_timeline,
    kind_of,
    select_runs,
    timelines_of,
    when,
)
from pytest_cepbench.report.number_format import counted, duration, number, rate
from pytest_cepbench.report.pages import PAGE, page_file, page_file_names, render, script_of

RUNS = "runs"

SCRIPT = "running.js"

MOST_RUNS = 100
"""Runs that are listed one by one, the latest first."""

_FIRST_RUNS = 10  # that the list shows before the others are asked for

_HERE = Markup("<!-- runs that have not ended -->")
"""Where the page that is kept has the part that changes; in texts its signs are escaped."""

_SERVED = ("script-src 'self'", "connect-src 'self'")
"""What a page may load that follows runs."""

_VERDICTS = ("passed", "undecided", "failed", "incomplete")

Stamp = tuple[tuple[str, int, int], ...]
"""Name, size and time of change of each file of a history."""

# -- the page of a history -------------------------------------------------------------------------


class TimelineShown(NamedTuple):
    """A case on the page.

    anchor: of its section.
    plot: as SVG.
    breaks: time of each break, and what changed; the latest first.
    """

    timeline: Timeline
    anchor: str
    plot: Markup
    breaks: Sequence[tuple[str, str]]


class RunShown(NamedTuple):
    """A run in the list.

    time: when it began.
    kind: class of its verdict.
    worst: its gating case that lost most and its change, in words; empty where none was compared.
    counts: its verdicts with their numbers.
    report: address of its report; empty where there is none.
    """

    run: HistoryRun
    time: str
    kind: str
    worst: str
    counts: str
    report: str


def history_page(
    history: History,
    runs: Sequence[HistoryRun],
    timelines: Sequence[Timeline],
    link: LinkOf,
    running: Markup | None = None,
) -> str:
    """The page. Everything that models, files or users named is escaped, and `visible`.

    runs, timelines: those that are shown, at least one.
    link: gives the addresses of reports.
    running: the part about runs that have not ended, on a page that is served.
    """
    shown = []
    together = zip(timelines, curves_of(runs, timelines), strict=True)
    for place, (timeline, curves) in enumerate(together):
        reasons = dict(break_reasons(timeline, history))
        plot = draw_timeline(timeline, curves, reasons, link)
        breaks = [(when(timeline.runs[index].started), words) for index, words in reasons.items()]
        shown.append(TimelineShown(timeline, f"case-{place}", plot, breaks[::-1]))
    listed = [_run(run, link) for run in reversed(runs[-MOST_RUNS:])]
    return render(
        "history.html.jinja",
        title=f"cepbench: history of {counted(len(runs), 'run')}",
        policies=() if running is None else _SERVED,
        suites=[(n, list(group)) for n, group in groupby(shown, lambda s: s.timeline.suite)],
        runs=[runs for runs in (listed[:_FIRST_RUNS], listed[_FIRST_RUNS:]) if runs],
        listed=len(listed),
        count=len(runs),
        first=when(runs[0].started),
        last=when(runs[-1].started),
        remarks=history.remarks,
        in_series=any(run.series for run in runs),
        running=running,
        root="",
        kind_of=kind_of,
    )


def report_links(history: History, folder: Path) -> LinkOf:
    """The addresses of reports from a folder: of pages with files, other pages, else of JSON."""

    @cache
    def address(path: Path) -> str:
        page = path.with_suffix(".html")
        target = page if page.is_file() else path
        return quote(os.fsencode(os.path.relpath(target, folder)))

    def link(run: HistoryRun) -> str:
        path = history.page_of(run) or history.report_of(run)
        return "" if path is None else address(path)

    return link


def _run(run: HistoryRun, link: LinkOf) -> RunShown:
    counts = Counter("accepted" if case.accepted else case.verdict for case in run.cases)
    words = ", ".join(f"{count} {verdict}" for verdict, count in counts.most_common())
    kind = run.verdict if run.verdict in _VERDICTS else "error"
    # Of the gating cases that regressed, else of all compared ones, that which lost most.
    compared = [case for case in run.cases if case.primary and case.difference is not None]
    regressed = [case for case in compared if case.verdict == "regressed"]
    shown = ""
    if compared:
        worst = min(
            regressed or compared, key=lambda case: in_tolerances(case.difference, case.tolerance)
        )
        shown = f"{worst.case} {number(worst.difference, signed=True)}"
    return RunShown(run, when(run.started), kind, shown, words, link(run))


# -- runs that have not ended ----------------------------------------------------------------------


def running_part(
    entries: Sequence[ListedRun], state: str, source: str, *, whole: bool = False
) -> Markup:
    """The part of a page about runs that have not ended. Texts are escaped, and `visible`.

    state: changes when the page around the part has to be loaded again.
    source: address of this part, relative to the page.
    whole: with the cases that are judged, on the page of one run.
    """
    shown = []
    for run, now in entries:
        # How far the run is, without a word that a verdict has.
        parts = [f"No verdict yet: {run.judged} of {counted(run.expected, 'case')} judged"]
        if run.counts:
            parts.append(", ".join(f"{count} {verdict}" for verdict, count in run.counts.items()))
        if run.skipped:
            parts.append(f"{run.skipped} skipped")
        sign = ""  # what is known of the process of a run that does not write any more
        if now != RunState.RUNNING:
            sign = f"The last sign of life of its process {run.process} was at "
            sign += f"{when(run.written)} UTC"
            sign += (
                "; the process is still there."
                if now == RunState.SILENT
                else ". Run it again: what was computed is in the store."
            )
        shown.append((run, now, "; ".join(parts) + ".", sign))
    part = render(
        "running_part.html.jinja",
        entries=shown,
        state=state,
        source=source,
        whole=whole,
        when=when,
        kind_of=kind_of,
        pace_of=_pace,
    )
    return Markup(part)  # noqa: S704 - the template escapes its texts


def running_page(part: Markup, root: str, *, several: bool) -> str:
    """A page of nothing else. root: of the site, from the page. several: whether of many runs."""
    title = "cepbench: no verdict yet"
    return render(
        "running.html.jinja", title=title, policies=_SERVED, part=part, root=root, several=several
    )


def _pace(work: RunningWork) -> str:
    words = [work.step]
    if work.rate is not None and work.rate > 0:
        words.append(rate(work.rate))
    if work.left is not None:
        words.append(f"{duration(work.left)} left of this case")
    return ", ".join(filter(None, words))


# -- the site --------------------------------------------------------------------------------------


class Site:
    """The pages of a history, made anew when a run was added.

    folder: of the history.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = Lock()  # requests come in threads
        self._stamp: Stamp | None = None
        self._history = History(folder, ())
        self._index = ""

    def index(self) -> str:
        """The first page. Raises HistoryError where there is no run, and none goes on."""
        part = self.running("") or Markup()
        try:
            self._refresh()
        except HistoryError:
            if not self._list_running():
                raise
            return running_page(part, "", several=True)
        return self._index.replace(str(_HERE), part, 1)

    def running(self, run_id: str) -> Markup | None:
        """The part of a page about runs that have not ended: of the first page, or of a run's.

        run_id: of the run; empty for the first page. None where that run has ended.
        """
        entries = self._list_running()
        if not run_id:
            state = repr((_stamp(self._folder), [(e.run.run, e.state) for e in entries]))
            return running_part(entries, sha256(state.encode()).hexdigest()[:16], RUNNING)
        own = [entry for entry in entries if entry.run.run == run_id]
        return running_part(own, run_id, f"../{RUNNING}/{run_id}", whole=True) if own else None

    def running_page(self, name: str) -> str | None:
        """The page below `runs/` of a run that has not ended; None where it has."""
        part = self.running(name.removesuffix(".html")) if RUN_ID.match(name) else None
        return None if part is None else running_page(part, "../", several=False)

    def report(self, name: str) -> Path | None:
        """The file of a page below `runs/`; None where there is none."""
        run_id, _, suffix = name.partition(".")
        run = self._run(run_id)
        path = None if run is None else self._history.report_of(run)
        if path is None or suffix not in ("html", "json"):
            return None
        page = path.with_suffix(f".{suffix}")
        return page if page.is_file() else None

    def page_file(self, run_id: str, name: str) -> bytes | None:
        """A file of a run's page in a folder; None where there is none, or it is another run's."""
        run = self._run(run_id)
        path = None if run is None else self._history.page_of(run)
        file = None if path is None else page_file(path.parent, name)
        if run is None or file is None:
            return None
        with file:
            content = file.read()
        replaced = name == PAGE and report_digest(content) != run.page_digest
        return None if replaced else content

    def _list_running(self) -> list[ListedRun]:
        """Those that the history does not have: a run ends there before it removes its file."""
        entries = list_running(self._folder)
        if entries:
            with suppress(HistoryError):
                self._refresh()
        known = {run.run for run in self._history.runs} if entries else set()
        return [entry for entry in entries if entry.run.run not in known]

    def _run(self, run_id: str) -> HistoryRun | None:
        """A run that has ended; None where the history has none of this id, or is gone."""
        with suppress(HistoryError):
            self._refresh()
        return next((run for run in self._history.runs if run.run == run_id), None)

    def _refresh(self) -> None:
        with self._lock:
            stamp = _stamp(self._folder)
            if stamp == self._stamp and self._index:
                return
            with many_objects():
                history = read_history(self._folder)
                self._index = _site_index(history, _HERE)
            self._history, self._stamp = history, stamp


def _site_index(history: History, running: Markup | None = None) -> str:
    """The first page. Raises HistoryError where there is no run. running: as of `history_page`."""
    runs = select_runs(history, Selection())
    timelines = timelines_of(runs, Selection())
    return history_page(history, runs, timelines, lambda run: _address(history, run), running)


def _address(history: History, run: HistoryRun) -> str:
    if not RUN_ID.fullmatch(run.run):  # lines may be written by anyone
        return ""
    page = history.page_of(run)
    if page is not None and page.name == PAGE:
        return f"{RUNS}/{run.run}/{PAGE}"
    path = history.report_of(run)
    if path is None:
        return ""
    suffix = "html" if path.with_suffix(".html").is_file() else "json"
    return f"{RUNS}/{run.run}.{suffix}"


def _stamp(folder: Path) -> Stamp:
    try:
        paths = sorted(path for path in folder.iterdir() if path.suffix == SUFFIX)
        states = [(path.name, path.stat()) for path in paths]
    except OSError:  # `read_history` says what is wrong
        return ()
    return tuple((name, state.st_size, state.st_mtime_ns) for name, state in states)


def write_site(folder: Path, target: Path) -> int:
    """Write all pages of a history into a new folder; returns the number of reports.

    Raises HistoryError where there is no run, WriteError where the folder is not empty or cannot be
    written.
    """
    history = read_history(folder)
    index = _site_index(history)
    try:
        target.mkdir(parents=True, exist_ok=True)
        if any(target.iterdir()):
            raise WriteError(f"{target} is not empty: name a new folder")
        (target / RUNS).mkdir()
        copied = [run for run in history.runs if _address(history, run)]
        for run in copied:
            path, page = history.report_of(run), history.page_of(run)
            own = target / RUNS / run.run
            for suffix in (".html", ".json"):
                if path is not None and path.with_suffix(suffix).is_file():
                    shutil.copyfile(path.with_suffix(suffix), own.with_name(f"{run.run}{suffix}"))
            for name in () if page is None else page_file_names(page.parent):
                file = None if page is None else page_file(page.parent, name)
                if file is not None:
                    (own / name).parent.mkdir(parents=True, exist_ok=True)
                    with file, (own / name).open("xb") as copy:
                        shutil.copyfileobj(file, copy)
        (target / PAGE).write_text(index, encoding="utf-8")
    except OSError as error:
        raise WriteError(f"{target} could not be written: {error.strerror or error}") from error
    return len(copied)


# -- the server, for the browser of this machine only ----------------------------------------------


def serve(site: Site, listener: socket.socket) -> None:
    """Serve until the process is interrupted."""

    class Handler(_Handler):
        pages = site

    with ThreadingHTTPServer((HOST, 0), Handler, bind_and_activate=False) as server:
        server.socket.close()
        server.socket = listener
        server.server_activate()
        server.serve_forever()


class _Handler(BaseHTTPRequestHandler):
    """Answers requests to this machine alone, whatever a name resolves to."""

    pages: Site
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        """Answer with a page, or a file of one."""
        host = self.headers.get("Host", "").rpartition(":")[0] or self.headers.get("Host", "")
        if host not in (HOST, "localhost"):
            return self._answer(400, "this name is not of this machine")
        try:
            kind, content = self._page(unquote(urlsplit(self.path).path))
        except HistoryError as error:
            return self._answer(503, visible(str(error)))
        except OSError:  # it was removed just now
            content = None
        if content is None:
            return self._answer(404, "there is no such page: a later run may have replaced it")
        return self._answer(200, content, kind)

    def _page(self, path: str) -> tuple[str, str | bytes | None]:
        """Type and content of a page; None where there is none."""
        site, kind = self.pages, "text/html; charset=utf-8"
        content: str | bytes | None = None
        match path.removeprefix("/").split("/", 2):
            case [""]:
                content = site.index()
            case ["running.js"]:
                kind, content = "text/javascript", script_of(SCRIPT)
            case ["running", *run]:
                content = site.running("/".join(run))
            case ["runs", name]:
                report = site.report(name)
                content = site.running_page(name) if report is None else report.read_bytes()
                if name.endswith(".json"):
                    kind = "application/json"
            case ["runs", run, name]:
                kind = mimetypes.guess_type(name)[0] or "application/octet-stream"
                content = site.page_file(run, name)
        return kind, content

    def _answer(self, status: int, content: str | bytes, kind: str = "text/plain") -> None:
        data = content.encode("utf-8", "replace") if isinstance(content, str) else content
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Cache-Control", "no-cache")
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        """Nothing: requests are no news."""
