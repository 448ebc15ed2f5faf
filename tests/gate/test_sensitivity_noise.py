"""What a calibration says of a case: what can be seen, and when a tolerance is too small for it."""

from __future__ import annotations

from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_cepbench.gate import Noise, Policy
from pytest_cepbench.gate.sensitivity import Reach, reach, tolerance_remark
from pytest_cepbench.gate.statistics import samples_needed, smallest_visible

SDS = st.floats(1e-4, 1.0)


def _noise(sd: float) -> Noise:
    return Noise(seeds=3, units=24, sd=sd, value_sd=sd / 5)


def test_a_tolerance_below_the_noise_is_remarked() -> None:
    """With what the samples at hand can see, and how many would see the tolerance."""
    remark = tolerance_remark(_noise(0.05), 24, Policy())
    needed = samples_needed(0.05, 0.01, 0.05)
    visible = smallest_visible(0.05, 24, 0.05)
    assert remark == (
        "the tolerance 0.01 is below the smallest drop that 24 units can show above this model's "
        f"own noise ({visible:.4f} with 80% power at alpha 0.05): {needed} units would show it"
    )


def test_a_tolerance_that_can_be_seen_is_not_remarked() -> None:
    """Nor with so many samples as were needed."""
    assert tolerance_remark(_noise(0.05), 24, Policy(tolerance=0.1)) is None
    assert tolerance_remark(_noise(0.05), samples_needed(0.05, 0.01, 0.05), Policy()) is None


def test_a_smaller_share_of_alpha_sees_less() -> None:
    """Many cases divide the error: the remark is about the case's own share."""
    units = samples_needed(0.05, 0.01, 0.05)
    remark = tolerance_remark(_noise(0.05), units, Policy(alpha=0.05 / 14))
    assert remark is not None
    assert "alpha 0.0036" in remark
    assert remark.endswith(f": {samples_needed(0.05, 0.01, 0.05 / 14)} units would show it")


def test_no_number_of_samples_sees_nothing() -> None:
    """Without tolerance there is no number to name."""
    assert reach(0.05, 24, Policy(tolerance=0.0)).needed is None
    remark = tolerance_remark(_noise(0.05), 24, Policy(tolerance=0.0))
    assert remark is not None
    assert remark.endswith("at alpha 0.05)")


@pytest.mark.parametrize("tolerance", [0.0, 0.01])
def test_a_model_that_repeats_itself_has_no_noise(tolerance: float) -> None:
    """Greedy models give the same text with every seed: any drop can be seen."""
    policy = Policy(tolerance=tolerance)
    assert reach(0.0, 24, policy) == Reach(0.0, 1)
    assert tolerance_remark(_noise(0.0), 24, policy) is None


def test_one_sample_sees_nothing_and_is_not_remarked() -> None:
    """Its verdict says that there are too few; a number would be made up."""
    assert reach(0.05, 1, Policy()).visible == inf
    assert tolerance_remark(_noise(0.05), 1, Policy()) is None


@given(SDS, st.integers(2, 500), st.floats(0.001, 0.5))
def test_the_remark_is_there_exactly_where_more_samples_are_needed(
    sd: float, units: int, tolerance: float
) -> None:
    """Both numbers of a reach are two sides of one equation."""
    policy = Policy(tolerance=tolerance)
    known = reach(sd, units, policy)
    assert known.needed is not None
    remarked = tolerance_remark(_noise(sd), units, policy) is not None
    assert remarked == (known.visible > tolerance)
    if abs(known.visible / tolerance - 1) > 1e-6:
        assert remarked == (units < known.needed)
