"""An interleaver of your own: `python:interleaver:load?path=FOLDER`, around a repository's model.

Models that write and draw in one answer mostly come as repositories with their own code. Copy this
file and replace `load_repository` by their imports and calls: it takes the checkpoint's folder and
returns a function that answers a question with texts and images in reading order. The stand-in here
reads a list of colors from `colors.txt` and answers with one square of each.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from hashlib import sha256
from pathlib import Path

import numpy as np
from PIL import Image

from pytest_cepbench import AnswerStep, Failure, StepLimit

CODE_VERSION = "my-interleaver/1"  # raise it when the code below would answer differently

Answer = Callable[
    [list[str | Image.Image], int | None, np.random.Generator], list[str | Image.Image]
]


def load_repository(folder: Path) -> Answer:
    """The stand-in: replace it by the code of your model."""
    colors = (folder / "colors.txt").read_text(encoding="utf-8").split()

    def answer(
        question: list[str | Image.Image], steps: int | None, source: np.random.Generator
    ) -> list[str | Image.Image]:
        count = int(source.integers(1, len(colors) + 1)) if steps is None else steps
        parts: list[str | Image.Image] = []
        for index in range(count):
            color = colors[index % len(colors)]
            parts += [f"Step {index + 1} is {color}.", Image.new("RGB", (32, 32), color)]
        return parts

    return answer


class MyInterleaver:
    """Answers questions in steps; loads its weights with the first question."""

    seeded = True
    batch_size = 4

    def __init__(self, path: str) -> None:
        self.folder = Path(path)
        # The paths and contents of all that the repository's code reads decide the answers.
        self.files = sorted(file for file in self.folder.rglob("*") if file.is_file())
        contents = [f"{file.name} {sha256(file.read_bytes()).hexdigest()}" for file in self.files]
        self.fingerprint = f"{CODE_VERSION} {sha256(' '.join(contents).encode()).hexdigest()}"
        self._answer: Answer | None = None

    def interleave(
        self,
        questions: Sequence[Sequence[str | Image.Image]],
        limits: Sequence[StepLimit],
        seeds: Sequence[int],
    ) -> list[list[AnswerStep] | Failure]:
        """Steps for each question, from its own random numbers, or why there are none."""
        if self._answer is None:
            self._answer = load_repository(self.folder)
        answers: list[list[AnswerStep] | Failure] = []
        for question, limit, seed in zip(questions, limits, seeds, strict=True):
            parts = self._answer(list(question), limit.told, np.random.default_rng(seed))
            steps = cut_into_steps(parts)[: limit.most]
            answers.append(steps or Failure("empty-text", "no text and no image"))
        return answers


def cut_into_steps(parts: Sequence[str | Image.Image]) -> list[AnswerStep]:
    """A step ends after its image; texts after the last image are a step without one."""
    steps: list[AnswerStep] = []
    texts: list[str] = []
    for part in parts:
        if isinstance(part, str):
            texts.append(part)
        else:
            steps.append(AnswerStep("\n".join(texts), part))
            texts = []
    return [*steps, AnswerStep("\n".join(texts))] if texts else steps


def load(path: str) -> MyInterleaver:
    """The factory that the spec names; parameters of the spec arrive as strings."""
    return MyInterleaver(path)
