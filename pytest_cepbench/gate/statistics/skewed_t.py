"""Student's t for means of skewed differences."""

from __future__ import annotations

from math import sqrt

import numpy as np

from pytest_cepbench.gate.statistics.paired import Differences
from pytest_cepbench.metrics.student_t import t_upper_quantile

_SPENT = 0.9
_FEW, _MOST_HIDDEN = 22, 1.25  # units that hide skewness, and the most that they hide of it
_FARTHEST = 9 / 8  # of c t + c^2 / 6, where the transformation turns back


def t_steps(d: Differences, alpha: float) -> tuple[float, float]:
    """How many standard errors below and above the mean its one-sided bounds lie, both >= 0.

    d: differences that are not all alike. alpha: error of each bound, in (0, 0.5].
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
