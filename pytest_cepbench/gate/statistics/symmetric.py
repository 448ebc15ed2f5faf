"""Upper bound of a mean whose differences are as likely to be gains as losses about their center."""

from __future__ import annotations

from math import log, sqrt

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]


def upper_symmetric(values: Array, weights: Array, mean: float, alpha: float) -> float | None:
    """Upper bound at level alpha of a weighted mean, of units that lie symmetrically about it.

    values: (K,) of the units. weights: (K,) above 0, of mean 1. mean: theirs. alpha: in (0, 0.5].
    Returns mean + s sqrt(2 L / (K - 2 L q)) with L = log(1 / alpha), s the root mean square of the
    weighted distances from the mean, and q the mean squared weight; None for 2 L q units or fewer,
    which can show nothing at this level.
    Without drift a candidate and its baseline could be exchanged, so that a difference and its
    opposite are equally likely: whether the bound lies below 0 is then Hoeffding's bound of what
    random signs make of the sum (of the sizes that were seen), which holds for every such law,
    however lumped: twelve losses of twelve are evidence, also where all of them are equal.
    Source: Hoeffding, Probability inequalities for sums of bounded random variables, 1963; Efron,
    Student's t-test under symmetry conditions, 1969.
    """
    steps = -2 * log(alpha)
    units = len(values)
    left = units - steps * float(weights @ weights) / units
    if left <= 0:
        return None
    apart = weights * (values - mean)
    return mean + sqrt(float(apart @ apart) / units) * sqrt(steps / left)
