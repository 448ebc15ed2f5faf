"""What chance alone gives: each sample's outputs against the starts of others."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.floating[Any]]


def chance_similarities(
    start: FloatArray,
    later: FloatArray,
    starts: Sequence[Hashable],
    groups: Sequence[Hashable],
) -> npt.NDArray[np.float64] | None:
    """Mean similarity of each start to what became of other samples of its group.

    start: (n, d); later: (n, T, d), any float type, any length. A row of zeros stands for what there
    is no vector of: it is similar to nothing, as a failed step is in the score.
    starts: (n,) what each sample starts from; samples of equal starts are not exchanged.
    groups: (n,) the group (category) of each. Samples that have nobody to be exchanged with in
    their group are exchanged with all others.
    Returns (n, T) float64 in [-1, 1]; None where all starts are equal.
    A mean of cosines with one start is the cosine-like product with the mean of the unit vectors. So
    this is exact over all pairs, in O(n T d): no pairs are drawn.
    A score that is linear in the similarities (GC@T, s(T), SIM, MCD) has its floor by chance in the
    mean of the same score of these rows.
    Raises ValueError for shapes that do not fit.
    """
    fits = start.ndim == 2 and later.ndim == 3 and start.shape == (later.shape[0], later.shape[2])
    if not fits or not len(start) == len(starts) == len(groups):
        msg = (
            f"expected (n, d), (n, T, d) and n names twice, got {start.shape}, {later.shape}, "
            f"{len(starts)} and {len(groups)}"
        )
        raise ValueError(msg)
    if len(set(starts)) < 2:
        return None
    chance = np.zeros(later.shape[:2])
    strays = []
    for members in _rows_by(groups):
        strays += _exchange(members, start, later, starts, chance)
    if strays:
        apart = np.zeros_like(chance)
        _exchange(list(range(len(start))), start, later, starts, apart)
        chance[strays] = apart[strays]
    return chance.clip(-1.0, 1.0)


def _exchange(
    members: Sequence[int],
    start: FloatArray,
    later: FloatArray,
    starts: Sequence[Hashable],
    chance: npt.NDArray[np.float64],
) -> list[int]:
    """Fill in the rows of the members; returns those that have nobody to be exchanged with."""
    outputs = _unit(later[list(members)])
    whole = outputs.sum(axis=0)
    alone: list[int] = []
    for own in _rows_by([starts[i] for i in members]):
        rows = [members[place] for place in own]
        others = len(members) - len(own)
        if others:
            mean = (whole - outputs[own].sum(axis=0)) / others
            chance[rows] = _unit(start[rows]) @ mean.T
        else:
            alone += rows
    return alone


def _rows_by(names: Sequence[Hashable]) -> list[list[int]]:
    """The places of each name, in order of first appearance."""
    found: dict[Hashable, list[int]] = {}
    for place, name in enumerate(names):
        found.setdefault(name, []).append(place)
    return list(found.values())


def _unit(vectors: FloatArray) -> npt.NDArray[np.float64]:
    """Of length 1, or of length 0 where they were."""
    wide = vectors.astype(np.float64)
    # Scaled by the largest entry first, so that squares neither overflow nor vanish.
    largest = np.abs(wide).max(axis=-1, keepdims=True, initial=0.0)
    wide /= np.where(largest > 0.0, largest, 1.0)
    length = np.linalg.norm(wide, axis=-1, keepdims=True)
    unit: npt.NDArray[np.float64] = wide / np.where(length > 0.0, length, 1.0)
    return unit
