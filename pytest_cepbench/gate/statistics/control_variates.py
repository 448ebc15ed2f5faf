"""Mean difference of few whole chains, and of a cheap proxy of many: a two-phase sample.

All samples of a look have a proxy (the difference after the first iteration), a part of them has
the whole difference. In a stratum of the population with the share W the mean is
mean(Y - lam F) over the samples with both, plus lam mean(F) over those with the proxy alone; it is
unbiased whatever the proxy is worth, as long as within each stratum the samples with both are a
random part. lam is tuned to the smallest spread, on folds that it does not serve.
Sources: Cochran, Sampling Techniques, 1977, sections 5.5 (allocation) and 12.5 (two phases);
Lavenberg and Welch, A perspective on the use of control variables, 1981; Angelopoulos, Duchi and
Zrnic, PPI++: efficient prediction-powered inference, 2023, Example 6.1 (lam); Zrnic and Candes,
Cross-prediction-powered inference, 2024 (folds).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from math import floor, sqrt

import numpy as np

from pytest_cepbench.artifacts import digest_text
from pytest_cepbench.gate.statistics.bounds import (
    Bounds,
    careful_quantile,
    mean_bounds,
    t_step,
)
from pytest_cepbench.gate.statistics.differences import Differences

Parts = Mapping[str, Mapping[str, float]]
"""Stratum -> sample -> difference."""

TWO_PHASE = "two-phase"
"""Method of bounds in which a proxy had a part."""

LEAST_WHOLE = 50
"""Whole differences from which on a proxy is made use of: fewer hardly show what it is worth."""

_LEAST_UNLIKE = 15
"""Whole differences beside the most frequent one, without which there is no bell shape."""

_MOST_FOLLOWED = 4.0
"""The largest lam: a proxy that moves less than a quarter as far as the score is hardly one."""

_FOLDS = 5
_DECIMALS = 9  # within which differences count as equal


@dataclass(frozen=True, eq=False)
class TwoPhaseSample:
    """Differences of a look, by stratum of the population.

    whole: stratum -> sample -> difference of the score; at least one in each stratum.
    proxy: stratum -> sample -> difference of the proxy, of all samples of `whole` and of others;
    empty where there is no proxy.
    shares: stratum -> its share of the population's mean, over 0, together 1.
    sizes: stratum -> samples of the population in it, where strata are a sample's own and no
    category; empty where strata are categories, whose shares are fixed.
    Raises ValueError where a sample has a difference and no proxy, strata differ, or shares do not
    add up to 1.
    """

    whole: Parts
    proxy: Parts
    shares: Mapping[str, float]
    population: int = 0

    def __post_init__(self) -> None:
        if (
            not self.whole
            or self.whole.keys() != self.shares.keys()
            or not all(self.whole.values())
        ):
            msg = "every stratum needs a share and at least one whole difference"
            raise ValueError(msg)
        total = sum(self.shares.values())
        if abs(total - 1) > 1e-6 or min(self.shares.values()) <= 0:
            msg = f"shares of strata are over 0 and add up to 1, got {total:.6g}"
            raise ValueError(msg)
        for name, part in self.whole.items() if self.proxy else ():
            if not part.keys() <= self.proxy.get(name, {}).keys():
                msg = f"stratum {name!r} has whole differences of samples without a proxy"
                raise ValueError(msg)

    @cached_property
    def rest(self) -> dict[str, dict[str, float]]:
        """Proxies of the samples without a whole difference; strata that have any."""
        rest = {
            name: {s: value for s, value in part.items() if s not in self.whole.get(name, {})}
            for name, part in self.proxy.items()
        }
        return {name: part for name, part in rest.items() if part}

    @property
    def counts(self) -> tuple[int, int]:
        """Samples with a whole difference, and with a proxy."""
        whole, proxies = (
            sum(len(part) for part in parts.values()) for parts in (self.whole, self.proxy)
        )
        return whole, proxies

    @cached_property
    def centers(self) -> dict[str, float]:
        """The mean of all proxies of each stratum."""
        return {name: float(np.mean(list(part.values()))) for name, part in self.proxy.items()}

    @cached_property
    def samples(self) -> tuple[str, ...]:
        """Samples with a whole difference, in an order that knows nothing of scores."""
        every = (sample for part in self.whole.values() for sample in part)
        return tuple(sorted(every, key=lambda sample: (digest_text(sample), sample)))

    def tune(self, left_out: frozenset[str] = frozenset()) -> float:
        """The lam of the smallest variance, in [0, 4]; 0 where the proxies are all alike.

        left_out: samples that have no part in it.
        sum of W^2 cov(Y, F) / n over strata by sum of W^2 var(F) (1 / n + 1 / m), n the samples
        with both and m those with the proxy alone.
        """
        shared, spread = 0.0, 0.0
        for name, others in self.rest.items():
            own = self.whole[name]
            kept = [sample for sample in own if sample not in left_out]
            if len(kept) < 2:
                continue
            y = np.array([own[sample] for sample in kept])
            f = np.array([self.proxy[name][sample] for sample in kept])
            n, m, weight = len(kept), len(others), self.shares[name] ** 2
            every = np.append(f, list(others.values()))
            shared += weight * float((y - y.mean()) @ (f - f.mean())) / (n - 1) / n
            spread += weight * float(np.var(every, ddof=1)) * (1 / n + 1 / m)
        return min(max(shared / spread, 0.0), _MOST_FOLLOWED) if spread > 0 else 0.0


@dataclass(frozen=True, eq=False)
class TwoPhaseMean:
    """The population's mean by whole differences and proxies.

    lam: how far the proxy is followed; the mean of those of the folds, 0 without one.
    whole: Y - lam F of the samples with both, weighted by stratum.
    rest: lam F of the others, weighted by stratum; None without a proxy.
    fraction: of the strata that have others.
    between: variance of the mean because the population is itself a sample of strata.
    alone: Y alone, weighted by stratum.
    """

    lam: float
    whole: Differences
    rest: Differences | None
    fraction: float
    between: float
    alone: Differences

    @property
    def mean(self) -> float:
        """The estimate."""
        return self.whole.mean + (0.0 if self.rest is None else self.fraction * self.rest.mean)

    @property
    def variances(self) -> tuple[float, float]:
        """Of the mean: the part of the samples with both, and that of the others."""
        own = self.whole.sd**2 / self.whole.units
        if self.rest is None:
            return own, 0.0
        return own, self.fraction**2 * self.rest.sd**2 / self.rest.units

    @property
    def error(self) -> float:
        """Standard error of the mean."""
        return sqrt(sum(self.variances) + self.between)

    @property
    def factor(self) -> float:
        """How many whole differences one is worth: the variance without the proxy by this one."""
        variance = sum(self.variances) + self.between
        alone = self.alone.sd**2 / self.alone.units + self.between
        return alone / variance if variance > 0 else 1.0

    @property
    def degrees(self) -> int:
        """Degrees of freedom by Satterthwaite over both parts, at least 1."""
        own, others = self.variances
        if self.rest is None or not own + others:
            return self.whole.degrees
        parts = own**2 / self.whole.degrees + others**2 / self.rest.degrees
        return max(1, floor((own + others) ** 2 / parts + 1e-9))

    def steps(self, alpha: float) -> tuple[float, float]:
        """Distances of the one-sided bounds below and above the mean, in standard errors."""
        t = careful_quantile(alpha, self.degrees)
        own, others = self.variances
        total = own + others + self.between
        third = self.whole.skewness / sqrt(self.whole.effective_units) * own**1.5
        if self.rest is not None:
            third += self.rest.skewness / sqrt(self.rest.effective_units) * others**1.5
        count = min(self.whole.effective_units, float(self.degrees + 1))
        skewness = third / total**1.5 * sqrt(count) if total > 0 else 0.0
        return (
            t_step(t, min(0.0, skewness), count),
            t_step(t, min(0.0, -skewness), count),
        )


def two_phase_mean(sample: TwoPhaseSample, lam: float | None = None) -> TwoPhaseMean:
    """The mean of a look.

    lam: how far the proxy is followed; where None, tuned in five folds, each with the lam that the
    other four give.
    """
    lam_of = _lam_of_samples(sample, lam)
    followed = float(np.mean(list(lam_of.values()))) if sample.rest else 0.0
    strata = len(sample.whole)

    def weighted(parts: Parts, count: int) -> Differences:
        return Differences.of(
            {
                name: {s: count * sample.shares[name] * value for s, value in part.items()}
                for name, part in parts.items()
            }
        )

    alone = weighted(sample.whole, strata)
    if not followed:
        return TwoPhaseMean(0.0, alone, None, 0.0, _between(sample, sample.whole), alone)
    # A stratum without others keeps its differences as they are: there is nothing to lean on.
    corrected = {
        name: {
            s: y - lam_of[s] * (sample.proxy[name][s] - sample.centers[name])
            if name in sample.rest
            else y
            for s, y in part.items()
        }
        for name, part in sample.whole.items()
    }
    rest = {
        name: {s: followed * (value - sample.centers[name]) for s, value in part.items()}
        for name, part in sample.rest.items()
    }
    return TwoPhaseMean(
        followed,
        weighted(corrected, strata),
        weighted(rest, len(rest)),
        1.0,
        _between(sample, sample.whole),
        alone,
    )


def _between(sample: TwoPhaseSample, parts: Parts) -> float:
    """Variance of the mean by the strata's own means, where the population is a sample of them."""
    if not sample.population:
        return 0.0
    means = np.array([np.mean(list(parts[name].values())) for name in sample.shares])
    shares = np.array(list(sample.shares.values()))
    return float(shares @ (means - shares @ means) ** 2) / sample.population


