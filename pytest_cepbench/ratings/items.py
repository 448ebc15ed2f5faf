"""Items and studies as they are made: of a run or a file, with attention items of their own."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import islice
from math import ceil
from pathlib import Path

import msgspec
import numpy as np

from pytest_cepbench.artifacts.image import ImageArtifact, encode_image, read_image
from pytest_cepbench.datasets.shapes.samples import below, derived_seed, random_generator, some
from pytest_cepbench.datasets.sources.files import unsafe
from pytest_cepbench.datasets.sources.text_files import convert_record, read_json_lines
from pytest_cepbench.errors import DatasetError, ImageError, WriteError, few_of
from pytest_cepbench.escapes import escape_json
from pytest_cepbench.files import digest_bytes, digest_text, replace_small
from pytest_cepbench.metrics.human_ratings import grade_score
from pytest_cepbench.ratings.folder import IMAGES, ITEMS, SOURCES, STUDY, VOTES, check_study
from pytest_cepbench.ratings.records import (
    Fields,
    Item,
    ItemKind,
    Option,
    Part,
    Source,
    Study,
    Task,
    Vote,
    item_digest,
    option_digest,
    option_name,
    record_line,
)
from pytest_cepbench.replacement import recover, replace_files

_OWN = re.compile(rf"{IMAGES}|[0-9a-f]{{64}}\.webp")
"""What may lie in the folder of a new study."""

# -- items whose right answer is known -------------------------------------------------------------
#
#     pair, caption   {"winner": "first"}, or "second"
#     grades          {"better": [[0, 2]]}: option 0 ranks above option 2, and has no lower grade


def is_right(task: Task, known: Fields, vote: Vote) -> bool:
    """Whether an answer is the known one; a skipped item is not answered right."""
    if vote.skip:
        return False
    if task != "grades":
        return bool(vote.winner == known["winner"])
    places = {option: at for at, options in enumerate(vote.places) for option in options}
    return all(
        places[better] < places[worse]
        and grade_score(vote.grades[str(better)]) >= grade_score(vote.grades[str(worse)])
        for better, worse in known["better"]
    )


MOST_NAMES = 64
"""Names to tick."""

MOST_SIDE = 16383
"""Pixels of an image's longer side, by the format of the images of a page."""

_OPTIONS: Mapping[Task, tuple[int, int]] = {
    "pair": (2, 2),
    "caption": (2, 2),
    "grades": (2, 9),  # as many as a key each can name
    "describe": (0, 0),
    "verify": (0, MOST_NAMES),
}
"""How many options an item of a task has, at least and at most."""


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


def begin_study(
    folder: Path,
    study: Study,
    items: Sequence[Item],
    images: Mapping[str, ImageArtifact],
    sources: Iterable[Source] = (),
) -> str:
    """Write a new study with its attention items; its folder is one only when all of it is there.

    study: without `created` and `data`, which are set here; for each of its items there are
        `attention` attention items, at most `MOST_ATTENTION` in all.
    items: what is asked; equal items once.
    images: digest -> every image that items name.
    sources: which model made what, for those who read the votes later.
    Returns a line where too few of the items can be damaged so that everybody sees it; empty else.
    Raises DatasetError for a study or items that cannot be asked; WriteError where the folder has a
    study or other files already, or cannot be written.
    """
    if (folder / STUDY).exists():
        raise WriteError(
            f"{str(folder)!r} holds a study already: go on with it, or name another folder"
        )
    recover(folder)
    # What a killed process left: its images may stay, and what begins with a dot.
    found = *folder.glob("[!.]*"), *folder.glob(f"{IMAGES}/[!.]*")
    there = [str(p.relative_to(folder)) for p in found if not _OWN.fullmatch(p.name)]
    if there:
        raise WriteError(f"{str(folder)!r} holds {few_of(there)}: name a new folder for the study")
    check_study(study)
    for item in items:
        if fault := next(filter(None, _item_faults(item, study, images)), ""):
            raise DatasetError(f"item {item.item[:12]}: {fault}")
    if not items:
        raise DatasetError("a study has at least one item, and there is none to ask")
    made: dict[str, ImageArtifact] = {}
    wanted = min(ceil(study.attention * len(items)), MOST_ATTENTION)
    if study.kind in ("describe", "verify"):
        wanted = 0
    attention = list(islice(_damaged(study, items, images, made), wanted))
    unique = {item.item: item for item in (*items, *attention)}
    lines = _json_lines(unique.values())
    written = msgspec.structs.replace(
        study,
        created=datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z"),
        data=digest_bytes(lines),
    )
    try:
        (folder / IMAGES).mkdir(parents=True, exist_ok=True)
        for digest in sorted({digest for item in unique.values() for digest in images_of(item)}):
            image = made[digest] if digest in made else images[digest]
            # Without loss, without metadata.
            replace_small(folder / IMAGES / f"{digest}.webp", encode_image(image))
    except OSError as error:
        raise WriteError(
            f"images could not be written to {str(folder)!r}: {error.strerror or error}"
        ) from error
    document = msgspec.json.format(msgspec.json.encode(written), indent=1).decode()
    replace_files(
        folder,
        {
            folder / ITEMS: lines,
            folder / SOURCES: _json_lines(sources),
            folder / STUDY: f"{escape_json(document)}\n".encode(),
        },
    )
    (folder / VOTES).mkdir(exist_ok=True)
    if len(attention) == wanted:
        return ""
    return (
        f"{len(attention)} of {wanted} attention items: the answers to other items are too short, "
        "or too plain, to be damaged so that everybody sees it"
    )


