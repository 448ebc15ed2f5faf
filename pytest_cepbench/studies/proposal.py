"""Samples and tolerances for a new suite, from the noise of a model against itself."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil, floor, isfinite, log10

from pytest_cepbench.gate.sensitivity import design_of
from pytest_cepbench.gate.statistics import smallest_visible, units_needed
from pytest_cepbench.studies.calibration import Calibrated
from pytest_cepbench.suites.cases import OVERALL

TOLERANCE = 0.01
"""The tolerance of a suite whose noise is not known, and the smallest that is proposed."""

_SMALL = 20
"""With fewer images in a category, a single odd one can move its number by the tolerance."""

FEWEST = 25
"""Fewest samples of a category that are proposed, where there are as many."""


@dataclass(frozen=True)
class Proposal:
    """What a suite should ask for.

    tolerance: largest drop that does not matter, of every case but those in `larger`.
    larger: PART/METRIC -> tolerance of a case that sees less.
    samples: most of each category; None for all.
    reasons: a sentence each, also why there is no measured number.
    measured: whether the noise was measured; the default tolerance is proposed otherwise.
    """

    tolerance: float = TOLERANCE
    larger: Mapping[str, float] = field(default_factory=dict)
    samples: int | None = None
    reasons: tuple[str, ...] = ()
    measured: bool = False


def propose(calibrated: Sequence[Calibrated], counts: Mapping[str, int], metric: str) -> Proposal:
    """The samples that show a drop of 0.01 in the whole, and the drop that each case shows then.

    calibrated: the cases of a pilot.
    counts: category -> samples that there are.
    metric: the one that is gated with statistics. A sample is taken for one independent unit.
    Of a model whose seed changes nothing, and where the whole could not be measured, the defaults.
    """
    cases = {case.key.part: case for case in calibrated if case.key.metric == metric}
    whole = cases.get(OVERALL)
    if whole is None or whole.noise is None:
        reason = "" if whole is None else whole.reason
        return Proposal(reasons=(f"the noise could not be measured: {reason}",))
    noise = whole.noise
    if noise.sd == 0:
        reason = (
            f"the noise is 0 over {noise.seeds} seeds: no model that plays uses its seed, so "
            "differences between checkpoints are not known"
        )
        return Proposal(reasons=(reason,))
    design = design_of(noise, noise.units)
    assert design is not None  # noise is of two units or more
    needed = units_needed(design, TOLERANCE, whole.policy.alpha) or sum(counts.values())
    samples = _samples(needed, counts)
    used = {name: min(count, samples or count) for name, count in counts.items()}
    units = {OVERALL: sum(used.values()), **used}
    tolerances = {
        part: _visible(case, units[part])
        for part, case in cases.items()
        if part in units and case.noise is not None
    }
    tolerance = tolerances[OVERALL]
    larger = {
        f"{part}/{metric}": visible
        for part, visible in tolerances.items()
        if visible > tolerance and isfinite(visible)
    }
    scatter = (
        f"paired differences of a sample scatter by {noise.sd:.3g} over {noise.seeds} seeds "
        f"({noise.units} samples)"
    )
    enough = (
        f"about {needed} samples show a drop of {TOLERANCE:g} in the whole; there are "
        f"{sum(counts.values())}"
    )
    reasons = (scatter, enough, *_remarks(counts))
    return Proposal(tolerance, larger, samples, reasons, measured=True)


def _remarks(counts: Mapping[str, int]) -> Iterator[str]:
    """A sentence on categories of few images."""
    small = [f"{name} ({count})" for name, count in sorted(counts.items()) if count < _SMALL]
    if small:
        yield (
            f"fewer than {_SMALL} images: {', '.join(small[:5])}. Give more: a single "
            "odd image can decide such a case"
        )


def _samples(needed: int, counts: Mapping[str, int]) -> int | None:
    """The fewest of each category that make so many in all; None where all are needed."""
    most = max(counts.values())
    for samples in range(min(FEWEST, most), most):
        if sum(min(count, samples) for count in counts.values()) >= needed:
            return samples
    return None


def _visible(case: Calibrated, units: int) -> float:
    """The smallest drop that a case shows with so many samples, rounded up; at least `TOLERANCE`.

    One sample shows none: infinity.
    """
    assert case.noise is not None
    design = design_of(case.noise, units)
    if design is None:
        return float("inf")
    return max(TOLERANCE, _rounded_up(smallest_visible(design, case.policy.alpha)))


def _rounded_up(value: float) -> float:
    """To two digits; the value itself where it is 0 or infinite."""
    if not value or not isfinite(value):
        return value
    step = 10.0 ** (floor(log10(value)) - 1)
    return round(ceil(round(value / step, 6)) * step, 12)
