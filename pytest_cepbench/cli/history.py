"""`cepbench history`: each case over the runs of a project, and the looks of a series."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator, Sequence
from pathlib import Path

from pytest_cepbench.cli.output import MISTAKE, Section, Table, complain, show, tell
from pytest_cepbench.errors import unknown_name
from pytest_cepbench.gate import Policy
from pytest_cepbench.gate.series import (
    SERIES,
    Entry,
    Place,
    SeriesFile,
    SeriesRecord,
    delays_of,
    recorded_names,
)
from pytest_cepbench.gate.statistics import checkpoint_share
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
    return Selection(arguments.suite, arguments.case, arguments.model, arguments.last)


def _write_page(
    path: Path, history: History, runs: Sequence[HistoryRun], timelines: Sequence[Timeline]
) -> int:
    from pytest_cepbench.report.history.site import history_page, report_links
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
        timeline.name,
        "accepted" if point.accepted else point.verdict,
        number(point.value),
        number(point.baseline),
        number(point.difference, signed=True),
        str(len(timeline.points)),
        timeline.sparkline(),
    )


_OVER = "over 20"


def show_series(arguments: Namespace) -> int:
    """Show a series; exit codes as in `main`."""
    root: Path = arguments.baselines
    file = SeriesFile(root, arguments.series)
    record = file.read()
    if record is None:
        known = recorded_names(root)
        reason = unknown_name("series", arguments.series, known)
        return complain(f"no record below {root / SERIES}: {reason}", MISTAKE)
    show([_looks(record, arguments.series), *_delays(record, arguments.series)])
    return 0


def _looks(record: SeriesRecord, name: str) -> Section:
    """What was looked at, in order."""
    rows = [
        (
            str(look),
            cases[0].spec if cases else "-",
            f"{checkpoint_share(look, record.expected):.2%}",
            _verdicts(cases),
        )
        for look, cases in record.looks()
    ]
    following = checkpoint_share(record.next_look, record.expected)
    lines = (
        (
            f"half of alpha is for the first {record.expected} checkpoints; the next is number "
            f"{record.next_look} and has {following:.2%}"
        ),
        Table(("number", "checkpoint", "of alpha", "verdicts"), tuple(rows)),
    )
    return Section(f"series {name}", lines)


def _verdicts(cases: list[Entry]) -> str:
    """The verdicts of a look, each with its number of cases."""
    words = [case.verdict or "not ended" for case in cases]
    counts = {word: words.count(word) for word in dict.fromkeys(words)}
    return ", ".join(f"{count} {word}" for word, count in counts.items())


def _delays(record: SeriesRecord, name: str) -> Iterator[Section]:
    """Delays of each case, from its spread when it was last compared."""
    latest = {entry.case: entry for entry in record.lines if entry.design is not None}
    rows = tuple(
        row for entry in latest.values() if (row := _delay_row(record, name, entry)) is not None
    )
    if not rows:
        return
    lines = (
        (
            "checkpoints until a lasting drop is found with 80 % power, from the spread of the "
            "last comparison and if the baseline stays; a drop of one tolerance is tolerated"
        ),
        Table(("case", "tolerance", "units", "drop of 2 x", "drop of 4 x", "0.5 x at each"), rows),
    )
    yield Section("how soon a drop is found", lines)


def _delay_row(record: SeriesRecord, name: str, entry: Entry) -> tuple[str, ...] | None:
    if entry.design is None or entry.tolerance is None:
        return None
    policy = Policy(
        tolerance=entry.tolerance, alpha=entry.alpha, anchor_tolerance=entry.anchor_tolerance
    )
    place = Place(name, record.last_look, record.expected, entry.alpha, baseline=entry.baseline)
    delays = delays_of(place, entry.design, policy)
    if delays is None:
        return None
    _, twice, fourfold = delays.drops
    shown = (_OVER if delay is None else str(delay) for delay in (twice, fourfold, delays.decline))
    return (entry.case, number(entry.tolerance), str(entry.design.units), *shown)
