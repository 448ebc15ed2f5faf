"""How sure a number is: quantiles, spread over runs, jackknife and bootstrap over items."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import fsum, sqrt
from statistics import NormalDist

import numpy as np

from pytest_cepbench.artifacts import digest_text
from pytest_cepbench.metrics.gc import Array, FloatArray


@lru_cache(maxsize=4096)
def t_upper_quantile(alpha: float, degrees: int) -> float:
    """The t that a Student variable exceeds, on one side, with probability alpha.

    alpha: in (0, 0.5].
    degrees: degrees of freedom, at least 1.
    Returns t >= 0 with P(T > t) = alpha.
    Raises ValueError for other numbers.
    """
    if not 0 < alpha <= 0.5 or degrees < 1:
        raise ValueError(f"expected alpha in (0, 0.5] and degrees >= 1, got {alpha} and {degrees}")
    from scipy.special import stdtrit

    return -float(stdtrit(degrees, alpha)) if alpha < 0.5 else 0.0


@dataclass(frozen=True)
class ModelVariability:
    """One model over its runs: mean, standard deviation, smallest, largest and their difference."""

    runs: int
    mean: float
    std: float
    low: float
    high: float
    range: float


def spread_of(scores: FloatArray) -> ModelVariability:
    """Spread of one model's scores over at least two runs.

    scores: (runs,), finite. std is that of a sample (divided by runs - 1): of MMGenBench's Table
    14, three rows have a larger deviation than any four numbers with their mean, minimum and
    maximum could have if it were divided by the number of runs.
    Source: MMGenBench, Tables 6 and 14.
    Raises ValueError for fewer runs or a score not finite.
    """
    runs = np.asarray(scores, dtype=np.float64)
    if runs.ndim != 1 or len(runs) < 2 or not np.isfinite(runs).all():
        raise ValueError(f"expected (runs,) finite scores of at least 2 runs, got {runs.tolist()}")
    values = runs.tolist()
    mean = fsum(values) / len(values)
    std = sqrt(fsum((value - mean) ** 2 for value in values) / (len(values) - 1))
    low, high = min(values), max(values)
    return ModelVariability(len(values), mean, std, low, high, high - low)


def wilson_interval(mean: float, trials: float) -> tuple[float, float]:
    """Wilson's 95 % score interval of a share, two-sided.

    mean: the share, in [0, 1].
    trials: above 0; of dependent ones their effective number, which need not be whole.
    Source: Wilson, Probable inference, the law of succession, and statistical inference, 1927.
    """
    z = NormalDist().inv_cdf(0.975)
    shrunk = (mean + z * z / (2 * trials)) / (1 + z * z / trials)
    inside = mean * (1 - mean) / trials + z * z / (4 * trials * trials)
    reach = z * sqrt(max(inside, 0.0)) / (1 + z * z / trials)
    return max(0.0, shrunk - reach), min(1.0, shrunk + reach)


BLOCKS = 10
"""Most blocks that a set is cut into: leaving out a tenth, ten times, is affordable for FID."""

FEWEST_UNITS = 4
"""Least units that make blocks: two blocks of two."""


def pseudo_values(whole: float, without: Sequence[float] | FloatArray) -> Array:
    """Jackknife pseudo-value of each block: B * whole - (B - 1) * without_j.

    whole: the statistic of all samples.
    without: (B,) the statistic of all samples but those of block j, B >= 2.
    Returns (B,): their spread is that of the statistic times sqrt(B), their mean is the statistic
    less its bias to first order (for a plain mean, each is the mean of its block). The blocks count
    as equally large; where sizes differ by one sample the error is of that order.
    Source: Tukey, Bias and confidence in not quite large samples (abstract), 1958.
    Raises ValueError for fewer than two blocks or a number that is not finite.
    """
    left = np.asarray(without, dtype=np.float64)
    if left.ndim != 1 or len(left) < 2 or not (np.isfinite(left).all() and np.isfinite(whole)):
        raise ValueError(
            "expected a finite number for the whole and one for each of at least 2 blocks left "
            f"out, got {whole} and {left.tolist()}"
        )
    count = len(left)
    values: Array = count * float(whole) - (count - 1) * left
    return values


def blocks_of(units: Iterable[str]) -> dict[str, int]:
    """Which block each unit belongs to, by its name alone.

    units: names of samples, or of clusters of them that must stay together; order and repetition do
    not matter.
    Returns unit -> block, 0 to blocks - 1, dealt out in the order of the names' digests: sizes
    differ by at most one, every block has at least two units, and the order that a data set has
    (all of one category first) has no say. Empty where there are fewer than four units. The same
    names always give the same blocks, so the blocks of a baseline and of a candidate hold the same
    samples.
    """
    names = sorted(set(units), key=lambda unit: (digest_text(unit), unit))
    if len(names) < FEWEST_UNITS:
        return {}
    blocks = min(BLOCKS, len(names) // 2)
    return {name: rank % blocks for rank, name in enumerate(names)}


DRAWS = 1000

FEWEST_ITEMS = 5
"""Least items of an interval: of five it covers the truth in 89 % or more of studies of shares,
agreement and correlations; of four means it would cover 84 %, of three 72."""

_ENOUGH = 0.9
"""Share of draws in which the statistic must be defined; with fewer there is no interval."""

_ROUNDING = 1e-12  # nearer draws are the same


@dataclass(frozen=True)
class Estimate:
    """A statistic with its interval.

    value: None where it is not defined.
    low, high: ends of the 95 % interval, which holds the value; None of fewer than `FEWEST_ITEMS`,
        where too many draws leave the statistic undefined, and where all give the same number.
    items: that it is of.
    """

    value: float | None
    low: float | None
    high: float | None
    items: int


def estimate_by_items(statistic: Callable[[Array], float | None], items: int) -> Estimate:
    """A statistic with the expanded percentile interval of the bootstrap by item.

    statistic: gives the value for (items,) weights, how often each item counts; None where it is
        not defined.
    items: how many there are; all votes on one are drawn together, since they are not independent.
    Percentiles of few items can lie beside the value: then it is the end. Where every draw gives
    the same number, as where a few items are all in the same order, it would look certain: there is
    no interval, as `correlation` has none.
    Source: Hesterberg, What teachers should know about the bootstrap, 2015, section 5.3: plain
    percentiles are too narrow for few items, by the factors of t and of n - 1.
    """
    value = statistic(np.ones(items)) if items else None
    if value is None or items < FEWEST_ITEMS:
        return Estimate(value, None, None, items)
    source = np.random.Generator(np.random.PCG64(0))
    weights = source.multinomial(items, np.full(items, 1 / items), size=DRAWS).astype(float)
    drawn = [result for row in weights if (result := statistic(row)) is not None]
    if len(drawn) < _ENOUGH * DRAWS or np.ptp(drawn) < _ROUNDING:
        return Estimate(value, None, None, items)
    reach = sqrt(items / (items - 1)) * t_upper_quantile(0.025, items - 1)
    tail = NormalDist().cdf(-reach)
    low, high = np.quantile(drawn, [tail, 1 - tail]).tolist()
    return Estimate(value, min(low, value), max(high, value), items)
