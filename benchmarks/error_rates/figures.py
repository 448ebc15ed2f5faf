"""What was measured, whether it keeps what the gate promises, and tables of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import sqrt

import numpy as np
import numpy.typing as npt

ERRORS_BEYOND = 3.0
"""A promise is broken where the measured rate exceeds it by more than so many standard errors."""


@dataclass(frozen=True)
class Figure:
    """One measured number.

    what: such as "false failures". rule: by what gate. world: where the scores came from. n: units
    of a case. cases: of a run. drift, tolerance: in the unit of the scores. value: a share of the
    runs, or a mean of them. error: its standard error. runs: simulated. promise: the most that the
    gate allows, None where it promises nothing.
    """

    what: str
    rule: str
    world: str
    n: int
    cases: int
    drift: float
    tolerance: float
    value: float
    error: float
    runs: int
    promise: float | None = None

    @property
    def broken(self) -> bool:
        """Whether it is worse than promised by more than chance explains."""
        return self.promise is not None and (self.value > self.promise + ERRORS_BEYOND * self.error)

    def __str__(self) -> str:
        promised = "" if self.promise is None else f", promised at most {self.promise:.4f}"
        return (
            f"{self.what} by {self.rule}, {self.world}, n = {self.n}, {self.cases} cases, "
            f"drift {self.drift:g}, tolerance {self.tolerance:g}: "
            f"{self.value:.4f} +- {self.error:.4f} over {self.runs} runs{promised}"
        )


@dataclass(frozen=True)
class Cell:
    """What figures of one setting have in common; fields as in `Figure`."""

    rule: str
    world: str
    n: int
    cases: int
    drift: float
    tolerance: float

    def rate(self, what: str, hits: npt.NDArray[np.bool_], promise: float | None = None) -> Figure:
        """Share of the runs that were hit. hits: (runs,)."""
        share = float(hits.mean())
        error = sqrt(share * (1 - share) / len(hits))
        return self._figure(what, share, error, len(hits), promise)

    def mean(self, what: str, values: npt.NDArray[np.float64]) -> Figure:
        """Mean over runs. values: (runs,), at least 2."""
        error = float(values.std(ddof=1)) / sqrt(len(values))
        return self._figure(what, float(values.mean()), error, len(values), None)

    def _figure(
        self, what: str, value: float, error: float, runs: int, promise: float | None
    ) -> Figure:
        return Figure(
            what, self.rule, self.world, self.n, self.cases, self.drift, self.tolerance,
            value, error, runs, promise,
        )  # fmt: skip


@dataclass(frozen=True)
class Column:
    """A column of a table. title: its head. holds: if a figure belongs in it. form: how shown."""

    title: str
    holds: Callable[[Figure], bool]
    form: Callable[[Figure], str]


def percent(figure: Figure) -> str:
    """In percent, with its standard error."""
    return f"{100 * figure.value:.1f} ± {100 * figure.error:.1f}"


def whole(figure: Figure) -> str:
    """As a number of samples, with its standard error."""
    return f"{figure.value:.0f} ± {figure.error:.1f}"


def table(figures: Iterable[Figure], columns: Sequence[Column]) -> str:
    """A Markdown table with a row for each world and n, in the order that they come in."""
    rows: dict[tuple[str, int], list[Figure]] = {}
    for figure in figures:
        rows.setdefault((figure.world, figure.n), []).append(figure)
    heads = ["scores", "n", *(column.title for column in columns)]
    lines = [_line(heads), _line(["---"] * len(heads))]
    for (world, n), row in rows.items():
        cells = [" ".join(c.form(f) for f in row if c.holds(f)) or "-" for c in columns]
        if set(cells) != {"-"}:
            lines.append(_line([world, str(n), *cells]))
    return "\n".join(lines)


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"
