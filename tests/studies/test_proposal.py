"""Samples and tolerances that are proposed for a new suite."""

from __future__ import annotations

import pytest

from pytest_cepbench.gate import CaseKey, Noise, Policy
from pytest_cepbench.gate.sensitivity import design_of, power_of
from pytest_cepbench.gate.statistics import Design, chance_to_hold, units_needed
from pytest_cepbench.studies.calibration import Calibrated, Proposal, propose
from pytest_cepbench.suites.suite_run import CaseMeasurement
from tests.gate.build import replace

POLICY = Policy(gate="regression", tolerance=0.01, alpha=0.025)


def calibrated(
    part: str, sd: float | None, units: int = 8, value: float | None = None
) -> Calibrated:
    """A case of a pilot. value: of its scores, which chance puts at 0.1."""
    key = CaseKey("photos", part, "gc")
    noise = None if sd is None else Noise(seeds=3, units=units, sd=sd, value_sd=sd)
    measured = value and CaseMeasurement.of(
        key, "GC@3", True, {"c": {"s": value}}, {}, {}, floor=0.1
    )
    return Calibrated(key, "GC@3", POLICY, measured or None, noise, "" if noise else "too few")


def test_more_images_than_needed_are_left_out() -> None:
    """As many of each category as hold good checkpoints at 0.01 in the whole, and no more."""
    needed = units_needed(Design.plain(0.05, 8), 0.01, POLICY.alpha)
    assert needed is not None
    counts = {"a": 1000, "b": 1000}
    proposal = propose([calibrated("overall", 0.05), calibrated("a", 0.05)], counts, "gc")
    assert proposal.measured
    assert proposal.samples is not None
    assert 2 * proposal.samples - 2 < needed <= 2 * proposal.samples
    assert proposal.tolerance == 0.01
    assert proposal.cases == {"a/gc": pytest.approx(0.014, abs=0.002)}


def test_fewer_images_than_needed_have_a_larger_tolerance() -> None:
    """All are used, and the tolerance is the smallest of two digits that holds good checkpoints."""
    proposal = propose([calibrated("overall", 0.2)], {"a": 20, "b": 20}, "gc")
    design = Design.plain(0.2, 8).scaled(40)
    assert proposal.samples is None
    held = [chance_to_hold(design, POLICY.alpha, proposal.tolerance - x) for x in (0.01, 0.0)]
    assert held[0] < 0.8 <= held[1]
    assert proposal.power["overall"].held_of_100 in (80, 81, 82, 83)


def test_the_numbers_are_the_gates_own() -> None:
    """Of the samples that there are, at the proposed tolerance, and no others."""
    cases = [calibrated("overall", 0.2), calibrated("a", 0.3), calibrated("b", 0.01)]
    proposal = propose(cases, {"a": 12, "b": 20}, "gc")
    assert set(proposal.cases) == {"a/gc"}
    for case, units in zip(cases, (32, 12, 20), strict=True):
        assert case.noise is not None
        design = design_of(case.noise, units)
        assert design is not None
        tolerance = proposal.cases.get(case.key.within, proposal.tolerance)
        policy = replace(POLICY, tolerance=tolerance)
        assert proposal.power[case.key.part] == power_of(design, policy)


@pytest.mark.parametrize("value", [0.2, 0.9])
def test_a_tolerance_leaves_a_drop_to_see(value: float) -> None:
    """Where the one that holds would hide a fall to chance, half of that fall is proposed."""
    cases = [calibrated("overall", 0.1), calibrated("a", 0.1, value=value)]
    proposal = propose(cases, {"a": 10, "b": 90}, "gc")
    said = [reason for reason in proposal.reasons if reason.startswith("a can lose 0.1, ")]
    held = proposal.power["a"].held
    if value == 0.2:
        assert proposal.cases == {"a/gc": 0.05}
        assert held < 0.8
        held_of_100 = proposal.power["a"].held_of_100
        assert f"is held in {held_of_100} of 100 runs, undecided else" in said[0]
        assert said[0].endswith(f"about {proposal.power['a'].needed} would do")
    else:
        assert proposal.cases["a/gc"] > 0.1
        assert held >= 0.8
        assert not said


def test_uneven_categories() -> None:
    """A category with fewer images gives all that it has; one image shows nothing."""
    cases = [calibrated("overall", 0.05), calibrated("a", 0.05), calibrated("b", 0.05)]
    proposal = propose(cases, {"a": 5000, "b": 1}, "gc")
    needed = units_needed(Design.plain(0.05, 8), 0.01, POLICY.alpha)
    assert needed is not None
    assert proposal.samples == needed - 1
    assert "b/gc" not in proposal.cases
    assert "b" not in proposal.power


@pytest.mark.parametrize("sd", [None, 0.0])
def test_without_noise_the_default_stands(sd: float | None) -> None:
    """It is not called measured, and the reason is named."""
    proposal = propose([calibrated("overall", sd)], {"a": 20}, "gc")
    assert (proposal.measured, proposal.tolerance, proposal.samples) == (False, 0.01, None)
    assert "noise" in proposal.reasons[0]
    assert propose([], {"a": 20}, "gc").tolerance == Proposal().tolerance
