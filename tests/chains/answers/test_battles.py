"""Battles of two answers in their orders; single answers scored."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from hashlib import sha256
from typing import Any

import pytest

from pytest_cepbench.artifacts import Failure, digest_text
from pytest_cepbench.artifacts.outcome import CRITERIA, WINNERS, CriteriaScores
from pytest_cepbench.chains.answers.answer_plan import BattleRules, OrderName, refer_to_question
from pytest_cepbench.chains.answers.battles import (
    AnswerPair,
    battle_step,
    judge_pairs,
    score_answers,
    score_step,
)
from pytest_cepbench.errors import DamagedInputsError, ModelError
from pytest_cepbench.models.protocols import AnsweredQuestion, Battle
from pytest_cepbench.store import Store, StoredResult
from tests.chains.answers.roles import SmallJudge, in_words, question, runner, stored_answer

ORDERS: tuple[OrderName, ...] = ("both", "balanced")


def by_words(battle: Battle, seed: int) -> Any:
    """Any of the four verdicts, as texts, order and seed have it."""
    name = f"{in_words(battle.question)}{in_words(battle.first)}>{in_words(battle.second)}{seed}"
    return WINNERS[sha256(name.encode()).digest()[0] % 4]


def prefers_better(battle: Battle, _: int) -> Any:
    """The answer whose text says that it is better; else a tie that leans to some answer."""
    if "better" in in_words(battle.first):
        return "A"
    if "better" in in_words(battle.second):
        return "B"
    return "Tie(A)" if "0" in in_words(battle.first[:1]) else "Tie(B)"


def always_first(_: Battle, __: int) -> Any:
    """The answer that is shown first."""
    return "A"


def _pair(store: Store, number: int, candidate: str | None, opponent: str | None) -> AnswerPair:
    sample = question(number)
    return AnswerPair(
        sample.id,
        refer_to_question(sample, store),
        None if candidate is None else stored_answer(store, candidate),
        None if opponent is None else stored_answer(store, opponent),
    )


def _judge(
    store: Store, verdict: Callable[[Battle, int], Any], pairs: list[AnswerPair], **rules: Any
) -> tuple[list[float], SmallJudge]:
    judge = SmallJudge(verdict)
    outcomes = judge_pairs(pairs, BattleRules(**rules), runner(store, "judge", judge))
    return [outcome.score for outcome in outcomes], judge


@pytest.mark.parametrize("order", ORDERS)
def test_the_better_answer_wins_in_every_order(store: Store, order: OrderName) -> None:
    """1 for the better one, 0 for the worse, one half for a tie, to whichever answer it leans.
    Equal answers tie, a missing one loses and two missing ones tie without a judge.
    """
    sides = (("better", "plain"), ("plain", "better"), ("plain", "other"))
    pairs = [
        _pair(store, k, f"{own} {k}", f"{other} {k}") for own, other in sides for k in range(4)
    ]
    scores, judge = _judge(store, prefers_better, pairs, order=order)
    assert scores == [1.0] * 4 + [0.0] * 4 + [0.5] * 4
    assert {prefers_better(battle, 0) for battle in judge.asked} == set(WINNERS)

    pairs = [
        _pair(store, 0, "same", "same"),
        _pair(store, 1, None, "there"),
        _pair(store, 2, "there", None),
        _pair(store, 3, None, None),
    ]
    scores, judge = _judge(store, always_first, pairs, order=order)
    assert scores == [0.5, 0.0, 1.0, 0.5]
    assert judge.asked == []


def test_swapped_sides_mirror_the_score(store: Store) -> None:
    """Which answer is the candidate changes no verdict: the judge is not even asked again."""
    pairs = [_pair(store, k, f"one {k}", f"two {k}") for k in range(20)]
    scores, _ = _judge(store, by_words, pairs)
    swapped = [AnswerPair(own.sample, own.question, own.opponent, own.candidate) for own in pairs]
    mirrored, judge = _judge(store, by_words, swapped)
    assert mirrored == [1.0 - score for score in scores]
    assert len(set(scores)) > 2
    assert judge.asked == []


def test_a_place_is_worth_nothing(store: Store) -> None:
    """Exactly one half where both orders are asked. A balanced order shows each answer first about
    equally often, alike for every candidate: no checkpoint gains by the places it drew.
    """
    assert str(BattleRules()) == "order both, tie half, seed 0"  # as baselines have it
    pairs = [_pair(store, k, f"one {k}", f"two {k}") for k in range(40)]
    others = [_pair(store, k, f"three {k}", f"two {k}") for k in range(40)]
    scores, judge = _judge(store, always_first, pairs, order="balanced")
    assert len(judge.asked) == 40
    assert 14 <= sum(scores) <= 26
    digests = [digest_text(f"0 {pair.sample}") for pair in pairs]
    assert scores == [float(int(digest[:8], 16) % 2 == 0) for digest in digests]
    assert _judge(store, always_first, others, order="balanced")[0] == scores
    reseeded, _ = _judge(store, always_first, pairs, order="balanced", seed=1)
    assert reseeded != scores
    both, judge = _judge(store, always_first, others)
    assert both == [0.5] * 40
    assert len(judge.asked) == 40  # those that were not shown above


def test_no_verdict_is_asked_for_once_more_and_is_a_tie_then(store: Store) -> None:
    """With another seed, unless the judge has none, whose second answer would be its first. A
    battle of which a verdict failed twice is missing, with the failures. Each order has a key of
    its own, and another one where the judge is asked again.
    """
    seeds: dict[str, list[int]] = {}

    def unsure(battle: Battle, seed: int) -> Any:
        asked = seeds.setdefault(in_words(battle.first), [])
        asked.append(seed)
        recovers = "one 1" in in_words([*battle.first, *battle.second]) and len(asked) > 1
        return "A" if recovers else Failure("no-verdict", "neither")

    judge = runner(store, "judge", SmallJudge(unsure))
    pairs = [_pair(store, k, f"one {k}", f"two {k}") for k in range(2)]
    lost, recovered = judge_pairs(pairs, BattleRules(), judge)
    assert lost.missing
    assert [failure.kind for failure in lost.failures] == ["no-verdict"] * 2
    assert (recovered.score, recovered.missing) == (0.5, False)
    assert all(len(set(asked)) == 2 == len(asked) for asked in seeds.values())
    keys = {
        battle_step(pairs[0], BattleRules(), judge, candidate_first=first, again=again).key
        for first in (True, False)
        for again in (True, False)
    }
    assert len(keys) == 4
    greedy = SmallJudge(lambda _, __: Failure("no-verdict", "neither"))
    unseeded = runner(store, "judge", greedy, seeded=False)
    (outcome,) = judge_pairs(pairs[:1], BattleRules(), unseeded)
    assert (outcome.score, len(greedy.asked)) == (0.5, 2)


SEVEN: dict[str, Any] = dict.fromkeys(CRITERIA, 6)


def by_length(answered: AnsweredQuestion, _: int) -> Any:
    """More for an answer of more pieces."""
    return SEVEN | {"richness": min(len(answered.answer), 10)}


def _answer(store: Store, number: int, *texts: str) -> AnswerPair:
    sample = question(number)
    answer = stored_answer(store, *texts)
    return AnswerPair(sample.id, refer_to_question(sample, store), answer, None)


def _score(
    store: Store, answers: Sequence[AnswerPair], judge: SmallJudge, **changes: Any
) -> list[CriteriaScores]:
    return score_answers(answers, 0, runner(store, "judge", judge, **changes))


def test_each_answer_is_scored_behind_its_question(store: Store) -> None:
    """In batches; the judge sees question and answer as texts and images."""
    answers = [_answer(store, k, *(f"{k}-{i}" for i in range(k + 1))) for k in range(3)]
    judge = SmallJudge(by_length)
    scores = _score(store, answers, judge, batch_size=2)
    assert [own.value("richness") for own in scores] == [2.0, 4.0, 6.0]
    assert sorted(judge.batches) == [1, 2]
    shown = [in_words(answered.question) for answered in judge.asked]
    assert [text.split("|")[0] for text in shown] == ["question 0", "question 1", "question 2"]
    assert in_words(judge.asked[0].answer).startswith("0-0|")


def test_stored_scores_cost_no_call(store: Store) -> None:
    """Another question, another answer, another judge or another run's seed are scored anew."""
    answers, judge = [_answer(store, 0, "x"), _answer(store, 0, "x")], SmallJudge(by_length)
    first = _score(store, answers, judge)
    assert (len(judge.asked), first[0]) == (1, first[1])
    assert _score(store, answers, judge) == first
    assert len(judge.asked) == 1
    _score(store, [_answer(store, 1, "x"), _answer(store, 0, "y")], judge)
    _score(store, answers, judge, fingerprint="weights-2")
    assert len(judge.asked) == 4
    score_answers(answers, 7, runner(store, "judge", judge))
    assert len(judge.asked) == 5
    score_answers(answers, 8, runner(store, "judge", judge, seeded=False))
    score_answers(answers, 9, runner(store, "judge", judge, seeded=False))
    assert len(judge.asked) == 6


