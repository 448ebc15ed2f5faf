"""Battles that are scored by the probabilities of verdicts, and judges that are sure or not."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from hashlib import sha256
from typing import Any

import pytest
from hypothesis import strategies as st

from pytest_cepbench.artifacts.outcome import PROBABILITIES, VerdictProbabilities
from pytest_cepbench.chains import RoleRunner
from pytest_cepbench.chains.answers.answer_plan import (
    BattleRules,
    OrderName,
    TieName,
    refer_to_question,
)
from pytest_cepbench.chains.answers.battles import (
    AnswerPair,
    OrderedVerdict,
    PairOutcome,
    judge_pairs,
)
from pytest_cepbench.errors import SpecError
from pytest_cepbench.models.protocols import Battle, Reply
from pytest_cepbench.store import Store
from tests.chains.answers.roles import SmallJudge, in_words, question, runner, stored_answer

ORDERS: tuple[OrderName, ...] = ("both", "balanced", "adaptive")

LIKELIHOODS = st.lists(st.floats(-3, 0), min_size=4, max_size=4)


def reply(*values: float) -> Reply:
    """The verdict of four probabilities, with them beside it."""
    probabilities = VerdictProbabilities.from_likelihoods([_log(value) for value in values])
    return Reply(probabilities.winner, provenance={PROBABILITIES: probabilities.to_text()})


def _log(value: float) -> float:
    return -50.0 if value == 0 else math.log(value)


def by_words(battle: Battle, _: int) -> Any:
    """Probabilities that differ with the texts and their order."""
    name = f"{in_words(battle.question)}{in_words(battle.first)}>{in_words(battle.second)}"
    draws = [1 + digit for digit in sha256(name.encode()).digest()[:4]]
    return reply(*(draw / sum(draws) for draw in draws))


def _pairs(store: Store, count: int) -> list[AnswerPair]:
    def pair(k: int) -> AnswerPair:
        sample = question(k)
        refs = stored_answer(store, f"one {k}"), stored_answer(store, f"two {k}")
        return AnswerPair(sample.id, refer_to_question(sample, store), *refs)

    return [pair(k) for k in range(count)]


def _mirrored(pair: AnswerPair) -> AnswerPair:
    return replace(pair, candidate=pair.opponent, opponent=pair.candidate)


def _judge(
    store: Store,
    verdict: Callable[[Battle, int], Any],
    pairs: Sequence[AnswerPair],
    probabilities: bool | None = None,
    **rules: Any,
) -> tuple[list[PairOutcome], SmallJudge]:
    judge = SmallJudge(verdict)
    bound = replace(runner(store, "judge", judge).bound, probabilities=probabilities)
    return judge_pairs(pairs, BattleRules(**rules), RoleRunner(bound, store)), judge


def _scores(outcomes: Sequence[PairOutcome]) -> list[float]:
    return [outcome.score for outcome in outcomes]


@pytest.mark.parametrize(
    ("tie", "scores"),
    [("half", {True: 0.5 + 0.25 / 2, False: 0.25 + 0.25 / 2}), ("lean", {True: 0.7, False: 0.3})],
)
def test_a_soft_score_is_the_mean_of_the_verdicts_scores(
    tie: TieName, scores: dict[bool, float]
) -> None:
    """p(A) and half of both ties; with ties that count for whom they lean to, p(A) + p(Tie A)."""
    values = (0.5, 0.2, 0.05, 0.25)
    for first, score in scores.items():
        verdict = OrderedVerdict(first, "A", VerdictProbabilities(values))
        assert verdict.score(tie, "soft") == pytest.approx(score)
        assert verdict.score(tie) == float(first)


@pytest.mark.parametrize("order", ORDERS)
def test_exchanged_models_have_mirrored_scores(store: Store, order: OrderName) -> None:
    """In every design, also where the judge's own doubt decides who is asked again."""
    pairs = _pairs(store, 40)
    outcomes, asked = _judge(store, by_words, pairs, order=order, score="soft")
    mirrored, _ = _judge(store, by_words, [*map(_mirrored, pairs)], order=order, score="soft")
    assert len(set(_scores(outcomes))) > 30
    if order == "both":
        expected = [1 - score for score in _scores(outcomes)]
        assert _scores(mirrored) == pytest.approx(expected, abs=1e-12)
    # In one order another answer of the pair is shown first, so other verdicts are read.
    first = [outcome.verdicts[0].candidate_first for outcome in outcomes]
    assert first == [outcome.verdicts[0].candidate_first for outcome in mirrored]
    assert len(asked.asked) == sum(len(outcome.verdicts) for outcome in outcomes)


