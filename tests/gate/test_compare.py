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

from pytest_cepbench.gate import (
    PRESENTATIONS,
    FreshMeasurement,
    Judgement,
    Policy,
    Verdict,
    judge,
    present,
)
from tests.gate.build import SCORE, SCORES, Scores, accepted, measured
from tests.optional import known

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


# -- samples that only one of the two has: named, left out on request, looked at in part -----------


PLAIN = Policy(gate="threshold")

BEFORE = {"color": {"a": 0.5, "b": 0.6, "c": 0.7}, "shape": {"d": 0.2, "e": 0.4}}

REMEDY = "alone are compared with --cep-pairing=common"


def _judged(now: Scores, before: Scores = BEFORE, **how: Any) -> Judgement:
    return judge(measured(now), accepted(measured(before)), PLAIN, **how)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"color": {"a": 0.5}},
         f"samples of color: 2 only in the baseline, 0 only now (b, c); the other 1 {REMEDY}"),
        ({"shape": {"d": 0.2, "e": 0.4, "f": 1.0}},
         f"samples of shape: 0 only in the baseline, 1 only now (f); the other 2 {REMEDY}"),
        ({"color": {"a": 0.5, "b": 0.6, "c2": 0.7}},
         f"samples of color: 1 only in the baseline, 1 only now (c, c2); the other 2 {REMEDY}"),
        ({"shape": {"x": 0.2, "y": 0.4}},
         "samples of shape: 2 only in the baseline, 2 only now (d, e, x); not one is in both"),
        ({"size": {"z": 0.1}},
         "samples of size: 0 only in the baseline, 1 only now (z); not one is in both"),
    ],
    ids=["missing", "extra", "renamed", "all renamed", "another category"],
)  # fmt: skip
def test_other_samples_are_incomparable_and_named(change: Scores, reason: str) -> None:
    """Unless the user says so, also where the identity does not tell; the option is named."""
    judgement = _judged({**BEFORE, **change})
    assert (judgement.verdict, judgement.reasons) == (Verdict.INCOMPARABLE, (reason,))


def test_common_samples_are_compared_on_request() -> None:
    """Both means are over those that both have, and those left out are counted."""
    now = {"color": {"a": 0.4, "b": 0.6, "z": 0.0}, "shape": BEFORE["shape"]}
    judgement = _judged(now, pairing="common")
    assert judgement.statements == ("2 samples that only one of the two has were left out",)
    assert judgement.baseline_value == 0.425
    assert judgement.difference == -0.025
    # An empty comparison would hold; a category without one would leave the mean.
    for now in ({"color": {"x": 0.5}, "shape": {"y": 0.2}}, {"color": BEFORE["color"]}):
        judgement = _judged(now, pairing="common")
        assert judgement.verdict is Verdict.INCOMPARABLE
        assert judgement.reasons[-1].endswith("not one is in both")


@pytest.mark.parametrize(
    ("field", "forgiven"),
    [
        *((field, True) for field in ("samples", "data", "clauses", "facts")),
        *((field, False) for field in ("suite", "version", "metric", "chain")),
        *((field, False) for field in ("encoder", "generator")),
    ],
)
def test_common_forgives_what_other_samples_bring_with_them(field: str, forgiven: bool) -> None:
    """Fields that say which samples there are; by another encoder the same are another number."""
    now = measured(BEFORE, identity={"describer": "d", field: "new"})
    then = accepted(measured(BEFORE, identity={"describer": "d", field: "old"}))
    exact, common = judge(now, then, PLAIN), judge(now, then, PLAIN, pairing="common")
    assert exact.reasons == (f"{field}: baseline old, now new",)
    assert common.reasons == (() if forgiven else exact.reasons)
    assert common.verdict is (Verdict.HELD if forgiven else Verdict.INCOMPARABLE)


def test_a_set_has_no_common_part() -> None:
    """Its score is of all its samples, so other samples are another number on any request."""
    now, same = (
        measured({"color": {"x": 12.0}}, sizes={"color": 240}, identity={"samples": samples})
        for samples in ("240 new", "240 old")
    )
    other = measured({"color": {"y": 12.0}}, sizes={"color": 240})
    for pairing in ("exact", "common"):
        for then in (same, other):
            judgement = judge(now, accepted(then), PLAIN, pairing=pairing)
            assert judgement.verdict is Verdict.INCOMPARABLE
    sets = [measured({"color": {"x": 1.0}, c: {"x": 1.0}}, sizes={c: 9}) for c in ("a", "b")]
    judgement = judge(sets[0], accepted(sets[1]), PLAIN, pairing="common")
    assert judgement.verdict is Verdict.INCOMPARABLE
    small, large = (
        measured({"a": dict.fromkeys(names, 1.0)}, sizes={"a": 9}) for names in ("x", "xy")
    )
    assert judge(small, accepted(large), PLAIN, pairing="common").verdict is Verdict.INCOMPARABLE


