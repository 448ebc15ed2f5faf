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


@dataclass(frozen=True)
class SimultaneousRanks:
    """Ranks of M models, all of them right at once with the given confidence.

    ranks: one for each model.
    errors: (M, M) standard errors of the differences.
    critical: half a simultaneous interval of a difference, in standard errors.
    """

    ranks: tuple[RankInterval, ...]
    errors: FloatArray
    critical: float


def rank_intervals(
    values: FloatArray,
    covariance: FloatArray,
    *,
    confidence: float = 0.95,
    degrees: int | None = None,
    seed: int = 0,
) -> SimultaneousRanks:
    """Rank models by estimates of which only the covariance is known.

    values: (M,) estimates, higher is better.
    covariance: (M, M) of their errors.
    degrees: of freedom of the covariance, for Student's t; None for a normal distribution.
    seed: of the simulation.
    A model ranks behind those that are surely better and before those that are surely worse, where
    "surely" is a simultaneous interval of all differences (single-step max-t, the largest of their
    errors being simulated). Source: Hothorn, Bretz and Westfall 2008; for ranks, Mogstad et al.
    2024.
    """
    size = len(values)
    variance = np.diag(covariance)
    errors = np.sqrt(np.maximum(variance[:, None] + variance[None, :] - 2 * covariance, _TINY))
    rng = np.random.default_rng(seed)
    draws = rng.multivariate_normal(
        np.zeros(size), covariance, _DRAWS, method="svd", check_valid="ignore"
    )
    if degrees is not None:
        draws /= np.sqrt(rng.chisquare(degrees, (_DRAWS, 1)) / degrees)
    left, right = np.triu_indices(size, 1)
    largest = np.abs((draws[:, left] - draws[:, right]) / errors[left, right]).max(
        axis=1, initial=0.0
    )
    critical = float(np.quantile(largest, confidence))
    difference = values[:, None] - values[None, :]
    surely = np.abs(difference) > critical * errors
    above = (surely & (difference < 0)).sum(axis=1).tolist()
    below = (surely & (difference > 0)).sum(axis=1).tolist()
    ranks = tuple(RankInterval(1 + a, size - b) for a, b in zip(above, below, strict=True))
    return SimultaneousRanks(ranks, errors, critical)
