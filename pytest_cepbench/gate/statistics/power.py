"""Power of the gate: drops that it finds, good checkpoints that it holds, samples that it takes.

Every number that a person is told of power comes from here: by the gate, a plan, a new suite and
the doctor.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from math import ceil, inf, isfinite, sqrt
from statistics import NormalDist

import numpy as np

from pytest_cepbench.gate.statistics.bounds import hall_step
from pytest_cepbench.gate.statistics.constants import (
    FEWEST_IN_STRATUM,
    FLIP_ROUNDS,
    MOST_SCATTER,
    UNEVEN,
)
from pytest_cepbench.gate.statistics.differences import Array, Differences
from pytest_cepbench.metrics.uncertainty import t_upper_quantile

POWER = 0.8
"""Share of runs in which a drop that is planned for shall be seen."""

_NORMAL = NormalDist()
_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(40)  # of integrals over a normal density
_SHARES = _WEIGHTS / _WEIGHTS.sum()
_MOST = 10**7  # units that are planned for


@dataclass(frozen=True)
class Design:
    """What power depends on: how unit differences scatter, and in which strata.

    sd: standard deviation of a unit's difference, finite and above 0; 0 only where bounds are
    Gaffke's.
    units: independent samples, at least 2.
    effective: units of equal weight and spread that show as much of it, at most `units`.
    degrees: of freedom of the spread, at least 1.
    worst: the most that a unit can lose, the heaviest one, where bounds are Gaffke's; None where
    they are Hall's.

    Raises ValueError for other numbers.
    """

    sd: float
    units: int
    effective: float
    degrees: float
    worst: float | None = None

    def __post_init__(self) -> None:
        if not (self.sd >= 0 and isfinite(self.sd) and (self.sd or self.worst is not None)):
            raise ValueError(
                f"expected a standard deviation above 0, got {self.sd}: without spread there is "
                "no plan"
            )
        if self.units < 2:
            raise ValueError(f"expected at least 2 units, got {self.units}")

    @classmethod
    def of(cls, d: Differences, worst: float | None = None) -> Design:
        """The design of differences that were seen.

        worst: the most that a pair can lose, where bounds are Gaffke's.
        Raises ValueError as the class does.
        """
        heaviest = None if worst is None else worst * float(d.weights().max())
        # Files have floats: a whole number would not be read as it was written.
        return cls(d.sd, d.units, float(d.effective_units), float(d.degrees), heaviest)

    @classmethod
    def plain(cls, sd: float, units: int) -> Design:
        """Of units of one category. Raises ValueError as the class does."""
        return cls(sd, units, float(units), float(units - 1))

    def scaled(self, units: int) -> Design:
        """The same with another number of units, in the same shares of categories."""
        effective = self.effective * units / self.units
        return replace(
            self,
            units=units,
            effective=effective,
            degrees=max(effective - self.effective + self.degrees, 1.0),
        )

    @property
    def error(self) -> float:
        """Standard error of the mean difference."""
        return self.sd / sqrt(self.units)


def chance_to_fail(design: Design, drop: float, alpha: float, tolerance: float) -> float:
    """Probability that the regression gate fails a drop.

    drop: the true one, in the unit of sd.
    alpha: level of the sign-flip test, in (0, 0.5].
    tolerance: at least 0.
    Failing means a mean below -tolerance and p <= alpha. Of bell-shaped differences flips find as
    much as Student's t does whose degrees of freedom are the effective units less one.
    """
    if alpha < 0.5 ** min(design.units, FLIP_ROUNDS[-1]) or not design.sd:
        return 0.0
    degrees = max(design.effective - 1, 1.0)
    t = t_upper_quantile(alpha, whole_degrees(degrees))
    found = float(_beyond(drop / design.error, degrees, np.array(t)))
    return min(found, _NORMAL.cdf((drop - tolerance) / design.error))


def chance_to_hold(design: Design, alpha: float, tolerance: float) -> float:
    """Probability that a checkpoint as good as its baseline is held: low > -tolerance.

    Where categories leave fewer than 15 degrees of freedom, few samples show how many they are, and
    this is rough.
    """
    if design.worst is not None:  # the bound has one more unit, which lost the most
        least = design.worst * (1 - alpha ** (1 / design.units))
        ahead = tolerance - design.worst / (design.units + 1)
        if tolerance <= least:
            return 0.0
        return _NORMAL.cdf(ahead / design.error + _NORMAL.inv_cdf(alpha)) if design.sd else 1.0
    return _chance_to_exclude(design, tolerance, alpha)


def _chance_to_exclude(design: Design, distance: float, alpha: float) -> float:
    """Probability that Hall's bound lies on the near side of what is so far from the truth."""
    if distance <= 0:
        return 0.0  # at most alpha
    away = distance / design.error
    chance = _beyond(away, design.degrees, _steps_to_bound(design, alpha)) @ _SHARES
    if design.effective < UNEVEN * design.units:
        from scipy.special import ndtr

        chance = min(chance, ndtr(away - _bounds_of_few(design, alpha)).mean(axis=0) @ _SHARES)
    return float(chance)


