"""`cepbench history`: each case over the runs of a project, as a table or as a page."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator, Sequence
from pathlib import Path

from pytest_cepbench.cli.output import (
    Section,
    Table,
    show,
    tell,
)
from pytest_cepbench.errors import SpecError
from pytest_cepbench.option_values import at_least_one
from pytest_cepbench.report.history.file import History, HistoryRun, many_objects, read_history
from pytest_cepbench.report.history.timeline import (
    Selection,
    Timeline,
    break_reasons,
    select_runs,
    timelines_of,
    when,
)
from pytest_cepbench.report.number_format import counted, number

_MOST_CHANGES = 20


def run(arguments: Namespace) -> int:
    """Show the history, or write its page; exit codes as in `main`."""
    if arguments.series is not None:
        from pytest_cepbench.cli.series import show_series

        return show_series(arguments)
    with many_objects():
        return _run(arguments)


def _run(arguments: Namespace) -> int:
    selection = _selection(arguments)
    history = read_history(arguments.history)
    runs = select_runs(history, selection)
    timelines = timelines_of(runs, selection)
    if arguments.html is not None:
        return _write_page(arguments.html, history, runs, timelines)
    show(list(_page(history, runs, timelines)))
    return 0


def _selection(arguments: Namespace) -> Selection:
    """What is asked for. Raises SpecError for a number of runs that is none."""
    try:
        last = None if arguments.last is None else at_least_one(arguments.last, "--last")
    except ValueError as error:
        raise SpecError(str(error)) from None
    return Selection(arguments.suite, arguments.case, arguments.model, last)


def _write_page(
    path: Path, history: History, runs: Sequence[HistoryRun], timelines: Sequence[Timeline]
) -> int:
    from pytest_cepbench.report.history.page import history_page, report_links
    from pytest_cepbench.report.writers import write_reports

    links = report_links(history, path.absolute().parent)
    page = history_page(history, runs, timelines, links)
    write_reports(path, {path.suffix or ".html": page})
    for remark in history.remarks:
        tell(remark)
    drawn = f"{counted(len(timelines), 'case')} over {counted(len(runs), 'run')}"
    show([], f"written: {path if path.suffix else path.with_suffix('.html')} ({drawn})")
    return 0


def _page(
    history: History, runs: Sequence[HistoryRun], timelines: Sequence[Timeline]
) -> Iterator[Section]:
    latest = runs[-1]
    checkpoint = f", {latest.checkpoint}" if latest.checkpoint else ""
    times = f"{when(runs[0].started)} to {when(latest.started)} UTC"
    lines = (f"{times}; the latest run {latest.verdict}{checkpoint}", *history.remarks)
    head = ("case", "verdict", "latest", "baseline", "change", "runs", "values")
    rows = tuple(_row(timeline) for timeline in timelines)
    yield Section(f"history of {counted(len(runs), 'run')}", (*lines, Table(head, rows)))
    changes = list(_changes(history, timelines))
    if changes:
        yield Section("values compare between two breaks (|) only", tuple(changes[-_MOST_CHANGES:]))


def _changes(history: History, timelines: Sequence[Timeline]) -> Iterator[str]:
    """A line for each time from which cases of a suite are other measurements, in order."""
    changed: dict[tuple[float, str, str], int] = {}
    for timeline in timelines:
        for index, fields in break_reasons(timeline, history):
            place = timeline.runs[index].started, timeline.suite, fields
            changed[place] = changed.get(place, 0) + 1
    for (started, suite, fields), count in sorted(changed.items()):
        yield f"{when(started)}: {fields} changed, in {counted(count, 'case')} of {suite}"


def _row(timeline: Timeline) -> tuple[str, ...]:
    point = timeline.latest
    return (
        timeline.case,
        "accepted" if point.accepted else point.verdict,
        number(point.value),
        number(point.baseline),
        number(point.difference, signed=True),
        str(len(timeline.points)),
        timeline.sparkline(),
    )
