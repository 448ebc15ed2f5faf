"""`cepbench history`: each case over the runs of a project, the looks of a series."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path

from pytest_cepbench.cli.output import Section, Table, show, tell
from pytest_cepbench.errors import SpecError, unknown_name
from pytest_cepbench.gate.series import SERIES, SeriesFile, SeriesRecord, recorded_names
from pytest_cepbench.gate.statistics.error_budget import checkpoint_share
from pytest_cepbench.report.history import (
    read_history,
    select_runs,
    timelines_of,
    when,
)
from pytest_cepbench.report.number_format import counted, number

_MOST_CHANGES = 20


def run(arguments: Namespace) -> int:
    """Show the history or a series, or write the page of it; exit codes as in `main`."""
    if arguments.series is not None:
        for name in ("html", "suite", "case", "model", "last"):
            if getattr(arguments, name):
                raise SpecError(f"--{name} is of the history: drop it, or --series")
        root: Path = arguments.baselines
        record = SeriesFile(root, arguments.series).read()
        if record is None:
            reason = unknown_name("series", arguments.series, recorded_names(root))
            raise SpecError(f"no record below {root / SERIES}: {reason}")
        show(list(_series_page(record, arguments.series)))
        return 0
    history = read_history(arguments.history)
    runs = select_runs(history, arguments.model, arguments.last)
    timelines = timelines_of(runs, arguments.suite, arguments.case)
    if arguments.html is not None:
        from pytest_cepbench.report.history_page import history_page
        from pytest_cepbench.report.writers import write_reports

        path: Path = arguments.html
        page = history_page(history, runs, timelines, path.absolute().parent)
        write_reports(path, {path.suffix or ".html": page})
        for remark in history.remarks:
            tell(remark)
        drawn = f"{counted(len(timelines), 'case')} over {counted(len(runs), 'run')}"
        show([], f"written: {path if path.suffix else path.with_suffix('.html')} ({drawn})")
        return 0
    latest = runs[-1]
    checkpoint = f", {latest.checkpoint}" if latest.checkpoint else ""
    times = f"{when(runs[0].started)} to {when(latest.started)} UTC"
    lines = (f"{times}; the latest run {latest.verdict}{checkpoint}", *history.remarks)
    rows = []
    changed: dict[tuple[float, str, str], int] = {}  # from when on cases are other measurements
    for timeline in timelines:
        point = timeline.latest
        rows.append(
            (
                timeline.name,
                point.word,
                number(point.value),
                number(point.baseline),
                number(point.difference, signed=True),
                str(len(timeline.points)),
                timeline.sparkline(),
            )
        )
        for index, fields in timeline.breaks.items():
            place = timeline.runs[index].started, timeline.suite, fields
            changed[place] = changed.get(place, 0) + 1
    head = ("case", "verdict", "latest", "baseline", "change", "runs", "values")
    sections = [Section(f"history of {counted(len(runs), 'run')}", (*lines, Table(head, rows)))]
    if changed:
        changes = [
            f"{when(started)}: {counted(count, 'case')} of {suite} measured otherwise"
            f"{f': {fields} changed' if fields else ''}"
            for (started, suite, fields), count in sorted(changed.items())
        ]
        title = "values compare between two breaks (|) only"
        sections.append(Section(title, tuple(changes[-_MOST_CHANGES:])))
    show(sections)
    return 0


def _series_page(record: SeriesRecord, name: str) -> Iterator[Section]:
    """What a series looked at, in order."""
    looks: dict[int, list[str]] = {}  # the checkpoint, once for each of its cases
    for entry in record.lines:
        looks.setdefault(entry.look, []).append(entry.spec)
    rows = tuple(
        (str(look), own[0], f"{checkpoint_share(look, record.expected):.2%}", str(len(own)))
        for look, own in looks.items()
    )
    following = checkpoint_share(record.next_look, record.expected)
    line = (
        f"half of alpha is for the first {record.expected} checkpoints; the next is number "
        f"{record.next_look} and has {following:.2%}"
    )
    yield Section(
        f"series {name}", (line, Table(("number", "checkpoint", "of alpha", "cases"), rows))
    )
