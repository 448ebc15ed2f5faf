"""Power: samples that a drop needs to be seen, the smallest that so many show, detection delays."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from math import ceil, isfinite, sqrt
from statistics import NormalDist

import numpy as np

from pytest_cepbench.gate.statistics.bounds import careful_quantile, t_step
from pytest_cepbench.metrics.uncertainty import t_upper_quantile

POWER = 0.8
"""Share of runs in which a drop that is planned for shall be seen."""

_NORMAL = NormalDist()
_USUAL = 0.4  # standard errors by which bell-shaped samples are skewed to the bad side, on average


def samples_needed(sd: float, drop: float, alpha: float, power: float = POWER) -> int:
    """Units needed to tell a drop from none, at least 2.

    sd: standard deviation of a unit's difference (`Differences.sd`), above 0.
    drop: above 0, in the same unit.
    alpha: error of a bound, in (0, 0.5].
    power: in (0.5, 1).
    With so many, in a share `power` of runs, the drop is excluded when there is none (low > -drop)
    and seen when it is there (high < 0). The least n with sqrt(n) * drop / sd >= T + t, where T is
    what the gate's bound of bell-shaped differences uses (`t_step`), and t Student's quantile for
    the power; the search starts at the usual ((z_alpha + z_power) sd / drop)^2. By simulation of
    bell-shaped differences, where 0.8 is asked for: 0.77 to 0.80 from 20 units on at alpha = 0.05,
    from 40 at a fortieth of it; 0.68 to 0.74 with 16 to 24 units at small alphas, and 0.63 to 0.89
    with fewer. Heavy tails (Student's with 5 degrees) cost up to 0.05 more. Where the long tail
    lies on the side of the bound, it promises too much: of exponential differences 0.66 with 60
    units at alpha = 0.05 and 0.33 at a fortieth of it, 0.25 and 0.06 with 20; on the other side the
    power is above 0.8.
    Raises ValueError for other numbers.
    """
    _check(sd, alpha, power)
    if not (drop > 0 and isfinite(drop)):
        raise ValueError(f"expected a drop above 0 that is to be seen, got {drop}")
    normal = -_NORMAL.inv_cdf(alpha) + _NORMAL.inv_cdf(power)
    few = max(2, ceil((normal * sd / drop) ** 2)) - 1
    enough = few + 1
    while sqrt(enough) * drop / sd < _steps(enough, alpha, power):
        few, enough = enough, 2 * enough
    while enough - few > 1:
        middle = (few + enough) // 2
        if sqrt(middle) * drop / sd < _steps(middle, alpha, power):
            few = middle
        else:
            enough = middle
    return enough


def smallest_visible(
    sd: float,
    units: int,
    alpha: float,
    tolerance: float = 0.0,
    power: float = POWER,
    *,
    strict: bool = False,
) -> float:
    """The smallest true drop that the regression gate finds in a share `power` of runs.

    sd, alpha, power: as in `samples_needed`.
    units: clusters compared, at least 2.
    tolerance: at least 0.
    strict: whether found means high < -tolerance.
    Found means mean < -tolerance and high < 0: the drop must be larger than the tolerance and
    larger than the noise, whichever asks for more. Positive, in the unit of sd.
    Raises ValueError for other numbers.
    """
    _check(sd, alpha, power)
    if units < 2 or not (tolerance >= 0 and isfinite(tolerance)):
        raise ValueError(
            f"expected at least 2 units and a tolerance of at least 0, got {units} and {tolerance}"
        )
    error = sd / sqrt(units)
    beyond_noise = _steps(units, alpha, power) * error
    if strict:
        return tolerance + beyond_noise
    return max(beyond_noise, tolerance + _NORMAL.inv_cdf(power) * error)


_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(40)  # of integrals over a normal density


def detection_delay(
    sd: float,
    units: int,
    levels: Sequence[float],
    drops: Sequence[float],
    tolerance: float,
    power: float = POWER,
) -> int | None:
    """Checkpoints until a series of gates finds a drop with a probability of `power`.

    sd, units: as in `smallest_visible`.
    levels: (n,) error of the upper bound at each of the checkpoints that follow, in (0, 0.5].
    drops: (n,) true drop since the reference at each of them.
    tolerance: at least 0.
    Returns how many checkpoints it takes, 1 for the first of them; None where it takes more than n.
    Found means high < -tolerance. All comparisons share the noise of their reference, which is half
    of the variance of a difference; a checkpoint's own noise is taken to be new. Checkpoints next
    to each other that err alike take longer, unless the first one finds it.
    Raises ValueError for other numbers.
    """
    missed = np.ones(len(_NODES))  # given the noise of the reference
    error = sd / sqrt(units)
    for number, (alpha, drop) in enumerate(zip(levels, drops, strict=True), 1):
        _check(sd, alpha, power)
        ahead = (drop - tolerance) / error - _steps_to_bound(units, alpha)
        seen = [_NORMAL.cdf(sqrt(2) * ahead - node) for node in _NODES.tolist()]
        missed *= 1 - np.array(seen)
        if 1 - float(missed @ _WEIGHTS) / float(_WEIGHTS.sum()) >= power:
            return number
    return None


def _steps(units: int, alpha: float, power: float) -> float:
    """Standard errors between no drop and one that is seen."""
    return _steps_to_bound(units, alpha) + t_upper_quantile(1 - power, units - 1)


@cache  # delays of many cases ask for the same levels
def _steps_to_bound(units: int, alpha: float) -> float:
    """Standard errors between the mean of bell-shaped differences and its bound."""
    t = careful_quantile(alpha, units - 1)
    return t_step(t, -_USUAL * sqrt(6 / units), units)


def _check(sd: float, alpha: float, power: float) -> None:
    if not (sd > 0 and isfinite(sd)):
        raise ValueError(
            f"expected a standard deviation above 0, got {sd}: without spread there is no plan"
        )
    if not (0 < alpha <= 0.5 and 0.5 < power < 1):
        raise ValueError(
            f"expected alpha in (0, 0.5] and power in (0.5, 1), got {alpha} and {power}"
        )
