"""Samples that only baseline or measurement has: named, left out on request, looked at in part."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_cepbench.gate import FreshMeasurement, Judgement, Policy, Verdict, judge
from tests.gate.build import SCORE, Scores, accepted, measured
from tests.optional import known

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
