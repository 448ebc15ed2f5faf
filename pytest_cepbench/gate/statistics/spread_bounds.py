"""Bounds from the spread of differences: Student's t without skewness, and the BCa bootstrap."""

from __future__ import annotations

from math import ceil, isfinite, sqrt

import numpy as np
import numpy.typing as npt

from pytest_cepbench.gate.statistics.differences import Differences
from pytest_cepbench.metrics.uncertainty import t_upper_quantile

Array = npt.NDArray[np.float64]

LEAST_RESAMPLES = 9999
_BEYOND = 30  # resamples beyond the bound: their count has a relative error of under 20 %
_AT_ONCE = 1 << 20  # draws held in memory
_GRID = 9  # decimals of a resampled mean, in standard deviations

_SPENT = 0.9  # of alpha, see `careful_quantile`
_FEW, _MOST_HIDDEN = 22, 1.25  # units that hide skewness, and the most that they hide of it
_FARTHEST = 9 / 8  # of c t + c^2 / 6, where the transformation turns back


def t_steps(d: Differences, alpha: float) -> tuple[float, float]:
    """Distances of the one-sided bounds below and above the mean, in standard errors, both >= 0.

    d: differences that are not all alike.
    alpha: error of each bound, in (0, 0.5].
    Plain t misses the mean of skewed differences many times as often as it promises, the more so
    the smaller alpha is, and skewness is the rule where few samples lose much. Hall's
    transformation takes the skewness out; few samples show less of it than there is, so it is
    moved to the unfavourable side, see `t_step`, and never taken for a help. With g = min(0,
    moved skewness) and c = g / sqrt(K) the lower bound lies
    3 / c * (cbrt(1 + c (t - c / 6)) - 1) standard errors below the mean, the upper one by mirror
    image, t at nine tenths of alpha (see `careful_quantile`), and neither is ever nearer than that.
    K is the number of effective units: where the spread of one small category or of few heavy
    clusters makes up that of the mean, it is they that count.
    What no sample shows it cannot allow for: where one sample in fifty loses very much and the rest
    hardly anything, a sample of 60 in which none did has a lower bound that is too high.
    Source: Hall, On the removal of skewness by transformation, 1992; the moves are ours.
    """
    t = careful_quantile(alpha, d.degrees)
    skewness, count = d.skewness, d.effective_units
    return t_step(t, min(0.0, skewness), count), t_step(t, min(0.0, -skewness), count)


def careful_quantile(alpha: float, degrees: int) -> float:
    """Student's quantile at nine tenths of alpha.

    What is left when skewness is out: differences of which most are 0, a few hundred of them, erred
    up to a tenth more often than promised in simulations. It costs some 2 % of width.
    """
    return t_upper_quantile(_SPENT * alpha, degrees)


def t_step(t: float, skewness: float, count: float) -> float:
    """One side of `t_steps`: t Student's quantile, skewness at most 0, count effective units.

    The skewness is moved by one standard error, sqrt(6 / K), and around 20 units and below by up
    to another 1.25 times the skewness: of samples that lie as lopsided as they can, so few show a
    third of it. As the transformation's c falls, the bound moves away until c t + c^2 / 6 is 9 / 8,
    to four times t, and then comes back, which would make the most lopsided samples count as
    harmless; from there on it stays where it was farthest.
    """
    few = min(_MOST_HIDDEN, (_FEW / count) ** 3)
    moved = skewness - sqrt(6 / count) * (1 - few * skewness)
    c = -min(-moved / sqrt(count), 3 * (sqrt(t * t + _FARTHEST * 2 / 3) - t))
    root = float(np.cbrt(1 + c * (t - c / 6)))
    return max(t, 3 / c * (root - 1))


def bca_steps(residuals: Array, alpha: float, *, seed: int = 0) -> tuple[float, float]:
    """Distances of the one-sided bounds below and above the mean, both >= 0.

    residuals: (K,) centred values, not all 0.
    alpha: error of each bound, in (0, 0.5].
    seed: of the generator that draws; the same residuals and seed give the same bounds, whatever
    their order.
    Bias-corrected and accelerated percentiles of the resampled mean; for a mean, the acceleration
    sum r^3 / (6 (sum r^2)^1.5) of the jackknife is known in closed form. At least 9,999 resamples,
    30 / alpha where that is more. For samples of a few dozen and a small alpha `t_steps` errs less.
    Source: Efron, Better bootstrap confidence intervals, 1987.
    """
    from scipy.special import ndtri

    ordered = np.sort(residuals)
    scale = sqrt(float(ordered @ ordered) / len(ordered))
    ordered /= scale
    count = max(LEAST_RESAMPLES, ceil(_BEYOND / alpha))
    # Rounded, so that means that tie with the sample's own are seen to tie.
    means = np.sort(np.round(_resampled_means(ordered, count, seed), _GRID))
    below = np.searchsorted(means, 0.0, "left") + np.searchsorted(means, 0.0, "right")
    edge = 0.5 / len(means)
    bias = float(ndtri(min(max(float(below) / (2 * len(means)), edge), 1 - edge)))
    acceleration = float((ordered**3).sum()) / (6 * float((ordered**2).sum()) ** 1.5)
    z = float(ndtri(alpha))
    low, high = (float(np.quantile(means, _level(bias, acceleration, side))) for side in (z, -z))
    return scale * max(0.0, -low), scale * max(0.0, high)


def _level(bias: float, acceleration: float, z: float) -> float:
    """The percentile that stands for z; past the pole of the correction, the outermost one."""
    from scipy.special import ndtr

    moved = bias + z
    shrink = 1 - acceleration * moved
    if shrink <= 0 or not isfinite(moved / shrink):
        return 0.0 if moved < 0 else 1.0
    return float(ndtr(bias + moved / shrink))


def _resampled_means(values: Array, count: int, seed: int) -> Array:
    generator = np.random.default_rng(seed)
    rows = max(1, _AT_ONCE // len(values))
    parts = [
        values[generator.integers(len(values), size=(min(rows, count - done), len(values)))].mean(1)
        for done in range(0, count, rows)
    ]
    return np.concatenate(parts)
