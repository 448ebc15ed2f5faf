"""Answer plans: how a suite asks for interleaved answers, and how their battles are judged."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pytest_cepbench.artifacts.answer import MOST_STEPS, STEP_END
from pytest_cepbench.datasets.sample import Sample
from pytest_cepbench.errors import DatasetError
from pytest_cepbench.models.protocols import StepLimit

STEP_PLACEHOLDER, QUESTION_PLACEHOLDER = "{step}", "{question}"

TOLD = "The number of generated text-image pairs can be {number}: "
"""Stands before a question whose answer's number of steps is told. Source: OpenING's scripts."""

OrderName = Literal["both", "balanced", "adaptive"]

TieName = Literal["half", "lean"]

ScoreName = Literal["verdict", "soft"]

SURE = 0.75
"""The probability of a verdict from which on one order is enough, where orders are adaptive."""


@dataclass(frozen=True)
class AnswerPlan:
    """How the questions of a suite are asked.

    steps: "free", the model decides how many; "gold", it is told the reference answer's number, as
        OpenING's published scripts do; or the number that it is told.
    most: an answer is cut after so many steps.
    seed: the run's seed, from which every step's seed is derived.
    system: the writer's system prompt.
    image, edit: what generator and editor draw a step from.
    """

    steps: Literal["free", "gold"] | int = "free"
    most: int = MOST_STEPS
    seed: int = 0
    system: str = ""
    image: str = STEP_PLACEHOLDER
    edit: str = STEP_PLACEHOLDER

    def limit(self, sample: Sample) -> StepLimit:
        """How many steps the answer to a sample's question may have.

        Raises DatasetError where the reference answer's number is to be told and there is none.
        """
        if self.steps == "free":
            return StepLimit(None, self.most)
        if self.steps == "gold" and not sample.gold:
            raise DatasetError(
                f"{sample.id}: has no reference answer, whose number of steps is to be told: use "
                'a data set that has them, or steps = "free" under [answer]'
            )
        told = len(sample.gold) if self.steps == "gold" else self.steps
        return StepLimit(min(told, self.most), self.most)

    def preface(self, sample: Sample) -> str:
        """What a writer is told before the question; empty where nothing is told."""
        told = self.limit(sample).told
        return "" if told is None else TOLD.format(number=told)

    def drawing_prompt(self, prompt: str, step: str, sample: Sample) -> str:
        """The prompt for a step's image. prompt: `image` or `edit`."""
        texts = (piece for piece in sample.question if isinstance(piece, str))
        asked = "\n".join(texts) if QUESTION_PLACEHOLDER in prompt else ""
        # One pass: a step's text may hold the other placeholder.
        parts = prompt.split(STEP_PLACEHOLDER)
        return step.join(part.replace(QUESTION_PLACEHOLDER, asked) for part in parts)

    def __str__(self) -> str:
        return f"{self.steps} steps, at most {self.most}, seed {self.seed}"


def parts_of(text: str, limit: StepLimit) -> tuple[list[tuple[str, bool]], int]:
    """The steps of a writer's text: (text, whether it is to have an image), and how many were cut.

    Where the number was told, so many steps have an image and the others keep their text; else
    those whose text the writer ended with the marker of an image. Blank parts are no steps.
    """
    *marked, last = text.split(STEP_END)
    parts = [(part.strip(), True) for part in marked] + [(last.strip(), False)]
    parts = [(part, drawn) for part, drawn in parts if part]
    if limit.told is not None:
        parts = [(part, number < limit.told) for number, (part, _) in enumerate(parts)]
    return parts[: limit.most], max(0, len(parts) - limit.most)


@dataclass(frozen=True)
class BattleRules:
    """How two answers to a question are compared by a judge.

    order: "both" asks with each answer first, and the score is the mean of the two; "balanced" asks
        once, and which answer is first alternates by the digest of the sample's id; "adaptive" asks
        for the second order only where the first verdict was a tie, or the judge gave it a
        probability below `SURE`.
    tie: a tie counts one half, or all for the answer that it leans to.
    seed: of the judge.
    score: "verdict" scores a battle by the verdict; "soft" by the mean of the four verdicts' scores
        under the probabilities that the judge gives them.
    """

    order: OrderName = "both"
    tie: TieName = "half"
    seed: int = 0
    score: ScoreName = "verdict"

    @property
    def reads_probabilities(self) -> bool:
        """Whether a battle's outcome can depend on the judge's probabilities."""
        return self.score == "soft" or self.order == "adaptive"

    def __str__(self) -> str:
        order = f"adaptive below {SURE}" if self.order == "adaptive" else self.order
        soft = ", soft scores" if self.score == "soft" else ""
        return f"order {order}, tie {self.tie}, seed {self.seed}{soft}"
