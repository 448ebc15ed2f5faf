"""Quantiles of Student's t, with their arguments checked; SciPy is imported at the first call."""

from __future__ import annotations

from functools import lru_cache


def t_quantile(confidence: float, degrees: int) -> float:
    """The t that a Student variable stays within, on both sides, with the given probability.

    confidence: in (0, 1).
    degrees: degrees of freedom, at least 1.
    Returns t > 0 with P(|T| <= t) = confidence.
    Raises ValueError for other numbers.
    """
    if not 0 < confidence < 1 or degrees < 1:
        msg = f"expected a confidence in (0, 1) and degrees >= 1, got {confidence} and {degrees}"
        raise ValueError(msg)
    return t_upper_quantile((1 - confidence) / 2, degrees)


@lru_cache(maxsize=4096)
def t_upper_quantile(alpha: float, degrees: int) -> float:
    """The t that a Student variable exceeds, on one side, with probability alpha.

    alpha: in (0, 0.5].
    degrees: degrees of freedom, at least 1.
    Returns t >= 0 with P(T > t) = alpha.
    Raises ValueError for other numbers.
    """
    if not 0 < alpha <= 0.5 or degrees < 1:
        msg = f"expected alpha in (0, 0.5] and degrees >= 1, got {alpha} and {degrees}"
        raise ValueError(msg)
    from scipy.special import stdtrit

    return -float(stdtrit(degrees, alpha)) if alpha < 0.5 else 0.0
