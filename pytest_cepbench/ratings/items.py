"""Items and studies as they are made, and a study as it is written into its folder."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from pytest_cepbench.artifacts.image import ImageArtifact, encode_image
from pytest_cepbench.errors import DatasetError, WriteError
from pytest_cepbench.escapes import escape_json
from pytest_cepbench.files import digest_bytes
from pytest_cepbench.ratings.folder import IMAGES, ITEMS, SOURCES, STUDY, VOTES
from pytest_cepbench.ratings.known_answers import known_fault
from pytest_cepbench.ratings.records import (
    Fields,
    Item,
    ItemKind,
    Option,
    Part,
    Source,
    Study,
    Task,
    item_digest,
    option_digest,
    option_name,
    record_line,
)
from pytest_cepbench.ratings.session import SESSION, check_annotators
from pytest_cepbench.replacement import replace_files

MOST_OPTIONS = 9
"""Options of an item that a key each can name."""

MOST_NAMES = 64
"""Names to tick."""

MOST_SIDE = 16383
"""Pixels of an image's longer side, by the format of the images of a page."""

_IGNORED = f"{SESSION}\n"


@dataclass(frozen=True)
class _Counts:
    """How many options an item of a task has."""

    least: int
    most: int


_OPTIONS: Mapping[Task, _Counts] = {
    "pair": _Counts(2, 2),
    "caption": _Counts(2, 2),
    "grades": _Counts(2, MOST_OPTIONS),
    "describe": _Counts(0, 0),
    "verify": _Counts(0, MOST_NAMES),
}


def make_item(
    task: Task,
    question: Sequence[Part],
    options: Iterable[Sequence[Part]],
    kind: ItemKind = "item",
    known: Fields | None = None,
    *,
    probability: float = 1.0,
) -> Item:
    """An item of a question and the parts of its options; digests are made of them."""
    made = tuple(Option(option_digest(parts), tuple(parts)) for parts in options)
    return Item(
        item=item_digest(task, question, [option.option for option in made]),
        kind=kind,
        question=tuple(question),
        options=made,
        known=known or {},
        probability=probability,
    )


def images_of(item: Item) -> set[str]:
    """Digests of the images of an item."""
    parts = [*item.question, *(part for option in item.options for part in option.parts)]
    return {part.image for part in parts if part.image is not None}


def write_study(
    folder: Path,
    study: Study,
    items: Sequence[Item],
    images: Mapping[str, ImageArtifact],
    sources: Iterable[Source] = (),
) -> Study:
    """Write a new study; its folder is one only when all of it is there.

    study: without `created` and `data`, which are set here.
    items: all, practice and attention items among them; equal items once.
    images: digest -> every image that items name.
    sources: which model made what, for those who read the votes later.
    Returns the study as it was written.
    Raises DatasetError for a study or items that cannot be asked; WriteError where the folder has a
    study already, or cannot be written.
    """
    if (folder / STUDY).exists():
        raise WriteError(
            f"{str(folder)!r} holds a study already: go on with it, or name another folder"
        )
    check_study(study)
    unique = {item.item: item for item in items}
    for item in unique.values():
        _check_item(item, study, images)
    if not any(item.kind == "item" for item in unique.values()):
        raise DatasetError("a study has at least one item, and there is none to ask")
    lines = _json_lines(unique.values())
    written = msgspec.structs.replace(
        study,
        created=datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z"),
        data=digest_bytes(lines),
    )
    named = {digest for item in unique.values() for digest in images_of(item)}
    _write_images(folder, {digest: images[digest] for digest in sorted(named)})
    document = msgspec.json.format(msgspec.json.encode(written), indent=1).decode()
    replace_files(
        folder,
        {
            folder / ITEMS: lines,
            folder / SOURCES: _json_lines(sources),
            folder / ".gitignore": _IGNORED.encode(),
            folder / STUDY: f"{escape_json(document)}\n".encode(),
        },
    )
    (folder / VOTES).mkdir(exist_ok=True)
    return written


def _json_lines(records: Iterable[Item | Source]) -> bytes:
    return b"".join(escape_json(record_line(record).decode()).encode() for record in records)


def _write_images(folder: Path, images: Mapping[str, ImageArtifact]) -> None:
    """Write images losslessly, without metadata."""
    try:
        (folder / IMAGES).mkdir(parents=True, exist_ok=True)
        for digest, image in images.items():
            path = folder / IMAGES / f"{digest}.webp"
            temporary = path.with_name(f".{digest}.{secrets.token_hex(4)}")
            temporary.write_bytes(encode_image(image))
            temporary.replace(path)
    except OSError as error:
        raise WriteError(
            f"images could not be written to {str(folder)!r}: {error.strerror or error}"
        ) from error


def check_study(study: Study) -> None:
    """Raise DatasetError for people and shares that no study can have."""
    check_annotators(study.annotators)
    shares = {name: getattr(study, name) for name in ("attention", "repeats", "share")}
    for name, value in shares.items():
        if not 0 <= value <= (1 if name == "share" else 0.5):
            raise DatasetError(
                f"{name} is a share, from 0 to {1 if name == 'share' else 0.5}, got {value:g}"
            )
    if not 1 <= study.overlap <= len(study.annotators):
        raise DatasetError(
            f"an overlap of {study.overlap} needs as many annotators, at least 1, and there are "
            f"{len(study.annotators)}"
        )
    if not 0 < study.probability <= 1:
        raise DatasetError(f"a probability of drawing lies in (0, 1], got {study.probability:g}")


def _check_item(item: Item, study: Study, images: Mapping[str, ImageArtifact]) -> None:
    """Raises DatasetError, which names the item by the beginning of its digest."""
    fault = next(filter(None, _item_faults(item, study, images)), "")
    if fault:
        raise DatasetError(f"item {item.item[:12]} ({item.kind}): {fault}")


def _item_faults(item: Item, study: Study, images: Mapping[str, ImageArtifact]) -> Iterator[str]:
    counts = _OPTIONS[study.kind]
    options = [option.option for option in item.options]
    if item.item != item_digest(study.kind, item.question, options):
        yield f"its digest is not that of an item of the task {study.kind}"
    if not item.question:
        yield "it has no question"
    if not counts.least <= len(options) <= counts.most:
        expected = f"{counts.least} to {counts.most}" if counts.most > counts.least else counts.most
        yield f"the task {study.kind} has {expected} options, got {len(options)}"
    names = [option_name(option) for option in item.options]
    if study.kind == "verify" and len(set(names)) < len(names):
        yield "a name is offered twice"
    missing = images_of(item) - images.keys()
    if missing:
        yield f"{len(missing)} of its images are missing"
        return
    largest = max((max(images[digest].size) for digest in images_of(item)), default=0)
    if largest > MOST_SIDE:
        yield f"an image has a side of {largest} pixels, and {MOST_SIDE} are the most of a page"
    if not 0 < item.probability <= 1:
        yield f"a probability of drawing lies in (0, 1], got {item.probability:g}"
    if item.kind != "item":
        yield known_fault(study.kind, item)
