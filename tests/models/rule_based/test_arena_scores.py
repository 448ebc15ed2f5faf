"""The rule-based judge that scores single answers: the truth on a scale to 10, and its faults."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

from pytest_cepbench.artifacts import Failure, ImageArtifact
from pytest_cepbench.artifacts.outcome import CRITERIA, CriteriaScores
from pytest_cepbench.datasets.shapes.arena import load_shapes_arena, score_answer, solve_sample
from pytest_cepbench.models.protocols import AnsweredQuestion, Battle
from tests.models.rule_based.test_arena_models import answer_all, asked, load, pieces

SAMPLES = load_shapes_arena(4).samples


def scored(spec: str, model: str, seed: int = 0) -> list[CriteriaScores]:
    """The scores that a judge gives to the answers of a model."""
    answers = answer_all(model, SAMPLES)
    shown = [
        AnsweredQuestion(asked(sample), pieces(answer))
        for sample, answer in zip(SAMPLES, answers, strict=True)
    ]
    scores: list[CriteriaScores] = load(spec, "judge").score_answers(shown, [seed] * len(shown))
    return scores


def numbers(scores: Sequence[CriteriaScores]) -> list[float]:
    """All numbers, criterion by criterion."""
    return [own.value(name) or 0.0 for own in scores for name in CRITERIA]


@pytest.mark.slow
@pytest.mark.parametrize("model", ["shapes:", "shapes:?miss=0.2&no_image=0.1&drift=0.5"])
def test_an_exact_judge_gives_the_rounded_truth(model: str) -> None:
    """Ten times each of the seven criteria, and every one of them."""
    import numpy as np

    for sample, answer, own in zip(
        SAMPLES, answer_all(model, SAMPLES), scored("shapes:", model), strict=True
    ):
        steps = [
            (s.text, None if s.image is None else ImageArtifact(np.asarray(s.image)))
            for s in answer
        ]
        truth = score_answer(solve_sample(sample), steps)
        for name in CRITERIA:
            assert abs((own.value(name) or 0.0) - 10 * getattr(truth, name)) <= 0.5 + 1e-9


@pytest.mark.slow
def test_a_judge_that_flips_gives_the_opposite_score_at_its_rate() -> None:
    """Each criterion by itself: ten less the right score, and nothing else."""
    right, wrong = (numbers(scored(s, "shapes:?miss=0.3")) for s in ("shapes:", "shapes:?flip=0.3"))
    pairs = [(a, b) for a, b in zip(right, wrong, strict=True) if a != 5]
    assert all(b in (a, 10 - a) for a, b in pairs)
    share = sum(a != b for a, b in pairs) / len(pairs)
    assert share == pytest.approx(0.3, abs=4 * (0.3 * 0.7 / len(pairs)) ** 0.5)
    assert scored("shapes:?flip=0.3", "shapes:", 1) != scored("shapes:?flip=0.3", "shapes:", 2)


@pytest.mark.slow
def test_a_judge_that_leans_to_length_gives_surplus_steps_a_point() -> None:
    """No more than ten, and none to an answer of the right length."""
    surplus = "shapes:?surplus=1&miss=0.3"
    right, long = (numbers(scored(spec, surplus)) for spec in ("shapes:", "shapes:?long=1"))
    assert Counter(b - a for a, b in zip(right, long, strict=True) if a < 10).keys() == {1.0}
    assert max(long) == 10
    assert scored("shapes:?long=1", "shapes:?miss=0.3") == scored("shapes:", "shapes:?miss=0.3")


def test_the_faults_of_a_seed_stay_what_they_are() -> None:
    """Results are stored under seed and knobs: other draws would be another judge's answers."""
    surplus = "shapes:?surplus=1&miss=0.3"
    right, wrong = (
        numbers(scored(spec, surplus)[:2]) for spec in ("shapes:", "shapes:?flip=0.3&long=0.6")
    )
    assert right == [6, 8, 10, 10, 10, 10, 10, 4, 9, 10, 10, 10, 10, 10]
    assert wrong == [7, 9, 10, 10, 0, 10, 10, 5, 10, 10, 10, 10, 10, 10]
    first, second = (answer_all(spec, SAMPLES[:1])[0] for spec in (surplus, "shapes:?miss=0.3"))
    battle = Battle(asked(SAMPLES[0]), pieces(first), pieces(second))
    judge = load("shapes:?flip=0.3&tie=0.3&first=0.3&long=0.3", "judge")
    assert " ".join(judge.judge([battle] * 12, list(range(12)))) == (
        "Tie(B) B Tie(A) Tie(A) Tie(B) Tie(B) Tie(B) Tie(B) Tie(B) B B B"
    )


def test_faults_of_order_and_ties_leave_scores_alone() -> None:
    """A single answer has no place, and no tie."""
    assert scored("shapes:?first=1&tie=1", "shapes:?miss=0.3") == scored(
        "shapes:", "shapes:?miss=0.3"
    )


def test_a_question_of_another_world_is_a_failure_of_its_own() -> None:
    """It has a reason, and the other answers of the batch are scored."""
    judge: Any = load("shapes:", "judge")
    foreign = AnsweredQuestion(["what is the weather like ?"], ["sunny"])
    known = AnsweredQuestion(asked(SAMPLES[0]), ["no shapes"])
    failed, fine = judge.score_answers([foreign, known], [0, 0])
    assert isinstance(failed, Failure)
    assert (failed.kind, "no question of the arena" in failed.detail) == ("no-score", True)
    assert fine.failures == []
