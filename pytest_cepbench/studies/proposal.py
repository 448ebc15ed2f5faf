"""Samples and tolerances for a new suite, from the noise of a model against itself."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import ceil, floor, inf, isfinite, log10
from typing import NamedTuple

from pytest_cepbench.gate import Policy, record_of
from pytest_cepbench.gate.sensitivity import (
    Power,
    design_of,
    largest_drop,
    power_of,
    power_remark,
    unchanged_design,
)
from pytest_cepbench.gate.statistics import Design, tolerance_that_holds, units_needed
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
    cases: PART/METRIC -> tolerance of a case that needs a larger one, or can lose no more than it.
    samples: most of each category; None for all.
    reasons: a sentence each, also why there is no measured number.
    power: part -> what its case can tell with these samples, where that is known.
    measured: whether the noise was measured; the default tolerance is proposed otherwise.
    """

    tolerance: float = TOLERANCE
    cases: Mapping[str, float] = field(default_factory=dict)
    samples: int | None = None
    reasons: tuple[str, ...] = ()
    power: Mapping[str, Power] = field(default_factory=dict)
    measured: bool = False


def propose(calibrated: Sequence[Calibrated], counts: Mapping[str, int], metric: str) -> Proposal:
    """The samples that hold good checkpoints at 0.01, and the tolerance at which those here do.

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
    planned = {
        part: plan
        for part, case in cases.items()
        if part in units and (plan := _planned(case, units[part])) is not None
    }
    tolerance = planned[OVERALL].tolerance
    own = {
        part: plan.tolerance
        for part, plan in planned.items()
        if plan.tolerance > tolerance or plan.loss <= tolerance
    }
    policies = {
        part: replace(cases[part].policy, tolerance=own.get(part, tolerance)) for part in planned
    }
    scatter = (
        f"paired differences of a sample scatter by {noise.sd:.3g} over {noise.seeds} seeds "
        f"({noise.units} samples)"
    )
    enough = (
        f"about {needed} samples would hold as good a checkpoint at a tolerance of {TOLERANCE:g} "
        f"in the whole; there are {sum(counts.values())}"
    )
    reasons = (
        scatter,
        enough,
        *(
            f"{part} can lose {plan.loss:.2g}, and a tolerance that holds good checkpoints, "
            f"{plan.holding:g}, would hide that: "
            f"{power_remark(plan.design, policies[part]) or 'no drop fails there'}"
            for part, plan in planned.items()
            if not plan.sees
        ),
        *_on_unchanged_scores(used, policies),
        *_on_categories(counts),
    )
    power = {part: power_of(plan.design, policies[part]) for part, plan in planned.items()}
    by_case = {f"{part}/{metric}": drop for part, drop in own.items()}
    return Proposal(tolerance, by_case, samples, reasons, power, measured=True)


class _Plan(NamedTuple):
    """What a case of so many samples can hold.

    design: of its samples.
    holding: the smallest tolerance at which good checkpoints are held, at least `TOLERANCE`.
    loss: the most that the case can lose; infinite where that has no end.
    sees: whether a fall that large would fail in most runs at that tolerance.
    """

    design: Design
    holding: float
    loss: float
    sees: bool

    @property
    def tolerance(self) -> float:
        """The one that holds; half of what can be lost where no drop would be seen with it."""
        return self.holding if self.sees else max(TOLERANCE, _rounded_up(self.loss / 2))


def _planned(case: Calibrated, units: int) -> _Plan | None:
    """The plan of a case; None where its noise is not known, and of one sample."""
    design = None if case.noise is None else design_of(case.noise, units)
    if design is None:
        return None
    holding = max(TOLERANCE, _rounded_up(tolerance_that_holds(design, case.policy.alpha)))
    visible = power_of(design, replace(case.policy, tolerance=holding)).visible
    loss, measured = None, case.measured
    if measured is not None:
        loss = largest_drop(measured.value, record_of(measured), measured.floor)
    loss = inf if loss is None else loss
    return _Plan(design, holding, loss, visible <= loss)


def _on_unchanged_scores(sizes: Mapping[str, int], policies: Mapping[str, Policy]) -> Iterator[str]:
    """A sentence on the cases that are undecided though next to no score changes."""
    undecided = []
    for part, policy in policies.items():
        design = unchanged_design(sizes if part == OVERALL else {part: sizes[part]})
        power = None if design is None else power_of(design, policy)
        if power is not None and not power.enough:
            undecided.append(f"{part} (about {power.needed})")
    if undecided:
        yield (
            "a checkpoint that changes next to no score, as the same weights in another precision, "
            "tells nothing of rare losses, and is undecided with fewer samples than in brackets: "
            f"{', '.join(undecided)}"
        )


def _on_categories(counts: Mapping[str, int]) -> Iterator[str]:
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


def _rounded_up(value: float) -> float:
    """To two digits; the value itself where it is 0 or infinite."""
    if not value or not isfinite(value):
        return value
    step = 10.0 ** (floor(log10(value)) - 1)
    return round(ceil(round(value / step, 6)) * step, 12)
