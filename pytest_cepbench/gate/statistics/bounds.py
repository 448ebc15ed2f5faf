"""The gate's statistics of a mean paired difference: a test of a drop, and bounds of its size.

Sign flips say whether there is a drop: exact where gains and losses are equally likely. A
checkpoint that could be exchanged with its baseline is as likely to have gained in a unit as to
have lost, independently of the other units, whatever the sizes of the differences. Then the
observed signs are one draw among all flips, and the share of flips whose statistic is at most the
observed one is a p value, for every such law, whatever its shape. It stays one if the flips are a
group of some, the same for every run.

Hall's transformed t says how large a drop may be, and Gaffke's lower bound, of a mean with a known
worst value, the same where a mean has no bell shape: of shares of right answers, and of differences
most of which are the same.
Sources: Fisher, The Design of Experiments, 1935, section 21; Hemerik and Goeman, Exact testing with
random permutations, 2018, section 2 (subgroups); Hall, On the removal of skewness by
transformation, 1992 (the statistic).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from hashlib import shake_128
from math import inf, isfinite, log, pi, sqrt

import numpy as np
import numpy.typing as npt

from pytest_cepbench.gate.statistics.constants import (
    ALL_UNITS,
    ENOUGH_FLIPS,
    FARTHEST_TURN,
    FLIP_ROUNDS,
    LUMP,
    SAME_DIFFERENCE,
)
from pytest_cepbench.gate.statistics.differences import Array, Differences
from pytest_cepbench.metrics.uncertainty import t_upper_quantile

_STEP, _LAST_PLACE = 0.2, 18.0  # of the trapezoid rule: its first step, and its last place
_NEGLIGIBLE = -30.0  # exp of it, against the largest term
_MOST_HALVINGS = 12
_SETTLED = 1e-9  # relative change by a halving; the error left is far smaller
_EDGE, _LEAST = 1e-15, 1e-30  # nearer to the end, or to 0, no quantile is told from it
_GROUPED_DECIMALS = 12  # decimals that values are grouped by: 0.3 - 0.1 and 0.2 are one value


def gaffke_lower(values: Array, worst: float, alpha: float) -> float:
    """Lower bound at level alpha of a mean of values that are never below worst.

    values: (n,) finite, n >= 1, none below worst.
    alpha: in (0, 0.5].
    Returns the alpha-quantile of sum_i D_i z_i, where z are the values with one more at worst, and
    D is uniform on the simplex (Dirichlet with all parameters 1). Between worst and the largest
    value. On values of 0 and 1 with worst = 0 it is Clopper and Pearson's bound; for n equal values
    v it is worst + (v - worst) alpha^(1/n), the rule of three.
    That it errs with probability at most alpha is proven for values of 0 and 1 and conjectured for
    all others: no violation has been found, in the simulations of these papers or in our tests.
    Computed without random numbers: the probability at the bound is alpha within a relative error
    of 1e-8.
    Source: Gaffke, Three test statistics for a nonparametric one-sided hypothesis on the mean of a
    nonnegative variable, 2005; Learned-Miller and Thomas, A new confidence interval for the mean of
    a bounded random variable, 2020; Phan, Thomas and Learned-Miller, Towards practical mean bounds
    for small samples, ICML 2021.
    Raises ValueError for other numbers.
    """
    numbers = np.asarray(values, dtype=np.float64)
    finite = numbers.ndim == 1 and len(numbers) and np.isfinite(numbers).all()
    if not (finite and 0 < alpha <= 0.5):
        raise ValueError(
            f"expected (n,) finite values and alpha in (0, 0.5], got {numbers.tolist()} and {alpha}"
        )
    if numbers.min() < worst:
        raise ValueError(
            f"a value of {numbers.min()} is below the worst that was said to be possible, {worst}"
        )
    span = float(numbers.max()) - worst
    if span == 0:
        return worst
    points, counts = np.unique(
        np.append(np.round((numbers - worst) / span, _GROUPED_DECIMALS), 0.0), return_counts=True
    )
    if len(points) == 2 and counts[0] == 1:
        return worst + span * float(alpha ** (1 / len(numbers)))
    from scipy.optimize import brentq

    shapes = counts.astype(np.float64)

    def excess(q: float) -> float:  # of log P(sum D_i z_i <= q)
        return _log_probability(points - q, shapes) - log(alpha)

    return worst + span * float(brentq(excess, _LEAST, 1 - _EDGE, xtol=_LEAST, rtol=1e-14))


def _log_probability(away: Array, counts: Array) -> float:
    """Log of P(sum_j G_j a_j <= 0), G_j independent Gamma variables.

    away: (m,) a_j, of both signs, the least first.
    counts: (m,) shapes of the G_j.
    The integral 1 / (2 pi i) of prod (1 - a_j s)^-n_j / -s over the vertical line through the
    saddlepoint s = -t, where -sum n_j log(1 + a_j t) - log t is least, by the trapezoid rule, which
    converges faster than any power of its step. Steps are even in u of y = width * sinh(u), since
    the tails of few variables are long, and are halved until the sum stays: one outlier among many
    makes the integrand turn often.
    """
    from scipy.optimize import brentq

    def slope(t: float) -> float:
        return -float((away / (1 + away * t)) @ counts) - 1 / t

    edge = 1 / float(-away[0])
    t = float(brentq(slope, 1e-9 * edge, (1 - 1e-12) * edge, rtol=1e-10))
    ratios = np.append(away / (1 + away * t), 1 / t)
    shapes = np.append(counts, 1.0)
    width = 1 / sqrt(float((ratios * ratios) @ shapes))

    def sizes(u: Array) -> Array:
        turned = np.multiply.outer(width * np.sinh(u), ratios)
        return np.asarray(np.log(np.cosh(u)) - np.log1p(turned * turned) @ shapes / 2, np.float64)

    def summed(u: Array) -> float:
        turns = np.arctan(np.multiply.outer(width * np.sinh(u), ratios)) @ shapes
        return float(np.exp(sizes(u)) @ np.cos(turns))

    grid = np.arange(_STEP, _LAST_PLACE, _STEP)
    reach = float(grid[sizes(grid) > _NEGLIGIBLE].max(initial=_STEP)) + _STEP / 2
    step, total = _STEP, summed(grid[grid < reach]) + 0.5  # the term at u = 0
    for _ in range(_MOST_HALVINGS):
        before, step = step * total, step / 2
        total += summed(np.arange(step, reach, 2 * step))
        if abs(step * total - before) <= _SETTLED * abs(before):
            break
    peak = -float(np.log1p(away * t) @ counts) - log(t)
    return peak + log(max(width * step * total / pi, _LEAST))


# -- test of a drop by flipping signs: exact where gains and losses are equally likely -------------

_AT_ONCE = 6  # bits: all in two products would take three times as long
_ROUNDING = 1e-9  # within which statistics tie: BLAS libraries round sums differently
_NOTHING = 1e-13  # of the largest part: what is left where the seeds of a unit cancel out


def flip_p_value(parts: Array, alpha: float) -> float:
    """Probability of a mean as low as this one, were each unit as likely to gain as to lose.

    parts: (K,) what each unit adds to the mean difference, finite; positive is better. A unit is
    flipped whole, with all of its seeds, images and categories.
    alpha: level at which the value is needed, in (0, 0.5]; it says how many flips are made.
    Returns a value in (0, 1], 1 where no unit differs. Of up to 17 units that differ all flips are
    made, so the least possible value is 2^-K: seven losses beside any number of ties give 0.008.
    Of more, a group of 2^11 to 2^18: more are made until 100 are in the tail, which puts the value
    right within a tenth, or would if it were alpha. Only the last round has values of at most
    alpha, so stopping before it costs no error, and what one level rejects every higher one does.
    The statistic is the mean y over the root of the sum of squares, S = sum y / sqrt(sum y^2), with
    its skewness a = sum y^3 / (sum y^2)^1.5 taken out: S + a S^2 / 3 + a^2 S^3 / 27 + a / 6.
    Where few units gain much, and the mean is 0 without the symmetry that is promised, the mean
    alone fails up to half as often again (`benchmarks/gate_error_rates.py`).
    """
    sizes = np.abs(parts)
    largest = sizes.max()
    scaled = parts[sizes > _NOTHING * largest] / largest  # cubes of tiny numbers would vanish
    units = len(scaled)
    if units <= ALL_UNITS:
        return _share(scaled, units) if units else 1.0
    p = 1.0
    for bits in FLIP_ROUNDS:
        p = _share(scaled, bits)
        if max(p, alpha) * (1 << bits) >= ENOUGH_FLIPS:
            break
    return p


def _share(values: Array, bits: int) -> float:
    """Share of 2^bits flips with a statistic of at most the first one's, which flips nothing."""
    numbers = _numbers(len(values), bits)
    sums = [
        _signed_sums(np.asarray(np.bincount(numbers, part, 1 << bits), np.float64))
        for part in (values, values**3)
    ]
    square = float(values @ values)
    mean, skewness = sums[0] / square**0.5, sums[1] / square**1.5
    bent = skewness * mean
    statistic = mean * (1 + bent / 3 + bent * bent / 27) + skewness / 6
    observed = statistic[0]
    return float(np.mean(statistic <= observed + _ROUNDING * (1 + abs(observed))))


