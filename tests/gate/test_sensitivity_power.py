"""What a case can tell, as every command says it: which drops fail, what is held, what it takes."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_cepbench.gate import CaseKey, Measurement, Noise, Policy, judge, record_of
from pytest_cepbench.gate.sensitivity import (
    design_of,
    power_of,
    power_remark,
    unchanged_design,
)
from pytest_cepbench.gate.statistics import Design, tolerance_that_holds

POLICY = Policy(alpha=0.0125)


@given(
    st.floats(0.001, 0.5),
    st.integers(3, 400),
    st.floats(0.001, 0.3),
    st.sampled_from([None, 1.0, 3.0]),
)
def test_the_least_tolerance_that_holds(
    sd: float, units: int, alpha: float, worst: float | None
) -> None:
    """Good checkpoints are held in 80 % of runs with it, and in fewer with less."""
    design = replace(Design.plain(sd, units), worst=worst)
    tolerance = tolerance_that_holds(design, alpha)
    for share, enough in ((0.999, False), (1.001, True)):
        policy = Policy(alpha=alpha, tolerance=share * tolerance)
        assert power_of(design, policy).enough is enough


@pytest.mark.parametrize(
    "sizes", [{"a": 32}, {"a": 12, "b": 10, "c": 10}, {"a": 4, "b": 60}, {"a": 1, "b": 1}]
)
def test_scores_that_do_not_change_are_judged_as_foretold(sizes: dict[str, int]) -> None:
    """Undecided below the tolerance that holds them, held above, and as many units would do."""
    design = unchanged_design(sizes)
    assert design is not None
    scores = {name: {f"{name}{i}": 0.5 for i in range(size)} for name, size in sizes.items()}
    measurement = Measurement(CaseKey("s", "overall", "gc"), "GC@3", True, scores, {}, {})
    holding = tolerance_that_holds(design, POLICY.alpha)
    for share, verdict in ((0.99, "inconclusive"), (1.01, "held")):
        policy = replace(POLICY, tolerance=share * holding)
        judged = judge(measurement, record_of(measurement), policy)
        assert holding > 1 or judged.verdict.value == verdict
        power = power_of(design, policy)
        assert power.held == (verdict == "held")
        if verdict == "inconclusive" and holding < 1:
            assert judged.needed == power.needed
            assert power_remark(design, policy) in judged.statements


def test_one_unit_that_does_not_change_has_no_design() -> None:
    """It shows nothing of others."""
    assert unchanged_design({"a": 1}) is None


def test_the_remark_says_what_to_expect() -> None:
    """How often good checkpoints are held, which drop fails, and what would do; else nothing."""
    design = design_of(Noise(3, 16, 0.1, 0.02), 32)
    assert design is not None
    power = power_of(design, replace(POLICY, tolerance=0.04))
    assert power_remark(design, replace(POLICY, tolerance=0.04)) == (
        "with 32 independent samples and a tolerance of 0.04 a checkpoint as good as its baseline "
        f"is held in {power.held_of_100} of 100 runs, undecided else, and a drop of "
        f"{power.visible:.4f} fails in 80; about {power.needed} would do"
    )
    assert power_remark(design, replace(POLICY, tolerance=0.2)) is None
    assert power_remark(design, replace(POLICY, gate="threshold")) is None
