"""Questions of an arena of one's own: templates of tasks, and what fills them, in a TOML file.

    [[task]]
    id = "2001"                                    # of OpenING's tasks: its name and meta-topic
    prompt = "Explain each step with an image."    # the same in all questions; may be left out
    template = "How do I make {dish}?"

    [[task.question]]
    values = { dish = "pancakes" }
    images = ["kitchen.png"]                       # shown after the text; may be left out

    [[task.question.gold]]                         # a candidate for the gold answer, or several
    steps = [{ text = "Mix the batter.", image = "batter.png" }]

Paths are relative to the file.
"""

from __future__ import annotations

import string
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from pytest_cepbench.artifacts.answer import MOST_STEPS
from pytest_cepbench.construction.folder import FORMAT
from pytest_cepbench.datasets.opening.questions import BEGIN_MARKER, IMAGE_MARKER, TASKS
from pytest_cepbench.datasets.sources.files import unsafe
from pytest_cepbench.errors import DatasetError, unknown_name
from pytest_cepbench.files import parse_toml, read_regular

_LARGEST = 64 * 2**20  # bytes

_MOST_QUESTIONS = 999  # of a task: ids have three digits

_MOST_CANDIDATES = 20


class GoldPart(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A step of a candidate: a text, an image's path, or both; empty where it has none."""

    text: str = ""
    image: str = ""


class _Candidate(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    steps: tuple[GoldPart, ...]


class _Question(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    values: dict[str, str] = {}
    images: tuple[str, ...] = ()
    gold: tuple[_Candidate, ...] = ()


class _Task(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    id: str
    template: str
    prompt: str = ""
    question: tuple[_Question, ...] = ()


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    task: tuple[_Task, ...]


class ArenaQuestion(msgspec.Struct, frozen=True, kw_only=True):
    """A question that is written out.

    uid: seven digits, as OpenING's: the task, and the number in it.
    prompt: of the task. text: the template with its values.
    images: paths, relative to the file of templates.
    candidates: for the gold answer.
    """

    v: int = FORMAT
    uid: str
    prompt: str
    text: str
    images: tuple[str, ...]
    candidates: tuple[tuple[GoldPart, ...], ...]


def read_templates(path: Path) -> list[ArenaQuestion]:
    """The questions of a file, sorted by id.

    Raises DatasetError, in one line that names the place, for a file that cannot be read, fields
    that are unknown or of another type, a task that OpenING has not or that is there twice, a value
    that is missing or not used, the markers of OpenING in a text, paths out of the folder, images
    that are not there, a candidate without steps or with more than ten, and a question without one.
    """
    try:
        document = parse_toml(read_regular(path, _LARGEST))
        tasks = msgspec.convert(document, _File).task
    except OSError as error:
        raise DatasetError(f"{str(path)!r} cannot be read: {error.strerror or error}") from error
    except (ValueError, msgspec.ValidationError) as error:
        raise DatasetError(f"{str(path)!r}: {' '.join(str(error).split())}") from error
    ids = [task.id for task in tasks]
    for task in tasks:
        place = f"{str(path)!r}, task {task.id!r:.40}"
        if task.id not in TASKS:
            raise DatasetError(f"{place}: {unknown_name('task of OpenING', task.id[:40], TASKS)}")
        if ids.count(task.id) > 1:
            raise DatasetError(f"{place} is there twice: put its questions into one")
        if not 1 <= len(task.question) <= _MOST_QUESTIONS:
            raise DatasetError(
                f"{place} has {len(task.question)} questions: 1 to {_MOST_QUESTIONS} are expected"
            )
    return sorted(
        (
            _question(path, task, number, question)
            for task in tasks
            for number, question in enumerate(task.question, 1)
        ),
        key=lambda question: question.uid,
    )


def _question(path: Path, task: _Task, number: int, question: _Question) -> ArenaQuestion:
    place = f"{str(path)!r}, task {task.id}, question {number}"
    text = _fill(place, task.template, question.values)
    for words in (task.prompt, text, *(part.text for c in question.gold for part in c.steps)):
        _check_text(place, words)
    if not question.gold:
        raise DatasetError(
            f"{place} has no candidate for its gold answer: add [[task.question.gold]]"
        )
    if len(question.gold) > _MOST_CANDIDATES:
        raise DatasetError(
            f"{place} has {len(question.gold)} candidates: at most {_MOST_CANDIDATES}"
        )
    for candidate in question.gold:
        if not 1 <= len(candidate.steps) <= MOST_STEPS:
            raise DatasetError(
                f"{place}: an answer has 1 to {MOST_STEPS} steps, got {len(candidate.steps)}"
            )
        if any(not part.text.strip() and not part.image for part in candidate.steps):
            raise DatasetError(f"{place}: a step has a text, an image, or both")
    named = [part.image for candidate in question.gold for part in candidate.steps if part.image]
    for name in (*question.images, *named):
        _check_image(place, path.parent, name)
    return ArenaQuestion(
        uid=f"{task.id}{number:03}",
        prompt=task.prompt,
        text=text,
        images=question.images,
        candidates=tuple(candidate.steps for candidate in question.gold),
    )


def _fill(place: str, template: str, values: Mapping[str, str]) -> str:
    """A template with its values, which are texts and nothing else: no field of a field."""
    try:
        parts = list(string.Formatter().parse(template))
    except ValueError as error:
        raise DatasetError(f"{place}: the template cannot be read: {error}") from error
    fields = {name for _, name, _, _ in parts if name is not None}
    if any(spec or conversion for _, name, spec, conversion in parts if name is not None):
        raise DatasetError(f"{place}: a template has fields like {{dish}}, without formats")
    if fields != values.keys():
        missing, unused = sorted(fields - values.keys()), sorted(values.keys() - fields)
        what = f"no value for {missing[0]!r:.60}" if missing else f"{unused[0]!r:.60} is not used"
        raise DatasetError(f"{place}: {what} in the template {template!r:.80}")
    return "".join(
        literal + (values[name] if name is not None else "") for literal, name, _, _ in parts
    )


def _check_text(place: str, text: Any) -> None:
    for marker in (IMAGE_MARKER, BEGIN_MARKER):
        if marker in text:
            raise DatasetError(
                f"{place}: {marker} is a mark of OpenING's files: it cannot stand in a text"
            )


def _check_image(place: str, root: Path, name: str) -> None:
    reason = unsafe(name)
    if reason is None and not (root / name).is_file():
        reason = f"{name!r} is not there"
    if reason is not None:
        raise DatasetError(f"{place}: image {reason}")