def _signed_sums(sums: Array) -> Array:
    """(n,) sum over codes c of (-1)^(number of bits that c and g share) sums[c], for each flip g.

    The Walsh-Hadamard transform, n a power of two, by products with small matrices: each takes the
    last bits of the codes and puts them first, so that all are in their places at the end.
    """
    left = len(sums).bit_length() - 1
    while left:
        bits = min(left, _AT_ONCE)
        sums = (sums.reshape(-1, 1 << bits) @ _hadamard(bits)).T.ravel()
        left -= bits
    return sums


@cache
def _hadamard(bits: int) -> Array:
    from scipy.linalg import hadamard

    return np.asarray(hadamard(1 << bits), np.float64)


@cache
def _numbers(units: int, bits: int) -> npt.NDArray[np.int64]:
    """(K,) code of each unit: flip g turns it where g and the code share an odd number of bits.

    The first codes are the powers of two, so that units that can be flipped on their own are; the
    others are hashed. Flips are closed under their products, which keeps the test exact.
    """
    drawn = np.frombuffer(shake_128(b"signs").digest(4 * units), dtype="<u4").astype(np.int64)
    codes = drawn & ((1 << bits) - 1)
    first = min(units, bits)
    codes[:first] = 1 << np.arange(first)
    return np.where(codes == 0, 1, codes)


