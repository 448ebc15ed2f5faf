"""The rule-based VQA model of the shapes world: questions about a picture or a caption."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pytest_cepbench.artifacts import Failure, ImageArtifact
from pytest_cepbench.datasets.shapes import parse_caption, parse_image
from pytest_cepbench.datasets.shapes.degrade import Knobs
from pytest_cepbench.datasets.shapes.questions import answer_question
from pytest_cepbench.models.protocols import Piece, VqaQuestion


@dataclass(frozen=True)
class VqaKnobs(Knobs):
    """Faults of a VQA model, numbers in [0, 1].

    yes: probability that it keeps for "yes", whatever it is shown; 1 says yes to all.
    doubt: probability that it takes away from each of its answers, and gives to none.
    Raises ValueError naming the knob that is out of range.
    """

    yes: float = 0.0
    doubt: float = 0.0


@dataclass(frozen=True)
class ShapesVqa:
    """Answers questions of the world's grammar by its rules, degraded by its parameters."""

    knobs: VqaKnobs

    def answer(
        self, pieces: Sequence[Piece], questions: Sequence[Sequence[VqaQuestion]]
    ) -> list[list[float] | Failure]:
        """Probabilities of the answers that are looked for; a failure for a foreign question."""
        return [self._single(*pair) for pair in zip(pieces, questions, strict=True)]

    def _single(self, piece: Piece, questions: Sequence[VqaQuestion]) -> list[float] | Failure:
        if isinstance(piece, str):
            scene = parse_caption(piece)
        else:
            scene = parse_image(ImageArtifact.from_pil(piece))
        probabilities = []
        for question in questions:
            right = answer_question(scene, question.text)
            if right is None:
                return Failure("refused", f"no question of the shapes world: {question.text!r:.80}")
            wanted = {answer.strip().lower() for answer in question.answers}
            seen, agreed = float(right in wanted), float("yes" in wanted)
            mixed = (1.0 - self.knobs.yes) * seen + self.knobs.yes * agreed
            probabilities.append(mixed * (1.0 - self.knobs.doubt))
        return probabilities
