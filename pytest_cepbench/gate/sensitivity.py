"""Sensitivity of a set-up: drops visible above chance, and above the noise of samples and seeds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import floor, inf

from pytest_cepbench.gate.measurement import DECIMALS, Measurement, Noise
from pytest_cepbench.gate.policy import Policy
from pytest_cepbench.gate.statistics.constants import SMALL_SHARE, SMALLEST_SHARE
from pytest_cepbench.gate.statistics.power import (
    POWER,
    Design,
    chance_to_hold,
    smallest_visible,
    units_needed,
    units_to_fail,
)

BEST = 1.0
"""The best that a similarity or a share of right answers can be."""

_CEILING = 1e-6
"""Scores have six decimals: what is as near to the best as this is the best."""


@dataclass(frozen=True)
class Power:
    """What a case can tell, with so many independent samples.

    units: they are.
    visible: the smallest drop that fails in 80 % of runs; infinite where none does.
    held: probability that a checkpoint as good as its baseline is held; it is undecided else.
    needed: units with which it would be held in 80 % of runs; None where no number is known.
    """

    units: int
    visible: float
    held: float
    needed: int | None

    @property
    def enough(self) -> bool:
        """True where good checkpoints are held in most runs."""
        return self.held >= POWER

    @property
    def held_of_100(self) -> int:
        """In how many of 100 runs a checkpoint as good as its baseline is held, in whole numbers.

        Rounded down, so that 80 are there where they are enough.
        """
        return floor(100 * self.held)


def power_of(design: Design, policy: Policy) -> Power:
    """The one answer that the gate, a plan, a new suite and the doctor give.

    design: of the units that are, or will be, compared; with some spread.
    """
    tolerance = policy.tolerance
    return Power(
        design.units,
        smallest_visible(design, policy.alpha, tolerance, strict=policy.series is not None),
        chance_to_hold(design, policy.alpha, tolerance),
        units_needed(design, tolerance, policy.alpha) if tolerance > 0 else None,
    )


def design_of(noise: Noise, units: int) -> Design | None:
    """The design of a case by the noise that was measured; None without spread or two units."""
    if noise.sd == 0 or units < 2 or noise.units < 2:
        return None
    plain = replace(Design.plain(noise.sd, noise.units), worst=noise.worst)
    if noise.effective is not None and noise.degrees is not None:
        plain = replace(plain, effective=noise.effective, degrees=noise.degrees)
    return plain.scaled(units)


@dataclass(frozen=True)
class Range:
    """Position of a value between what chance gives and the best there is, higher being better.

    value: of the case.
    floor: what chance gives.
    """

    value: float
    floor: float

    @property
    def headroom(self) -> float:
        """The largest drop that there can be: down to what chance gives; at least 0."""
        return max(0.0, round(self.value - self.floor, DECIMALS))

    @property
    def share(self) -> float:
        """Share of the way from chance to the best; 0 where chance gives the best."""
        whole = BEST - self.floor
        return (self.value - self.floor) / whole if whole > _CEILING else 0.0

    def __str__(self) -> str:
        position = f"{self.value:.4g} of a range from {self.floor:.4g} (chance) to {BEST:g}"
        if not self.headroom:
            return f"{position}: this set-up can see no drop"
        return f"{position}: this set-up can see a drop of at most {self.headroom:.2g}"


def range_of(record: Measurement, floor: float | None = None) -> Range | None:
    """The range of a measurement or a baseline; None where its floor is not known.

    floor: in the place of one that it does not have.
    """
    known = record.floor if record.floor is not None else floor
    return None if known is None or not record.higher_is_better else Range(record.value, known)


def largest_drop(value: float, record: Measurement, floor: float | None) -> float | None:
    """Largest possible drop of a value: to chance, or to none right; None without such an end.

    record: says of which kind its scores are.
    floor: what chance gives, where it is known.
    """
    if record.shares:
        return round(value if record.higher_is_better else BEST - value, DECIMALS)
    if floor is None or not record.higher_is_better:
        return None
    return Range(value, floor).headroom


def check_headroom(
    setting: str, tolerance: float, source: str, record: Measurement, span: float, what: str
) -> None:
    """Raise ValueError for a tolerance that no drop from an accepted value can exceed.

    setting, source: its name, and where it was set.
    record: what was accepted.
    span: distance of the best from the worst value of the metric.
    what: names the case.
    A value so close to what chance gives, or to the worst, that nothing can be seen from it is not
    the fault of the tolerance: such a case is undecided, with the reason.
    """
    whole = span if record.floor is None else BEST - record.floor
    worst = BEST - max(span, 1.0)  # a win rate begins in the middle of what it can be
    ends = [record.value - worst if record.higher_is_better else span - record.value]
    known = largest_drop(record.value, record, record.floor)
    ends += [] if known is None else [known]
    most = round(min(ends), DECIMALS)
    if SMALLEST_SHARE * whole <= most <= tolerance:
        raise ValueError(
            f"{setting} = {tolerance:g} from {source}: {what} was accepted at {record.value:.4g} "
            f"and can lose {most:.4g}, down to what chance gives or the worst there is, so no drop "
            f"exceeds it; give one below {most:.4g}"
        )


def why_not_accepted(record: Measurement) -> str | None:
    """Reason why a measurement is no baseline: its value is what chance gives; else None."""
    span = range_of(record)
    if span is None or span.share >= SMALLEST_SHARE:
        return None
    return f"{span}. A baseline below {SMALLEST_SHARE:.0%} of its range sees nothing"


def remarks_on_accepting(record: Measurement) -> Iterator[str]:
    """Remarks on a measurement that becomes a baseline, a sentence each."""
    span = range_of(record)
    if span is not None and span.share < SMALL_SHARE:
        yield (
            f"{span}. Below {SMALL_SHARE:.0%} of the range: look whether the models can read "
            "these samples at all"
        )
    bounded = record.floor is not None or record.shares
    scores = [score for part in record.scores.values() for score in part.values()]
    if bounded and record.higher_is_better and min(scores) >= BEST - _CEILING:
        yield f"every sample is at the best there is, {BEST:g}: drops are seen, gains are not"


def power_remark(design: Design, policy: Policy) -> str | None:
    """A sentence where good checkpoints would often be undecided; None where they are held.

    design: of what was compared or will be.
    """
    if not policy.statistical:
        return None
    power = power_of(design, policy)
    if power.enough:
        return None
    like = "as good as its baseline" if design.sd else "that changes next to no score"
    more = f"; about {power.needed} would do" if power.needed else ""
    finds = f", and a drop of {power.visible:.4f} fails in 80" if power.visible < inf else ""
    return (
        f"with {power.units} independent samples and a tolerance of {policy.tolerance:g} a "
        f"checkpoint {like} is held in {power.held_of_100} of 100 runs, undecided else{finds}{more}"
    )


def units_to_decide(design: Design, difference: float, policy: Policy) -> int | None:
    """Units with which an inconclusive comparison would be decided with 80 % power.

    design: of what was compared.
    difference: their mean; positive is better.
    Planned for a checkpoint as good as its baseline. Where there are as many already, or the mean
    is beyond the tolerance, for a difference as large as observed. None where the tolerance is 0 or
    covers the span, where the mean is at the very tolerance, and where no more units would do.
    """
    tolerance, alpha = policy.tolerance, policy.alpha
    if tolerance == 0 or (design.worst is not None and tolerance >= design.worst):
        return None
    if difference < -tolerance:
        needed = units_to_fail(design, -difference, alpha, tolerance)
    else:
        needed = units_needed(design, tolerance, alpha)
        left = tolerance + min(difference, 0.0)
        if needed is not None and needed <= design.units:
            needed = units_needed(design, left, alpha) if left > 0 else None
    return needed if needed is not None and needed > design.units else None