def test_probabilities_of_stored_verdicts_are_read_again(store: Store) -> None:
    """The same scores without a call, also under other rules."""
    pairs = _pairs(store, 5)
    outcomes, _ = _judge(store, by_words, pairs, score="soft")
    again, judge = _judge(store, by_words, pairs, score="soft")
    verdicts, _ = _judge(store, by_words, pairs)
    assert (_scores(again), judge.asked) == (_scores(outcomes), [])
    assert set(_scores(verdicts)) <= {0, 0.25, 0.5, 0.75, 1}


@pytest.mark.parametrize("score", ["verdict", "soft"])
@pytest.mark.parametrize(
    ("values", "calls"),
    [
        ((0.76, 0.1, 0.1, 0.04), 1), ((0.04, 0.1, 0.1, 0.76), 1),
        ((0.74, 0.1, 0.1, 0.06), 2), ((0.06, 0.1, 0.1, 0.74), 2),
        ((0.1, 0.8, 0.05, 0.05), 2), ((0.05, 0.05, 0.8, 0.1), 2),
    ],
)  # fmt: skip
def test_adaptive_asks_again_where_the_judge_is_unsure(
    store: Store, values: tuple[float, ...], calls: int, score: str
) -> None:
    """Below .75 and after ties, whichever answer the verdict is for."""
    outcomes, judge = _judge(
        store, lambda *_: reply(*values), _pairs(store, 1), order="adaptive", score=score
    )
    assert len(judge.asked) == len(outcomes[0].verdicts) == calls


def test_a_judge_without_probabilities_is_refused_before_it_is_asked(store: Store) -> None:
    """Where that is known of it: one line that says what to do."""
    pairs = _pairs(store, 2)
    with pytest.raises(SpecError, match=r"without probabilities.*logprobs=true, or set score"):
        _judge(store, by_words, pairs, probabilities=False, score="soft")
    outcomes, _ = _judge(store, by_words, pairs, probabilities=False, order="adaptive")
    assert len(outcomes) == 2


@pytest.mark.parametrize("other", ["A", Reply("A", provenance={PROBABILITIES: "0.1 0.1 0.1 0.7"})])
def test_a_verdict_without_fitting_probabilities_is_a_failure(store: Store, other: Any) -> None:
    """It is counted and its battle is missing; those that have them keep their scores."""

    def sometimes(battle: Battle, _: int) -> Any:
        return other if "one 0" in in_words(battle.first) else reply(0.7, 0.1, 0.1, 0.1)

    (lost, kept), _ = _judge(store, sometimes, _pairs(store, 2), score="soft")
    assert [failure.kind for failure in lost.failures] == ["no-verdict"]
    assert "without probabilities that fit" in lost.failures[0].detail
    assert lost.missing
    assert not kept.missing
    (plain, _), _ = _judge(store, sometimes, _pairs(store, 2))
    assert plain.failures == []


def test_rules_name_what_changes_a_score() -> None:
    """Soft scores and the threshold of `adaptive` are in the identity; the default is as it was."""
    assert str(BattleRules()) == "order both, tie half, seed 0"
    assert str(BattleRules(score="soft")) == "order both, tie half, seed 0, soft scores"
    assert str(BattleRules("adaptive")) == "order adaptive below 0.75, tie half, seed 0"
