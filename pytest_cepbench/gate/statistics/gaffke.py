"""Gaffke's lower bound of a mean with a known worst value, which needs no bell shape."""

from __future__ import annotations

from math import log, pi, sqrt

import numpy as np

from pytest_cepbench.gate.statistics.differences import Array

_STEP, _LAST_PLACE = 0.2, 18.0  # of the trapezoid rule: its first step, and its last place
_NEGLIGIBLE = -30.0  # exp of it, against the largest term
_MOST_HALVINGS = 12
_SETTLED = 1e-9  # relative change by a halving; the error left is far smaller
_EDGE, _LEAST = 1e-15, 1e-30  # nearer to the end, or to 0, no quantile is told from it
_GROUPED_DECIMALS = 12  # decimals that values are grouped by: 0.3 - 0.1 and 0.2 are one value


def gaffke_lower(values: Array, worst: float, alpha: float) -> float:
    """Lower bound at level alpha of a mean of values that are never below worst.

    values: (n,) finite, n >= 1, none below worst.
    alpha: in (0, 0.5].
    Returns the alpha-quantile of sum_i D_i z_i, where z are the values with one more at worst, and
    D is uniform on the simplex (Dirichlet with all parameters 1). Between worst and the largest
    value. On values of 0 and 1 with worst = 0 it is Clopper and Pearson's bound; for n equal values
    v it is worst + (v - worst) alpha^(1/n), the rule of three.
    That it errs with probability at most alpha is proven for values of 0 and 1 and conjectured for
    all others: no violation has been found, in the simulations of these papers or in our tests.
    Computed without random numbers: the probability at the bound is alpha within a relative error
    of 1e-8.
    Source: Gaffke, Three test statistics for a nonparametric one-sided hypothesis on the mean of a
    nonnegative variable, 2005; Learned-Miller and Thomas, A new confidence interval for the mean of
    a bounded random variable, 2020; Phan, Thomas and Learned-Miller, Towards practical mean bounds
    for small samples, ICML 2021.
    Raises ValueError for other numbers.
    """
    numbers = np.asarray(values, dtype=np.float64)
    if (
        numbers.ndim != 1
        or not len(numbers)
        or not (np.isfinite(numbers).all() and 0 < alpha <= 0.5)
    ):
        raise ValueError(
            f"expected (n,) finite values and alpha in (0, 0.5], got {numbers.tolist()} and {alpha}"
        )
    if numbers.min() < worst:
        raise ValueError(
            f"a value of {numbers.min()} is below the worst that was said to be possible, {worst}"
        )
    span = float(numbers.max()) - worst
    if span == 0:
        return worst
    points, counts = np.unique(
        np.append(np.round((numbers - worst) / span, _GROUPED_DECIMALS), 0.0), return_counts=True
    )
    if len(points) == 2 and counts[0] == 1:
        return worst + span * float(alpha ** (1 / len(numbers)))
    return worst + span * _quantile(points, counts.astype(np.float64), alpha)


def _quantile(points: Array, counts: Array, alpha: float) -> float:
    """The q with P(sum D_i z_i <= q) = alpha. points: (m,) distinct, from 0 to 1. counts: (m,)."""
    from scipy.optimize import brentq

    def excess(q: float) -> float:
        return _log_probability(points - q, counts) - log(alpha)

    return float(brentq(excess, _LEAST, 1 - _EDGE, xtol=_LEAST, rtol=1e-14))


def _log_probability(away: Array, counts: Array) -> float:
    """Log of P(sum_j G_j a_j <= 0), G_j independent Gamma variables.

    away: (m,) a_j, of both signs, the least first.
    counts: (m,) shapes of the G_j.
    The integral 1 / (2 pi i) of prod (1 - a_j s)^-n_j / -s over the vertical line through the
    saddlepoint s = -t, where -sum n_j log(1 + a_j t) - log t is least, by the trapezoid rule, which
    converges faster than any power of its step. Steps are even in u of y = width * sinh(u), since
    the tails of few variables are long, and are halved until the sum stays: one outlier among many
    makes the integrand turn often.
    """
    from scipy.optimize import brentq

    def slope(t: float) -> float:
        return -float((away / (1 + away * t)) @ counts) - 1 / t

    edge = 1 / float(-away[0])
    t = float(brentq(slope, 1e-9 * edge, (1 - 1e-12) * edge, rtol=1e-10))
    ratios = np.append(away / (1 + away * t), 1 / t)
    shapes = np.append(counts, 1.0)
    width = 1 / sqrt(float((ratios * ratios) @ shapes))

    def sizes(u: Array) -> Array:
        turned = np.multiply.outer(width * np.sinh(u), ratios)
        return np.asarray(np.log(np.cosh(u)) - np.log1p(turned * turned) @ shapes / 2, np.float64)

    def summed(u: Array) -> float:
        turns = np.arctan(np.multiply.outer(width * np.sinh(u), ratios)) @ shapes
        return float(np.exp(sizes(u)) @ np.cos(turns))

    grid = np.arange(_STEP, _LAST_PLACE, _STEP)
    reach = float(grid[sizes(grid) > _NEGLIGIBLE].max(initial=_STEP)) + _STEP / 2
    step, total = _STEP, summed(grid[grid < reach]) + 0.5  # the term at u = 0
    for _ in range(_MOST_HALVINGS):
        before, step = step * total, step / 2
        total += summed(np.arange(step, reach, 2 * step))
        if abs(step * total - before) <= _SETTLED * abs(before):
            break
    peak = -float(np.log1p(away * t) @ counts) - log(t)
    return peak + log(max(width * step * total / pi, _LEAST))
