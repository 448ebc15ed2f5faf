"""The gate of win rates: a candidate's answers battle the accepted ones, which score one half."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import pytest

from pytest_cepbench.errors import BaselineError
from pytest_cepbench.gate import (
    CaseKey,
    FreshMeasurement,
    Measurement,
    Policy,
    Verdict,
    dump_baseline,
    judge,
    load_baseline,
)
from pytest_cepbench.gate.compare import SAME_ANSWERS
from pytest_cepbench.gate.measurement import Blindness
from tests.gate.build import accepted, measured, replace, text_of
from tests.optional import known

KEY = CaseKey("arena", "overall", "win_rate")

POLICY = Policy(tolerance=0.05)

N = 60

OWN, OTHER = "answer of the candidate", "answer of the baseline"


def _battles(
    scores: float | Mapping[str, float], named: str = OWN, n: int = N, **changes: Any
) -> FreshMeasurement:
    """A candidate whose answers to n questions scored so much against the accepted ones.

    scores: of all, or by sample.
    named: each answer's digest begins so.
    """
    ids = [f"q{number:03}" for number in range(n)]
    given_scores = scores if isinstance(scores, Mapping) else dict.fromkeys(ids, scores)
    fields: dict[str, Any] = {
        "key": KEY,
        "label": "win rate",
        "identity": {"suite": "arena/1", "judge": "shapes-judge/1 c0ff9ee5"},
        "model": {"spec": "step-8000", "identity": "another"},
        "answers": {name: f"{named} {name}" for name in ids},
    }
    return measured({"all": given_scores}, **(fields | changes))


def _baseline(named: str = OTHER, n: int = N, **changes: Any) -> Measurement:
    """The accepted model's answers."""
    model = {"model": {"spec": "step-7000", "identity": "accepted"}}
    return accepted(_battles(0.25, named, n, **(model | changes)))


TEXT = text_of(_battles(0.25, n=2))


# -- baselines of answers --------------------------------------------------------------------------


def test_a_baseline_keeps_answers_and_not_the_scores_that_they_had() -> None:
    """Against themselves they score one half; the text is made for reviewers."""
    baseline = _baseline(n=2)
    assert baseline.answers == {"q000": f"{OTHER} q000", "q001": f"{OTHER} q001"}
    assert baseline.scores == {"all": {"q000": 0.5, "q001": 0.5}}
    assert baseline.value == 0.5
    assert TEXT.endswith(
        '[answers]\n"q000" = "answer of the candidate q000"\n'
        '"q001" = "answer of the candidate q001"\n\n[scores."all"]\n"q000" = 0.5\n"q001" = 0.5\n'
    )
    assert dump_baseline(load_baseline(TEXT, KEY, "x")) == TEXT


@pytest.mark.parametrize(
    ("pattern", "replacement"),
    [
        (r'"q001" = "answer[^\n]*\n', ""),
        (r'"q001" = "answer', '"q002" = "answer'),
        (r"\n\[scores", '"q002" = "an answer more"\n\n[scores'),
        (r'"q000" = 0.5\n"q001" = 0.5', '"q000" = 0.25\n"q001" = 0.75'),
    ],
    ids=["one is missing", "of another sample", "one more", "other scores"],
)
def test_a_baseline_that_contradicts_itself_is_refused(pattern: str, replacement: str) -> None:
    """Scores that are not one half, and answers of other samples: no such file was ever written."""
    text = re.sub(pattern, lambda _: replacement, TEXT, count=1)
    assert text != TEXT
    with pytest.raises(BaselineError, match="does not hold one answer, and a score of one half"):
        load_baseline(text, KEY, "x")


