"""One-sided confidence bounds of a mean paired difference, by the method that suits the data.

Student's t without skewness and the BCa bootstrap are made here; for bounds without a bell shape
see `exact.py` and `sign_flips.py`.

A lump is a set of differences most of which are alike, so that their mean has no bell shape.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil, inf, isfinite, sqrt
from typing import NamedTuple

import numpy as np

from pytest_cepbench.gate.policy import BoundsName
from pytest_cepbench.gate.statistics.differences import Array, Differences
from pytest_cepbench.gate.statistics.exact import lower_exact, upper_exact, upper_symmetric
from pytest_cepbench.gate.statistics.sign_flips import upper_flipped
from pytest_cepbench.metrics.uncertainty import t_upper_quantile

_GRID = 9  # decimals within which differences of six-decimal scores count as equal
_HALF, _QUARTER = 0.5, 0.25  # of the other units: alike enough for a lump, and for none of it
_FEW, _ENOUGH = 30, 45  # unlike units, too few for a bell shape, and enough for it
_NEAR, _APART = 0.0005, 0.001  # of the span: counts as the same difference, and as another

LEAST_RESAMPLES = 9999
_BEYOND = 30  # resamples beyond the bound: their count has a relative error of under 20 %
_AT_ONCE = 1 << 20  # draws held in memory
_MEAN_GRID = 9  # decimals of a resampled mean, in standard deviations

_SPENT = 0.9  # of alpha, see `careful_quantile`
_FEW_HIDE, _MOST_HIDDEN = 22, 1.25  # units that hide skewness, and the most that they hide of it
_FARTHEST = 9 / 8  # of c t + c^2 / 6, where the transformation turns back


@dataclass(frozen=True)
class Bounds:
    """Confidence bounds of the true mean difference.

    mean: of the pairs.
    low, high: one-sided bounds; the true mean is below low with probability at most alpha, and
    above high with probability at most alpha. None, of a set metric only, where nothing can be
    said.
    alpha: that probability.
    method: which bounds they are, "t", "BCa" or "exact".
    units: clusters that they count.
    statement: a sentence where the data needed special treatment, else "".
    spread: standard deviation of a unit, where that is not the one of the differences.
    """

    mean: float
    low: float | None
    high: float | None
    alpha: float
    method: str
    units: int
    statement: str = ""
    spread: float | None = None


def mean_bounds(
    d: Differences,
    alpha: float,
    *,
    method: BoundsName = "auto",
    shares: bool = False,
    blocks: bool = False,
    span: float = 1.0,
    exchangeable: bool = True,
    early: bool = False,
) -> Bounds:
    """Bounds of the mean difference, each at level alpha, in (0, 0.5].

    method: "t" (Student's with Hall's transformation for skewness, see `t_steps`), "bca" (see
    `bca_steps`) or "exact" (see `lower_exact`); "auto" takes exact bounds for shares and for
    lumps, where at least half of the units have the same difference and at most 30 another
    (ceilings, all equal, one unit), since there is no bell shape to speak of, t where there is no
    lump, and goes from the one to the other as the lump dissolves, see `find_lump`. Upper bounds of
    lumps rest on symmetry instead, see `exchangeable`. Whatever the method, units that show no
    spread within their categories have exact bounds, since an estimated spread of 0 would promise
    certainty.
    shares: whether the scores are shares of right answers, in [0, 1] (GenEval, MGG, failure rates).
    A loss so rare that no sample shows it escapes t and BCa alike; failed steps, the usual cause,
    have a rate of their own, whose exact bounds do allow for it.
    blocks: whether values are differences of jackknife pseudo-values (FID, KID): always t, since
    nothing is known of the worst; without spread over at least two blocks, low and high are None.
    span: the most that a sample can lose or gain; where one has lost more, that is the most.
    exchangeable: whether an upper bound below 0 is promised of models that could be exchanged, as
    the regression gate does: upper bounds of lumps are then by flipping signs (`upper_flipped`).
    They err where gains are rare and large. Where the promise is of any drop that is tolerated, as
    in a series of gates, they are Hoeffding's, which are wider (`upper_symmetric`).
    early: whether there are more samples to look at. Upper bounds of exchangeable models then take
    small categories for one stratum, see `Differences.collapsed`.
    Raising all differences by the same amount never lowers a bound.
    Exact bounds of clusters or categories of different sizes let one more unit weigh as much as the
    heaviest that was seen: with one tiny category among large ones they are wide.
    Raises ValueError for another alpha, a span that is not above 0 and finite, or a center without
    blocks.
    """
    if not 0 < alpha <= 0.5:
        raise ValueError(f"alpha is the error of one bound, in (0, 0.5], got {alpha}")
    if not (span > 0 and isfinite(span)):
        raise ValueError(f"span is the most that a sample can lose, above 0 and finite, got {span}")
    if blocks:
        return _block_bounds(d, alpha)
    if d.center is not None:
        raise ValueError(
            f"a center ({d.center}) goes with the blocks of a set metric: say blocks=True"
        )
    if method == "exact" or (shares and (method == "auto" or not _shows_spread(d))):
        alike = "" if shares else find_lump(d, span).whole_statement
        return _exact_bounds(d, alpha, span, alike)
    bounds = _bounds_by_shape(d, alpha, method, span, exchangeable=exchangeable)
    together = d.collapsed() if early and exchangeable else d
    if together is d:
        return bounds
    upper = _bounds_by_shape(together, alpha, method, span, exchangeable=True)
    name = bounds.method if bounds.method == upper.method else "t, exact"
    return replace(bounds, high=upper.high, method=name)


def _bounds_by_shape(
    d: Differences, alpha: float, method: BoundsName, span: float, *, exchangeable: bool
) -> Bounds:
    """Bounds by t or BCa, exact ones where there is no spread, and by auto of a lump."""
    lump = find_lump(d, span)
    if not _shows_spread(d):
        high = _upper_by_symmetry(d, alpha, span, exchangeable=exchangeable)
        return _exact_bounds(d, alpha, span, lump.whole_statement, high)
    if method != "auto" or not lump.share:
        return _spread_bounds(d, alpha, "t" if method == "auto" else method, span)
    high = _upper_by_symmetry(d, alpha, span, exchangeable=exchangeable)
    exact = _exact_bounds(d, alpha, span, lump.statement, high)
    if lump.share == 1:
        return exact
    return _between(_spread_bounds(d, alpha, "t", span), exact, lump.share)


def _spread_bounds(d: Differences, alpha: float, method: BoundsName, span: float) -> Bounds:
    if method == "bca":
        low, high = bca_steps(d.residuals, alpha)
    else:
        error = d.sd / sqrt(d.units)
        low, high = (steps * error for steps in t_steps(d, alpha))
    worst, best = _extremes(d, span)
    name = "BCa" if method == "bca" else "t"
    return Bounds(d.mean, max(d.mean - low, worst), min(d.mean + high, best), alpha, name, d.units)


def _between(t: Bounds, exact: Bounds, share: float) -> Bounds:
    """Bounds between two kinds: each errs as it says, and so does the mixture."""
    low, high = (
        near + share * (far - near)
        for near, far in ((t.low, exact.low), (t.high, exact.high))
        if near is not None and far is not None  # only blocks of a set metric have no bounds
    )
    return replace(exact, low=low, high=high, method="t, exact")


def _shows_spread(d: Differences) -> bool:
    return d.units > 1 and _spreads(d.residuals)


def _spreads(residuals: Array) -> bool:
    return float(np.abs(residuals).max()) > 10.0**-_GRID


def _block_bounds(d: Differences, alpha: float) -> Bounds:
    if d.units < 2:
        statement = "one block of samples shows no spread: a set metric needs at least two"
    elif not _spreads(d.residuals):
        statement = "all blocks of samples differ alike: their spread says nothing"
    else:
        return _spread_bounds(d, alpha, "t", inf)
    return Bounds(d.mean, None, None, alpha, "t", d.units, statement)


def _exact_bounds(
    d: Differences, alpha: float, span: float, statement: str, high: float | None = None
) -> Bounds:
    """Exact bounds; the upper one is `high` where that is given."""
    values = d.weighted()
    worst, best = _extremes(d, span)
    heaviest = float(d.weights().max())
    # Rounding can put a value a hair beyond what its differences allow.
    low = lower_exact(values, min(worst * heaviest, float(values.min())), alpha)
    if high is None:
        high = upper_exact(values, max(best * heaviest, float(values.max())), alpha)
    return Bounds(
        d.mean,
        min(max(low, worst), d.mean),
        max(min(high, best), d.mean),
        alpha,
        "exact",
        d.units,
        statement,
    )


def _upper_by_symmetry(d: Differences, alpha: float, span: float, *, exchangeable: bool) -> float:
    """Upper bound of differences without a bell shape; the span where there are too few units.

    One more unit that gained the whole span, as `upper_exact` adds, would hide every loss but the
    largest; without drift gains that large are no likelier than such losses.
    """
    weights = d.weights()
    values = d.weighted() / weights
    if exchangeable:
        high = upper_flipped(values, weights, alpha)
    else:
        high = upper_symmetric(values, weights, d.mean, alpha)
    return _extremes(d, span)[1] if high is None else high


def _extremes(d: Differences, span: float) -> tuple[float, float]:
    """The least and the most that a mean can be: the span, or what a sample showed beyond it."""
    return min(-span, float(d.values.min())), max(span, float(d.values.max()))


class Lump(NamedTuple):
    """Degree to which differences are a lump.

    share: 1 where they are one, 0 where not at all, and between as it dissolves.
    statement: a sentence where they are, else "".
    """

    share: float
    statement: str

    @property
    def whole_statement(self) -> str:
        """The statement of a full lump, else ""."""
        return self.statement if self.share == 1 else ""


def find_lump(d: Differences, span: float) -> Lump:
    """Lump that differences form, by how many units are alike and how many are not.

    span: the most that a sample can lose or gain. A lump is full where at least half of the units
    have the same difference and at most 30 another, and gone where fewer than a quarter have the
    same or 45 another. Differences within 0.0005 of the span are the same, those 0.001 apart are
    not: noise of such a size says nothing of what a sample may lose that no unit shows. Units whose
    categories each have a difference of their own are alike as well. Between these numbers the
    share falls evenly, so that no small change of the data changes the bounds much.
    """
    count = d.units
    if count == 1:
        statement = "one unit shows no spread: the bounds allow for whatever others may show"
        return Lump(1.0, statement)
    weights = d.weights()
    values = np.sort(d.weighted() / weights)
    apart = np.sort(d.residuals / weights)
    alike = _count_alike(values, values, span)
    within = float(_count_alike(apart, np.array([0.0]), span)[0])
    most = max(float(alike.max()), within)
    falling = ((most - 1) / (count - 1) - _QUARTER) / (_HALF - _QUARTER)
    share = _clipped(falling) * _clipped((_ENOUGH - (count - most)) / (_ENOUGH - _FEW))
    if not share:
        return Lump(0.0, "")
    return Lump(share, _statement(values, float(values[int(alike.argmax())]), share, most, within))


def _count_alike(values: Array, centers: Array, span: float) -> Array:
    """(m,) how many values are the same as each center; those between near and apart in part.

    values: (n,) rising.
    centers: (m,).
    """
    near, apart = _NEAR * span, _APART * span
    sums = np.append(0.0, np.cumsum(values))
    far_left, left = (np.searchsorted(values, centers - reach, "left") for reach in (apart, near))
    right, far_right = (
        np.searchsorted(values, centers + reach, "right") for reach in (near, apart)
    )
    below = centers * (left - far_left) - (sums[left] - sums[far_left])
    above = sums[far_right] - sums[right] - centers * (far_right - right)
    between = left - far_left + far_right - right
    alike: Array = right - left + (apart * between - below - above) / (apart - near)
    return alike.round(6)


def _clipped(share: float) -> float:
    return min(max(share, 0.0), 1.0)


def _statement(values: Array, center: float, share: float, most: float, within: float) -> str:
    count, same = len(values), round(most)
    value = f"{round(center, _GRID) + 0.0:g}"
    if float(values[-1] - values[0]) <= 10.0**-_GRID:
        return f"all {count} differences are {value}: the bounds allow for rare others"
    if within == count:
        return "no category shows any spread: the bounds allow for rare others"
    equal = np.abs(values - center) <= 10.0**-_GRID
    if within == most and equal.sum() < same:
        statement = f"{same} of {count} differences are those of their category"
    elif equal.sum() == same:
        statement = f"{same} of {count} differences are {value}"
    else:
        statement = f"{same} of {count} differences are {value} but for noise"
    if share < 1:
        return f"{statement}, few are others: the bounds lie between exact ones and t"
    return f"{statement}, too few are others for a bell shape"


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
    few = min(_MOST_HIDDEN, (_FEW_HIDE / count) ** 3)
    moved = skewness - sqrt(6 / count) * (1 - few * skewness)
    return hall_step(t, moved / sqrt(count))


def hall_step(t: float, skewness: float) -> float:
    """Standard errors to a bound of a mean whose own skewness is known, at most 0; at least t."""
    c = -min(-skewness, 3 * (sqrt(t * t + _FARTHEST * 2 / 3) - t))
    if not c:
        return t
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
    means = np.sort(np.round(_resampled_means(ordered, count, seed), _MEAN_GRID))
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