HALL, GAFFKE = "Hall", "Gaffke"
"""Methods of bounds."""

_GRID = 9  # decimals within which differences of six-decimal scores count as equal


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
    p: of the sign-flip test of a drop; None where no test can be made.
    """

    mean: float
    low: float | None
    high: float | None
    alpha: float
    method: str
    units: int
    statement: str = ""
    p: float | None = None


def mean_bounds(
    d: Differences, alpha: float, *, shares: bool = False, blocks: bool = False, span: float = 1.0
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
    if blocks and not shows_spread(d):
        alone = "all blocks of samples differ alike: their spread says nothing"
        if d.units < 2:
            alone = "one block of samples shows no spread: a set metric needs at least two"
        return Bounds(d.mean, None, None, alpha, HALL, d.units, alone)
    if d.center is not None and not blocks:
        raise ValueError(
            f"a center ({d.center}) goes with the blocks of a set metric: say blocks=True"
        )
    span = inf if blocks else span
    # A bound beyond what a mean can be excludes nothing: the span, or what a sample showed beyond.
    worst, best = min(-span, float(d.values.min())), max(span, float(d.values.max()))
    statement = None if blocks else "" if shares else find_lump(d, span)
    if statement is None:
        error = d.sd / sqrt(d.units)
        below, above = (steps * error for steps in hall_steps(d, alpha))
        low, high, method = d.mean - below, d.mean + above, HALL
    else:
        values, heaviest = d.weighted(), float(d.weights().max())
        # Rounding can put a value a hair beyond what its differences allow.
        low = gaffke_lower(values, min(worst * heaviest, float(values.min())), alpha)
        high = -gaffke_lower(-values, -max(best * heaviest, float(values.max())), alpha)
        low, high, method = min(low, d.mean), max(high, d.mean), GAFFKE
    return Bounds(
        d.mean,
        low if low > worst else None,
        high if high < best else None,
        alpha,
        method,
        d.units,
        statement or "",
        p=flip_p_value(d.parts, alpha),
    )


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
    near = max(SAME_DIFFERENCE * span, 10.0**-_GRID)
    first = np.searchsorted(values, values - near, "left")
    counts = np.searchsorted(values, values + near, "right") - first
    within = int((np.abs(d.residuals / weights) <= near).sum())
    most = max(int(counts.max()), within)
    if most < LUMP * d.units:
        return None
    if d.units == 1:
        return "one unit shows no spread: the bounds allow for whatever others may show"
    return f"{most} of {d.units} differences are the same: the bounds allow for rare others"


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
    return float(hall_step(t, below / sqrt(units))), float(hall_step(t, above / sqrt(units)))


def hall_step(t: float | Array, skewness: float | Array) -> Array:
    """Standard errors to a bound of a mean whose own skewness is known, at most 0; at least t.

    t, skewness: of shapes that fit each other.
    3 / c (cbrt(1 + x) - 1) with x = c (t - c / 6), c the skewness. As c falls the bound moves
    away until c t + c^2 / 6 is 9 / 8, to four times t, and then comes back, which would make the
    most lopsided samples count as harmless: from there on it stays where it was farthest. Without
    that, bounds of 8 samples err up to 2.8 times as often as they say.
    """
    c = np.maximum(skewness, 3 * (t - np.sqrt(t * t + FARTHEST_TURN * 2 / 3)))
    root = np.cbrt(1 + c * (t - c / 6))
    # (root^3 - 1) / (root - 1): hardly any skewness would leave nothing but rounding of root - 1.
    steps = np.maximum(t, 3 * (t - c / 6) / (root * root + root + 1))
    return np.asarray(steps, np.float64)
