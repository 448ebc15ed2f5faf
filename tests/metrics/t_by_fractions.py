"""Student's t by continued fractions: the reference that SciPy's values are compared with."""

from __future__ import annotations

from functools import lru_cache
from math import exp, inf, isclose, lgamma, log, log1p, pi
from statistics import NormalDist

_NORMAL = NormalDist()


def t_quantile(confidence: float, degrees: int) -> float:
    """The t that a Student variable stays within, on both sides, with the given probability.

    confidence: in (0, 1). degrees: degrees of freedom, at least 1.
    Returns t > 0 with P(|T| <= t) = confidence, within a relative error of 1e-9 for confidences up
    to 0.9999. Raises ValueError for other numbers.
    """
    if not 0 < confidence < 1 or degrees < 1:
        raise ValueError(
            f"expected a confidence in (0, 1) and degrees >= 1, got {confidence} and {degrees}"
        )
    return t_upper_quantile((1 - confidence) / 2, degrees)


@lru_cache(maxsize=4096)
def t_upper_quantile(alpha: float, degrees: int) -> float:
    """The t that a Student variable exceeds, on one side, with probability alpha.

    alpha: in (0, 0.5]. degrees: degrees of freedom, at least 1.
    Returns t >= 0 with P(T > t) = alpha, within a relative error of 1e-9 for alpha from 1e-12 to
    0.49. Kept for the next caller: a gate asks for the same few again and again.
    Raises ValueError for other numbers.
    """
    if not 0 < alpha <= 0.5 or degrees < 1:
        raise ValueError(f"expected alpha in (0, 0.5] and degrees >= 1, got {alpha} and {degrees}")
    if alpha == 0.5:
        return 0.0
    # log P(T > t) falls and is concave in log t: after one step Newton comes down from above.
    t, previous = -_NORMAL.inv_cdf(alpha), inf
    for _ in range(100):
        if isclose(t, previous, rel_tol=1e-13):
            break
        tail = t_tail(t, degrees)
        previous, t = t, t * exp(tail * log(tail / alpha) / (t * _density(t, degrees)))
    return t


def t_tail(t: float, degrees: int) -> float:
    """P(T > t) of a Student variable, with good relative accuracy however small it is.

    t: at least 0. degrees: degrees of freedom, at least 1. By the continued fraction of the
    incomplete beta function (DLMF 8.17.22), on whichever side of the mean it converges fast.
    """
    squared = t * t
    if squared < 3:
        inside = _beta_ratio(0.5, degrees / 2, squared / (degrees + squared))
        return 0.5 * (1 - inside)
    return 0.5 * _beta_ratio(degrees / 2, 0.5, degrees / (degrees + squared))


def _density(t: float, degrees: int) -> float:
    half = degrees / 2
    scale = lgamma(half + 0.5) - lgamma(half) - 0.5 * log(degrees * pi)
    return exp(scale - (half + 0.5) * log1p(t * t / degrees))


def _beta_ratio(a: float, b: float, x: float) -> float:
    """Regularized incomplete beta I_x(a, b), x in [0, 1), by Lentz's method."""
    if x == 0:
        return 0.0
    front = exp(lgamma(a + b) - lgamma(a) - lgamma(b) + a * log(x) + b * log1p(-x)) / a
    value = upper = 1.0
    lower = 0.0
    for step in range(1, 1000):
        m = step // 2
        if step % 2:
            term = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        else:
            term = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        lower = 1 / (1 + term * lower)
        upper = 1 + term / upper
        value *= upper * lower
        if abs(upper * lower - 1) < 1e-15:
            break
    return front / value
