"""Gaffke's lower bound of a mean with a known worst value, which needs no bell shape."""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, log, log1p, pi, sqrt

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]

_STEP = 0.2  # of the trapezoid rule, at first
_MOST_HALVINGS = 12
_SETTLED = 1e-9  # relative change by a halving; the error left is far smaller
_NEGLIGIBLE = -30.0  # exp of it, against the largest term
_GRID = 12  # decimals that values are grouped by: 0.3 - 0.1 and 0.2 are one value


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
        np.append(np.round((numbers - worst) / span, _GRID), 0.0), return_counts=True
    )
    if len(points) == 2 and counts[0] == 1:
        return worst + span * float(alpha ** (1 / len(numbers)))
    return worst + span * _quantile(points, counts.astype(np.float64), alpha)


def _quantile(points: Array, counts: Array, alpha: float) -> float:
    """The q with P(sum D_i z_i <= q) = alpha, by Newton on the logarithm.

    points: (m,) distinct, from 0 to 1.
    counts: (m,). The distribution is log-concave, so from below Newton never steps past q; a step
    out of the interval that must hold q is replaced by halving it.
    """
    total = float(counts.sum())
    low, high = 0.0, 1.0
    q = float(points @ counts * alpha ** (1 / total)) / total  # the bound of values all alike
    tilt = None
    for _ in range(100):
        probability, density, tilt = _probability(points - q, counts, tilt)
        if probability < alpha:
            low = q
        else:
            high = q
        step = probability * log(alpha / probability) / density if probability > 0 else 1.0
        after = q + step
        if abs(step) <= 1e-9 * min(q, 1 - q):
            return min(max(after, 0.0), 1.0)
        q = after if low < after < high else (low + high) / 2
    return q


def _probability(away: Array, counts: Array, tilt: float | None) -> tuple[float, float, float]:
    """P(sum_j G_j a_j <= 0), its derivative by the common shift of all a_j downward, and the tilt.

    away: (m,) a_j, of both signs, the least first.
    counts: (m,) shapes of the independent Gamma variables G_j.
    tilt: a first guess of the saddlepoint.
    The integral 1 / (2 pi i) of prod (1 - a_j s)^-n_j / -s over the vertical line through the
    saddlepoint s = -tilt, by the trapezoid rule, which converges faster than any power of its step.
    Steps are even in u of y = width * sinh(u), since the tails of few variables are long, and are
    halved until the sum stays: one outlier among many makes the integrand turn often.
    """
    saddle = _saddle(away, counts, tilt)
    reach = 2.0
    while saddle.log_size(saddle.width * float(np.sinh(reach))) > _NEGLIGIBLE:
        reach += 0.5
    step = _STEP
    sums = saddle.sums(np.arange(step, reach + step, step)) + saddle.sums(np.zeros(1)) / 2
    for _ in range(_MOST_HALVINGS):
        before, step = step * sums, step / 2
        sums = sums + saddle.sums(np.arange(step, reach + step, 2 * step))
        if abs(step * sums[0] - before[0]) <= _SETTLED * abs(before[0]):
            break
    probability, slope = (float(part) for part in exp(saddle.log_peak) * step / pi * sums)
    return probability, slope, saddle.tilt


@dataclass(frozen=True)
class _Saddle:
    """The vertical line where the integrand is least on the real axis, at s = -tilt.

    log_peak: of the integrand there.
    width: of its peak.
    ratios: (m,) a_j / (1 + a_j tilt), by which each factor is 1 - i y r_j at height y, against its
    value at the peak.
    counts: (m,).
    shifts: (m,) n_j / (1 + a_j tilt).
    """

    tilt: float
    log_peak: float
    width: float
    ratios: Array
    counts: Array
    shifts: Array

    def log_size(self, height: float) -> float:
        """Log of the integrand's size at a height against the peak, times the step there."""
        fall = float(np.log1p((self.ratios * height) ** 2) @ self.counts)
        fall += log1p((height / self.tilt) ** 2)
        return log1p(height / self.width) - fall / 2

    def sums(self, u: Array) -> Array:
        """Sums over u of the integrand times dy / du, against the peak, and of its derivative."""
        turned = -1j * self.width * np.sinh(u)
        factors = 1 + np.multiply.outer(turned, self.ratios)
        single = self.counts == 1
        product = factors[:, single].prod(axis=1)
        if not single.all():  # the logarithm costs ten times as much as a product
            product *= np.exp(np.log(factors[:, ~single]) @ self.counts[~single])
        terms = self.width * np.cosh(u) / product
        slopes = terms * ((1 / factors) @ self.shifts) * self.tilt
        return np.array([(terms / (1 + turned / self.tilt)).real.sum(), slopes.real.sum()])


def _saddle(away: Array, counts: Array, tilt: float | None) -> _Saddle:
    """The least of L(t) = -sum n_j log(1 + a_j t) - log t over t > 0 with all 1 + a_j t > 0.

    L is self-concordant: Newton steps damped by 1 / (1 + decrement) cannot leave the domain and
    reach the least from anywhere in it.
    """
    edge = 1 / float(-away[0])
    t = min(tilt, 0.99 * edge) if tilt else edge / 2
    for _ in range(200):
        ratios = away / (1 + away * t)
        slope = -float(ratios @ counts) - 1 / t
        curve = float((ratios * ratios) @ counts) + 1 / (t * t)
        decrement = abs(slope) / sqrt(curve)
        if decrement < 1e-3:
            break
        t -= slope / curve / (1 + decrement if decrement > 0.25 else 1)
    log_peak = -float(np.log1p(away * t) @ counts) - log(t)
    return _Saddle(t, log_peak, 1 / sqrt(curve), ratios, counts, counts / (1 + away * t))
