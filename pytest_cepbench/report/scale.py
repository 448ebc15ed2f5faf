"""Axes of plots: values to pixels, and round ticks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

_LEAST_EXTENT = 1e-290
"""Of a smaller one, as of numbers near 5e-324, the step between ticks would be 0."""

T = TypeVar("T", float, "npt.NDArray[np.float64]")


@dataclass(frozen=True)
class Scale:
    """An axis of a plot.

    low, high: the values at its ends.
    left, right: pixels of its ends, the low one first; of a vertical axis the lower one first.
    step: between ticks.
    """

    low: float
    high: float
    left: float
    right: float
    step: float

    @classmethod
    def over(cls, values: Sequence[float], left: float, right: float, most_ticks: int = 7) -> Scale:
        """An axis that holds all values, with round ticks."""
        low, high = min(values), max(values)
        extent = high - low or abs(high)
        extent = extent if extent > _LEAST_EXTENT else 1.0
        low, high = low - 0.04 * extent, high + 0.04 * extent
        rough = (high - low) / most_ticks
        power = 10.0 ** math.floor(math.log10(rough))
        step = next(power * k for k in (1, 2, 5, 10) if power * k >= rough)
        return cls(low, high, left, right, step)

    @property
    def ticks(self) -> list[float]:
        """Multiples of the step on the axis."""
        first, last = math.ceil(self.low / self.step), math.floor(self.high / self.step)
        return [k * self.step for k in range(first, last + 1)]

    def place(self, value: T) -> T:
        """The pixel of a value, or of each of an array."""
        return self.left + (self.right - self.left) * (value - self.low) / (self.high - self.low)

    def show(self, tick: float, *, signed: bool = True) -> str:
        """A tick in as many decimals as the steps need."""
        decimals = max(0, -math.floor(math.log10(self.step) + 1e-9))
        if not signed:
            return f"{tick:.{decimals}f}"
        return f"{tick:+.{decimals}f}" if tick else "0"
