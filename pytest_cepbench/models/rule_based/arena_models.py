"""The rule-based interleaver, writer and judge: questions of the arena to answers and verdicts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, TypeVar

import numpy as np

from pytest_cepbench.artifacts import Failure, ImageArtifact, digest_json
from pytest_cepbench.artifacts.answer import STEP_END
from pytest_cepbench.artifacts.outcome import (
    CRITERIA,
    HIGHEST_SCORE,
    WINNERS,
    CriteriaScores,
    FailureKind,
    Winner,
)
from pytest_cepbench.datasets.shapes.arena import (
    ARENA_VERSION,
    TRUTH_VERSION,
    AnswerDegradation,
    ArenaStep,
    Truth,
    WriterDegradation,
    degraded_answer,
    read_question,
    score_answer,
    solve,
)
from pytest_cepbench.datasets.shapes.degrade import Knobs
from pytest_cepbench.errors import DatasetError
from pytest_cepbench.models.protocols import (
    AnsweredQuestion,
    AnswerStep,
    Battle,
    Piece,
    Question,
    StepLimit,
)
from pytest_cepbench.models.rule_based.scene_models import summarize_patterns

T = TypeVar("T")

MARGIN = 0.02
"""Answers whose truth differs by no more are tied."""


@dataclass(frozen=True)
class ShapesInterleaver:
    """Answers questions of the arena with captions and drawings, degraded by its parameters."""

    versions: ClassVar = {"arena": ARENA_VERSION}
    knobs: AnswerDegradation

    def interleave(
        self, questions: Sequence[Question], limits: Sequence[StepLimit], seeds: Sequence[int]
    ) -> list[tuple[AnswerStep, ...] | Failure]:
        """The steps of each answer; a failure for a question that is none of the arena."""

        def answer(question: Question, limit: StepLimit, seed: int) -> tuple[AnswerStep, ...]:
            solution = solve(read_question(_artifacts(question)))
            steps = degraded_answer(solution, self.knobs, seed, limit.told, limit.most)
            drawn = ((text, None if image is None else image.pixels) for text, image in steps)
            return tuple(AnswerStep(*step) for step in drawn)

        return _answer_each(answer, "refused", questions, limits, seeds)


@dataclass(frozen=True)
class ShapesWriter:
    """Answers questions of the arena with captions, degraded by its parameters.

    With the same seed and knobs it writes what the interleaver writes.
    """

    versions: ClassVar = {"arena": ARENA_VERSION}
    knobs: WriterDegradation

    def write(
        self,
        questions: Sequence[Question],
        prompt: str,  # noqa: ARG002 - the Protocol's; there is one way to answer a question
        seeds: Sequence[int],
    ) -> list[str | Failure]:
        """The captions of each answer's steps, each ended by `STEP_END`; a failure as above."""
        knobs = AnswerDegradation(**asdict(self.knobs), no_image=1.0)

        def answer(question: Question, seed: int) -> str:
            steps = degraded_answer(solve(read_question(_artifacts(question))), knobs, seed)
            return " ".join(f"{text} {STEP_END}" for text, _ in steps)

        return _answer_each(answer, "refused", questions, seeds)

    def write_json(
        self,
        questions: Sequence[Question],
        prompt: str,  # noqa: ARG002 - as above
        schema: Mapping[str, Any],
        seeds: Sequence[int],  # noqa: ARG002 - a summary has no knob
    ) -> list[str | Failure]:
        """Summaries of patterns, as JSON; a failure for any other question."""
        return [summarize_patterns(question, schema) for question in questions]


@dataclass(frozen=True)
class JudgeKnobs(Knobs):
    """Probabilities in [0, 1] of the faults of a judge; the last one acts first.

    flip: that the verdict becomes its opposite; that a score becomes 10 less itself.
    tie: that it becomes a tie, which leans to the side it was on. Not of scores.
    first: that it moves one place, of the four, towards the first answer. Not of scores.
    Raises ValueError naming the knob that is out of range.
    """

    flip: float = 0.0
    tie: float = 0.0
    first: float = 0.0


