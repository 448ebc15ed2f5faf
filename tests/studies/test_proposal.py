"""Samples and tolerances that are proposed for a new suite."""

from __future__ import annotations

import pytest

from pytest_cepbench.gate import CaseKey, Noise, Policy
from pytest_cepbench.gate.statistics import samples_needed, smallest_visible
from pytest_cepbench.studies.calibration import Calibrated
from pytest_cepbench.studies.proposal import Proposal, propose

POLICY = Policy(gate="regression", tolerance=0.01, alpha=0.025)


def calibrated(part: str, sd: float | None, units: int = 8) -> Calibrated:
    """A case of a pilot."""
    noise = None if sd is None else Noise(seeds=3, units=units, sd=sd, value_sd=sd)
    reason = "" if noise else "too few"
    return Calibrated(CaseKey("photos", part, "gc"), "GC@3", POLICY, None, noise, reason)


def test_more_images_than_needed_are_left_out() -> None:
    """As many of each category as show a drop of 0.01 in the whole, and no more."""
    needed = samples_needed(0.05, 0.01, POLICY.alpha)
    counts = {"a": 1000, "b": 1000}
    proposal = propose([calibrated("overall", 0.05), calibrated("a", 0.05)], counts, "gc")
    assert proposal.measured
    assert proposal.samples is not None
    assert 2 * proposal.samples - 2 < needed <= 2 * proposal.samples
    assert proposal.tolerance == 0.01
    assert proposal.larger == {"a/gc": pytest.approx(0.014, abs=0.002)}


def test_fewer_images_than_needed_have_a_larger_tolerance() -> None:
    """All are used, and the tolerance is what they show: rounded up, never down."""
    proposal = propose([calibrated("overall", 0.2)], {"a": 20, "b": 20}, "gc")
    visible = smallest_visible(0.2, 40, POLICY.alpha)
    assert proposal.samples is None
    assert visible <= proposal.tolerance < 1.11 * visible


def test_uneven_categories() -> None:
    """A category with fewer images gives all that it has; one image shows nothing."""
    cases = [calibrated("overall", 0.05), calibrated("a", 0.05), calibrated("b", 0.05)]
    proposal = propose(cases, {"a": 5000, "b": 1}, "gc")
    needed = samples_needed(0.05, 0.01, POLICY.alpha)
    assert proposal.samples == needed - 1
    assert "b/gc" not in proposal.larger


@pytest.mark.parametrize("sd", [None, 0.0])
def test_without_noise_the_default_stands(sd: float | None) -> None:
    """It is not called measured, and the reason is named."""
    proposal = propose([calibrated("overall", sd)], {"a": 20}, "gc")
    assert (proposal.measured, proposal.tolerance, proposal.samples) == (False, 0.01, None)
    assert "noise" in proposal.reasons[0]
    assert propose([], {"a": 20}, "gc").tolerance == Proposal().tolerance