def _lam_of_samples(sample: TwoPhaseSample, lam: float | None) -> dict[str, float]:
    names = sample.samples
    if lam is not None or not sample.rest or len(names) < _FOLDS:
        return dict.fromkeys(names, lam or 0.0)
    lams: dict[str, float] = {}
    for fold in range(_FOLDS):
        own = names[fold::_FOLDS]
        lams |= dict.fromkeys(own, sample.tune(frozenset(own)))
    return lams


def two_phase_bounds(
    sample: TwoPhaseSample,
    alpha: float,
    *,
    span: float,
    lam: float | None = None,
    exchangeable: bool = True,
) -> tuple[Bounds, TwoPhaseMean]:
    """Bounds of the population's mean difference, each at level alpha, in (0, 0.5].

    span: the most that a sample can lose or gain.
    lam: how far the proxy is followed, at least 0; tuned where None.
    Of fewer than 50 whole differences, and where fewer than 15 differ from the rest, the proxy has
    no part: bounds are those of the whole differences alone (`mean_bounds`), at an early look.
    exchangeable: as in `mean_bounds`.
    """
    alone = two_phase_mean(sample, 0.0)
    count = sum(len(part) for part in sample.whole.values())
    if not sample.rest or count < LEAST_WHOLE or _unlike(sample) < _LEAST_UNLIKE:
        return _bounds_alone(sample, alone, alpha, span, exchangeable=exchangeable), alone
    tuned = two_phase_mean(sample, lam)
    if not tuned.lam:
        return _bounds_alone(sample, alone, alpha, span, exchangeable=exchangeable), alone
    below, above = (steps * tuned.error for steps in tuned.steps(alpha))
    mean = min(max(tuned.mean, -span), span)
    low, high = max(mean - below, -span), min(mean + above, span)
    spread = tuned.error * sqrt(count)
    return Bounds(mean, low, high, alpha, TWO_PHASE, count, spread=spread), tuned


def _bounds_alone(
    sample: TwoPhaseSample,
    alone: TwoPhaseMean,
    alpha: float,
    span: float,
    *,
    exchangeable: bool,
) -> Bounds:
    if not sample.population:
        whole = Differences.of(sample.whole)
        return mean_bounds(whole, alpha, span=span, exchangeable=exchangeable, early=True)
    heaviest = len(sample.shares) * max(sample.shares.values())
    span_of_unit = span * max(heaviest, 1.0)
    bounds = mean_bounds(alone.alone, alpha, span=span_of_unit, exchangeable=exchangeable)
    if not alone.between or bounds.low is None or bounds.high is None:
        return bounds
    stretch = alone.error / max(sqrt(sum(alone.variances)), 1e-12)
    low = bounds.mean - stretch * (bounds.mean - bounds.low)
    high = bounds.mean + stretch * (bounds.high - bounds.mean)
    return replace(bounds, low=max(low, -span), high=min(high, span))


def _unlike(sample: TwoPhaseSample) -> int:
    """Whole differences that differ from the most frequent one."""
    values = np.concatenate([list(part.values()) for part in sample.whole.values()])
    _, counts = np.unique(np.round(values, _DECIMALS), return_counts=True)
    return int(counts.sum() - counts.max())
