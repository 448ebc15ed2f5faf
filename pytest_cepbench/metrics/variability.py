"""How much scores move when a model is measured again: over seeds, generators or encoders."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import fsum, sqrt
from typing import Any

import numpy as np
import numpy.typing as npt

from pytest_cepbench.metrics.correlation import Method, correlation_matrix, mean_of_pairs

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


@dataclass(frozen=True)
class VariabilityStudy:
    """All models over the same runs.

    models: the spread of each. mean_std, mean_range: their means over the models.
    rank_correlation: mean over all pairs of runs of the rank correlation of the models; None for a
    single model or where a run scored all models the same. method: which correlation that is.
    """

    models: Mapping[str, ModelVariability]
    mean_std: float
    mean_range: float
    rank_correlation: float | None
    method: Method


def spread_of(scores: FloatArray) -> ModelVariability:
    """Spread of one model's scores over at least two runs.

    scores: (runs,), finite. std is that of a sample (divided by runs - 1): of MMGenBench's Table
    14, three rows have a larger deviation than any four numbers with their mean, minimum and
    maximum could have if it were divided by the number of runs.
    Source: MMGenBench, Tables 6 and 14. Raises ValueError for fewer runs or a score not finite.
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


def spread_study(scores: Mapping[str, FloatArray], method: Method = "spearman") -> VariabilityStudy:
    """The spread of every model and how far the runs agree on their order.

    scores: model -> (runs,), the runs in the same order in each. method: "spearman" or "kendall"
    as in MMGenBench; "pearson" compares the scores themselves.
    Source: MMGenBench, C.5 and Tables 13-15 (generators), C.6 (encoders), C.9 and Table 6 (seeds).
    The rank correlations that C.9 gives for its seeds are those of Table 1 with the means of Table
    6, not of one seed with another; here it is the latter.
    Raises ValueError when there is no model or the models differ in their runs.
    """
    if len({np.shape(runs) for runs in scores.values()}) != 1:
        shapes = {model: np.shape(runs) for model, runs in scores.items()}
        msg = f"expected the same runs, (runs,), of at least one model, got {shapes}"
        raise ValueError(msg)
    models = {model: spread_of(runs) for model, runs in scores.items()}
    return VariabilityStudy(
        models,
        mean_std=fsum(one.std for one in models.values()) / len(models),
        mean_range=fsum(one.range for one in models.values()) / len(models),
        rank_correlation=_agreement(np.array(list(scores.values()), dtype=np.float64), method),
        method=method,
    )


def _agreement(table: npt.NDArray[np.float64], method: Method) -> float | None:
    if len(table) < 2:
        return None
    runs = {str(run): column for run, column in enumerate(table.T)}
    matrix = correlation_matrix(runs, method)
    return mean_of_pairs([[cell.value if cell else None for cell in row] for row in matrix.cells])
