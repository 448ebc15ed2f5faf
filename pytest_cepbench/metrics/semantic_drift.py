"""Drift of a mapping's mean similarity over the generations: its mean (MCD) and its rate (SDR)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import exp

import numpy as np

from pytest_cepbench.artifacts import Modality
from pytest_cepbench.metrics.gc import Array, FloatArray, two_dimensional
from pytest_cepbench.metrics.uncertainty import t_upper_quantile


def mapping_generations(start: Modality, compares: Modality, generations: int) -> tuple[int, ...]:
    """The generations that a mapping scores: those whose artifacts have the modality it compares.

    start: what the chain starts from.
    compares: what is compared with that start.
    generations: G, the length of the chain, at least 0; generation 0 is the start itself and is
    never scored.
    Returns them in ascending order, G included where it fits: the even ones up to G where both
    modalities are the same, the odd ones where they differ.
    Source: the Telephone Game, section 3.1 and Figure 6; its released code fixes G at 20.
    """
    return tuple(range(2 if start == compares else 1, generations + 1, 2))


def mcd_of_mapping(similarities: FloatArray) -> Array:
    """MCD_delta of each sample: the mean similarity over the generations that the mapping scores.

    similarities: (n, k) cosine similarities to the start, in [-1, 1], one column for each of the
    mapping's k generations.
    Returns (n,), in [-1, 1]; higher is less drift, despite the name. The paper's MCD_delta is the
    mean over samples.
    Source: the Telephone Game, Eq. 1 and 2. Eq. 2 divides a sum over g = 1..G by G, but every
    other generation has the other modality and no similarity in this mapping: divided by G the
    result would be half of what it is meant to be. Here, as in the released code, the mean is over
    the mapping's own k generations.
    Raises ValueError when k is 0 or the array is not two-dimensional.
    """
    means: Array = two_dimensional(similarities).mean(axis=1)
    return means


def mcd_average(mappings: Mapping[str, FloatArray]) -> Array:
    """MCD_avg of each sample: the unweighted mean of its mappings.

    mappings: name -> (n,) `mcd_of_mapping`, the same samples in the same order in each.
    Returns (n,), in [-1, 1]. Its mean over samples is the paper's mean of the mappings' MCD_delta,
    as every sample is in every mapping.
    The average is one number over encoders whose cosines have different ranges (CLIP across
    modalities rarely passes 0.4, MPNet and DINO reach 1): it compares models, not mappings.
    Source: the Telephone Game, section 3.1.
    Raises ValueError when there is no mapping or the mappings have different samples.
    """
    shapes = {name: np.shape(scores) for name, scores in mappings.items()}
    if len(set(shapes.values())) != 1 or len(next(iter(shapes.values()))) != 1:
        raise ValueError(
            f"expected scores of the same samples, (n,), for at least one mapping, got {shapes}"
        )
    average: Array = np.mean(
        [np.asarray(scores, dtype=np.float64) for scores in mappings.values()], axis=0
    )
    return average


FEWEST_POINTS = 4  # one more than the curve has parameters: with three, any curve fits
LARGEST_RATIO = 10.0  # of the ends of the interval of b; beyond that the rate is not known

_SLOWEST = 0.01  # b times the last generation
_FASTEST = 10.0  # b times the first generation or smallest step, whichever is larger
_GRID, _ZOOM, _ZOOMS = 300, 65, 7  # rates tried, then tried again between neighbours, how often
_ROUNDING = 1e-12  # similarities are not told apart below this


@dataclass(frozen=True)
class DriftRate:
    """The fit of S(g) = a * exp(-b * g) + c to the curve of one mapping.

    a, b, c: b is the rate per generation, c the level at the end, a the height above it,
    extrapolated to g = 0; all None where the curve identifies no rate.
    low, high: 95 % profile interval of b; an end is None where no rate on that side fits markedly
    worse.
    reason: why there is no rate, in words; empty where there is one.
    """

    a: float | None = None
    b: float | None = None
    c: float | None = None
    low: float | None = None
    high: float | None = None
    reason: str = ""

    def __str__(self) -> str:
        if self.b is None:
            return f"no rate, {self.reason}"
        return (
            f"b = {self.b:.4g} per generation (95%: {self.low:.4g} to {self.high:.4g}), "
            f"a = {self.a:.4g}, c = {self.c:.4g}"
        )


def fit_drift_rate(generations: Sequence[int], curve: Sequence[float]) -> DriftRate:
    """Least-squares fit of an exponential decay to S_delta(g), and whether it means anything.

    generations: the mapping's scored generations, ascending, at least 0; see `mapping_generations`.
    curve: the mean similarity at each, in [-1, 1].

    For a given b the best a and c follow from a linear fit, so only b is searched for: everywhere
    between its bounds, which leaves no starting value to depend on. The bounds are 0.01 / last
    generation (slower is a straight line) and 10 / first generation or smallest step, whichever is
    larger (faster is a jump). The interval holds every b whose sum of squares is at most
    (1 + t^2 / (points - 3)) times the smallest; unlike one made of standard errors it stays true
    where the curve is nearly straight. It measures how well an exponential describes this curve,
    with errors that are independent between generations; for the uncertainty from the choice of
    samples, fit the curves of resampled samples. It holds over all curves: where most curves of a
    kind are refused, those few that pass are not typical of their kind.

    There is no rate with fewer than 4 points, of a flat curve, when the smallest sum of squares
    lies at a bound, when the interval reaches one (then a straight line, a single step or plain
    noise explains the curve as well), when its ends differ by more than a factor of 10, for a curve
    that rises, or that levels off outside [-1, 1].

    Source: none of the papers. The Telephone Game's authors have used two definitions in their
    code, first the mean of the successive differences of S, later this exponential fitted without
    bounds and a, b and c averaged over the mappings; the paper in hand has neither. Here the rate
    stays one per mapping and has no number where the released fit would return an arbitrary one or
    raise.
    Raises ValueError for generations that do not ascend, or a curve that does not fit them.
    """
    x, s = np.asarray(generations, dtype=np.float64), np.asarray(curve, dtype=np.float64)
    if x.ndim != 1 or x.shape != s.shape:
        raise ValueError(f"expected one similarity per generation, got {s.shape} for {x.shape}")
    if (x < 0).any() or (np.diff(x) <= 0).any() or not np.isfinite(x).all():
        raise ValueError(f"expected ascending generations of at least 0, got {x.tolist()}")
    if not (np.abs(s) <= 1).all():
        raise ValueError(f"expected similarities in [-1, 1], got {s.tolist()}")
    if len(x) < FEWEST_POINTS:
        reason = f"a rate needs at least {FEWEST_POINTS} generations, the curve has {len(x)}"
        return DriftRate(reason=reason)
    if np.ptp(s) < _ROUNDING:
        return DriftRate(reason="the curve is flat")
    rates = np.geomspace(_SLOWEST / x[-1], _FASTEST / max(x[0], np.diff(x).min()), _GRID)
    best = _best_rate(x, s, rates)
    squares, height, c = (float(own[0]) for own in _fit_decays(x, s, np.array([best])))
    a = height * exp(best * x[0])
    free = len(x) - 3
    allowed = max(squares, len(x) * _ROUNDING**2) * (1 + t_upper_quantile(0.025, free) ** 2 / free)
    low, high = _rates_allowed(x, s, rates, best, allowed)
    wide = low is not None and high is not None and high > LARGEST_RATIO * low
    doubts = (
        (low is None and high is None, "the noise is larger than the decay: any rate fits as well"),
        (a <= 0, "the curve rises: similarity grows with the generations"),
        (low is None, "a straight line fits as well: there is no bend to tell a rate from"),
        (high is None, "the curve falls in one step and then stays: any faster rate fits as well"),
        (wide, f"the rate is known no better than to a factor of {LARGEST_RATIO:g}"),
        (abs(c) > 1, f"the curve would level off at {c:.3g}, where no similarity is"),
    )
    reason = next((reason for holds, reason in doubts if holds), "")
    if reason:
        return DriftRate(low=low, high=high, reason=reason)
    return DriftRate(a, best, c, low, high)


def _fit_decays(x: Array, s: Array, rates: Array) -> tuple[Array, Array, Array]:
    """Sum of squares at each rate, with the best a (at the first point) and c."""
    # Counted from the first point and less 1, so that slow rates do not lose their digits.
    shape, fall = np.expm1(-rates[:, None] * (x - x[0])), s - s.mean()
    centred = shape - shape.mean(axis=1, keepdims=True)
    height = centred @ fall / (centred * centred).sum(axis=1)
    squares = ((fall - height[:, None] * centred) ** 2).sum(axis=1)
    return squares, height, s.mean() - height * (1 + shape.mean(axis=1))


def _best_rate(x: Array, s: Array, rates: Array) -> float:
    """The rate of the smallest sum of squares: on the grid, then between its neighbours."""
    for _ in range(_ZOOMS):
        i = int(_fit_decays(x, s, rates)[0].argmin())
        rates = np.geomspace(rates[max(i - 1, 0)], rates[min(i + 1, len(rates) - 1)], _ZOOM)
    return float(rates[_ZOOM // 2])


def _rates_allowed(
    x: Array, s: Array, rates: Array, best: float, allowed: float
) -> tuple[float | None, float | None]:
    """The slowest and the fastest rate of an allowed sum of squares; None for one at a bound."""
    fits = [best, *rates[_fit_decays(x, s, rates)[0] <= allowed].tolist()]
    below, above = rates[rates < min(fits)], rates[rates > max(fits)]

    def crossing(inside: float, outside: float) -> float:
        """The last rate on the way out that is allowed."""
        for _ in range(_ZOOMS):
            between = np.geomspace(inside, outside, _ZOOM)
            i = int((_fit_decays(x, s, between[1:])[0] > allowed).argmax()) + 1
            inside, outside = between[i - 1], between[i]
        return float(inside)

    low = crossing(min(fits), below[-1]) if len(below) else None
    return low, crossing(max(fits), above[0]) if len(above) else None
