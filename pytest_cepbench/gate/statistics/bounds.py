"""The gate's statistics of a mean paired difference: a test of a drop, and bounds of its size.

Three methods: sign flips say whether there is a drop (`sign_flips.py`), Hall's transformed t how
large it may be, and Gaffke's bound (`gaffke.py`) the same where a mean has no bell shape: of shares
of right answers, and of lumps, differences most of which are the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, isfinite, sqrt

import numpy as np

from pytest_cepbench.gate.statistics.differences import Array, Differences
from pytest_cepbench.gate.statistics.gaffke import gaffke_lower
from pytest_cepbench.gate.statistics.sign_flips import flip_p_value
from pytest_cepbench.metrics.uncertainty import t_upper_quantile

HALL, GAFFKE = "Hall", "Gaffke"
"""Methods of bounds."""

LUMP = 0.75
"""Share of units with the same difference from which on they are a lump."""

_SAME = 0.0005  # of the span: noise as small says nothing of what no unit shows
_GRID = 9  # decimals within which differences of six-decimal scores count as equal
_FARTHEST = 9 / 8  # of c t + c^2 / 6, where Hall's transformation turns back


@dataclass(frozen=True)
class Bounds:
    """A mean difference, how sure it is that there is a drop, and how large it may be.

    mean: of the pairs.
    low, high: one-sided confidence bounds; the true mean is below low with probability at most
    alpha, and above high with probability at most alpha. None where nothing can be excluded.
    alpha: that probability.
    method: which bounds they are.
    units: clusters that they count.
    statement: a sentence where the data needed special treatment, else "".
    spread: standard deviation of a unit, where that is not the one of the differences.
    p: of the sign-flip test of a drop; None of bounds that make the test themselves (bets, labels),
    and where no test can be made.
    """

    mean: float
    low: float | None
    high: float | None
    alpha: float
    method: str
    units: int
    statement: str = ""
    spread: float | None = None
    p: float | None = None


def mean_bounds(
    d: Differences,
    alpha: float,
    *,
    shares: bool = False,
    blocks: bool = False,
    span: float = 1.0,
) -> Bounds:
    """The test of a drop and the bounds of the mean difference, each at level alpha, in (0, 0.5].

    shares: whether the scores are shares of right answers, in [0, 1] (GenEval, MGG, failure rates).
    A loss so rare that no sample shows it escapes every bound that is made from the spread.
    blocks: whether values are a set metric's influences, or differences of jackknife pseudo-values:
    never Gaffke's bound, since nothing is known of the worst. Without spread over at least two
    blocks there are no bounds.
    span: the most that a sample can lose or gain; where one has lost more, that is the most.
    Gaffke's bounds are made of shares and of lumps (`find_lump`), units without any spread among
    them, since an estimated spread of 0 would promise certainty. Those of clusters or categories of
    different sizes let one more unit weigh as much as the heaviest that was seen: with one tiny
    category among large ones they are wide. All others are Hall's.
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
    statement = "" if shares else find_lump(d, span)
    if statement is None:
        return _hall_bounds(d, alpha, span)
    return _gaffke_bounds(d, alpha, span, statement)


def _hall_bounds(d: Differences, alpha: float, span: float) -> Bounds:
    error = d.sd / sqrt(d.units)
    below, above = (steps * error for steps in hall_steps(d, alpha))
    return _within(d, d.mean - below, d.mean + above, alpha, HALL, span, "")


def _block_bounds(d: Differences, alpha: float) -> Bounds:
    if d.units < 2:
        statement = "one block of samples shows no spread: a set metric needs at least two"
    elif not shows_spread(d):
        statement = "all blocks of samples differ alike: their spread says nothing"
    else:
        return _hall_bounds(d, alpha, inf)
    return Bounds(d.mean, None, None, alpha, HALL, d.units, statement)


def _gaffke_bounds(d: Differences, alpha: float, span: float, statement: str) -> Bounds:
    values = d.weighted()
    worst, best = _extremes(d, span)
    heaviest = float(d.weights().max())
    # Rounding can put a value a hair beyond what its differences allow.
    low = gaffke_lower(values, min(worst * heaviest, float(values.min())), alpha)
    high = -gaffke_lower(-values, -max(best * heaviest, float(values.max())), alpha)
    return _within(d, min(low, d.mean), max(high, d.mean), alpha, GAFFKE, span, statement)


