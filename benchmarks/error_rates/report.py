"""What was measured, and whether it keeps what the gate promises."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import sqrt

import numpy as np
import numpy.typing as npt

_ERRORS_BEYOND = 3.0  # standard errors by which chance may exceed a promise


@dataclass
class Promises:
    """Those that were measured. broken: a sentence for each that did not hold."""

    measured: int = 0
    broken: list[str] = field(default_factory=list)

    def keep(self, what: str, value: float, error: float, at_most: float) -> bool:
        """Whether a value is at most what was promised, but for chance; else it is broken."""
        self.measured += 1
        if value <= at_most + _ERRORS_BEYOND * error:
            return True
        self.broken.append(f"{what}: {value:.4f} +- {error:.4f}, promised at most {at_most:.4f}")
        return False

    def percent(
        self, what: str, hits: npt.NDArray[np.bool_], at_most: float | None = None, cases: int = 1
    ) -> str:
        """A rate in percent with its standard error, in brackets where nothing is promised.

        hits: (runs,) of one case.
        cases: independent ones of a run, which errs where one of them does.
        at_most: promised of such a run.
        """
        one = float(hits.mean())
        rate = 1 - (1 - one) ** cases
        error = cases * (1 - one) ** (cases - 1) * sqrt(one * (1 - one) / len(hits))
        text = f"{100 * rate:.1f}±{100 * error:.1f}"
        if at_most is None:
            return f"({text})"
        self.keep(what, rate, error, at_most)
        return text


def share(hits: npt.NDArray[np.bool_]) -> str:
    """A rate in percent, for tables of many."""
    return f"{100 * hits.mean():.0f}"
