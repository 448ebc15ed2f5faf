"""Judges that are sure of their verdicts, or not."""

from __future__ import annotations

import math

import pytest

from pytest_cepbench.artifacts.outcome import PROBABILITIES, VerdictProbabilities
from pytest_cepbench.chains.answers.answer_plan import (
    BattleRules,
    refer_to_question,
)
from pytest_cepbench.chains.answers.battles import (
    AnswerPair,
    PairOutcome,
    judge_pairs,
)
from pytest_cepbench.models.protocols import Reply
from pytest_cepbench.store import Store
from tests.chains.answers.roles import SmallJudge, question, runner, stored_answer


def reply(*values: float) -> Reply:
    """The verdict of four probabilities, with them beside it."""
    probabilities = VerdictProbabilities.from_likelihoods([_log(value) for value in values])
    return Reply(probabilities.winner, provenance={PROBABILITIES: probabilities.to_text()})


def _log(value: float) -> float:
    return -50.0 if value == 0 else math.log(value)


def _judge(store: Store, verdict: Reply) -> tuple[PairOutcome, SmallJudge]:
    judge = SmallJudge(lambda *_: verdict)
    sample = question(0)
    refs = stored_answer(store, "one"), stored_answer(store, "two")
    pair = AnswerPair(sample.id, refer_to_question(sample, store), *refs)
    (outcome,) = judge_pairs([pair], BattleRules("adaptive"), runner(store, "judge", judge))
    return outcome, judge


@pytest.mark.parametrize(
    ("values", "calls"),
    [
        ((0.76, 0.1, 0.1, 0.04), 1), ((0.04, 0.1, 0.1, 0.76), 1),
        ((0.74, 0.1, 0.1, 0.06), 2), ((0.06, 0.1, 0.1, 0.74), 2),
        ((0.1, 0.8, 0.05, 0.05), 2), ((0.05, 0.05, 0.8, 0.1), 2),
    ],
)  # fmt: skip
def test_adaptive_asks_again_where_the_judge_is_unsure(
    store: Store, values: tuple[float, ...], calls: int
) -> None:
    """Below .75 and after ties, whichever answer the verdict is for."""
    outcome, judge = _judge(store, reply(*values))
    assert len(judge.asked) == len(outcome.verdicts) == calls


def test_probabilities_of_another_verdict_are_no_sign_of_doubt(store: Store) -> None:
    """They are damaged, or a stranger's: the verdict counts as one without any."""
    outcome, judge = _judge(store, Reply("A", provenance={PROBABILITIES: "0.1 0.1 0.1 0.7"}))
    assert len(judge.asked) == 1
    assert outcome.verdicts[0].probabilities is None


def test_rules_name_what_changes_a_score() -> None:
    """The threshold of `adaptive` is in the identity."""
    assert str(BattleRules()) == "order both, tie half, seed 0"
    assert str(BattleRules("adaptive")) == "order adaptive below 0.75, tie half, seed 0"
