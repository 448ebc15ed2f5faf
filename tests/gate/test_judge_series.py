"""Judging in a series of gates: what passes is as ever, and only proven drops are regressions."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pytest_cepbench.gate import Policy, Verdict, judge
from pytest_cepbench.gate.policy import SeriesShares
from pytest_cepbench.gate.statistics import GAFFKE
from tests.gate.build import accepted, bell, drifted, measured

ALONE = Policy(tolerance=0.01, alpha=0.05)

SERIES = replace(ALONE, series=SeriesShares(baseline=0.01, anchor=0.02))

N = 200


def test_the_lower_bound_is_that_of_a_single_gate() -> None:
    """A series divides the error of saying regressed: what holds, holds as ever."""
    candidate, baseline = drifted(bell(N, 0.0, 0.02))
    single, serial = judge(candidate, baseline, ALONE), judge(candidate, baseline, SERIES)
    assert serial.verdict is single.verdict is Verdict.HELD
    assert (serial.low, serial.alpha) == (single.low, single.alpha)
    assert serial.high is not None
    assert single.high is not None
    assert serial.high > single.high
    assert (single.upper_alpha, serial.upper_alpha) == (None, 0.05 * 0.01)


def test_few_losses_beside_ties_are_no_proof_in_a_series() -> None:
    """What a single gate may take for symmetric, a series may not: Gaffke's bound decides."""
    candidate, baseline = drifted([0.0] * 49 + [-0.2 - i / 100 for i in range(9)])
    shares = SeriesShares(baseline=0.2, anchor=0.2)
    single = judge(candidate, baseline, replace(ALONE, alpha=0.01))
    serial = judge(candidate, baseline, replace(ALONE, series=shares))
    assert single.verdict is Verdict.REGRESSED
    assert (serial.method, serial.p) == (GAFFKE, None)
    assert serial.upper_alpha == pytest.approx(0.01)
    assert serial.verdict is Verdict.INCONCLUSIVE
    assert single.p == 2**-9
    assert serial.high is not None
    assert serial.high > 0


def test_a_drop_beyond_the_bound_is() -> None:
    """What the visible drop says is found is found."""
    candidate, baseline = drifted(bell(N, -0.012, 0.02))
    visible = judge(candidate, baseline, SERIES).visible
    single = judge(candidate, baseline, ALONE).visible
    assert visible is not None
    assert single is not None
    assert visible > single > 0.01
    candidate, baseline = drifted(bell(N, -visible, 0.02))
    judgement = judge(candidate, baseline, SERIES)
    assert judgement.verdict is Verdict.REGRESSED
    assert judgement.high is not None
    assert judgement.high < -0.01


def test_baseline_and_anchor_have_shares_of_their_own() -> None:
    """Both of alpha before it is halved; the lower bounds have a half each, as ever."""
    candidate, baseline = drifted(bell(N, -0.004, 0.02))
    anchor = accepted(measured({"color": {f"s{i:04d}": 0.9 for i in range(N)}}))
    judgement = judge(candidate, baseline, SERIES, anchor=anchor)
    assert judgement.since_anchor is not None
    assert judgement.alpha == judgement.since_anchor.alpha == 0.025
    assert judgement.upper_alpha == pytest.approx(0.05 * 0.01)
    assert judgement.since_anchor.upper_alpha == pytest.approx(0.05 * 0.02)
