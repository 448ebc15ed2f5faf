"""The history as one HTML page: each case over its runs, and the runs with their reports.

It needs nothing beside itself and no JavaScript; reports are linked where they lie.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import groupby
from pathlib import Path
from urllib.parse import quote

from markupsafe import Markup

from pytest_cepbench.report.history.file import History
from pytest_cepbench.report.history.plot import (
    Curves,
    LinkOf,
    curves_of,
    draw_timeline,
    kind_of,
    when,
)
from pytest_cepbench.report.history.record import HistoryRun
from pytest_cepbench.report.history.running_page import running_head
from pytest_cepbench.report.history.timeline import Timeline, break_reasons
from pytest_cepbench.report.number_format import bounds_of, number, p_value
from pytest_cepbench.report.templates import render

MOST_RUNS = 100
"""Runs that are listed one by one, the latest first."""


@dataclass(frozen=True)
class CaseShown:
    """A case on the page.

    anchor: of its section.
    plot: as SVG.
    breaks: time of each break, and what changed; the latest first.
    """

    timeline: Timeline
    anchor: str
    plot: Markup
    breaks: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class RunShown:
    """A run in the list.

    time: when it began.
    counts: its verdicts with their numbers.
    report: address of its report; empty where there is none.
    """

    run: HistoryRun
    time: str
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
    curves = curves_of(runs, timelines)
    shown = [
        _case(timeline, own, history, link, place)
        for place, (timeline, own) in enumerate(zip(timelines, curves, strict=True))
    ]
    return render(
        "history.html.jinja",
        suites=[(n, list(group)) for n, group in groupby(shown, lambda s: s.timeline.suite)],
        runs=[_run(run, link) for run in reversed(runs[-MOST_RUNS:])],
        count=len(runs),
        first=when(runs[0].started),
        last=when(runs[-1].started),
        checkpoint=runs[-1].checkpoint,
        verdict=runs[-1].verdict,
        remarks=history.remarks,
        running=running,
        running_head=None if running is None else running_head(""),
        number=number,
        bounds_of=bounds_of,
        p_value=p_value,
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


def _case(
    timeline: Timeline, curves: Curves, history: History, link: LinkOf, place: int
) -> CaseShown:
    reasons = dict(break_reasons(timeline, history))
    breaks = [(when(timeline.runs[index].started), words) for index, words in reasons.items()]
    plot = Markup(draw_timeline(timeline, curves, reasons, link))  # noqa: S704 - its texts are escaped
    return CaseShown(timeline, f"case-{place}", plot, tuple(reversed(breaks)))


def _run(run: HistoryRun, link: LinkOf) -> RunShown:
    counts = Counter("accepted" if case.accepted else case.verdict for case in run.cases)
    words = ", ".join(f"{count} {verdict}" for verdict, count in counts.most_common())
    return RunShown(run, when(run.started), words, link(run))
