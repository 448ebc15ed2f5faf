"""What a curve says: whether it rises, where it levels off, whether it orders as the truth does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import combinations, permutations

import numpy as np
import numpy.typing as npt

from benchmarks.curves.resampling import Array, Draws, Estimate, estimate, rounded

MOST_COUNTED = 8
"""Checkpoints whose orders are all counted: 8! are 40,320. Of more, so many random ones are."""

_RANDOM_ORDERS = 99_999

_ROUNDING = 1e-9


@dataclass(frozen=True)
class Fall:
    """A later checkpoint that is worse than an earlier one by more than noise. change: below 0."""

    earlier: int
    later: int
    change: Estimate


@dataclass(frozen=True)
class Tau:
    """Kendall's tau-b of two columns over the checkpoints of a series.

    p: share of all orders of the checkpoints whose tau is as far from 0, or farther; beyond
    `MOST_COUNTED` checkpoints, of random orders and the one that was found.
    """

    value: float
    low: float | None
    high: float | None
    p: float


def falls(steps: Sequence[int], values: Array, replicates: Array) -> tuple[Fall, ...]:
    """Every pair of checkpoints, the later worse, whose interval excludes that it is not.

    values: (m,) and replicates: (m, B), turned so that higher is better. Each pair has its own
    interval, for itself: with 21 pairs, one fall by chance is no surprise.
    """
    fallen = []
    for i, j in combinations(range(len(steps)), 2):
        change = estimate(values[j] - values[i], replicates[j] - replicates[i])
        if change.high is not None and change.high < 0:
            fallen.append(Fall(steps[i], steps[j], change))
    return tuple(fallen)


def saturation(
    steps: Sequence[int], values: Array, replicates: Array, tolerance: float
) -> int | None:
    """The first step from which on no checkpoint differs from the last; None where none before it.

    Two differ where they are more than the tolerance apart and the interval of their paired
    difference excludes 0. Few samples see few differences: it is the step from which on these
    samples cannot tell.
    """
    first = None
    for i in reversed(range(len(steps) - 1)):
        apart = estimate(values[-1] - values[i], replicates[-1] - replicates[i])
        if abs(apart.value) > tolerance and not _covers_zero(apart):
            break
        first = steps[i]
    return first


def _covers_zero(change: Estimate) -> bool:
    if change.low is None or change.high is None:
        return True
    return change.low <= 0 <= change.high


def kendall(first: Array, second: Array) -> Array:
    """Kendall's tau-b along the last axis, for many columns at once; NaN where one is constant.

    first, second: (..., m), broadcast. Equal to `pytest_cepbench.metrics.correlation` for each.
    """
    i, j = np.triu_indices(np.shape(first)[-1], k=1)
    up = np.sign(_settled(first[..., j] - first[..., i]))
    other = np.sign(_settled(second[..., j] - second[..., i]))
    untied = np.abs(up).sum(axis=-1) * np.abs(other).sum(axis=-1)
    with np.errstate(divide="ignore", invalid="ignore"):
        tau: Array = (up * other).sum(axis=-1) / np.sqrt(untied)
    return tau


def tau(first: Array, second: Array, first_drawn: Array, second_drawn: Array) -> Tau | None:
    """Tau of two columns over checkpoints, with its interval; None where one is constant.

    first, second: (m,). first_drawn, second_drawn: (m, B) replicates by the same draws of samples.
    The interval is about these samples; p is about the order of so few checkpoints. Neither is
    about another training run.
    """
    value = float(kendall(first, second))
    if not np.isfinite(value):
        return None
    drawn = estimate(value, kendall(first_drawn.T, second_drawn.T))
    as_far = np.abs(kendall(first[_orders(len(first))], second)) >= abs(value) - _ROUNDING
    return Tau(drawn.value, drawn.low, drawn.high, rounded(as_far.mean()))


@cache
def _orders(count: int) -> npt.NDArray[np.intp]:
    """(orders, count) all of them, or random ones after the given one."""
    if count <= MOST_COUNTED:
        return np.array(list(permutations(range(count))), dtype=np.intp)
    rng = np.random.Generator(np.random.PCG64(count))
    in_order = np.arange(count)
    return np.stack([in_order, *(rng.permutation(count) for _ in range(_RANDOM_ORDERS))])


def disordered(steps: Sequence[int], first: Array, second: Array) -> tuple[tuple[int, int], ...]:
    """Pairs of checkpoints, (earlier, later), that the two columns put in opposite orders."""
    up = _settled(first[None, :] - first[:, None]) * _settled(second[None, :] - second[:, None])
    pairs = combinations(range(len(steps)), 2)
    return tuple((steps[i], steps[j]) for i, j in pairs if up[i, j] < 0)


def concordance(scores: Array, truth: Array, draws: Draws) -> Estimate | None:
    """How often, of two chains of which one kept more, it is that one which scores higher.

    scores, truth: (n,), higher is better; ties of the score count one half. 0.5 is chance. Where
    the truth is yes or no this is the area under the ROC curve. None where all chains kept alike.
    """
    better = np.sign(_settled(truth[:, None] - truth[None, :]))
    untied = np.abs(better)
    if not untied.any():
        return None
    agrees = untied * 0.5 * (1 + better * np.sign(_settled(scores[:, None] - scores[None, :])))
    weights = np.stack([np.bincount(row, minlength=len(scores)) for row in draws]).astype(float)
    pairs = ((weights @ untied) * weights).sum(axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        drawn = ((weights @ agrees) * weights).sum(axis=1) / pairs
    return estimate(agrees.sum() / untied.sum(), drawn)


def _settled(differences: Array) -> Array:
    """Differences without those that are rounding."""
    close: npt.NDArray[np.bool_] = np.abs(differences) < _ROUNDING
    settled: Array = np.where(close, 0.0, differences)
    return settled
