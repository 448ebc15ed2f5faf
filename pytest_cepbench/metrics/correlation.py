"""Comparing leaderboards: ranks of models, correlations between benchmarks and their intervals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import atanh, isfinite, sqrt, tanh
from statistics import NormalDist
from typing import Literal, get_args

import numpy as np

from pytest_cepbench.metrics.gc import FloatArray

Method = Literal["pearson", "spearman", "kendall"]

FEWEST_CORRELATED = 3
"""Least models, or chains, that are correlated: two always lie on a line."""

_ROUNDING = 1e-12  # nearer to 1 than this is 1: its atanh would be a number made of rounding


@dataclass(frozen=True)
class Correlation:
    """One coefficient in [-1, 1] over n models.

    low, high: ends of its confidence interval; None where it has none, see `correlation`.
    """

    method: Method
    n: int
    value: float
    low: float | None
    high: float | None


def correlation(
    first: FloatArray, second: FloatArray, method: Method = "pearson", confidence: float = 0.95
) -> Correlation | None:
    """Correlation of two columns of scores over the same models, or None where one is constant.

    first, second: (n,) finite, n at least 2.
    method: "pearson", "spearman" (Pearson of average ranks) or "kendall" (tau-b).
    confidence: level of the two-sided interval, in (0, 1).

    The interval is Fisher's: atanh(value) -+ z * se, turned back by tanh. se is 1/sqrt(n - 3) for
    Pearson, sqrt((1 + value^2/2) / (n - 3)) for Spearman (Bonett and Wright 2000) and
    sqrt(0.437 / (n - 4)) for Kendall (Fieller, Hartley and Pearson 1957). There is none where se
    is not defined (n < 4, Kendall n < 5) or the value is -1 or 1, where atanh is infinite and a
    short list of models in the same order would look certain.
    At n = 7, as in GenCeption, it is wide (Pearson .52 has -.39 to .91). Over models drawn from a
    normal distribution the nominal 95 % are 95 % for Pearson at any n; at n = 7 they are at least
    95 % for Spearman and 90 % for Kendall. Models picked by hand are no such sample: read the
    interval as the least uncertainty.
    Source: GenCeption, Table 3 and Figure 2 (Pearson over the overall means of seven models);
    MMGenBench, Tables 9-12 and 16-19 (Spearman and Kendall). Neither gives intervals.
    Raises ValueError for columns that do not fit, an unknown method or a confidence outside (0, 1).
    """
    if method not in get_args(Method) or not 0 < confidence < 1:
        raise ValueError(
            f"expected one of {sorted(get_args(Method))} and a confidence in (0, 1), got "
            f"{method!r} and {confidence}"
        )
    x, y = np.asarray(first, dtype=np.float64), np.asarray(second, dtype=np.float64)
    if x.ndim != 1 or x.shape != y.shape or len(x) < 2:
        raise ValueError(
            f"expected two columns (n,) with n >= 2 models, got {x.shape} and {y.shape}"
        )
    if not (np.isfinite(x).all() and np.isfinite(y).all()):
        raise ValueError(
            "a score is not finite: leave out the models that lack one of the two scores"
        )
    if (x == x[0]).all() or (y == y[0]).all():
        return None
    from scipy.stats import kendalltau, pearsonr, rankdata

    if method == "kendall":
        value = float(kendalltau(x, y).statistic)
    else:
        a, b = (rankdata(x), rankdata(y)) if method == "spearman" else (x, y)
        # Less the first entry: SciPy's mean of scores that differ by little would round them away.
        value = float(pearsonr(a - a[0], b - b[0]).statistic)
    if abs(value) > 1 - _ROUNDING:
        value = 1.0 if value > 0 else -1.0
    above, below = {
        "pearson": (1.0, len(x) - 3),
        "spearman": (1 + value**2 / 2, len(x) - 3),
        "kendall": (0.437, len(x) - 4),
    }[method]
    if below <= 0 or abs(value) == 1.0:
        return Correlation(method, len(x), value, None, None)
    half = NormalDist().inv_cdf((1 + confidence) / 2) * sqrt(above / below)
    low, high = tanh(atanh(value) - half), tanh(atanh(value) + half)
    return Correlation(method, len(x), value, low, high)


def mean_of_pairs(matrix: Sequence[Sequence[float | None]]) -> float | None:
    """Mean of a symmetric matrix over its pairs of different columns, each pair once.

    matrix: (k, k) coefficients.
    Returns None where a pair has none, or where k < 2.
    Source: MMGenBench, Table 13, which averages its Tables 9-12 so.
    """
    pairs = [value for i, row in enumerate(matrix) for value in row[:i]]
    known = [value for value in pairs if value is not None and isfinite(value)]
    return sum(known) / len(known) if known and len(known) == len(pairs) else None


def shared_ranks(
    values: Sequence[float], *, higher_is_better: bool, decimals: int | None = None
) -> tuple[int, ...]:
    """Rank of each value as leaderboards print it: 1 is best, ties share the best of their ranks.

    After two models that share rank 2 comes rank 4.
    decimals: values are rounded to so many digits first, so that numbers that look the same rank
    the same; None ranks them as they are.
    Source: GenCeption, Table 4, where the means are ranked as printed, with three decimals (GPT-4o
    and GPT-4V share rank 2 with Imagen 2, mPLUG-Owl2 and LLaVA-13B share rank 5). The two 5s in
    the visual MME ranks of Table 2 are no tie but a misprint: LLaVA-7B is 4th.
    Raises ValueError for values that are not a list of finite numbers.
    """
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 1 or not np.isfinite(array).all():
        raise ValueError(
            f"expected (n,) finite numbers to rank, got shape {array.shape}: {array.tolist()}"
        )
    numbers = array.tolist()
    shown = numbers if decimals is None else [round(value, decimals) for value in numbers]
    ordered = sorted(shown, reverse=higher_is_better)
    return tuple(ordered.index(value) + 1 for value in shown)