def smallest_visible(
    design: Design, alpha: float, tolerance: float = 0.0, *, strict: bool = False
) -> float:
    """The smallest true drop that the regression gate finds in a share `POWER` of runs.

    alpha, tolerance: as in `chance_to_fail`.
    strict: whether found means high < -tolerance, as in a series of gates.
    Positive, in the unit of sd; infinite where so few units can fail nothing at alpha, and where
    there is no spread, which tells nothing of drops.
    Raises ValueError for other numbers.
    """
    _check(alpha, tolerance)
    if not design.sd:
        return inf

    def chance(drop: float) -> float:
        if strict:
            return _chance_to_exclude(design, drop - tolerance, alpha)
        return chance_to_fail(design, drop, alpha, tolerance)

    return _least(chance, design.error)


def tolerance_that_holds(design: Design, alpha: float) -> float:
    """The smallest tolerance at which a checkpoint as good as its baseline is mostly held.

    Above 0, in the unit of sd: where it is held in a share `POWER` of runs.
    Raises ValueError for an alpha out of range.
    """
    _check(alpha, 0.0)
    step = design.error or (design.worst or 1.0) / design.units
    return _least(lambda tolerance: chance_to_hold(design, alpha, tolerance), step)


def units_needed(design: Design, tolerance: float, alpha: float) -> int | None:
    """Units with which a checkpoint as good as its baseline is held in a share `POWER` of runs.

    design: of the units that were seen; more are taken to come in the same shares of categories.
    tolerance: above 0.
    The same number finds a drop of twice the tolerance about as often: both ask for a bound that
    is no farther than the tolerance. None where more than 10 million would be needed.
    Where few units have most of the spread, more often than not they lie closer together than is
    usual: the effective units that are found, and the degrees that more units would add, are too
    many, though the degrees there are now are not. So more are planned for as if one stratum with
    these degrees had all of the spread.
    Raises ValueError for other numbers.
    """
    _check(alpha, tolerance)
    if tolerance == 0:
        raise ValueError("a tolerance above 0 is needed: no number of units holds a drop of 0")

    def hold(many: Design) -> bool:
        return chance_to_hold(many, alpha, tolerance) >= POWER

    if design.effective >= UNEVEN * design.units or hold(design):
        return _enough(design, hold)
    needed = _enough(replace(design, effective=min(design.effective, design.degrees + 1)), hold)
    return (
        None if needed is None else max(needed, design.units + 1)
    )  # those there are do not hold it


def units_to_fail(design: Design, drop: float, alpha: float, tolerance: float) -> int | None:
    """Units with which a drop beyond the tolerance fails in a share `POWER` of runs; see above."""
    _check(alpha, tolerance)
    if not drop > tolerance:
        raise ValueError(f"no number of units fails a drop of {drop}, and {tolerance} is tolerated")
    return _enough(design, lambda many: chance_to_fail(many, drop, alpha, tolerance) >= POWER)


def _enough(design: Design, does: Callable[[Design], bool]) -> int | None:
    """The fewest units with which something is so, if it is with all greater numbers too."""
    few, enough = 1, max(2, ceil(design.units / design.effective))
    while not does(design.scaled(enough)):
        few, enough = enough, 2 * enough
        if enough > _MOST:
            return None
    while enough - few > 1:
        middle = (few + enough) // 2
        few, enough = (few, middle) if does(design.scaled(middle)) else (middle, enough)
    return enough


