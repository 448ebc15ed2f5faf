"""Small roles for the tests of answers: real plug-ins whose results follow from their inputs alone.

Each notes every input it gets; a function given by the test makes one misbehave.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256
from typing import Any

from PIL import Image

from pytest_cepbench.artifacts import ImageArtifact
from pytest_cepbench.artifacts.answer import Answer, StoredStep
from pytest_cepbench.chains import RoleRunner
from pytest_cepbench.chains.answers.answer_plan import PieceRefs, refer_to_answer
from pytest_cepbench.chains.answers.answering import AnswerModels
from pytest_cepbench.datasets.sample import DrawnImage, GoldStep, Sample
from pytest_cepbench.models.protocols import (
    AnswerStep,
    Battle,
    Piece,
    Question,
    RoleName,
    StepLimit,
)
from pytest_cepbench.store import Store
from pytest_cepbench.store.answers import put_answers
from tests.artifacts.files import noise
from tests.chains.roles import bound


def picture(name: object) -> Any:
    """(6, 8, 3) pixels that name anything."""
    return noise(6, 8, seed=int.from_bytes(sha256(str(name).encode()).digest()[:8], "big"))


def digest_of(image: Image.Image) -> str:
    """Digest of an image as a model gets it."""
    return ImageArtifact.from_pil(image).digest


def in_words(pieces: Sequence[Piece]) -> str:
    """Texts as they are, images as the beginning of their digests."""
    return "|".join(p if isinstance(p, str) else digest_of(p)[:8] for p in pieces)


def write_three(pieces: Sequence[Piece], seed: int) -> Any:
    """Three steps with images, and a remark at the end."""
    name = f"{in_words(pieces)} {seed}"
    return f"first of {name} <IMG> second of {name} <IMG> third of {name} <IMG> the end of {name}"


@dataclass
class SmallWriter:
    """A writer. asked: the pieces of each question, in words."""

    answer: Callable[[Sequence[Piece], int], Any] = write_three
    asked: list[str] = field(default_factory=list)
    batches: list[int] = field(default_factory=list)

    def write(self, questions: Sequence[Question], prompt: str, seeds: Sequence[int]) -> Any:
        """One text per question."""
        self.asked += [
            in_words([prompt, *question] if prompt else question) for question in questions
        ]
        self.batches.append(len(questions))
        return [self.answer(*pair) for pair in zip(questions, seeds, strict=True)]


@dataclass
class SmallGenerator:
    """A generator whose pictures name text and seed. asked: the texts."""

    answer: Callable[[str, int], Any] = lambda text, seed: picture((text, seed))
    asked: list[str] = field(default_factory=list)

    def generate(self, texts: Sequence[str], seeds: Sequence[int]) -> Any:
        """One picture per text."""
        self.asked += texts
        return [self.answer(*pair) for pair in zip(texts, seeds, strict=True)]


@dataclass
class SmallEditor:
    """An editor whose pictures name image, text and seed. asked: digests of images, and texts."""

    answer: Callable[[str, str, int], Any] = lambda image, text, seed: picture((image, text, seed))
    asked: list[tuple[str, str]] = field(default_factory=list)

    def edit(
        self, images: Sequence[Image.Image], texts: Sequence[str], seeds: Sequence[int]
    ) -> Any:
        """One picture per image."""
        digests = [digest_of(image) for image in images]
        self.asked += zip(digests, texts, strict=True)
        return [self.answer(*parts) for parts in zip(digests, texts, seeds, strict=True)]


def two_steps(pieces: Sequence[Piece], _: StepLimit, seed: int) -> Any:
    """Two steps with texts and images."""
    name = f"{in_words(pieces)} {seed}"
    return [AnswerStep(f"{k} of {name}", picture((k, name))) for k in ("first", "second")]


@dataclass
class SmallInterleaver:
    """An interleaver. asked: its questions in words, and their limits."""

    answer: Callable[[Sequence[Piece], StepLimit, int], Any] = two_steps
    asked: list[tuple[str, StepLimit]] = field(default_factory=list)

    def interleave(
        self, questions: Sequence[Question], limits: Sequence[StepLimit], seeds: Sequence[int]
    ) -> Any:
        """One answer per question."""
        self.asked += zip(map(in_words, questions), limits, strict=True)
        return [self.answer(*parts) for parts in zip(questions, limits, seeds, strict=True)]


@dataclass
class SmallJudge:
    """A judge. asked: its battles."""

    verdict: Callable[[Battle, int], Any]
    asked: list[Battle] = field(default_factory=list)

    def judge(self, battles: Sequence[Battle], seeds: Sequence[int]) -> Any:
        """One verdict per battle."""
        self.asked += battles
        return [self.verdict(*pair) for pair in zip(battles, seeds, strict=True)]


def runner(store: Store, role: RoleName, model: Any, **changes: Any) -> RoleRunner:
    """A model at work in a role; changes: as of `bound`."""
    return RoleRunner(bound(role, model, **({"seeded": True, "batch_size": 8} | changes)), store)


def pipeline(
    store: Store, writer: Any, generator: Any, editor: Any = None, **changes: Any
) -> AnswerModels:
    """A writer with those that draw; changes: as of `runner`, of all of them."""
    return AnswerModels(
        store,
        writer=runner(store, "writer", writer, **changes),
        generator=runner(store, "generator", generator, **changes),
        editor=None if editor is None else runner(store, "editor", editor, **changes),
    )


def drawn(name: object) -> DrawnImage:
    """A seed image that is named by anything."""
    return DrawnImage(partial(_draw, name))


def _draw(name: object) -> ImageArtifact:
    return ImageArtifact(picture(name))


def question(number: int, *, gold: int = 0, image: bool = True) -> Sample:
    """A sample with a question. gold: steps of its reference answer."""
    return Sample(
        f"q{number:02}",
        ("c",),
        question=(f"question {number}", *((drawn(number),) if image else ())),
        gold=tuple(GoldStep(f"gold {k}", drawn((number, k))) for k in range(gold)),
    )


def questions(count: int, *, gold: int = 0, image: bool = True) -> list[Sample]:
    """Samples with a question each."""
    return [question(number, gold=gold, image=image) for number in range(count)]


def stored_answer(store: Store, *texts: str) -> PieceRefs:
    """An answer with a step for each text, and a picture that names it."""
    steps = [StoredStep(t, store.put_artifact(ImageArtifact(picture(t)))) for t in texts]
    answer = Answer(tuple(steps))
    put_answers(store, [answer])
    return refer_to_answer(answer, "an answer")
