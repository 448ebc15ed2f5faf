"""Small roles for the tests of answers: real plug-ins whose results follow from their inputs alone.

A function given by the test makes one misbehave.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
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
    AnsweredQuestion,
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
from tests.chains.roles import SmallRole, bound


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


def two_steps(pieces: Sequence[Piece], _: StepLimit, seed: int) -> Any:
    """Two steps with texts and images."""
    name = f"{in_words(pieces)} {seed}"
    return [AnswerStep(f"{k} of {name}", picture((k, name))) for k in ("first", "second")]


@dataclass
class SmallWriter(SmallRole):
    """A writer. asked: the pieces of each question, in words."""

    answer: Callable[..., Any] = write_three

    def write(self, questions: Sequence[Question], prompt: str, seeds: Sequence[int]) -> Any:
        """One text per question."""
        before = [prompt] if prompt else []
        return self.reply(questions, seeds, noted=(in_words([*before, *own]) for own in questions))


@dataclass
class SmallGenerator(SmallRole):
    """A generator whose pictures name text and seed."""

    answer: Callable[..., Any] = lambda text, seed: picture((text, seed))

    def generate(self, texts: Sequence[str], seeds: Sequence[int]) -> Any:
        """One picture per text."""
        return self.reply(texts, seeds)


@dataclass
class SmallEditor(SmallRole):
    """An editor whose pictures name image, text and seed. asked: digests of images, and texts."""

    answer: Callable[..., Any] = lambda image, text, seed: picture((image, text, seed))

    def edit(
        self, images: Sequence[Image.Image], texts: Sequence[str], seeds: Sequence[int]
    ) -> Any:
        """One picture per image."""
        digests = [digest_of(image) for image in images]
        return self.reply(digests, texts, seeds, noted=zip(digests, texts, strict=True))


@dataclass
class SmallInterleaver(SmallRole):
    """An interleaver. asked: its questions in words, and their limits."""

    answer: Callable[..., Any] = two_steps

    def interleave(
        self, questions: Sequence[Question], limits: Sequence[StepLimit], seeds: Sequence[int]
    ) -> Any:
        """One answer per question."""
        noted = zip(map(in_words, questions), limits, strict=True)
        return self.reply(questions, limits, seeds, noted=noted)


@dataclass
class SmallJudge(SmallRole):
    """A judge of battles and of single answers."""

    def judge(self, battles: Sequence[Battle], seeds: Sequence[int]) -> Any:
        """One verdict per battle."""
        return self.reply(battles, seeds)

    def score_answers(self, answers: Sequence[AnsweredQuestion], seeds: Sequence[int]) -> Any:
        """One set of scores per answer."""
        return self.reply(answers, seeds)


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
