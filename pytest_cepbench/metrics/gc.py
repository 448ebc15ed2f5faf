"""GC@T, the GenCeption score, and the similarity curve s(t) that it sums up."""

from __future__ import annotations

from collections.abc import Mapping
from math import fsum
from typing import Any

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.floating[Any]]


def gc_at_t(similarities: FloatArray) -> npt.NDArray[np.float64]:
    """GenCeption score of each chain.

    similarities: (n_chains, T) cosine similarities to the start, iteration 1 first, in [-1, 1].
    Returns (n_chains,) sum_t t * s_t / sum_t t, in [-1, 1]; GC@1 is s_1.
    Source: GenCeption, Eq. 3. The released code also scores chains that stopped one iteration
    early, as GC@(T-1); here a chain that stopped has zeros for what is missing.
    Raises ValueError when T is 0 or the array is not two-dimensional.
    """
    values = _two_dimensional(similarities)
    weights = np.arange(1, values.shape[1] + 1, dtype=np.float64)
    score: npt.NDArray[np.float64] = values @ weights / weights.sum()
    return score


def mean_similarity(similarities: FloatArray) -> npt.NDArray[np.float64]:
    """The curve s(t): mean over chains of the similarity at each iteration.

    similarities: (n_chains, T), n_chains at least 1.
    Returns (T,).
    Source: GenCeption, section 2; s(T) is the ablation without temporal weighting of Table 3.
    Raises ValueError when there is no chain or no iteration.
    """
    values = _two_dimensional(similarities)
    if not len(values):
        raise ValueError("s(t) of no chains is not defined")
    curve: npt.NDArray[np.float64] = values.mean(axis=0)
    return curve


def mean_of_categories(scores: Mapping[str, FloatArray]) -> float:
    """Unweighted mean of the categories' means, however many samples each has.

    Sums are rounded once, so that the order of samples and categories cannot change the last bit
    and a higher score never gives a lower mean.
    scores: one (n_samples,) array per category, none empty.
    Source: the group and overall means of GenCeption, Table 2.
    Raises ValueError when there is no category or an empty one.
    """
    if not scores or any(len(values) == 0 for values in scores.values()):
        raise ValueError("a mean of categories needs at least one category and one score in each")
    return fsum(fsum(values.tolist()) / len(values) for values in scores.values()) / len(scores)


def _two_dimensional(similarities: FloatArray) -> npt.NDArray[np.float64]:
    values = np.asarray(similarities, dtype=np.float64)
    if values.ndim != 2 or values.shape[1] == 0:
        raise ValueError(f"expected (n_chains, T) with T at least 1, got {values.shape}")
    return values
