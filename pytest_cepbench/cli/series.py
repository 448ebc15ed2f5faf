"""`cepbench history --series`: what a series looked at, and how soon it finds a drop."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path

from pytest_cepbench.cli.output import MISTAKE, Section, Table, complain, show
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
from pytest_cepbench.report.number_format import number

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
    rows = tuple(row for entry in latest.values() if (row := _delay_row(record, name, entry)) is not None)
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
