"""A second, frozen baseline: small steps that are each tolerated must not add up unseen."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest

from pytest_cepbench.gate import (
    FreshMeasurement,
    Policy,
    Verdict,
    judge,
    load_baseline,
)
from pytest_cepbench.gate.baseline import anchor_path, apply, baseline_path, propose
from pytest_cepbench.gate.policy import Place
from tests.gate.build import KEY, accepted, bell, drifted, measured, scored
from tests.optional import known

N = 200

NOISE = bell(N, 0.0, 0.003)
"""Small beside a step of 0.009: each comparison is decided."""


def _step(k: int, size: float = 0.009, **changes: Any) -> FreshMeasurement:
    """The k-th of a row of checkpoints, each worse than the one before by the same size."""
    mixed = Random(k).sample(NOISE, N)  # noise of its own: differences have a bell shape too
    scores = scored([0.8 - k * size + away for away in mixed])
    return measured(scores, model={"spec": f"step-{k}", "identity": f"{k}"}, **changes)


@pytest.mark.parametrize("gate", ["regression", "threshold"])
def test_ten_tolerated_steps_pass_the_last_baseline_and_fail_the_anchor(
    tmp_path: Path, gate: Any
) -> None:
    """Each loses nine tenths of the tolerance; together they lose nine times as much as it.

    Accepted as a team would: the first baseline is frozen, the later ones take its place.
    """
    policy, judgements = Policy(gate=gate), []
    for k in range(11):
        paths = [baseline_path(tmp_path, KEY), anchor_path(tmp_path, KEY)]
        assert [path.exists() for path in paths] == [k > 0, k > 1]
        baseline, anchor = (
            load_baseline(path.read_text(), KEY, path.name) if path.exists() else None
            for path in paths
        )
        judgements.append(judge(_step(k), baseline, policy, anchor=anchor))
        if baseline is not None:
            assert judge(_step(k), baseline, policy).verdict is Verdict.HELD
        apply([known(propose(KEY, accepted(_step(k)), tmp_path))], tmp_path)
    assert [judgement.verdict for judgement in judgements] == [
        *(Verdict.NO_BASELINE, Verdict.HELD, Verdict.HELD),
        *[Verdict.REGRESSED] * 8,
    ]
    last = judgements[-1]
    assert last.difference == pytest.approx(-0.009)
    assert known(last.since_anchor).difference == pytest.approx(-0.09)
    assert last.reasons == (
        "the steps since the anchor add up to -0.0900, and -0.0200 is tolerated",
    )
    assert last.reference == "anchor"


def test_alpha_is_halved_only_where_an_anchor_says_something_else() -> None:
    """Two comparisons share the error; an anchor that is the baseline itself is no second one."""
    baseline = accepted(_step(1))
    alone = judge(_step(2), baseline, Policy())
    same = judge(
        _step(2), baseline, Policy(), anchor=msgspec.structs.replace(baseline, model={"spec": "x"})
    )
    assert same == alone
    assert (alone.alpha, alone.since_anchor) == (0.05, None)
    both = judge(_step(2), baseline, Policy(), anchor=accepted(_step(0)))
    assert (both.alpha, known(both.since_anchor).alpha) == (0.025, 0.025)
    assert known(both.low) < known(alone.low)


def test_reasons_of_two_comparisons_are_told_apart() -> None:
    """An anchor of something else: a promised comparison that cannot be made is no pass; each
    reason says whose it is. The anchor adds nothing to a verdict that is as bad already.
    """
    anchor = accepted(_step(0, identity={"suite": "shapes/0", "samples": "another"}))
    judgement = judge(_step(1), accepted(_step(1)), Policy(), anchor=anchor)
    assert judgement.verdict is Verdict.INCOMPARABLE
    assert judgement.reasons == (
        "anchor: samples: baseline another, now 2 0123456789abcdef",
        "anchor: suite: baseline shapes/0, now shapes/1",
    )
    assert known(judgement.since_anchor).difference is None
    anchor = accepted(_step(0))
    other = accepted(_step(1, identity={"suite": "shapes/2"}))
    incomparable = judge(_step(9), other, Policy(), anchor=anchor)
    assert incomparable.verdict is Verdict.INCOMPARABLE
    assert not any(reason.startswith("anchor") for reason in incomparable.reasons)
    assert incomparable.since_anchor is not None
    regressed = judge(_step(9), accepted(_step(1)), Policy(), anchor=anchor)
    assert (regressed.verdict, regressed.reasons) == (Verdict.REGRESSED, ())
    assert regressed.reference == "baseline"


def test_an_anchor_that_cannot_tell_stops_noninferiority_only() -> None:
    """That gate passes what is excluded, and a drop since the anchor is not."""
    wide = bell(N, 0.0, 0.3)
    anchor = accepted(measured(scored([0.8 + away for away in wide])))
    now, last = _step(1, size=0.001), accepted(_step(0, size=0.001))
    regression = judge(now, last, Policy(), anchor=anchor)
    assert regression.verdict is Verdict.HELD
    assert known(regression.since_anchor).verdict is Verdict.INCONCLUSIVE
    noninferiority = judge(now, last, Policy(gate="noninferiority"), anchor=anchor)
    assert noninferiority.verdict is Verdict.INCONCLUSIVE
    assert noninferiority.reasons == (
        "a drop since the anchor that is larger than tolerated is not excluded",
    )
    assert judge(now, last, Policy(gate="noninferiority")).verdict is Verdict.HELD


def test_a_series_divides_the_error_of_saying_regressed() -> None:
    """What holds, holds as ever; what the visible drop says is found is found. Baseline and anchor
    have shares of their own, of alpha before it is halved; the lower bounds have a half each.
    """
    place = Place("train", look=2, expected=40, alpha=0.05, baseline=1)
    alone, series = (Policy(tolerance=0.01, alpha=0.05, series=own) for own in (None, place))
    candidate, baseline = drifted(bell(N, 0.0, 0.02))
    single, serial = judge(candidate, baseline, alone), judge(candidate, baseline, series)
    assert serial.verdict is single.verdict is Verdict.HELD
    assert (serial.low, serial.alpha) == (single.low, single.alpha)
    assert known(serial.high) > known(single.high)
    assert (single.upper_alpha, serial.upper_alpha) == (None, 0.05 * place.share_beside(1))
    assert serial.p is None
    candidate, baseline = drifted(bell(N, -0.012, 0.02))
    visible = known(judge(candidate, baseline, series).visible)
    assert visible > known(judge(candidate, baseline, alone).visible) > 0.01
    candidate, baseline = drifted(bell(N, -visible, 0.02))
    judgement = judge(candidate, baseline, series)
    assert judgement.verdict is Verdict.REGRESSED
    assert known(judgement.high) < -0.01
    candidate, baseline = drifted(bell(N, -0.004, 0.02))
    anchor = accepted(measured({"color": {f"s{i:04d}": 0.9 for i in range(N)}}))
    judgement = judge(candidate, baseline, series, anchor=anchor)
    since = known(judgement.since_anchor)
    assert judgement.alpha == since.alpha == 0.025
    assert judgement.upper_alpha == pytest.approx(0.05 * place.share_beside(1))
    assert since.upper_alpha == pytest.approx(0.05 * place.share_beside(None))
