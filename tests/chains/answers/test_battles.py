"""Battles of two answers: orders, scores, and which of them need a judge at all."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_cepbench.artifacts import Failure
from pytest_cepbench.artifacts.outcome import WINNERS
from pytest_cepbench.chains.answers.answer_plan import (
    BattleRules,
    OrderName,
    TieName,
    refer_to_question,
)
from pytest_cepbench.chains.answers.battles import (
    AnswerPair,
    OrderedVerdict,
    battle_key,
    judge_pairs,
)
from pytest_cepbench.models.protocols import Battle
from pytest_cepbench.store import Store
from tests.chains.answers.roles import SmallJudge, in_words, question, runner, stored_answer

ORDERS: tuple[OrderName, ...] = ("both", "balanced", "adaptive")


def by_words(battle: Battle, seed: int) -> Any:
    """Any of the four verdicts, as texts, order and seed have it."""
    name = f"{in_words(battle.question)}{in_words(battle.first)}>{in_words(battle.second)}{seed}"
    return WINNERS[sha256(name.encode()).digest()[0] % 4]


def prefers_better(battle: Battle, _: int) -> Any:
    """The answer whose text says that it is better."""
    if "better" in in_words(battle.first):
        return "A"
    return "B" if "better" in in_words(battle.second) else "Tie(A)"


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


def _mirrored(pair: AnswerPair) -> AnswerPair:
    return AnswerPair(pair.sample, pair.question, pair.opponent, pair.candidate)


def _judge(
    store: Store, verdict: Callable[[Battle, int], Any], pairs: list[AnswerPair], **rules: Any
) -> tuple[list[float], SmallJudge]:
    judge = SmallJudge(verdict)
    outcomes = judge_pairs(pairs, BattleRules(**rules), runner(store, "judge", judge))
    return [outcome.score for outcome in outcomes], judge


def test_the_two_orders_are_two_verdicts(store: Store) -> None:
    """Each has a key of its own, and another one where the judge is asked again."""
    pair, judge = _pair(store, 0, "one", "two"), runner(store, "judge", SmallJudge(always_first))
    keys = {
        battle_key(pair, BattleRules(), judge, candidate_first=first, again=again)[0]
        for first in (True, False)
        for again in (True, False)
    }
    assert len(keys) == 4


@pytest.mark.parametrize("order", ORDERS)
def test_the_better_answer_wins_in_every_order(store: Store, order: OrderName) -> None:
    """1 for the better one, 0 for the worse, one half for a tie."""
    pairs = [_pair(store, k, f"better {k}", f"plain {k}") for k in range(4)]
    pairs += [_pair(store, k, f"plain {k}", f"better {k}") for k in range(4)]
    pairs += [_pair(store, k, f"plain {k}", f"other {k}") for k in range(4)]
    scores, _ = _judge(store, prefers_better, pairs, order=order)
    assert scores == [1.0] * 4 + [0.0] * 4 + [0.5] * 4


@pytest.mark.parametrize("tie", ["half", "lean"])
def test_swapped_sides_mirror_the_score(store: Store, tie: TieName) -> None:
    """Which answer is the candidate changes no verdict: the judge is not even asked again."""
    pairs = [_pair(store, k, f"one {k}", f"two {k}") for k in range(20)]
    scores, _ = _judge(store, by_words, pairs, tie=tie)
    mirrored, judge = _judge(store, by_words, [_mirrored(pair) for pair in pairs], tie=tie)
    assert mirrored == [1.0 - score for score in scores]
    assert len(set(scores)) > 2
    assert judge.asked == []


def test_verdicts_are_kept(store: Store) -> None:
    """A second look at the same battles asks the judge nothing."""
    pairs = [_pair(store, k, f"one {k}", f"two {k}") for k in range(3)]
    scores, first = _judge(store, by_words, pairs)
    again, second = _judge(store, by_words, pairs)
    assert (scores, len(first.asked), second.asked) == (again, 6, [])


@pytest.mark.parametrize("order", ORDERS)
def test_equal_and_missing_answers_need_no_judge(store: Store, order: OrderName) -> None:
    """Equal answers tie, a missing one loses, two missing ones tie."""
    pairs = [
        _pair(store, 0, "same", "same"),
        _pair(store, 1, None, "there"),
        _pair(store, 2, "there", None),
        _pair(store, 3, None, None),
    ]
    scores, judge = _judge(store, always_first, pairs, order=order)
    assert scores == [0.5, 0.0, 1.0, 0.5]
    assert judge.asked == []


def test_always_first_is_even_where_both_orders_are_asked(store: Store) -> None:
    """Exactly one half: what a place is worth cancels out."""
    pairs = [_pair(store, k, f"one {k}", f"two {k}") for k in range(5)]
    scores, judge = _judge(store, always_first, pairs)
    assert scores == [0.5] * 5
    assert len(judge.asked) == 10


def test_balanced_shows_each_answer_first_about_equally_often(store: Store) -> None:
    """In one order, alike for every candidate: no checkpoint gains by the places it drew."""
    pairs = [_pair(store, k, f"one {k}", f"two {k}") for k in range(100)]
    others = [_pair(store, k, f"three {k}", f"two {k}") for k in range(100)]
    scores, judge = _judge(store, always_first, pairs, order="balanced")
    assert len(judge.asked) == 100
    assert 35 <= sum(scores) <= 65
    assert _judge(store, always_first, others, order="balanced")[0] == scores
    reseeded, _ = _judge(store, always_first, pairs, order="balanced", seed=1)
    assert reseeded != scores


def test_adaptive_asks_again_after_ties_alone(store: Store) -> None:
    """A clear verdict in one order stands; a tie is asked in the other order too."""
    clear = [_pair(store, k, f"better {k}", f"plain {k}") for k in range(6)]
    tied = [_pair(store, k, f"plain {k}", f"other {k}") for k in range(3)]
    _, judge = _judge(store, prefers_better, [*clear, *tied], order="adaptive")
    shown = [in_words(battle.first) for battle in judge.asked]
    assert len(shown) == 6 + 2 * 3
    assert all(any(f"{name} {k}" in text for text in shown) for name in ("plain", "other")
               for k in range(3))  # fmt: skip


@pytest.mark.parametrize(
    ("winner", "first", "half", "lean"),
    [
        ("A", True, 1.0, 1.0), ("A", False, 0.0, 0.0),
        ("B", True, 0.0, 0.0), ("B", False, 1.0, 1.0),
        ("Tie(A)", True, 0.5, 1.0), ("Tie(A)", False, 0.5, 0.0),
        ("Tie(B)", True, 0.5, 0.0), ("Tie(B)", False, 0.5, 1.0),
    ],
)  # fmt: skip
def test_scores_of_verdicts(winner: Any, first: bool, half: float, lean: float) -> None:
    """For the candidate, where a tie is one half, and where it belongs to whom it leans to."""
    verdict = OrderedVerdict(first, winner)
    assert (verdict.score("half"), verdict.score("lean")) == (half, lean)


def test_no_verdict_is_asked_for_once_more_and_is_a_tie_then(store: Store) -> None:
    """With another seed; a battle of which a verdict failed twice is missing, with the failures."""
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


def test_a_judge_without_seeds_is_not_asked_twice(store: Store) -> None:
    """Its second answer would be its first."""
    judge = SmallJudge(lambda _, __: Failure("no-verdict", "neither"))
    pairs = [_pair(store, 0, "one", "two")]
    (outcome,) = judge_pairs(pairs, BattleRules(), runner(store, "judge", judge, seeded=False))
    assert (outcome.score, len(judge.asked)) == (0.5, 2)


@given(
    st.lists(st.sampled_from(WINNERS), min_size=2, max_size=2),
    st.sampled_from(["half", "lean"]),
)
def test_a_score_and_its_mirror_add_up(winners: list[Any], tie: TieName) -> None:
    """Whatever the verdicts, what one side gains the other loses."""
    for first, winner in zip((True, False), winners, strict=True):
        ours = OrderedVerdict(first, winner).score(tie)
        theirs = OrderedVerdict(not first, winner).score(tie)
        assert ours + theirs == 1.0