def test_what_failed_is_asked_once_more_and_fills_the_gaps(store: Store) -> None:
    """With another seed; the scores that were given at first stay as they were."""

    def unsure(answered: AnsweredQuestion, seed: int) -> Any:
        again = seed != seeds.setdefault(in_words(answered.answer), seed)
        if "mute" in in_words(answered.answer):
            return SEVEN | {"quality": 1} if again else Failure("no-score", "nothing")
        return SEVEN | ({"quality": 2, "preference": 1} if again else {"quality": 40})

    seeds: dict[str, int] = {}
    judge = SmallJudge(unsure)
    mute, partly = _score(store, [_answer(store, 0, "mute"), _answer(store, 1, "partly")], judge)
    assert [mute.value("quality"), mute.value("preference")] == [1.0, 6.0]
    assert [partly.value("quality"), partly.value("preference")] == [2.0, 6.0]
    assert len(judge.asked) == 4


@pytest.mark.parametrize(
    ("value", "message"),
    [(7, "CriteriaScores or numbers by criterion .* returned 7"),
     ("fine", "returned 'fine'"),
     ({"qualty": 7}, "Did you mean 'quality'")],
)  # fmt: skip
def test_what_is_no_set_of_scores_is_an_error(store: Store, value: Any, message: str) -> None:
    """One line that says what a judge of the user's own has to return."""
    with pytest.raises(ModelError, match=message):
        _score(store, [_answer(store, 0, "x")], SmallJudge(lambda _, __: value))


def test_damaged_images_are_named_by_the_place_of_their_answer(store: Store) -> None:
    """So that they are made again, like those of battles."""
    answers = [_answer(store, 0, "x"), _answer(store, 1, "y")]
    answer = answers[1].candidate
    assert answer is not None
    (digest,) = [digest for kind, digest in answer.inputs if kind == "image"]
    store.artifact_path(digest).write_bytes(b"no image")
    store.artifact_cache.clear()
    with pytest.raises(DamagedInputsError) as caught:
        _score(store, answers, SmallJudge(by_length))
    assert caught.value.indices == (1,)


def test_scores_in_a_store_that_cannot_be_read_are_failures(store: Store) -> None:
    """A shared store may hold anything under a key; nothing is raised, and nothing passes as 0."""
    answer, judge = _answer(store, 0, "x"), SmallJudge(by_length)
    work = runner(store, "judge", judge, seeded=False)
    key = score_step(answer, 0, work, again=False).key
    store.put([StoredResult(key, "ten out of ten")])
    (scores,) = score_answers([answer], 0, work)
    assert [scores.value(name) for name in CRITERIA] == [None] * 7
    assert "ten out of ten" in scores.failures[0].detail