def test_a_look_at_a_part_is_compared_with_that_part() -> None:
    """The baseline has all samples; those that were not looked at are not missing."""
    judgement = _judged({"color": {"a": 0.45}, "shape": {"e": 0.4}}, partial=True)
    assert (judgement.verdict, judgement.difference) == (Verdict.REGRESSED, -0.025)
    assert (judgement.baseline_value, judgement.statements) == (0.45, ())
    assert _judged({"color": {"a": 0.45}, "shape": {"e": 0.4}}).verdict is Verdict.INCOMPARABLE
    other = _judged({"color": {"a": 0.5, "new": 0.5}, "shape": {"e": 0.4}}, partial=True)
    assert other.verdict is Verdict.INCOMPARABLE


MANY = {"color": {f"s{number:02}": 0.5 for number in range(60)}}


def _without(scores: Scores, *names: str) -> Scores:
    return {part: {s: x for s, x in own.items() if s not in names} for part, own in scores.items()}


def _unscored(now: Scores, *names: str, **changes: Any) -> FreshMeasurement:
    return measured(_without(now, *names), unscored={"color": names}, **changes)


@pytest.mark.parametrize(
    ("higher_is_better", "now", "before"), [(True, -1.0, 0.5), (False, 1.0, 0.5)]
)
def test_what_has_no_score_is_the_worst_for_one_bound_and_the_best_for_the_other(
    higher_is_better: bool, now: float, before: float
) -> None:
    """And has no part in the change itself, which says so; the same model is no proof of it."""
    policy = Policy("regression", 0.01)
    baseline = accepted(measured(MANY, higher_is_better=higher_is_better))
    judged = judge(_unscored(MANY, "s07", higher_is_better=higher_is_better), baseline, policy)
    ends = []
    for end in (now, -now):
        whole = {"color": MANY["color"] | {"s07": end}}
        ends.append(judge(measured(whole, higher_is_better=higher_is_better), baseline, policy))
    assert (judged.difference, judged.low, judged.high) == (0.0, ends[0].low, ends[1].high)
    assert judged.verdict is Verdict.INCONCLUSIVE
    assert judged.statements[0].startswith("1 samples without a score, now or in the baseline")
    assert judge(measured(MANY), accepted(measured(MANY)), policy).verdict is Verdict.HELD


def test_what_has_no_score_speaks_against_a_drop() -> None:
    """Seven losses of sixty fail at a hundredth; if another sample may have gained, they do not."""
    policy = Policy("regression", 0.01, alpha=0.01)
    names = sorted(MANY["color"])[10:17]
    lost = {"color": MANY["color"] | {name: MANY["color"][name] - 0.2 for name in names}}
    whole = judge(measured(lost, model={"spec": "other"}), accepted(measured(MANY)), policy)
    assert (whole.verdict, whole.p) == (Verdict.REGRESSED, 2**-7)
    judged = judge(
        _unscored(lost, "s07", model={"spec": "other"}), accepted(measured(MANY)), policy
    )
    assert judged.verdict is Verdict.INCONCLUSIVE
    assert known(judged.p) > 0.01


def test_what_the_baseline_could_not_score_counts_alike() -> None:
    """Of the same samples it lacks only what a model failed at; of others, or of more, nothing."""
    policy = Policy("regression", 0.01)
    before = _unscored(MANY, "s07")
    judged = judge(measured(MANY), accepted(before), policy)
    assert (judged.difference, judged.verdict) == (0.0, Verdict.INCONCLUSIVE)
    assert known(judged.low) < -0.5 / 60  # the baseline's may have been the best there is
    both = judge(_unscored(MANY, "s07"), accepted(before), policy)
    assert known(both.low) < known(judged.low)  # and here the candidate's the worst besides
    other = measured(MANY, identity={"suite": "shapes/1", "samples": "60 others"})
    assert judge(other, accepted(before), policy).verdict is Verdict.INCOMPARABLE
    common = judge(other, accepted(before), policy, pairing="common")
    assert common.statements[0] == "1 samples that only one of the two has were left out"
    fewer = accepted(measured(_without(MANY, "s07", "s08")))
    assert judge(measured(MANY), fewer, policy).verdict is Verdict.INCOMPARABLE


@given(st.dictionaries(st.sampled_from("abcdef"), st.tuples(SCORE, SCORE), min_size=2), st.data())
def test_leaving_out_is_never_kinder_than_any_score(
    scores: dict[str, tuple[float, float]], data: st.DataObject
) -> None:
    """Without statistics: what holds would hold, and what regresses regress, whatever it were."""
    names = data.draw(st.lists(st.sampled_from(sorted(scores)), unique=True, max_size=2))
    names = names[: len(scores) - 1]
    before = {"color": {name: pair[0] for name, pair in scores.items()}}
    now = {"color": {name: pair[1] for name, pair in scores.items()}}
    verdict = judge(_unscored(now, *names), accepted(measured(before)), PLAIN).verdict
    if verdict is not Verdict.INCONCLUSIVE:
        assert _judged(now, before).verdict is verdict
