"""Questions with gold answers that people approved, in the layout of OpenING."""

from __future__ import annotations

import json
import string
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from pytest_cepbench.artifacts import ImageArtifact, digest_json, read_image
from pytest_cepbench.artifacts.answer import MOST_STEPS
from pytest_cepbench.construction import folder as files
from pytest_cepbench.construction.folder import (
    FORMAT,
    ConstructionFolder,
    ConstructionRecord,
    start_construction,
)
from pytest_cepbench.construction.frozen_set import (
    CARD,
    FILES,
    MANIFEST,
    manifest_text,
    png_bytes,
    refuse_other_files,
)
from pytest_cepbench.construction.verification import VerificationSettings, existing_study
from pytest_cepbench.datasets.opening.questions import (
    BEGIN_MARKER,
    IMAGE_MARKER,
    META_TOPICS,
    TASKS,
)
from pytest_cepbench.datasets.sources.files import unsafe
from pytest_cepbench.datasets.sources.text_files import convert_record, read_toml
from pytest_cepbench.errors import DatasetError, ImageError, unknown_name
from pytest_cepbench.escapes import escape_json
from pytest_cepbench.files import digest_bytes
from pytest_cepbench.ratings.consent import INSTRUCTIONS
from pytest_cepbench.ratings.folder import STUDY, read_votes
from pytest_cepbench.ratings.items import make_item
from pytest_cepbench.ratings.known_items import begin_study
from pytest_cepbench.ratings.records import Item, Part
from pytest_cepbench.replacement import replace_files
from pytest_cepbench.report.ci_reports import escaped

# -- questions of an arena of one's own: templates of tasks, and what fills them, in a TOML file ---
#
#     [[task]]
#     id = "2001"                                  # of OpenING's tasks: its name and meta-topic
#     prompt = "Explain each step with an image."  # the same in all questions; may be left out
#     template = "How do I make {dish}?"
#     [[task.question]]
#     values = { dish = "pancakes" }
#     images = ["kitchen.png"]                     # shown after the text; may be left out
#     [[task.question.gold]]                       # a candidate for the gold answer, or several
#     steps = [{ text = "Mix the batter.", image = "batter.png" }]
#
# Paths are relative to the file.

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
    tasks = convert_record(repr(str(path)), read_toml(path, _LARGEST), _File).task
    ids = [task.id for task in tasks]
    questions: list[ArenaQuestion] = []
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
        for number, question in enumerate(task.question, 1):
            place = f"{str(path)!r}, task {task.id}, question {number}"
            questions.append(_question(place, path.parent, task, f"{task.id}{number:03}", question))
    return sorted(questions, key=lambda question: question.uid)


