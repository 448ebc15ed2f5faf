"""From measurement and baseline to a verdict, whatever the statistics: fail closed, paired, exact.

What these tests say of differences they say under the threshold gate, which knows nothing of noise.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_cepbench.gate import PRESENTATIONS, Policy, Verdict, judge
from pytest_cepbench.gate.compare import losers_of
from tests.gate.build import SCORES, Scores, accepted, measured

TOLERANCES = st.sampled_from([0.0, 1e-6, 0.01, 0.1])

GATES: Any = ["regression", "noninferiority", "threshold"]


def plain(tolerance: float) -> Policy:
    """The gate without statistics."""
    return Policy(gate="threshold", tolerance=tolerance)


def mapped(scores: Scores, change: Any) -> dict[str, dict[str, float]]:
    """Scores with a function applied to each."""
    return {
        name: {k: round(change(v), 6) for k, v in part.items()} for name, part in scores.items()
    }


@pytest.mark.parametrize("gate", GATES)
def test_no_baseline_never_passes(gate: Any) -> None:
    """Nothing to compare with is a verdict of its own, whatever the rule; an anchor is no help."""
    for anchor in (None, accepted(measured())):
        judgement = judge(measured(), None, Policy(gate=gate), anchor=anchor)
        assert judgement.verdict is Verdict.NO_BASELINE
        assert not PRESENTATIONS[judgement.verdict].passes
        assert judgement.reasons == ("no baseline has been accepted for this case",)
        assert (judgement.baseline_value, judgement.difference) == (None, None)


@given(SCORES, TOLERANCES, st.sampled_from(GATES))
def test_the_same_scores_of_the_same_model_hold(
    scores: Scores, tolerance: float, gate: Any
) -> None:
    """The accepted model, measured again, holds even without any tolerance, by every rule."""
    policy = Policy(gate=gate, tolerance=tolerance)
    baseline = accepted(measured(scores))
    judgement = judge(measured(scores), baseline, policy)
    assert (judgement.verdict, judgement.difference) == (Verdict.HELD, 0.0)
    assert losers_of(measured(scores).scores, baseline) == ()


@pytest.mark.parametrize("higher", [True, False])
@pytest.mark.parametrize("tolerance", [0.0, 0.000001, 0.01, 0.1, 0.3])
def test_the_edge_of_the_tolerance_is_exact(tolerance: float, higher: bool) -> None:
    """A drop as large as the tolerance holds, one millionth more regresses, in either direction."""
    sign = -1 if higher else 1
    for drop, verdict in [(tolerance, Verdict.HELD), (tolerance + 1e-6, Verdict.REGRESSED)]:
        before = measured({"c": {"a": 0.7, "b": 0.4}}, higher_is_better=higher)
        scores = mapped(before.scores, lambda x, d=drop: x + sign * d)
        now = measured(scores, higher_is_better=higher)
        judgement = judge(now, accepted(before), plain(tolerance))
        assert judgement.verdict is verdict
        assert judgement.difference == pytest.approx(-drop, abs=1e-9)
        assert judgement.baseline_value == before.value


def test_samples_are_compared_each_with_itself() -> None:
    """Exchanged scores leave the mean alone, and the sample that lost is named with both scores."""
    before = accepted(measured({"c": {"a": 0.9, "b": 0.1}}))
    now = measured({"c": {"a": 0.1, "b": 0.9}})
    judgement = judge(now, before, plain(0.01))
    assert (judgement.verdict, judgement.difference) == (Verdict.HELD, 0.0)
    (loser,) = losers_of(now.scores, before)
    assert tuple(loser) == ("a", 0.9, 0.1, pytest.approx(-0.8))


def test_the_samples_that_lost_most_come_first() -> None:
    """All that lost, in order; worse where lower is better counts as lost."""
    before = measured({"c": {f"s{i}": 0.0 for i in range(9)}}, higher_is_better=False)
    now = measured({"c": {f"s{i}": i / 10 for i in range(9)}}, higher_is_better=False)
    losers = losers_of(now.scores, accepted(before))
    assert [loser.sample for loser in losers] == [f"s{i}" for i in range(8, 0, -1)]
    assert all(loser.difference == -loser.candidate for loser in losers)


@given(st.dictionaries(st.text(max_size=3), st.tuples(st.text(max_size=3), st.text(max_size=3))))
def test_every_field_that_differs_is_named(fields: dict[str, tuple[str, str]]) -> None:
    """Numbers made from other things are not compared, and each difference is a reason."""
    before = measured(identity={name: values[0] for name, values in fields.items()})
    now = measured(identity={name: values[1] for name, values in fields.items()})
    judgement = judge(now, accepted(before), Policy(tolerance=2.0))
    differ = sorted(name for name, (old, new) in fields.items() if old != new)
    assert [reason.split(":")[0] for reason in judgement.reasons] == [
        n.split(":")[0] for n in differ
    ]
    assert judgement.verdict is (Verdict.INCOMPARABLE if differ else Verdict.HELD)


@pytest.mark.parametrize("gate", GATES)
@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"identity": {"suite": "shapes/2", "samples": "2 0123456789abcdef"}},
         "suite: baseline shapes/1, now shapes/2"),
        ({"identity": {"suite": "shapes/1"}}, "samples: baseline 2 0123456789abcdef, now (none)"),
        ({"higher_is_better": False},
         "direction: the baseline counts the other direction as better"),
    ],
)  # fmt: skip
def test_what_cannot_be_compared_says_why(changes: dict[str, Any], reason: str, gate: Any) -> None:
    """Never a number against a number that means something else, whatever is tolerated."""
    judgement = judge(measured(**changes), accepted(measured()), Policy(gate=gate, tolerance=2.0))
    assert judgement.verdict is Verdict.INCOMPARABLE
    assert judgement.reasons == (reason,)
    assert (judgement.difference, judgement.low) == (None, None)
    assert not PRESENTATIONS[judgement.verdict].passes
