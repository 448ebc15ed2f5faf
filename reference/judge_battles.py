"""Write the battles of `suites/judge`: one to each question of the arena of shapes, with its truth.

    python reference/judge_battles.py                      # suites/judge/battles.jsonl

Half of the answers have faults that the judge in reference/ was taught, half have the others.
Training leaves out all of these questions.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
from battles import SEEN_FAULTS, UNSEEN_FAULTS, Answered, draw_answer, draw_knobs, verdict_place
from lessons import Lesson

from pytest_cepbench.artifacts import ImageArtifact
from pytest_cepbench.artifacts.outcome import WINNERS
from pytest_cepbench.datasets.judged_battles import FILE_NAME
from pytest_cepbench.datasets.sample import Sample
from pytest_cepbench.datasets.shapes import caption, render
from pytest_cepbench.datasets.shapes.arena import (
    AnswerDegradation,
    ArenaStep,
    load_shapes_arena,
    read_question,
    sample_scenes,
    solve_sample,
)
from pytest_cepbench.datasets.shapes.arena.solver import phrase_instruction

SUITE = Path(__file__).parents[1] / "suites" / "judge"

_APART = 0.4  # the largest difference of truth that is aimed at
_CANDIDATES = 8
_JITTERS = 10_000


def main() -> None:
    """Write the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=SUITE / FILE_NAME, help="the table")
    parser.add_argument("--samples", type=int, default=24, help="battles of each category")
    parser.add_argument("--seed", type=int, default=0, help="of the answers")
    options = parser.parse_args()
    rng = np.random.default_rng((options.seed, 4))
    samples = load_shapes_arena(options.samples, seed=0).samples
    lines = [
        json.dumps(battle_line(sample, rng, seen=number % 2 == 0))
        for number, sample in enumerate(samples)
    ]
    options.out.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def battle_line(sample: Sample, rng: np.random.Generator, *, seen: bool) -> dict[str, Any]:
    """A line of the table: two answers to a sample's question, and the truth's verdict.

    seen: which kinds of faults both answers have.
    """
    pieces = [piece if isinstance(piece, str) else piece.load() for piece in sample.question]
    question = read_question(pieces)
    text = phrase_instruction(question.instruction)
    lesson = Lesson(question, text, solve_sample(sample).scenes)
    faults = SEEN_FAULTS if seen else UNSEEN_FAULTS
    (first, one), (second, other) = _pair(lesson, rng, faults)
    jitter = int(rng.integers(_JITTERS))
    scenes = sample_scenes(sample)[: len(question.scenes)]
    shown = [{"drawing": caption(scene), "jitter": jitter} for scene in scenes]
    lead = round(_total(first) - _total(second), 9)
    return {
        "id": sample.id,
        "category": sample.categories[0],
        "verdict": WINNERS[verdict_place(lead)],
        "question": [*shown, {"text": text}],
        "first": _steps(first, one),
        "second": _steps(second, other),
    }


def _pair(
    lesson: Lesson, rng: np.random.Generator, faults: tuple[str, ...]
) -> list[tuple[Answered, int]]:
    """Two answers whose difference of truth is nearest to one drawn, each with its jitter."""
    aimed = rng.uniform(0.0, _APART)
    while True:
        candidates = []
        for _ in range(_CANDIDATES):
            jitter = int(rng.integers(_JITTERS))
            answer = draw_answer(lesson, AnswerDegradation(**draw_knobs(rng, faults)), jitter)
            candidates += [] if answer is None else [(answer, jitter)]
        pairs = [
            [first, second]
            for first in candidates
            for second in candidates
            if _total(first[0]) != _total(second[0])
        ]
        if pairs:
            return min(
                pairs, key=lambda pair: abs(abs(_total(pair[0][0]) - _total(pair[1][0])) - aimed)
            )[:: 1 if rng.random() < 0.5 else -1]


def _steps(answer: Answered, jitter: int) -> list[dict[str, Any]]:
    pairs = zip(answer.steps, answer.shown, strict=True)
    return [_step(step, scene, jitter) for step, scene in pairs]


def _step(step: ArenaStep, scene: Any, jitter: int) -> dict[str, Any]:
    text, image = step
    written: dict[str, Any] = {"text": text} if text else {}
    if isinstance(image, ImageArtifact):
        assert render(scene, jitter).digest == image.digest
        written |= {"drawing": caption(scene), "jitter": jitter}
    return written


def _total(answer: Answered) -> float:
    assert answer.truth is not None
    return answer.truth.total


if __name__ == "__main__":
    main()