def _within(
    d: Differences, low: float, high: float, alpha: float, method: str, span: float, statement: str
) -> Bounds:
    """With the test, and without bounds that exclude nothing of what a mean can be."""
    worst, best = _extremes(d, span)
    return Bounds(
        d.mean,
        low if low > worst else None,
        high if high < best else None,
        alpha,
        method,
        d.units,
        statement,
        p=flip_p_value(d.parts, alpha),
    )


def _extremes(d: Differences, span: float) -> tuple[float, float]:
    """The least and the most that a mean can be: the span, or what a sample showed beyond it."""
    return min(-span, float(d.values.min())), max(span, float(d.values.max()))


def shows_spread(d: Differences) -> bool:
    """True where units differ within their categories."""
    return d.units > 1 and float(np.abs(d.residuals).max()) > 10.0**-_GRID


def find_lump(d: Differences, span: float) -> str | None:
    """A sentence where most differences are the same, so that no spread tells of rare others.

    span: the most that a sample can lose or gain. A lump is made of at least three units in
    four whose differences are the same within 0.0005 of the span, or are their own category's mean
    within that.
    """
    weights = d.weights()
    values = np.sort(d.weighted() / weights)
    near = max(_SAME * span, 10.0**-_GRID)
    first = np.searchsorted(values, values - near, "left")
    counts = np.searchsorted(values, values + near, "right") - first
    within = int((np.abs(d.residuals / weights) <= near).sum())
    most = int(counts.max())
    if max(most, within) < LUMP * d.units:
        return None
    return _lump_statement(values, float(values[int(counts.argmax())]), most, within)


def _lump_statement(values: Array, center: float, most: int, within: int) -> str:
    count, value = len(values), f"{round(center, _GRID) + 0.0:g}"
    if count == 1:
        return "one unit shows no spread: the bounds allow for whatever others may show"
    if float(values[-1] - values[0]) <= 10.0**-_GRID:
        return f"all {count} differences are {value}: the bounds allow for rare others"
    equal = int((np.abs(values - center) <= 10.0**-_GRID).sum())
    if within > most:
        like = "those of their category"
    else:
        like = value if equal == most else f"{value} but for noise"
    return (
        f"{max(most, within)} of {count} differences are {like}: the bounds allow for rare others"
    )


def hall_steps(d: Differences, alpha: float) -> tuple[float, float]:
    """Distances of the one-sided bounds below and above the mean, in standard errors, both >= 0.

    d: differences that are not all alike.
    alpha: error of each bound, in (0, 0.5].
    Plain t misses the mean of skewed differences many times as often as it promises, the more so
    the smaller alpha is, and skewness is the rule where few samples lose much. Hall's
    transformation takes the skewness out; few samples show less of it than there is, so it is
    moved by one standard error, sqrt(6 / K), to the unfavourable side, and never taken for a help.
    K is the number of effective units: where the spread of one small category or of few heavy
    clusters makes up that of the mean, it is they that count.
    What no sample shows it cannot allow for: where one sample in fifty loses very much and the rest
    hardly anything, a sample of 60 in which none did has a lower bound that is too high.
    Source: Hall, On the removal of skewness by transformation, 1992; the move is ours.
    """
    t, units = t_upper_quantile(alpha, d.degrees), d.effective_units
    moved = sqrt(6 / units)
    below, above = (min(0.0, side) - moved for side in (d.skewness, -d.skewness))
    return hall_step(t, below / sqrt(units)), hall_step(t, above / sqrt(units))


def hall_step(t: float, skewness: float) -> float:
    """Standard errors to a bound of a mean whose own skewness is known, at most 0; at least t.

    3 / c (cbrt(1 + x) - 1) with x = c (t - c / 6), c the skewness. As c falls the bound moves
    away until c t + c^2 / 6 is 9 / 8, to four times t, and then comes back, which would make the
    most lopsided samples count as harmless: from there on it stays where it was farthest. Without
    that, bounds of 8 samples err up to 2.8 times as often as they say.
    """
    c = -min(-skewness, 3 * (sqrt(t * t + _FARTHEST * 2 / 3) - t))
    root = float(np.cbrt(1 + c * (t - c / 6)))
    # (root^3 - 1) / (root - 1): hardly any skewness would leave nothing but rounding of root - 1.
    return max(t, 3 * (t - c / 6) / (root * root + root + 1))
