"""The table of how often a judge agrees with people, or two judges with one another."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pytest_cepbench.cli.output import Table
from pytest_cepbench.metrics.arena import WINNERS, Agreement, Share

_READINGS = {
    "fdt": "ties forced",
    "three_way": "ties one verdict",
    "decided": "both decided",
}


def agreement_table(agreements: Iterable[Agreement]) -> Table:
    """A row for each reading of ties, in percent."""
    head = ("ties", "all", "seen", "unseen", "harmonic mean", "kappa", "chance")
    rows = tuple(
        (
            _READINGS[agreed.reading],
            share(agreed.overall),
            share(agreed.seen),
            share(agreed.unseen),
            percent(agreed.harmonic_mean),
            number(agreed.kappa),
            percent(agreed.chance),
        )
        for agreed in agreements
    )
    return Table(head, rows)


def confusion_table(rows: str, columns: str, confusion: Sequence[Sequence[int]]) -> Table:
    """How often each verdict of one judge met each of another."""
    return Table(
        (f"{rows} \\ {columns}", *WINNERS),
        tuple((winner, *map(str, row)) for winner, row in zip(WINNERS, confusion, strict=True)),
    )


def percent(value: float | None) -> str:
    """A share of one in percent, with two decimals."""
    return "-" if value is None else f"{100 * value:.2f}"


def share(counted: Share) -> str:
    """A share in percent with its interval."""
    if counted.value is None:
        return "-"
    return f"{100 * counted.value:.2f} [{100 * counted.low:.1f}, {100 * counted.high:.1f}]"


def number(value: float | None) -> str:
    """A coefficient with three decimals."""
    return "-" if value is None else f"{value:.3f}"