def _json_lines(records: Iterable[Item | Source]) -> bytes:
    return b"".join(escape_json(record_line(record).decode()).encode() for record in records)


def _item_faults(item: Item, study: Study, images: Mapping[str, ImageArtifact]) -> Iterator[str]:
    least, most = _OPTIONS[study.kind]
    if not item.question:
        yield "it has no question"
    if not least <= len(item.options) <= most:
        expected = f"{least} to {most}" if most > least else most
        yield f"the task {study.kind} has {expected} options, got {len(item.options)}"
    names = [option_name(option) for option in item.options]
    if study.kind == "verify" and len(set(names)) < len(names):
        yield "a name is offered twice"
    largest = max((max(images[digest].size) for digest in images_of(item)), default=0)
    if largest > MOST_SIDE:
        yield f"an image has a side of {largest} pixels, and {MOST_SIDE} are the most of a page"


# -- attention items: an answer of a study against itself with words and tiles shuffled ------------
#
# They cannot be told from other items before they are read. Answers in which the damage can hardly
# be seen are left out, and so are tasks without options, which have nothing to damage.

MOST_ATTENTION = 100

_TILES = 4  # along each side of a damaged image

_LEAST_WORDS = 8  # fewer words are often a sentence in another order too

_LEAST_MOVED = 0.5  # of the words

_EDGE = 32  # levels of 255 by which pixels differ at a visible edge

_LEAST_EDGES = 0.05  # of the pixels along the tiles' sides are new edges


def _damaged(
    study: Study,
    items: Sequence[Item],
    images: Mapping[str, ImageArtifact],
    made: dict[str, ImageArtifact],
) -> Iterator[Item]:
    """An item each of the study's, an option against its damaged self; in an order of their own."""
    for item in sorted(items, key=lambda item: digest_text(f"{study.seed} damaged {item.item}")):
        rng = random_generator(derived_seed(study.seed, item.item))
        at = below(rng, len(item.options))
        kept = item.options[at]
        own: dict[str, ImageArtifact] = {}
        damaged = [_spoil(part, rng, images, own) for part in kept.parts]
        if not any(visible for _, visible in damaged):
            continue
        made |= own
        spoiled = [part for part, _ in damaged]
        if study.kind == "grades":
            others = [option.parts for place, option in enumerate(item.options) if place != at]
            options = [kept.parts, spoiled, *others[:-1]]
            known: Fields = {"better": [[0, 1]]}
        else:
            second = below(rng, 2)
            options = [spoiled, kept.parts] if second else [kept.parts, spoiled]
            known = {"winner": ("first", "second")[second]}
        yield make_item(study.kind, item.question, options, "attention", known)