def _question(place: str, root: Path, task: _Task, uid: str, question: _Question) -> ArenaQuestion:
    text = _fill(place, task.template, question.values)
    steps = [step for candidate in question.gold for step in candidate.steps]
    for words in (task.prompt, text, *(step.text for step in steps)):
        for marker in (IMAGE_MARKER, BEGIN_MARKER):
            if marker in words:
                raise DatasetError(
                    f"{place}: {marker} is a mark of OpenING's files: it cannot stand in a text"
                )
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
    if any(not step.text.strip() and not step.image for step in steps):
        raise DatasetError(f"{place}: a step has a text, an image, or both")
    for name in (*question.images, *(step.image for step in steps if step.image)):
        reason = unsafe(name)
        if reason is None and not (root / name).is_file():
            reason = f"{name!r} is not there"
        if reason is not None:
            raise DatasetError(f"{place}: image {reason}")
    candidates = tuple(candidate.steps for candidate in question.gold)
    return ArenaQuestion(
        uid=uid, prompt=task.prompt, text=text, images=question.images, candidates=candidates
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


KIND = "arena"

QUESTIONS = "questions.jsonl"

CHECKS = (
    "The answer is right.",
    "No step is missing, and none is too many.",
    "The images show what the texts say.",
)
"""What people tick of a candidate."""

_TABLE = "test_data.jsonl"

_INSTRUCTIONS = """\
# What is true of the answer?

You see a question and an answer to it, step by step. Tick each sentence that is true of the answer.
An answer of which most people tick everything becomes the one that models are compared with.

Keys: see the buttons, or press **?** at any time. **u** takes your last answer back, **s** skips
an item. You can close the page whenever you like: it goes on where you stopped.
"""


@dataclass(frozen=True)
class GoldChoice:
    """The gold answer of a question. looks: people who looked at it before it was approved; 0 where
    nobody approved it.
    """

    question: ArenaQuestion
    steps: tuple[GoldPart, ...]
    looks: int


@dataclass(frozen=True)
class ArenaSet:
    """Questions with a gold answer.

    root: folder of the images. without_gold: questions none of whose candidates was approved.
    """

    root: Path
    chosen: Sequence[GoldChoice]
    without_gold: tuple[str, ...]
    remarks: tuple[str, ...]


def write_questions(templates: Path, out: Path) -> list[ArenaQuestion]:
    """Write out the questions of templates into a folder; returns them.

    Raises DatasetError for templates and folders that cannot be used, and where the folder has a
    study of other questions; WriteError.
    """
    questions = read_templates(templates)
    folder = start_construction(out, KIND)
    data = digest_json(msgspec.to_builtins(questions))
    if (out / files.RATINGS / STUDY).is_file() and folder.record.data != data:
        raise DatasetError(
            f"{str(out)!r} has votes on other questions than those of {str(templates)!r}: name "
            "a new folder, or move its ratings away"
        )
    record = ConstructionRecord(kind=KIND, source=str(templates), data=data)
    folder.write({QUESTIONS: list(questions), files.CONSTRUCTION: record})
    return questions


def write_approval(
    folder: ConstructionFolder, settings: VerificationSettings, images: Path | None
) -> None:
    """Write the study of all candidates, where there is none.

    images: where the images lie, if they have moved. Without practice and hidden checks, which are
    of other tasks. Raises DatasetError, also for a study that is of other people or settings;
    WriteError.
    """
    if existing_study(folder, settings) is not None:
        return
    path, root = folder.path / files.RATINGS, images or folder.find_source().parent
    loaded: dict[str, ImageArtifact] = {}
    items = [
        _item(question, candidate, root, loaded)
        for question in folder.read_lines(QUESTIONS, ArenaQuestion)
        for candidate in question.candidates
    ]
    study = settings.study(CHECKS, len(items))
    # Before the study: one that is there has them, whenever the process ends.
    replace_files(path, {path / INSTRUCTIONS: _INSTRUCTIONS.encode()})
    begin_study(path, msgspec.structs.replace(study, practice=0, attention=0.0), items, loaded)


def choose_gold(folder: ConstructionFolder, images: Path | None, *, unverified: bool) -> ArenaSet:
    """The gold answer of each question.

    images: where the images lie, if they have moved.
    unverified: whether a question whose candidates nobody looked at takes the first.
    Raises DatasetError where there are such questions and that is not wanted, and where no question
    has a gold answer.
    """
    questions = folder.read_lines(QUESTIONS, ArenaQuestion)
    root = images or folder.find_source().parent
    ticks: dict[str, list[bool]] = {}  # digest of an item -> whether each person ticked everything
    remarks: tuple[str, ...] = ()
    ratings = existing_study(folder, VerificationSettings())
    if ratings is not None:
        votes = read_votes(ratings)
        remarks = tuple(votes.remarks.lines)
        for vote in votes.answers():
            ticks.setdefault(vote.item, []).append(set(CHECKS) <= set(vote.ticked or ()))
    chosen: list[GoldChoice] = []
    unseen: list[str] = []
    without: list[str] = []
    for question in questions:
        # Without a vote no image is read: those of the candidates may have moved.
        own = [
            ticks.get(_item(question, candidate, root, {}).item, []) if ticks else []
            for candidate in question.candidates
        ]
        accepted = [n for n, approved in enumerate(own) if 2 * sum(approved) > len(approved)]
        if accepted:
            best = max(accepted, key=lambda n: (sum(own[n]) / len(own[n]), -n))
            chosen.append(GoldChoice(question, question.candidates[best], len(own[best])))
        elif all(own):
            without.append(question.uid)
        else:
            unseen.append(question.uid)
            chosen.append(GoldChoice(question, question.candidates[0], 0))
    if unseen and not unverified:
        raise DatasetError(
            f"{len(unseen)} of {len(questions)} questions have candidates that nobody looked at "
            "and none that was approved: run cepbench dataset verify, or take the first "
            "candidate of each with --unverified"
        )
    if not chosen:
        raise DatasetError(
            "no question has a gold answer that people approved: there is nothing to freeze"
        )
    return ArenaSet(root, chosen, tuple(without), remarks)


def write_arena(arena: ArenaSet, name: str, target: Path) -> list[Path]:
    """Write OpenING's layout, a manifest and a card; returns the paths of the latter three.

    Raises DatasetError for an image that cannot be read, WriteError.
    """
    contents: dict[str, bytes] = {}
    lines = [escape_json(json.dumps(_record(arena.root, c, contents))) for c in arena.chosen]
    contents[_TABLE] = "".join(f"{line}\n" for line in lines).encode()
    digests = {file: digest_bytes(data) for file, data in sorted(contents.items())}
    refuse_other_files(target, name, digests, copy=True)
    unverified = sum(not choice.looks for choice in arena.chosen)
    head = {
        "name": name, "kind": KIND, "questions": len(arena.chosen), "unverified": unverified,
    }  # fmt: skip
    contents[MANIFEST] = manifest_text({"": head, FILES: digests})
    contents[CARD] = "\n".join(_card(arena, name, unverified)).encode()
    replace_files(target, {target / file: data for file, data in contents.items()})
    return [target / file for file in (_TABLE, MANIFEST, CARD)]


def _item(
    question: ArenaQuestion,
    candidate: Sequence[GoldPart],
    root: Path,
    images: dict[str, ImageArtifact],
) -> Item:
    """Question and candidate as people see them; their images are added."""

    def shown(name: str) -> Part:
        image = _load(root, name)
        images[image.digest] = image
        return Part(image=image.digest)

    asked = "\n".join(filter(None, (question.prompt, question.text)))
    parts = [Part(text="Tick what is true of the answer below."), Part(text=f"Question: {asked}")]
    parts += [shown(name) for name in question.images]
    parts.append(Part(text="Answer:"))
    for number, step in enumerate(candidate, 1):
        parts.append(Part(text=f"{number}. {step.text}".rstrip()))
        parts += [shown(step.image)] if step.image else []
    return make_item("verify", parts, [[Part(text=check)] for check in CHECKS])


def _load(root: Path, name: str) -> ImageArtifact:
    try:
        return read_image(root / name)
    except ImageError as error:
        raise DatasetError(
            f"{str(root / name)!r}: {error}; if the images have moved, name their folder with "
            "--images DIR"
        ) from error


def _record(root: Path, choice: GoldChoice, contents: dict[str, bytes]) -> dict[str, object]:
    """The record of a question in OpenING's file; its images are added to the contents."""
    question = choice.question
    task = TASKS[question.uid[:4]]

    def step(text: str, image: str, side: str, number: int) -> dict[str, str | None]:
        if not image:
            return {"image": None, "text": text}
        path = f"images/{task}/{question.uid}-{side}-{number}.png"
        contents[path] = png_bytes(_load(root, image))
        return {"image": f"./{path}", "text": f"{text}{IMAGE_MARKER}"}

    asked = f"{question.prompt}{BEGIN_MARKER}{question.text}"
    first, *others = question.images or ("",)
    inputs = [step(asked, first, "i", 1)]
    inputs += [step("", name, "i", number) for number, name in enumerate(others, 2)]
    outputs = [step(part.text, part.image, "o", n) for n, part in enumerate(choice.steps, 1)]
    return {
        "total_uid": question.uid,
        "meta_task_id": question.uid[:2],
        "meta_task_name": META_TOPICS[question.uid[:2]],
        "subtask_id": question.uid[2:4],
        "subtask_name": task,
        "data_id": question.uid[4:],
        "conversations": [{"input": inputs}, {"output": outputs}],
    }


def _card(arena: ArenaSet, name: str, unverified: int) -> Iterator[str]:
    tasks = sorted({choice.question.uid[:4] for choice in arena.chosen})
    looks = [choice.looks for choice in arena.chosen if choice.looks]
    yield f"# {escaped(name)}"
    yield ""
    yield f"- {len(arena.chosen)} questions of {len(tasks)} tasks, each with a gold answer"
    yield (
        f"- {len(looks)} gold answers were approved by most of those who looked at them "
        f"({sum(looks)} looks in all): each of these was "
        "ticked: " + " ".join(CHECKS)
    )
    if unverified:
        yield f"- {unverified} gold answers are the first candidate, which nobody approved"
    without = ", ".join(arena.without_gold)
    yield f"- left out, since no candidate was approved: {without or 'none'}"
    for remark in arena.remarks:
        yield f"- {escaped(remark, 500)}"
    yield "- the licences of the images are those of their source"
    yield ""
    yield 'In a suite: `[data]`, `loader = "opening"`. Images are numbered from 1, as PNG.'
    yield ""
