"""`cepbench dataset freeze`: settled labels, in files that suites load."""

from __future__ import annotations

import re
from argparse import Namespace
from pathlib import Path

from pytest_cepbench.cli.dataset_verify import read_images
from pytest_cepbench.cli.output import MISTAKE, NOT_DONE, Section, Table, complain, show
from pytest_cepbench.construction import arena_set
from pytest_cepbench.construction import folder as files
from pytest_cepbench.construction.data_card import write_card
from pytest_cepbench.construction.folder import ConstructionFolder, open_construction
from pytest_cepbench.construction.frozen_images import add_images
from pytest_cepbench.construction.frozen_set import (
    MANIFEST,
    FrozenSet,
    settle_labels,
    shown_members,
    table_path,
    write_frozen,
)
from pytest_cepbench.construction.records import NearDuplicates
from pytest_cepbench.construction.verification import read_counts, read_labelled, read_people
from pytest_cepbench.errors import CepError, SpecError, WriteError

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


def run(arguments: Namespace) -> int:
    """Settle the labels and write the files; exit codes as in `main`."""
    target: Path = arguments.to or arguments.folder / files.FROZEN
    try:
        images = read_images(arguments.images)
        if _is_frozen(arguments.folder):
            page, written = _add_images(arguments, images)
        else:
            name = _name(arguments)
            folder = open_construction(arguments.folder)
            freeze = _freeze_arena if folder.has(arena_set.QUESTIONS) else _freeze_patterns
            page, written = freeze(arguments, folder, images, name, target)
    except WriteError as error:
        return complain(str(error), NOT_DONE)
    except CepError as error:
        return complain(str(error), MISTAKE)
    show([page], *(f"written: {path}" for path in written))
    return 0


def _is_frozen(folder: Path) -> bool:
    """Whether a folder is a frozen set, such as one that was passed on, and no construction."""
    return (folder / MANIFEST).is_file() and not (folder / files.CONSTRUCTION).is_file()


def _add_images(arguments: Namespace, images: Path | None) -> tuple[Section, list[Path]]:
    if images is None or not arguments.copy or arguments.name or arguments.to:
        raise SpecError(
            f"{str(arguments.folder)!r} is a frozen set: --copy --images DIR write its images into "
            "it, and nothing else of it changes"
        )
    written = add_images(arguments.folder, images)
    name = written[0].stem
    return Section(f"{name}: images added, with the pixels that were frozen", ()), written


def _freeze_patterns(
    arguments: Namespace,
    folder: ConstructionFolder,
    images: Path | None,
    name: str,
    target: Path,
) -> tuple[Section, list[Path]]:
    labelled = read_labelled(folder, images)
    people = read_people(folder, labelled.names)
    frozen = settle_labels(name, labelled, people, unverified=arguments.unverified)
    counts = read_counts(folder)
    near = folder.read(files.NEAR, NearDuplicates) if folder.has(files.NEAR) else None

    def card(copied: bool) -> str:  # noqa: FBT001 - of two cards, one
        return write_card(frozen, counts, near, copy=copied)

    written = write_frozen(frozen, target, card, copy=arguments.copy)
    return _page(frozen, copied=table_path(target, name).is_file()), written


def _freeze_arena(
    arguments: Namespace,
    folder: ConstructionFolder,
    images: Path | None,
    name: str,
    target: Path,
) -> tuple[Section, list[Path]]:
    if not arguments.copy:
        raise SpecError(
            "OpenING's layout holds its images: add --copy where their licences allow it, or keep "
            "the templates instead"
        )
    arena = arena_set.choose_gold(folder, images, unverified=arguments.unverified)
    written = arena_set.write_arena(arena, name, target)
    approved = sum(choice.approval is not None for choice in arena.chosen)
    lines = [
        f"gold answers that people approved: {approved}",
        f"left out, since no candidate was approved: {len(arena.without_gold)}",
        *arena.remarks,
    ]
    return Section(f"{name}: {len(arena.chosen)} questions", tuple(lines)), written


def _name(arguments: Namespace) -> str:
    if arguments.name is not None:
        return check_name(arguments.name, f"--name {arguments.name!r}")
    name = arguments.folder.resolve().name
    return check_name(name, f"the folder {name!r} cannot name the set, give --name NAME")


def check_name(name: str, what: str) -> str:
    """The name of a data set, which its files have.

    what: gave the name, for the message. Raises SpecError.
    """
    if not _NAME.fullmatch(name):
        raise SpecError(
            f"{what}: letters, digits, '.', '_' and '-' are expected, at most 64, and a letter or "
            "a digit first"
        )
    return name


def _page(frozen: FrozenSet, *, copied: bool) -> Section:
    changed = sum(label.changed for label in frozen.labels.values())
    verified = len(frozen.labels) - frozen.unverified
    lines = [
        f"checked by people: {verified} images; they changed the labels of {changed}",
        *frozen.people.remarks,
    ]
    if not copied:
        lines.append(
            "the images are not copied, paths and digests stand for them: with --copy the table "
            "that suites load is written"
        )
    rows = tuple((name, str(images), str(moved)) for name, images, moved in shown_members(frozen))
    table = Table(("pattern", "images", "changed by people"), rows)
    return Section(f"{frozen.name}: {len(frozen.labels)} images", (*lines, table))