def _spoil(
    part: Part,
    rng: np.random.Generator,
    images: Mapping[str, ImageArtifact],
    made: dict[str, ImageArtifact],
) -> tuple[Part, bool]:
    """A part with its words or tiles shuffled, and whether everybody sees that beside the other.

    Of a text enough words stand elsewhere; in an image the tiles' sides have become edges, which
    they have not where a tile holds all that there is, or nothing.
    """
    if part.text is not None:
        words = part.text.split()
        others = some(rng, words, len(words))
        moved = sum(a != b for a, b in zip(words, others, strict=True))
        visible = len(words) >= _LEAST_WORDS and moved >= _LEAST_MOVED * len(words)
        return Part(text=" ".join(others)), visible
    pixels = images[str(part.image)].pixels
    (height, high), (width, wide) = ((side, _tile(side)) for side in pixels.shape[:2])
    beyond = ((0, -height % high), (0, -width % wide), (0, 0))
    whole = np.pad(pixels, beyond, constant_values=128)
    rows, columns = len(whole) // high, whole.shape[1] // wide
    tiles = whole.reshape(rows, high, columns, wide, 3).swapaxes(1, 2).reshape(-1, high, wide, 3)
    tiles = tiles[some(rng, range(len(tiles)), len(tiles))].reshape(rows, columns, high, wide, 3)
    shuffled = tiles.swapaxes(1, 2).reshape(whole.shape)[:height, :width]
    spoiled = ImageArtifact(np.ascontiguousarray(shuffled))
    made[spoiled.digest] = spoiled
    edges = []  # shares of the pixels along the tiles' sides at which the image changes abruptly
    for own in (pixels.astype(np.int16), shuffled.astype(np.int16)):
        down = np.abs(own[high::high] - own[high - 1 : -1 : high]).max(axis=-1)
        across = np.abs(own[:, wide::wide] - own[:, wide - 1 : -1 : wide]).max(axis=-1)
        steps = np.concatenate([across.ravel(), down.ravel()])
        edges.append(float(np.mean(steps >= _EDGE)) if steps.size else 0.0)
    return Part(image=spoiled.digest), edges[1] - edges[0] >= _LEAST_EDGES


def _tile(side: int) -> int:
    """The length of tiles along a side."""
    return max(1, -(-side // _TILES))


# -- items of one's own, from a file of lines: for answers that no run of this package has made ----
#
#     {"question": ["A text", {"image": "q/1.png"}],
#      "options": [["Text", {"image": "a/1.png"}], ...],
#      "models": ["name of the model of each option"], "sample": "id"}
#
# A text stands for itself, an image is a path from the folder of the file. `models` and `sample`
# are for those who read the votes, and no annotator sees them.

SUFFIX = ".jsonl"

_NAMED = 10  # lines in a message


class _ImageFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    image: str


_Piece = str | _ImageFile


class _ItemLine(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    question: tuple[_Piece, ...]
    options: tuple[tuple[_Piece, ...], ...] = ()
    models: tuple[str, ...] = ()
    sample: str = ""


def read_items(path: Path, task: Task) -> tuple[list[Item], dict[str, ImageArtifact], list[Source]]:
    """The items of a file, their images by digest, and their sources.

    Raises DatasetError, which names the line, for one that cannot be understood, an image that
    cannot be read, two equal sides, and a file without an item.
    """
    items: list[Item] = []
    images: dict[str, ImageArtifact] = {}
    sources: list[Source] = []
    equal: list[str] = []
    for where, content in read_json_lines(path):
        line = convert_record(where, content, _ItemLine)
        if line.models and len(line.models) != len(line.options):
            raise DatasetError(f"{where}: {len(line.models)} models of {len(line.options)} options")
        compared = task in ("pair", "caption")
        if compared and line.models and len(set(line.models)) == 1:
            raise DatasetError(
                f"{where}: both options are of {line.models[0]!r}, and votes rank models: say in "
                "their names what differs, such as the prompt"
            )
        question = _parts(line.question, path.parent, where, images)
        options = [_parts(option, path.parent, where, images) for option in line.options]
        item = make_item(task, question, options)
        if compared and len({option.option for option in item.options}) == 1:
            equal.append(where.rpartition(" ")[2])
        items.append(item)
        models = line.models or ("",) * len(options)
        sources += [
            Source(item=item.item, option=option.option, model=model, sample=line.sample)
            for option, model in zip(item.options, models, strict=True)
        ] or [Source(item=item.item, sample=line.sample)]
    if equal:
        named = ", ".join(equal[:_NAMED])
        named += f" and {len(equal) - _NAMED} more" if len(equal) > _NAMED else ""
        raise DatasetError(
            f"{path}: both sides are equal in {'line' if len(equal) == 1 else 'lines'} {named}, "
            "which is a tie without asking anybody: leave these items out, and count them yourself"
        )
    if not items:
        raise DatasetError(f"{path} holds no item")
    return items, images, sources


def _parts(
    pieces: Sequence[_Piece], folder: Path, where: str, images: dict[str, ImageArtifact]
) -> list[Part]:
    """The parts of these pieces; their images are added."""
    parts = []
    for piece in pieces:
        if isinstance(piece, str):
            parts.append(Part(text=piece))
            continue
        if unsafe(piece.image) is not None:
            raise DatasetError(
                f"{where}: image {piece.image!r} has to lie below the folder of the file"
            )
        try:
            image = read_image(folder / piece.image)
        except ImageError as error:
            raise DatasetError(f"{where}: image {piece.image!r}: {error}") from error
        images[image.digest] = image
        parts.append(Part(image=image.digest))
    return parts