@cache
def _steps_to_bound(design: Design, alpha: float) -> Array:
    """(40,) standard errors between a mean of bell-shaped differences and its bound.

    At each node of the skewness that they happen to show, in its standard errors.
    """
    t = t_upper_quantile(alpha, whole_degrees(design.degrees))
    # The standard deviation of the skewness that is found in bell-shaped units, over sqrt(6 / K):
    # more than 1 with few units in a stratum, each of which has a mean of its own; 0 with two,
    # which show none. As many as strata of equal size and spread have whose degrees of freedom, as
    # they are found, are this share of the units: (k - 1)^2 / (k (k + 1)).
    share = min(design.degrees / design.effective, 0.99)
    root = sqrt((2 + share) ** 2 - 4 * (1 - share))
    units = (2 + share + root) / (2 * (1 - share))
    return hall_step(t, _skewness_found(units) / design.effective)


@lru_cache(64)  # 20 KB each
def _bounds_of_few(design: Design, alpha: float) -> Array:
    """(64, 40) true standard errors between a mean and its bound where few units have the spread.

    At each quantile of the spread that they show; degrees and effective units that are found vary
    with it. Let a stratum of k units have the share r of the variance, and let the rest be known:
    then there are (k - 1) / r^2 degrees and k / r^2 effective units, from which k and r follow.
    """
    strata = max(design.effective - design.degrees, 1.0)
    units, part = design.effective / strata, strata**-0.5
    free, rest = max(units - 1, 0.5), (1 - part) ** 2 / max(design.units - units, 1.0)
    few = part * _found_errors(free) ** 2
    found = few + 1 - part
    degrees = np.minimum(found**2 / (few**2 / free + rest), design.units - 1)
    shown = found**2 / (few**2 / ((free + 1) * (1 + 2 / free)) + rest) / (1 + 2 / degrees)
    effective = np.minimum(shown, design.units)
    t = np.array([t_upper_quantile(alpha, max(int(own + 1e-9), 1)) for own in degrees])
    steps = hall_step(t[:, None], _skewness_found(units) / effective[:, None])
    return np.asarray(steps * np.sqrt(found)[:, None], np.float64)


def _skewness_found(units: float) -> Array:
    """(40,) that of the mean of bell-shaped differences, moved, times the effective units.

    units: of a stratum.
    """
    scatter = 0.0
    if units >= FEWEST_IN_STRATUM:
        scatter = float((units - 1) ** 1.5) / (sqrt(units) * (units - 2))
    scattered = _NODES * min(scatter, MOST_SCATTER)
    return (np.minimum(scattered, 0.0) - 1) * sqrt(6)


def _beyond(distance: float, degrees: float, steps: Array) -> Array:
    """Probability that so many of its own standard errors lie below a normal mean.

    distance: of the true mean, in true standard errors. steps: (...).
    Averaged over the standard errors that are found: SciPy's noncentral t is NaN beyond 37.
    """
    from scipy.special import ndtr

    above = ndtr(distance - np.multiply.outer(steps, _found_errors(degrees)))
    return np.asarray(above.mean(axis=-1), np.float64)


@cache
def _found_errors(degrees: float) -> Array:
    """(64,) quantiles of a standard error over the true one."""
    from scipy.special import chdtri

    return np.asarray(np.sqrt(chdtri(degrees, (np.arange(64) + 0.5) / 64) / degrees), np.float64)


def whole_degrees(degrees: float) -> int:
    """Degrees of freedom for Student's quantiles, at least 1."""
    return max(round(degrees), 1)


def _least(rate: Callable[[float], float], step: float) -> float:
    """The least number at which a rising rate is `POWER`; infinite where it stays below."""
    high = step
    while rate(high) < POWER:
        high *= 2
        if high > _MOST * step:
            return inf
    low = 0.0
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (low, middle) if rate(middle) >= POWER else (middle, high)
    return high


def _check(alpha: float, tolerance: float) -> None:
    if not 0 < alpha <= 0.5:
        raise ValueError(f"expected alpha in (0, 0.5], got {alpha}")
    if not (tolerance >= 0 and isfinite(tolerance)):
        raise ValueError(f"expected a tolerance of at least 0, got {tolerance}")
