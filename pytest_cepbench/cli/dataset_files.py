"""`cepbench dataset` verify, freeze, pairs and arena: sets that people check, and frozen ones."""

from __future__ import annotations

import re
import shlex
from argparse import Namespace
from collections import Counter
from pathlib import Path

from pytest_cepbench.cli.output import Section, Table, show, tell
from pytest_cepbench.construction import arena_set
from pytest_cepbench.construction import folder as files
from pytest_cepbench.construction.arena_set import QUESTIONS, write_questions
from pytest_cepbench.construction.folder import ConstructionFolder, open_construction
from pytest_cepbench.construction.frozen_set import (
    settle_labels,
    table_path,
    write_frozen,
)
from pytest_cepbench.construction.verification import (
    VerificationSettings,
    read_counts,
    read_labelled,
    read_people,
    write_verification,
)
from pytest_cepbench.datasets.opening.questions import TASKS
from pytest_cepbench.errors import SpecError
from pytest_cepbench.ratings.consent import write_texts
from pytest_cepbench.ratings.folder import STUDY, open_session, read_ratings


def run_arena(arguments: Namespace) -> int:
    """Write out the questions; exit codes as in `main`."""
    questions = write_questions(arguments.templates, arguments.out)
    out, quoted = arguments.out, shlex.quote(str(arguments.out))
    counts = Counter(question.uid[:4] for question in questions)
    candidates: Counter[str] = Counter()
    for question in questions:
        candidates[question.uid[:4]] += len(question.candidates)
    rows = tuple(
        (task, TASKS[task], str(number), str(candidates[task]))
        for task, number in sorted(counts.items())
    )
    table = Table(("task", "name", "questions", "candidates"), rows)
    show(
        [Section(f"{len(questions)} questions of {len(rows)} tasks", (table,))],
        f"written: {out / QUESTIONS}",
        f"people approve gold answers: cepbench dataset verify {quoted} --annotators NAME,NAME",
        f"then freeze it:              cepbench dataset freeze {quoted} --copy",
    )
    return 0


def run_verify(arguments: Namespace) -> int:
    """Write the study where it is new, and serve it; exit codes as in `main`."""
    path = write_study(
        open_construction(arguments.folder),
        arguments.images,
        arguments.annotators,
        arguments.overlap,
        arguments.seed,
    )
    if not arguments.only_write:
        from pytest_cepbench.cli.rate import serve_ratings

        serve_ratings(path, arguments, None)
    return 0


def has_study(folder: Path) -> bool:
    """Whether people are asked about the data set of a folder already."""
    return (folder / files.RATINGS / STUDY).is_file()


def write_study(
    folder: ConstructionFolder,
    images: Path | None,
    annotators: tuple[str, ...] | None,
    overlap: int | None,
    seed: int | None,
) -> Path:
    """The folder of the study, written where there is none.

    images: where the images lie, if they have moved. annotators, overlap: as options say.
    seed: of the order of items; None for 0, or for that of a study which is there already.
    Raises SpecError, DatasetError and WriteError, also where settings are not those of a study
    that is there.
    """
    path = folder.path / files.RATINGS
    known = has_study(folder.path)
    if annotators is None and not known:
        raise SpecError(
            "say who checks: --annotators NAME,NAME (they vote with the model on each label)"
        )
    people = annotators or ()
    settings = VerificationSettings(people, overlap, seed=seed)
    if folder.has(QUESTIONS):
        arena_set.write_approval_study(folder, settings, images)
    else:
        write_verification(folder, read_labelled(folder, images), settings)
    study = read_ratings(path)
    number = sum(item.kind == "item" for item in study.items.values())
    asked = f"{number} items for {', '.join(study.study.annotators)}"
    if known:
        tell(f"goes on: {path}, {asked}")
    else:
        write_texts(path, "verify")
        open_session(path, study.study.annotators)
        tell(f"{path}: {asked}")
        tell(f"edit {path / 'consent.md'} and {path / 'instructions.md'} before people begin")
    return path


_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


def run_freeze(arguments: Namespace) -> int:
    """Settle the labels and write the files; exit codes as in `main`."""
    target: Path = arguments.to or arguments.folder / files.FROZEN
    name: str = arguments.name or arguments.folder.resolve().name
    if not _NAME.fullmatch(name):  # which its files have
        what = (
            f"--name {name!r}"
            if arguments.name
            else (f"the folder {name!r} cannot name the set, give --name NAME")
        )
        raise SpecError(
            f"{what}: letters, digits, '.', '_' and '-' are expected, at most 64, and a letter or "
            "a digit first"
        )
    folder = open_construction(arguments.folder)
    freeze = _freeze_arena if folder.has(QUESTIONS) else _freeze_patterns
    page, written = freeze(arguments, folder, name, target)
    show([page], *(f"written: {path}" for path in written))
    return 0


def _freeze_patterns(
    arguments: Namespace, folder: ConstructionFolder, name: str, target: Path
) -> tuple[Section, list[Path]]:
    labelled = read_labelled(folder, arguments.images)
    people = read_people(folder, labelled.names)
    frozen = settle_labels(name, labelled, people, unverified=arguments.unverified)
    written = write_frozen(frozen, read_counts(folder), target, copy=arguments.copy)
    changed = sum(label.changed for label in frozen.labels.values())
    verified = len(frozen.labels) - frozen.unverified
    lines = [
        f"checked by people: {verified} images; they changed the labels of {changed}",
        *frozen.people.remarks,
    ]
    if not table_path(target, name).is_file():
        lines.append(
            "the images are not copied, paths and digests stand for them: with --copy the table "
            "that suites load is written"
        )
    rows = tuple((name, str(images), str(moved)) for name, images, moved in frozen.shown_members)
    table = Table(("pattern", "images", "changed by people"), rows)
    return Section(f"{name}: {len(frozen.labels)} images", (*lines, table)), written


def _freeze_arena(
    arguments: Namespace, folder: ConstructionFolder, name: str, target: Path
) -> tuple[Section, list[Path]]:
    if not arguments.copy:
        raise SpecError(
            "OpenING's layout holds its images: add --copy where their licences allow it, or keep "
            "the templates instead"
        )
    arena = arena_set.choose_gold(folder, arguments.images, unverified=arguments.unverified)
    written = arena_set.write_arena(arena, name, target)
    lines = [
        f"gold answers that people approved: {sum(choice.looks > 0 for choice in arena.chosen)}",
        f"left out, since no candidate was approved: {len(arena.without_gold)}",
        *arena.remarks,
    ]
    return Section(f"{name}: {len(arena.chosen)} questions", tuple(lines)), written
