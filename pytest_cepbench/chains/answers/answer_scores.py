"""Scores of single answers by criteria: steps of the judge, made once and stored like verdicts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pytest_cepbench.artifacts.outcome import CriteriaScores
from pytest_cepbench.chains.answers.piece_refs import PieceRefs
from pytest_cepbench.chains.chain_plan import derive_seed
from pytest_cepbench.chains.role_runner import RoleRunner
from pytest_cepbench.chains.steps import Step, key_of
from pytest_cepbench.models.protocols import AnsweredQuestion
from pytest_cepbench.models.text_model.scores import SCORE_PROMPT


@dataclass(frozen=True)
class StoredAnswer:
    """An answer that is to be scored.

    sample: id of the question's sample.
    question, answer: their pieces.
    """

    sample: str
    question: PieceRefs
    answer: PieceRefs


def score_answers(
    answers: Sequence[StoredAnswer], run_seed: int, judge: RoleRunner
) -> list[CriteriaScores]:
    """The scores of each answer.

    Where a criterion has none, the judge is asked once more with another seed, and what it gives
    then fills the gaps; the scores that it gave at first stay.

    run_seed: of the judge.
    Raises DamagedInputsError with the places of answers whose images are damaged, ModelError,
    CheckpointError, StoreError.
    """
    scores = judge.score_steps([_step(answer, run_seed, judge, again=False) for answer in answers])
    lacking = [number for number, own in enumerate(scores) if own.failures]
    if lacking and judge.bound.seeded:
        steps = [_step(answers[number], run_seed, judge, again=True) for number in lacking]
        for number, more in zip(lacking, judge.score_steps(steps), strict=True):
            scores[number] = scores[number].filled_from(more)
    return scores


def score_key(
    answer: StoredAnswer, run_seed: int, judge: RoleRunner, *, again: bool
) -> tuple[str, int]:
    """Key and seed of an answer's scores. again: whether a score was missing the first time."""
    seed = derive_seed(run_seed, answer.sample, int(again))
    parts = (("question", answer.question), ("answer", answer.answer))
    inputs = [[part, kind, digest] for part, refs in parts for kind, digest in refs.inputs]
    return key_of(judge.bound, SCORE_PROMPT, seed, inputs), seed


def _step(answer: StoredAnswer, run_seed: int, judge: RoleRunner, *, again: bool) -> Step:
    key, seed = score_key(answer, run_seed, judge, again=again)

    def load() -> AnsweredQuestion | None:
        question, pieces = answer.question.load(judge.store), answer.answer.load(judge.store)
        if question is None or pieces is None:
            return None
        return AnsweredQuestion(question, pieces)

    return Step(key, seed, load)
