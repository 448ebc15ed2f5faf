"""VQA models of the shapes world with faults, as a user writes them: `python:` specs name them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from pytest_cepbench.artifacts import Failure, digest_json
from pytest_cepbench.models.protocols import Piece, VqaQuestion
from pytest_cepbench.models.rule_based.scene_models import ShapesVqa, VqaKnobs

Answer = Callable[[Piece, VqaQuestion, float], float]
"""What is shown, what is asked, the exact model's answer -> the probability of the right answer."""


@dataclass(frozen=True)
class Answerer:
    """A VQA model that makes its answers of the exact model's.

    reads: whether it can be asked about texts.
    """

    fingerprint: str
    answer_of: Answer
    reads: bool = True

    def answer(
        self, pieces: Sequence[Piece], questions: Sequence[Sequence[VqaQuestion]]
    ) -> list[list[float] | Failure]:
        """A probability for every question."""
        exact: Any = ShapesVqa(VqaKnobs()).answer(pieces, questions)
        return [
            Failure("refused", "texts are not for me")
            if isinstance(piece, str) and not self.reads
            else [self.answer_of(piece, q, right) for q, right in zip(asked, own, strict=True)]
            for piece, asked, own in zip(pieces, questions, exact, strict=True)
        ]


def _wants(question: VqaQuestion, word: str) -> float:
    return float(word in question.answers)


def says_no() -> Answerer:
    """No to all."""
    return Answerer("says no/1", lambda _, question, __: _wants(question, "no"))


def half() -> Answerer:
    """One half to every answer that is looked for."""
    return Answerer("half/1", lambda *_: 0.5)


def likely() -> Answerer:
    """Any answer that is looked for."""
    return Answerer("likely/1", lambda *_: 0.9)


def noisy(wrong: str = "0.25") -> Answerer:
    """Wrong about a share of all pairs of an artifact and a question."""

    def answer(piece: Piece, question: VqaQuestion, right: float) -> float:
        shown = piece if isinstance(piece, str) else piece.tobytes().hex()
        drawn = int(digest_json([shown, question.text])[:8], 16) / 16**8
        return 1.0 - right if drawn < float(wrong) else right

    return Answerer(f"noisy/1/{wrong}", answer)


def yes_to_pictures() -> Answerer:
    """Exact about texts; of every picture it says yes."""
    return Answerer(
        "yes to pictures/1",
        lambda piece, question, right: right if isinstance(piece, str) else _wants(question, "yes"),
    )


def looks_only(says: str = "") -> Answerer:
    """One that cannot be asked about texts. says: to every picture; what it shows if empty."""
    return Answerer(
        f"looks only/1/{says}",
        lambda _, question, right: _wants(question, says) if says else right,
        reads=False,
    )
