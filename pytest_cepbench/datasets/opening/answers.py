"""Answers of a model in OpenING's layout: a folder with a file for each question, and images.

`MODEL_output/UID.json` or `UID.jsonl` (the same JSON under either ending) is the question's record
with the model's output; its steps name images in the folder, `UID-o-0.jpg` and so on. What the
authors' scripts pass over silently is counted here: a named image that is not there, an answer
without steps, a question without an answer.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from pytest_cepbench.artifacts import Failure, ImageArtifact
from pytest_cepbench.artifacts.answer import MOST_STEPS
from pytest_cepbench.datasets.opening.questions import IMAGE_MARKER, parse_record
from pytest_cepbench.datasets.sample import FileImage, Sample
from pytest_cepbench.datasets.sources.files import (
    find_file,
    list_folder,
    refuse_outside,
    require_folder,
)
from pytest_cepbench.datasets.sources.text_files import read_json
from pytest_cepbench.errors import DatasetError, ImageError
from pytest_cepbench.files import digest_json

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
    """

    name: str
    model: str
    path: Path
    answers: Mapping[str, RecordedAnswer | Failure]

    @cached_property
    def identity(self) -> Mapping[str, Any]:
        """Layout, version of its reading, number of answers, and the digest of all of them.

        Texts count whole, image files by name and size: what an image shows is part of the digest
        of the stored answer.
        """
        contents: dict[str, Any] = {}
        for question, answer in self.answers.items():
            if isinstance(answer, Failure):
                contents[question] = answer.kind
                continue
            contents[question] = own = []
            for step in answer.steps:
                image: Any = getattr(step.image, "kind", None)
                if isinstance(step.image, FileImage):
                    image = [step.image.path.name, None]
                    with suppress(OSError):  # removed since it was listed; loading it says so
                        image = [step.image.path.name, step.image.path.stat().st_size]
                own.append([step.text, image])
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
        Raises DatasetError where there is no answer to one of them.
        """
        questions = [sample.id for sample in samples]
        missing = [question for question in questions if question not in self.answers]
        if missing:
            raise DatasetError(
                f"{self.path} ({self.name}): {len(missing):,} of {len(questions):,} answers are "
                f"missing, the first to {missing[0]!r}; its first answer is to "
                f"{next(iter(self.answers), None)!r}: give the whole folder"
            )


LAYOUT = "opening"

FOLDER_SUFFIX = "_output"
"""Behind the model's name in that of its folder."""

MOST_BYTES = 8 * 2**20
"""Of one answer's file: ten steps of long texts are a hundredth of it."""

_FILE = re.compile(r"([0-9]{7})\.jsonl?", re.IGNORECASE)


def read_answers(folder: Path) -> RecordedAnswers:
    """The answers in a folder; images are read when they are needed.

    Files of other names are passed over. A name of an image is taken without the folders before
    it. Steps beyond `MOST_STEPS` are cut off and counted, steps
    without text and image are left out.
    Raises DatasetError for a folder that cannot be listed or holds no answer, two files for one
    question, a file that is no record or one of another question, and links out of the folder.
    """
    require_folder(folder, f"the folder MODEL{FOLDER_SUFFIX}")
    paths: dict[str, Path] = {}
    for question, path in answer_paths(folder):
        if question in paths:
            raise DatasetError(
                f"{str(folder)!r} holds two answers to {question!r}: {paths[question].name!r} and "
                f"{path.name!r}; keep one of them"
            )
        refuse_outside(folder, path)
        paths[question] = path
    if not paths:
        raise DatasetError(
            f"{str(folder)!r} holds no answer (a file like 0101001.json or 0101001.jsonl)"
        )
    name = Path(folder.absolute()).name
    end = -len(FOLDER_SUFFIX)
    return RecordedAnswers(
        name=LAYOUT,
        model=name[:end] if name[end:].casefold() == FOLDER_SUFFIX and name[:end] else name,
        path=folder,
        answers={question: _answer(question, path) for question, path in paths.items()},
    )


def answer_paths(folder: Path) -> Iterator[tuple[str, Path]]:
    """The id of the question and the path of each file that is named as an answer is.

    Raises DatasetError for a folder that cannot be listed.
    """
    for path in list_folder(folder):
        match = _FILE.fullmatch(path.name)
        if match is not None:
            yield match[1], path


def _answer(question: str, path: Path) -> RecordedAnswer | Failure:
    record = parse_record(str(path), read_json(path, MOST_BYTES))
    if record.uid != question:
        raise DatasetError(
            f"{path}: the record is of question {record.uid!r}, and the file's name says another"
        )
    steps = []
    for part in record.answer:
        image: FileImage | Failure | None = None
        if part.image is not None and part.image.strip():
            name = re.split(r"[/\\]", part.image)[-1]
            file = find_file(path.parent, name, str(path))
            missing = Failure("missing", f"the folder holds no file {name!r:.200}")
            image = missing if file is None else FileImage(file)
        text = part.text.replace(IMAGE_MARKER, "").strip()
        if text or image is not None:
            steps.append(RecordedStep(text, image))
    if not steps:
        return Failure("empty-text", "the answer has no step")
    return RecordedAnswer(tuple(steps[:MOST_STEPS]), max(0, len(steps) - MOST_STEPS))
