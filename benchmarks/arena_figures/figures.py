"""What was measured of simulated battles, and whether it keeps what the gate promises."""

from __future__ import annotations

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
