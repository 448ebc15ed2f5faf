"""Scores of single answers as steps of the judge: stored, asked once more, never made up."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from pytest_cepbench.artifacts import Failure
from pytest_cepbench.artifacts.outcome import CRITERIA, CriteriaScores
from pytest_cepbench.chains.answers.answer_plan import refer_to_question
from pytest_cepbench.chains.answers.battles import StoredAnswer, score_answers, score_key
from pytest_cepbench.errors import DamagedInputsError, ModelError
from pytest_cepbench.models.protocols import AnsweredQuestion, Reply
from pytest_cepbench.store import Store, StoredResult
from tests.chains.answers.roles import in_words, question, runner, stored_answer

SEVEN: dict[str, Any] = dict.fromkeys(CRITERIA, 6)


@dataclass
class SmallScorer:
    """A judge that scores alone. asked: its answers, with their seeds; batches: their numbers."""

    score: Callable[[AnsweredQuestion, int], Any]
    asked: list[tuple[AnsweredQuestion, int]] = field(default_factory=list)
    batches: list[int] = field(default_factory=list)

    def judge(self, battles: Sequence[Any], seeds: Sequence[int]) -> Any:
        """No battle is fought here."""
        raise AssertionError

    def score_answers(self, answers: Sequence[AnsweredQuestion], seeds: Sequence[int]) -> Any:
        """One set of scores per answer."""
        self.asked += zip(answers, seeds, strict=True)
        self.batches.append(len(answers))
        return [self.score(*pair) for pair in zip(answers, seeds, strict=True)]


def by_length(answered: AnsweredQuestion, _: int) -> Any:
    """More for an answer of more pieces."""
    return SEVEN | {"richness": min(len(answered.answer), 10)}


def _answer(store: Store, number: int, *texts: str) -> StoredAnswer:
    sample = question(number)
    return StoredAnswer(sample.id, refer_to_question(sample, store), stored_answer(store, *texts))


def _score(
    store: Store, answers: Sequence[StoredAnswer], judge: SmallScorer, **changes: Any
) -> list[CriteriaScores]:
    return score_answers(answers, 0, runner(store, "judge", judge, **changes))


def test_each_answer_is_scored_behind_its_question(store: Store) -> None:
    """In batches; the judge sees question and answer as texts and images."""
    answers = [_answer(store, k, *(f"{k}-{i}" for i in range(k + 1))) for k in range(3)]
    judge = SmallScorer(by_length)
    scores = _score(store, answers, judge, batch_size=2)
    assert [own.value("richness") for own in scores] == [2.0, 4.0, 6.0]
    assert sorted(judge.batches) == [1, 2]
    shown = [in_words(answered.question) for answered, _ in judge.asked]
    assert [text.split("|")[0] for text in shown] == ["question 0", "question 1", "question 2"]
    assert in_words(judge.asked[0][0].answer).startswith("0-0|")


def test_stored_scores_cost_no_call(store: Store) -> None:
    """Another question, another answer, another judge or another run's seed are scored anew."""
    answers, judge = [_answer(store, 0, "x"), _answer(store, 0, "x")], SmallScorer(by_length)
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
    judge = SmallScorer(unsure)
    mute, partly = _score(store, [_answer(store, 0, "mute"), _answer(store, 1, "partly")], judge)
    assert [mute.value("quality"), mute.value("preference")] == [1.0, 6.0]
    assert [partly.value("quality"), partly.value("preference")] == [2.0, 6.0]
    assert len(judge.asked) == 4


def test_what_fails_twice_is_a_failure_and_no_zero(store: Store) -> None:
    """Of the criterion alone, or of all of them where there was no reply to be read."""
    judge = SmallScorer(
        lambda answered, _: (
            Failure("no-score", "nothing")
            if "mute" in in_words(answered.answer)
            else SEVEN | {"quality": -1}
        )
    )
    mute, partly = _score(store, [_answer(store, 0, "mute"), _answer(store, 1, "partly")], judge)
    assert [mute.value(name) for name in CRITERIA] == [None] * 7
    assert [name for name in CRITERIA if partly.value(name) is None] == ["quality"]
    assert len(judge.asked) == 4


def test_a_judge_without_seeds_is_not_asked_twice(store: Store) -> None:
    """Its second reply would be its first."""
    judge = SmallScorer(lambda _, __: {"quality": 3})
    (scores,) = _score(store, [_answer(store, 0, "x")], judge, seeded=False)
    assert (len(scores.failures), len(judge.asked)) == (6, 1)


def test_a_passing_failure_is_asked_again_by_the_next_run(store: Store) -> None:
    """A server that was down says nothing about an answer."""
    down = SmallScorer(lambda _, __: Reply(Failure("unanswered", "down"), passing=True))
    answers = [_answer(store, 0, "x")]
    assert _score(store, answers, down)[0].failures[0].kind == "unanswered"
    assert _score(store, answers, SmallScorer(by_length))[0].failures == []


@pytest.mark.parametrize(
    ("value", "message"),
    [(7, "CriteriaScores or numbers by criterion .* returned 7"),
     ("fine", "returned 'fine'"),
     ({"qualty": 7}, "Did you mean 'quality'")],
)  # fmt: skip
def test_what_is_no_set_of_scores_is_an_error(store: Store, value: Any, message: str) -> None:
    """One line that says what a judge of the user's own has to return."""
    with pytest.raises(ModelError, match=message):
        _score(store, [_answer(store, 0, "x")], SmallScorer(lambda _, __: value))


def test_damaged_images_are_named_by_the_place_of_their_answer(store: Store) -> None:
    """So that they are made again, like those of battles."""
    answers = [_answer(store, 0, "x"), _answer(store, 1, "y")]
    (digest,) = [digest for kind, digest in answers[1].answer.inputs if kind == "image"]
    store.image_path(digest).write_bytes(b"no image")
    store.image_cache.clear()
    with pytest.raises(DamagedInputsError) as caught:
        _score(store, answers, SmallScorer(by_length))
    assert caught.value.indices == (1,)


def test_scores_in_a_store_that_cannot_be_read_are_failures(store: Store) -> None:
    """A shared store may hold anything under a key; nothing is raised, and nothing passes as 0."""
    answer, judge = _answer(store, 0, "x"), SmallScorer(by_length)
    work = runner(store, "judge", judge, seeded=False)
    key, _ = score_key(answer, 0, work, again=False)
    store.put([StoredResult(key, "ten out of ten")])
    (scores,) = score_answers([answer], 0, work)
    assert [scores.value(name) for name in CRITERIA] == [None] * 7
    assert "ten out of ten" in scores.failures[0].detail
