"""Interleaved answers that another tool has generated, whatever layout they were read from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from pytest_cepbench.artifacts import Failure, ImageArtifact
from pytest_cepbench.artifacts.digest import digest_json
from pytest_cepbench.datasets.sample import FileImage, Sample
from pytest_cepbench.errors import DatasetError, ImageError

VERSION = "1"
"""Of the rules by which files become answers; part of their identity."""


@dataclass(frozen=True)
class RecordedStep:
    """One step of an answer.

    text: empty where it has none.
    image: in a file; None where it has none, a failure where the named file is not there.
    """

    text: str
    image: FileImage | Failure | None

    def load_image(self) -> ImageArtifact | Failure | None:
        """Its image, read now; a failure (`bad-image`) where the file holds none."""
        if not isinstance(self.image, FileImage):
            return self.image
        try:
            return self.image.load()
        except ImageError as error:
            return Failure("bad-image", f"{self.image.path.name}: {error}")


@dataclass(frozen=True)
class RecordedAnswer:
    """An answer of at least one step.

    steps: those that count, in order.
    cut: how many steps beyond the limit were cut off.
    """

    steps: tuple[RecordedStep, ...]
    cut: int = 0


@dataclass(frozen=True)
class RecordedAnswers:
    """The answers of one model.

    name: of the layout.
    model: name of the model.
    path: what the user gave.
    answers: by the id of the question; a failure where there is an answer without steps.
    partial: whether questions may be without an answer, each of which counts as a failure.
    """

    name: str
    model: str
    path: Path
    answers: Mapping[str, RecordedAnswer | Failure]
    partial: bool = False

    @cached_property
    def identity(self) -> Mapping[str, Any]:
        """Layout, version of its reading, number of answers, and the digest of all of them.

        Texts count whole, image files by name and size: what an image shows is part of the digest
        of the stored answer.
        """
        contents = {question: _content(answer) for question, answer in self.answers.items()}
        return {
            "layout": self.name,
            "version": VERSION,
            "answers": len(self.answers),
            "digest": digest_json(contents),
        }

    def answer(self, sample: Sample) -> RecordedAnswer | Failure:
        """The answer to a sample's question; a failure (`missing`) where there is none."""
        missing = Failure("missing", f"{self.path} holds no answer to it")
        return self.answers.get(sample.id, missing)

    def check(self, samples: Iterable[Sample]) -> None:
        """Refuse a data set that these answers cannot belong to.

        samples: all that are to be answered.
        Raises DatasetError where there is no answer to any of them, and, unless answers may be
        missing, to some.
        """
        questions = [sample.id for sample in samples]
        missing = [question for question in questions if question not in self.answers]
        if not missing or (self.partial and len(missing) < len(questions)):
            return
        if len(missing) == len(questions):
            known = next(iter(self.answers), None)
            msg = (
                f"{self.path} ({self.name}) holds no answer to these questions: its first is of "
                f"{known!r}, the first question is {questions[0]!r}"
            )
        else:
            msg = (
                f"{self.path} ({self.name}): {len(missing):,} of {len(questions):,} answers are "
                f"missing, the first to {missing[0]!r}: give the whole folder, or add the "
                "parameter partial=true, and each of them counts as failed"
            )
        raise DatasetError(msg)


def _content(answer: RecordedAnswer | Failure) -> Any:
    if isinstance(answer, Failure):
        return answer.kind
    return [[step.text, _image_content(step.image)] for step in answer.steps]


def _image_content(image: FileImage | Failure | None) -> Any:
    if isinstance(image, FileImage):
        try:
            return [image.path.name, image.path.stat().st_size]
        except OSError:  # removed since the folder was listed; loading it says so
            return [image.path.name, None]
    return None if image is None else image.kind
