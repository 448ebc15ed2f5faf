"""The pages of a history: each case over its runs, the runs, and those that go on."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from itertools import groupby
from pathlib import Path
from urllib.parse import quote

from markupsafe import Markup

from pytest_cepbench.report.history.file import History, HistoryRun
from pytest_cepbench.report.history.running import ListedRun, RunningRun, RunningWork, RunState
from pytest_cepbench.report.history.timeline import (
    Curves,
    LinkOf,
    Timeline,
    break_reasons,
    curves_of,
    draw_timeline,
    kind_of,
    when,
)
from pytest_cepbench.report.number_format import bounds_of, counted, duration, number, p_value, rate
from pytest_cepbench.report.templates import render

# -- runs that have not ended, as a part of the site's first page and as a page each ---------------
# A small script fetches the part again; without it the browser loads the page again. A page says
# in words that there is no verdict yet.


SCRIPT = "running.js"

_RELOAD_SECONDS = 5  # without the script


def running_part(
    entries: Sequence[ListedRun], state: str, source: str, *, whole: bool = False
) -> Markup:
    """The part of a page about runs that have not ended. Texts are escaped, and `visible`.

    state: changes when the page around the part has to be loaded again.
    source: address of this part, relative to the page.
    whole: with the cases that are judged, on the page of one run.
    """
    part = render(
        "running_part.html.jinja",
        entries=entries,
        state=state,
        source=source,
        whole=whole,
        address=lambda run: f"runs/{run.run}.html",
        number=number,
        when=when,
        kind_of=kind_of,
        progress_of=_progress,
        pace_of=_pace,
        sign_of_life=_sign_of_life,
    )
    return Markup(part)  # noqa: S704 - the template escapes its texts


def running_head(root: str) -> Markup:
    """What the head of a page needs that has such a part. root: of the site, from the page."""
    return Markup(
        '<noscript><meta http-equiv="refresh" content="{}"></noscript>\n'
        '<script src="{}{}" defer></script>'
    ).format(_RELOAD_SECONDS, root, SCRIPT)


def running_page(part: Markup, root: str, *, several: bool) -> str:
    """A page of nothing else. root: of the site, from the page. several: whether of many runs."""
    return render("running.html.jinja", part=part, head=running_head(root), several=several)


@cache
def running_script() -> str:
    """The script."""
    folder = resources.files("pytest_cepbench.report").joinpath("templates")
    return folder.joinpath(SCRIPT).read_text(encoding="utf-8")


def _progress(run: RunningRun) -> str:
    """How far the run is, without a word that a verdict has."""
    parts = [f"No verdict yet: {run.judged} of {counted(run.expected, 'case')} judged"]
    if run.counts:
        parts.append(", ".join(f"{count} {verdict}" for verdict, count in run.counts.items()))
    if run.skipped:
        parts.append(f"{run.skipped} skipped")
    return "; ".join(parts) + "."


def _pace(work: RunningWork) -> str:
    words = [work.step]
    if work.rate is not None and work.rate > 0:
        words.append(rate(work.rate))
    if work.left is not None:
        words.append(f"{duration(work.left)} left of this case")
    return ", ".join(filter(None, words))


def _sign_of_life(entry: ListedRun) -> str:
    """What is known of the process of a run that does not write any more."""
    if entry.state == RunState.RUNNING:
        return ""
    sign = f"The last sign of life of its process {entry.run.process} was at "
    sign += f"{when(entry.run.written)} UTC"
    if entry.state == RunState.SILENT:
        return f"{sign}; the process is still there."
    return f"{sign}. Run it again: what was computed is in the store."


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