@dataclass(frozen=True)
class ShapesJudge:
    """Solves the question itself, and prefers the answer that is nearer to the truth.

    A difference of up to `MARGIN` is a tie that leans to the better answer, and equal truth one
    that leans to either, as the digest of the two answers has it.
    """

    versions: ClassVar = {"arena": ARENA_VERSION, "truth": TRUTH_VERSION, "margin": str(MARGIN)}
    knobs: JudgeKnobs

    def judge(self, battles: Sequence[Battle], seeds: Sequence[int]) -> list[Winner | Failure]:
        """A verdict on each battle; a failure for a question that is none of the arena."""
        known: dict[str, Truth] = {}

        def judge(battle: Battle, seed: int) -> Winner:
            first, first_digest = _truth(battle.question, battle.first, known)
            second, second_digest = _truth(battle.question, battle.second, known)
            digests = (first_digest, second_digest)
            # Sums of other roundings are equal all the same.
            place = _place(round(first.total - second.total, 9), digests)
            if self.knobs.turned:
                source = _source(seed, _STREAM, digest_json(digests))
                # They are laid out in this order: a new knob goes to the end.
                flip, tie, moved = source.random(3).tolist()
                if moved < self.knobs.first:
                    place = max(place - 1, _FIRST)
                if tie < self.knobs.tie:
                    place = _TIE_FIRST if place <= _TIE_FIRST else _TIE_SECOND
                if flip < self.knobs.flip:
                    place = _SECOND - place
            return WINNERS[place]

        return _answer_each(judge, "no-verdict", battles, seeds)

    def score_answers(
        self, answers: Sequence[AnsweredQuestion], seeds: Sequence[int]
    ) -> list[CriteriaScores | Failure]:
        """The truth of each answer, times 10 and rounded; a failure for a foreign question."""
        known: dict[str, Truth] = {}

        def score(answered: AnsweredQuestion, seed: int) -> CriteriaScores:
            truth, digest = _truth(answered.question, answered.answer, known)
            scores: dict[str, int] = {
                name: round(HIGHEST_SCORE * getattr(truth, name)) for name in CRITERIA
            }
            if self.knobs.turned:
                source = _source(seed, _SCORE_STREAM, digest)
                draws = source.random((len(CRITERIA), 2))[:, 0]  # in pairs, as of stored scores
                for name, flip in zip(CRITERIA, draws.tolist(), strict=True):
                    if flip < self.knobs.flip:
                        scores[name] = HIGHEST_SCORE - scores[name]
            return CriteriaScores.of(scores)

        return _answer_each(score, "no-score", answers, seeds)


def _answer_each(
    answer: Callable[..., T], kind: FailureKind, *columns: Sequence[Any]
) -> list[T | Failure]:
    """The answer to each row; a failure of the kind for a question that is none of the arena."""

    def attempt(*row: Any) -> T | Failure:
        try:
            return answer(*row)
        except DatasetError as error:
            return Failure(kind, str(error))

    return [attempt(*row) for row in zip(*columns, strict=True)]


def _source(seed: int, stream: int, digest: str) -> np.random.Generator:
    entropy = (seed, stream, int(digest, 16))
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(entropy)))


def _truth(
    question: Question, answer: Sequence[Piece], known: dict[str, Truth]
) -> tuple[Truth, str]:
    """The truth of an answer whose texts are captions, of one step each, and the answer's digest.

    So a step ends before a text, too, and not after its image alone: of two texts in a row the
    first is a step without an image.

    known: what was found before: both orders of a battle are often in one batch.
    Raises DatasetError for a question that is none of the arena.
    """
    steps: list[ArenaStep] = []
    for piece in _artifacts(answer):
        if isinstance(piece, str):
            steps.append((piece, None))
        elif steps and steps[-1][1] is None:
            steps[-1] = (steps[-1][0], piece)
        else:
            steps.append(("", piece))
    digest = digest_json([[text, None if image is None else image.digest] for text, image in steps])
    asked = _artifacts(question)
    key = digest_json([[p if isinstance(p, str) else p.digest for p in asked], digest])
    if key not in known:
        known[key] = score_answer(solve(read_question(asked)), steps)
    return known[key], digest


_FIRST, _TIE_FIRST, _TIE_SECOND, _SECOND = range(len(WINNERS))


def _place(lead: float, digests: tuple[str, str]) -> int:
    """The place in `WINNERS` of an exact verdict, given the first answer's lead in truth."""
    if abs(lead) > MARGIN:
        return _FIRST if lead > 0 else _SECOND
    if lead == 0:
        # The same of the two answers whichever comes first, and each of them equally often.
        preferred = sorted(digests)[int(digest_json(sorted(digests)), 16) % 2]
        lead = 1.0 if preferred == digests[0] else -1.0
        if digests[0] == digests[1]:
            lead = 1.0 if int(digests[0], 16) % 2 else -1.0
    return _TIE_FIRST if lead > 0 else _TIE_SECOND


_STREAM, _SCORE_STREAM = 3, 4  # apart from the draws of answers, which may have the same seeds


def _artifacts(pieces: Sequence[Piece]) -> list[str | ImageArtifact]:
    return [piece if isinstance(piece, str) else ImageArtifact.from_pil(piece) for piece in pieces]
