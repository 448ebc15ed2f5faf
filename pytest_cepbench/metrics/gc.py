"""GC@T, the GenCeption score, the curve s(t) that it sums up, and the similarities of both."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from math import fsum
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
FloatArray = npt.NDArray[np.floating[Any]]

_BLOCK = 256  # chains at once: float64 copies of larger blocks leave the CPU's cache


def cosine_to_start(start: FloatArray, later: FloatArray) -> Array:
    """Similarity of each chain's later artifacts to its start.

    start: (n_chains, dimension); later: (n_chains, T, dimension); any float type, any length.
    Returns (n_chains, T) float64 in [-1, 1]: enc(X0) . enc(Xt) / (|enc(X0)| |enc(Xt)|).
    Source: GenCeption, Eq. 2.
    Raises ValueError for shapes that do not fit, and for vectors that are zero or not finite: they
    have no direction, and the caller must have counted them as failures.
    """
    if start.ndim != 2 or later.ndim != 3 or start.shape != (later.shape[0], later.shape[2]):
        raise ValueError(f"expected (n, d) and (n, T, d), got {start.shape} and {later.shape}")
    similarity = np.empty(later.shape[:2], dtype=np.float64)
    for low in range(0, len(start), _BLOCK):
        block = slice(low, low + _BLOCK)
        similarity[block] = np.einsum(
            "nd,ntd->nt", unit_vectors(directed(start[block])), unit_vectors(directed(later[block]))
        )
    return similarity.clip(-1.0, 1.0)


def chance_similarities(
    start: FloatArray, later: FloatArray, starts: Sequence[Hashable], groups: Sequence[Hashable]
) -> Array | None:
    """Mean similarity of each start to what became of other samples of its group.

    start: (n, d); later: (n, T, d), any float type, any length. A row of zeros stands for what
    there is no vector of: it is similar to nothing, as a failed step is in the score.
    starts: (n,) what each sample starts from; samples of equal starts are not exchanged.
    groups: (n,) the group (category) of each. Samples without another to be exchanged with in
    their group are exchanged with all others.
    Returns (n, T) float64 in [-1, 1]; None where all starts are equal.
    A mean of cosines with one start is the cosine-like product with the mean of the unit vectors.
    So this is exact over all pairs, in O(n T d): no pairs are drawn.
    A score that is linear in the similarities (GC@T, s(T), SIM, MCD) has its floor by chance in the
    mean of the same score of these rows.
    Raises ValueError for shapes that do not fit.
    """
    fits = start.ndim == 2 and later.ndim == 3 and start.shape == (later.shape[0], later.shape[2])
    if not fits or not len(start) == len(starts) == len(groups):
        raise ValueError(
            f"expected (n, d), (n, T, d) and n names twice, got {start.shape}, {later.shape}, "
            f"{len(starts)} and {len(groups)}"
        )
    if len(set(starts)) < 2:
        return None
    outputs, chance = unit_vectors(later), np.zeros(later.shape[:2])
    open_rows = np.ones(len(start), dtype=np.bool_)
    for homes in (groups, [None] * len(start)):  # all others where there is none in the group
        of_home, of_start = _codes(homes), _codes(list(zip(homes, starts, strict=True)))
        counts = np.bincount(of_home)[of_home] - np.bincount(of_start)[of_start]
        sums = [np.zeros((codes.max() + 1, *outputs.shape[1:])) for codes in (of_home, of_start)]
        np.add.at(sums[0], of_home, outputs)
        np.add.at(sums[1], of_start, outputs)
        rows = np.flatnonzero(open_rows & (counts > 0))
        means = (sums[0][of_home[rows]] - sums[1][of_start[rows]]) / counts[rows, None, None]
        chance[rows] = np.einsum("nd,ntd->nt", unit_vectors(start[rows]), means)
        open_rows[rows] = False
    return chance.clip(-1.0, 1.0)


def _codes(names: Sequence[Hashable]) -> npt.NDArray[np.intp]:
    """The number of each name, in order of first appearance."""
    numbers = {name: number for number, name in enumerate(dict.fromkeys(names))}
    return np.array([numbers[name] for name in names], dtype=np.intp)


def unit_vectors(vectors: FloatArray) -> Array:
    """(..., d) float64 of length 1, or of length 0 where they were."""
    wide = vectors.astype(np.float64)
    # Scaled by the largest entry first, so that squares neither overflow nor vanish.
    largest = np.abs(wide).max(axis=-1, keepdims=True, initial=0.0)
    wide /= np.where(largest > 0.0, largest, 1.0)
    length = np.linalg.norm(wide, axis=-1, keepdims=True)
    unit: Array = wide / np.where(length > 0.0, length, 1.0)
    return unit


def directed(vectors: FloatArray) -> FloatArray:
    """The vectors, each with a direction. Raises ValueError for those of zeros, NaN or infinity."""
    largest = np.abs(vectors).max(axis=-1, initial=0.0)
    if not np.isfinite(largest).all() or (largest == 0.0).any():
        raise ValueError("a vector is zero or not finite")
    return vectors


def gc_at_t(similarities: FloatArray) -> Array:
    """GenCeption score of each chain.

    similarities: (n_chains, T) cosine similarities to the start, iteration 1 first, in [-1, 1].
    Returns (n_chains,) sum_t t * s_t / sum_t t, in [-1, 1]; GC@1 is s_1.
    Source: GenCeption, Eq. 3. The released code also scores chains that stopped one iteration
    early, as GC@(T-1); here a chain that stopped has zeros for what is missing.
    Raises ValueError when T is 0 or the array is not two-dimensional.
    """
    values = two_dimensional(similarities)
    weights = np.arange(1, values.shape[1] + 1, dtype=np.float64)
    score: Array = values @ weights / weights.sum()
    return score


def mean_similarity(similarities: FloatArray) -> Array:
    """The curve s(t): mean over chains of the similarity at each iteration.

    similarities: (n_chains, T), n_chains at least 1.
    Returns (T,).
    Source: GenCeption, section 2; s(T) is the ablation without temporal weighting of Table 3.
    Raises ValueError when there is no chain or no iteration.
    """
    values = two_dimensional(similarities)
    if not len(values):
        raise ValueError("s(t) of no chains is not defined")
    curve: Array = values.mean(axis=0)
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


def two_dimensional(similarities: FloatArray) -> Array:
    """Similarities as float64. Raises ValueError where T is 0 or they are no (n_chains, T)."""
    values = np.asarray(similarities, dtype=np.float64)
    if values.ndim != 2 or values.shape[1] == 0:
        raise ValueError(f"expected (n_chains, T) with T at least 1, got {values.shape}")
    return values