# -- verdicts --------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [1, 3, 60])
def test_equal_answers_of_another_model_hold(n: int) -> None:
    """However few they are: nothing was left to a judge, so there is no doubt to be had. At a first
    look they prove nothing of the rest, which may be worse: the gate looks on.
    """
    judgement = judge(_battles(0.5, OTHER, n), _baseline(n=n), POLICY)
    assert (judgement.verdict, judgement.method) == (Verdict.HELD, SAME_ANSWERS)
    assert (judgement.low, judgement.high, judgement.p) == (None, None, None)
    assert "every answer is the one that was accepted" in judgement.statements
    first_look = judge(_battles(0.5, OTHER, 10), _baseline(), POLICY, partial=True)
    assert first_look.verdict is Verdict.INCONCLUSIVE


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        (
            {"identity": {"suite": "arena/1", "judge": "another"}},
            "judge: baseline shapes-judge/1.*another; cepbench arena rejudge SUITE --judge=SPEC",
        ),
        ({"answers": {}}, "answers: one of the two has no answers"),
        ({"obstacles": ("answers: 3 of 60 are missing",)}, "answers: 3 of 60 are missing"),
    ],
    ids=["a changed judge", "no answers", "battles that were not fought"],
)
def test_what_cannot_be_compared_says_why(changes: dict[str, Any], reason: str) -> None:
    """Never a pass, and never a verdict by battles that another judge decided."""
    judgement = judge(_battles(1.0, **changes), _baseline(), POLICY)
    assert judgement.verdict is Verdict.INCOMPARABLE
    assert any(re.search(reason, given_reason) for given_reason in judgement.reasons)


def test_what_a_blind_judge_may_hide_makes_a_case_inconclusive() -> None:
    """Under every rule, and what it calls better is no improvement; a loss stays one.

    It counts where more than the tolerance may be lost, and no drop as large can show.
    """
    blind = Blindness("the judge cannot see a drop: why", 0.4)
    for gate in ("regression", "noninferiority", "threshold"):
        policy = replace(POLICY, gate=gate)
        for scores in (0.5, 1.0):
            judgement = judge(_battles(scores, blind=blind), _baseline(), policy)
            assert judgement.verdict is Verdict.INCONCLUSIVE
            (reason,) = judgement.reasons
            assert reason.startswith("the judge cannot see a drop: why; a drop of 0.4 could hide")
    lost = judge(_battles(0.0, blind=blind), _baseline(), POLICY)
    assert (lost.verdict, lost.warnings) == (Verdict.REGRESSED, (blind.reason,))
    new = judge(_battles(0.5, blind=blind), None, POLICY)
    assert (new.verdict, new.warnings) == (Verdict.NO_BASELINE, (blind.reason,))
    for hidden, verdict in ((0.05, Verdict.HELD), (0.050001, Verdict.INCONCLUSIVE)):
        judgement = judge(_battles(0.5, blind=Blindness("why", hidden)), _baseline(), POLICY)
        assert judgement.verdict is verdict


def test_ties_of_the_same_identity_are_no_same_answers() -> None:
    """Three ties of other answers exclude nothing, whoever the model says that it is."""
    same: dict[str, Any] = {"model": {"spec": "step-7000", "identity": "accepted"}}
    judgement = judge(_battles(0.5, n=3, **same), _baseline(n=3), POLICY)
    assert judgement.verdict is Verdict.INCONCLUSIVE
    assert judgement.warnings[0].startswith("one identity answered in two ways: 3 of 3 answers are")
    equal = judge(_battles(0.5, OTHER, 3, **same), _baseline(n=3), POLICY)
    assert (equal.verdict, equal.warnings) == (Verdict.HELD, ())


# -- anchors ---------------------------------------------------------------------------------------


def test_the_anchor_is_compared_by_battles_of_its_own() -> None:
    """Steps that each tie add up to a loss: the drop since the anchor fails the case.

    An anchor that was not battled never passes.
    """
    anchor = _baseline("answer of the anchor")
    held, drifted = (
        _battles(0.5, anchor_scores={"all": {f"q{i:03}": score for i in range(N)}})
        for score in (0.5, 0.0)
    )
    assert judge(held, _baseline(), POLICY, anchor=anchor).verdict is Verdict.HELD
    judgement = judge(drifted, _baseline(), POLICY, anchor=anchor)
    assert judgement.verdict is Verdict.REGRESSED
    assert known(judgement.since_anchor).difference == -0.5
    # Scores against the baseline's answers say nothing of the anchor's.
    judgement = judge(_battles(1.0), _baseline(), POLICY, anchor=anchor)
    assert judgement.verdict is Verdict.INCOMPARABLE
    assert "the battles against the anchor's answers were not fought" in judgement.reasons[0]
