"""Spread of a model's scores over repeated measurements: seeds, generators or encoders."""

from __future__ import annotations

from dataclasses import dataclass
from math import fsum, sqrt
from typing import Any

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.floating[Any]]


@dataclass(frozen=True)
class ModelVariability:
    """One model over its runs: mean, standard deviation, smallest, largest and their difference."""

    runs: int
    mean: float
    std: float
    low: float
    high: float
    range: float


def spread_of(scores: FloatArray) -> ModelVariability:
    """Spread of one model's scores over at least two runs.

    scores: (runs,), finite. std is that of a sample (divided by runs - 1): of MMGenBench's Table
    14, three rows have a larger deviation than any four numbers with their mean, minimum and
    maximum could have if it were divided by the number of runs.
    Source: MMGenBench, Tables 6 and 14.
    Raises ValueError for fewer runs or a score not finite.
    """
    runs = np.asarray(scores, dtype=np.float64)
    if runs.ndim != 1 or len(runs) < 2 or not np.isfinite(runs).all():
        msg = f"expected (runs,) finite scores of at least 2 runs, got {runs.tolist()}"
        raise ValueError(msg)
    values = runs.tolist()
    mean = fsum(values) / len(values)
    std = sqrt(fsum((value - mean) ** 2 for value in values) / (len(values) - 1))
    low, high = min(values), max(values)
    return ModelVariability(len(values), mean, std, low, high, high - low)
