"""Ranks of models with their uncertainty, from simultaneous intervals of all differences."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]

_DRAWS = 20_000  # of the largest error among all differences: its 95 % point is good to a percent

_TINY = 1e-150  # variance of a difference that is the same for all samples


@dataclass(frozen=True)
class RankInterval:
    """The ranks that a model may have; 1 is best."""

    low: int
    high: int


def ranks_of(values: FloatArray, half: FloatArray) -> tuple[RankInterval, ...]:
    """The ranks that each of M models may have.

    values: (M,) estimates, higher is better.
    half: (M, M) half of the simultaneous interval of each difference, at least 0.
    A model ranks behind those that are surely better and before those that are surely worse: whose
    interval leaves out 0. Source: Mogstad et al., Inference for ranks, 2024.
    """
    difference = values[:, None] - values[None, :]
    surely = np.abs(difference) > half
    above = (surely & (difference < 0)).sum(axis=1).tolist()
    below = (surely & (difference > 0)).sum(axis=1).tolist()
    return tuple(RankInterval(1 + a, len(values) - b) for a, b in zip(above, below, strict=True))


def max_t_intervals(
    covariance: FloatArray, *, confidence: float = 0.95, seed: int = 0
) -> FloatArray:
    """Half of the simultaneous intervals of all differences of M normal estimates, (M, M).

    covariance: (M, M) of their errors.
    seed: of the simulation.
    Single-step max-t, the largest of the errors being simulated. Source: Hothorn, Bretz and
    Westfall, Simultaneous inference in general parametric models, 2008.
    """
    size = len(covariance)
    variance = np.diag(covariance)
    errors = np.sqrt(np.maximum(variance[:, None] + variance[None, :] - 2 * covariance, _TINY))
    draws = np.random.default_rng(seed).multivariate_normal(
        np.zeros(size), covariance, _DRAWS, method="svd", check_valid="ignore"
    )
    left, right = np.triu_indices(size, 1)
    largest = np.abs((draws[:, left] - draws[:, right]) / errors[left, right]).max(
        axis=1, initial=0.0
    )
    half: FloatArray = float(np.quantile(largest, confidence)) * errors
    return half
