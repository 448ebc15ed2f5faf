"""Levels of looks at growing samples whose means are correlated: a group sequential test.

Bonferroni's inequality takes looks for unrelated. They are not: a mean of 100 samples and one of
the 80 among them err together. The means of nested samples are, but for their last bits, those of
a Brownian motion at the shares of all samples, and so the probability that any look errs can be
computed and spent whole. Sources: Armitage, McPherson and Rowe, Repeated significance tests on
accumulating data, 1969 (the recursion); Jennison and Turnbull, Group Sequential Methods, 2000,
chapter 3 (why the joint law holds for estimates of this kind).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import pairwise
from math import sqrt
from statistics import NormalDist

import numpy as np

from pytest_cepbench.gate.statistics.differences import Array
from pytest_cepbench.gate.statistics.error_budget import look_shares

SEQUENTIAL_GROWTH = 1.25
"""Growth of a look over the one before it: finer looks cost little where levels know each other."""

FIRST_SEQUENTIAL_LOOK = 12
"""Samples at the first look: large drops show in few."""

_LAST = 0.5
"""Of the error: what the last look has, as under `look_shares`, so that whoever does not stop early
pays as little for having looked."""

_SPENT = 0.95
"""Of the error: what the looks spend together by the computation, which is one of normal means."""

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(96)

_FAR = 8.0  # standard deviations below which a motion does not come

_NORMAL = NormalDist()


@cache
def sequential_levels(sizes: tuple[int, ...], alpha: float) -> tuple[float, ...]:
    """Level of the bound at each look, one-sided.

    sizes: samples at each look, rising; the earlier ones are among the later ones.
    alpha: error of all looks together, in (0, 0.5].
    Returns (K,) levels: half of alpha for the last look, and for each earlier one the same level,
    with which any of K normal means of correlation sqrt(n_j / n_k) lies beyond its bound with
    probability 0.95 alpha. The levels add up to more than alpha; they are never below those of
    Bonferroni's inequality.
    Raises ValueError for sizes that do not rise, and for another alpha.
    """
    if not 0 < alpha <= 0.5:
        raise ValueError(f"alpha is the error of one bound, in (0, 0.5], got {alpha}")
    if not sizes or sizes[0] < 1 or any(a >= b for a, b in pairwise(sizes)):
        raise ValueError(f"expected sizes of looks that rise from 1 on, got {sizes}")
    least = tuple(alpha * share for share in look_shares(len(sizes)))
    if len(sizes) == 1:
        return least
    shares = tuple(size / sizes[-1] for size in sizes)
    last = _LAST * alpha
    low, high = least[0], alpha
    for _ in range(30):
        middle = sqrt(low * high)
        levels = (*[middle] * (len(sizes) - 1), last)
        if crossing_probability(shares, levels) <= _SPENT * alpha:
            low = middle
        else:
            high = middle
    return (*[low] * (len(sizes) - 1), last)


def crossing_probability(shares: Sequence[float], levels: Sequence[float]) -> float:
    """Probability that a Brownian motion without drift is ever beyond its bound.

    shares: times of the looks, rising to 1.
    levels: of the one-sided bound at each look, in (0, 0.5].
    By recursion over the density of what has not crossed yet, on Gauss's nodes.
    """
    crossed = 0.0
    points = np.zeros(1)
    mass = np.ones(1)
    before = 0.0
    for share, level in zip(shares, levels, strict=True):
        bound = -_NORMAL.inv_cdf(level) * sqrt(share)
        step = sqrt(share - before)
        crossed += float(mass @ _above((bound - points) / step))
        low = -_FAR * sqrt(share)
        half = (bound - low) / 2
        at = low + half * (_NODES + 1)
        density = np.exp(-(((at[:, None] - points) / step) ** 2) / 2) @ mass
        mass = density * _WEIGHTS * half / (step * sqrt(2 * np.pi))
        points, before = at, share
    return crossed


def _above(z: Array) -> Array:
    """Upper tail of the standard normal."""
    return np.array([_NORMAL.cdf(-x) for x in z.tolist()])
