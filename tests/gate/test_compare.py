"""From measurement and baseline to a verdict, whatever the statistics: fail closed, paired, exact.

What these tests say of differences they say under the threshold gate, which knows nothing of noise.
"""

from __future__ import annotations

import itertools
from math import inf, nan
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_cepbench.gate import PRESENTATIONS, Policy, Verdict, judge, present
from tests.gate.build import SCORES, Scores, accepted, measured

TOLERANCES = st.sampled_from([0.0, 1e-6, 0.01, 0.1])

GATES: Any = ["regression", "noninferiority", "threshold"]


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


@pytest.mark.parametrize("higher", [True, False])
@pytest.mark.parametrize("tolerance", [0.0, 0.000001, 0.01, 0.1, 0.3])
def test_the_edge_of_the_tolerance_is_exact(tolerance: float, higher: bool) -> None:
    """A drop as large as the tolerance holds, one millionth more regresses, in either direction."""
    sign = -1 if higher else 1
    for drop, verdict in [(tolerance, Verdict.HELD), (tolerance + 1e-6, Verdict.REGRESSED)]:
        before = measured({"c": {"a": 0.7, "b": 0.4}}, higher_is_better=higher)
        scores = {"c": {k: round(v + sign * drop, 6) for k, v in before.scores["c"].items()}}
        now = measured(scores, higher_is_better=higher)
        policy = Policy(gate="threshold", tolerance=tolerance)
        judgement = judge(now, accepted(before), policy)
        assert judgement.verdict is verdict
        assert judgement.difference == pytest.approx(-drop, abs=1e-9)
        assert judgement.baseline_value == before.value


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


@pytest.mark.parametrize(
    ("old", "new", "verdict"),
    [(None, "2 a", "HELD"), ("2 a", None, "HELD"), ("2 a", "2 b", "INCOMPARABLE")],
)
def test_a_field_that_was_added_later(old: str | None, new: str | None, verdict: str) -> None:
    """Baselines and reports of before have it not, and stay comparable, whichever comes first."""
    both = [measured(identity={} if own is None else {"references": own}) for own in (old, new)]
    assert judge(both[1], accepted(both[0]), Policy(tolerance=2.0)).verdict is Verdict[verdict]


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


# -- the table of verdicts: open only for what compared well or could not tell; policies -----------

SHOWN = {
    Verdict.IMPROVED: ("passed", "+", "green", 0),
    Verdict.HELD: ("passed", ".", "green", 0),
    Verdict.INCONCLUSIVE: ("inconclusive", "?", "yellow", 0),
    Verdict.REGRESSED: ("failed", "F", "red", 1),
    Verdict.NO_BASELINE: ("failed", "F", "yellow", 1),
    Verdict.INCOMPARABLE: ("error", "E", "yellow", 1),
    Verdict.ERROR: ("error", "E", "red", 1),
    Verdict.INCOMPLETE: ("error", "E", "red", 3),
}

INFORMATIONAL = ("informational", "i", "yellow", 0)

PASSING = {Verdict.IMPROVED, Verdict.HELD}


def _row(verdict: Verdict, *, primary: bool = True, strict: bool = False) -> tuple[object, ...]:
    shown = present(verdict, primary=primary, strict=strict)
    return shown.outcome, shown.letter, shown.color, shown.exit_code


@pytest.mark.parametrize("verdict", Verdict)
def test_a_verdict_shows_as_it_is_documented(verdict: Verdict) -> None:
    """Strict fails what the samples do not tell; an informational case fails no run but an
    incomplete one. A row passes where its exit code is 0, and green means passed.
    """
    assert present(verdict) == PRESENTATIONS[verdict]
    assert _row(verdict) == SHOWN[verdict]
    undecided = verdict is Verdict.INCONCLUSIVE
    assert _row(verdict, strict=True) == (
        ("failed", "?", "yellow", 1) if undecided else SHOWN[verdict]
    )
    informational = SHOWN[verdict] if verdict in (*PASSING, Verdict.INCOMPLETE) else INFORMATIONAL
    for strict in (False, True):
        assert _row(verdict, primary=False, strict=strict) == informational
        passes = verdict in PASSING or (undecided and not strict)
        assert present(verdict, strict=strict).passes == passes
    for primary, strict in itertools.product([True, False], repeat=2):
        row = present(verdict, primary=primary, strict=strict)
        assert row.passes == (row.exit_code == 0)
        assert (row.color == "green") == (row.outcome == "passed")
        assert row.meaning
        assert row.next_step
        assert not (row.meaning + row.next_step).endswith(".")


def test_numbers_that_allow_everything_or_nothing_are_refused() -> None:
    """A tolerance of NaN would fail every case, infinity pass every one; the same since the anchor.
    At an alpha of 0 nothing is ever decided, beyond one half a bound lies on the wrong side of the
    mean.
    """
    for tolerance in (-0.01, -1e-12, nan, inf, -inf):
        words = f"a tolerance is a number of at least 0, got {tolerance}"
        with pytest.raises(ValueError, match=words):
            Policy(tolerance=tolerance)
        with pytest.raises(ValueError, match=f"an anchor tolerance is .* 0, got {tolerance}"):
            Policy(anchor_tolerance=tolerance)
    for alpha in (0.0, -0.05, 0.5000001, 1.0, 2.0, nan, inf):
        words = f"alpha is a number over 0 and at most 0.5, got {alpha}"
        with pytest.raises(ValueError, match=words):
            Policy(alpha=alpha)


def test_the_documented_defaults() -> None:
    """Regression gate, 0.01 tolerated, 0.05 of error, twice the tolerance since the anchor.

    The anchor has a tolerance of its own where one is said; only threshold does without alpha.
    """
    policy = Policy()
    assert (policy.gate, policy.tolerance, policy.alpha) == ("regression", 0.01, 0.05)
    assert (policy.since_anchor, policy.primary) == (0.02, True)
    assert Policy(tolerance=0.03, anchor_tolerance=0.04).since_anchor == 0.04
    assert Policy(tolerance=0.03, alpha=0.5, anchor_tolerance=0.0).since_anchor == 0.0
    assert Policy(tolerance=0.03).since_anchor == 0.06
    assert Policy(tolerance=0.0).since_anchor == 0.0
    assert Policy(gate="noninferiority").statistical
    assert not Policy(gate="threshold").statistical
