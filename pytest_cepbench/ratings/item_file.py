"""Items of one's own, from a file of lines: for answers that no run of this package has made.

A line is an item:

    {"question": ["A text", {"image": "q/1.png"}], "options": [["Text", {"image": "a/1.png"}], ...],
     "models": ["name of the model of each option"], "sample": "id"}

A text stands for itself, an image is a path from the folder of the file. `models` and `sample` are
for those who read the votes, and no annotator sees them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

import msgspec

from pytest_cepbench.artifacts.image import ImageArtifact, read_image
from pytest_cepbench.errors import DatasetError, ImageError
from pytest_cepbench.escapes import one_line
from pytest_cepbench.files import MOST_TEXT, read_text
from pytest_cepbench.ratings.items import make_item
from pytest_cepbench.ratings.records import Item, Part, Source, Task

SUFFIX = ".jsonl"

_NAMED = 10  # lines in a message


class _ImageFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    image: str


_Piece = str | _ImageFile


class _Line(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    question: tuple[_Piece, ...]
    options: tuple[tuple[_Piece, ...], ...] = ()
    models: tuple[str, ...] = ()
    sample: str = ""


@dataclass
class OwnItems:
    """Items of a file, with what their folder needs."""

    items: list[Item] = field(default_factory=list)
    images: dict[str, ImageArtifact] = field(default_factory=dict)
    sources: list[Source] = field(default_factory=list)


def read_items(path: Path, task: Task) -> OwnItems:
    """The items of a file.

    Raises DatasetError, which names the line, for one that cannot be understood, an image that
    cannot be read, two equal sides, and a file without an item.
    """
    own = OwnItems()
    equal: list[int] = []
    for number, line in _lines(path):
        where = f"{path}, line {number}"
        if line.models and len(line.models) != len(line.options):
            raise DatasetError(f"{where}: {len(line.models)} models of {len(line.options)} options")
        question = _parts(line.question, path.parent, where, own)
        options = [_parts(option, path.parent, where, own) for option in line.options]
        item = make_item(task, question, options)
        if task in ("pair", "caption") and len({option.option for option in item.options}) == 1:
            equal.append(number)
        own.items.append(item)
        models = line.models or ("",) * len(options)
        own.sources += [
            Source(item=item.item, option=option.option, model=model, sample=line.sample)
            for option, model in zip(item.options, models, strict=True)
        ] or [Source(item=item.item, sample=line.sample)]
    if equal:
        raise DatasetError(
            f"{path}: both sides are equal in {_named(equal)}, which is a tie without asking "
            "anybody: leave these items out, and count them yourself"
        )
    if not own.items:
        raise DatasetError(f"{path} holds no item")
    return own


def _named(lines: Sequence[int]) -> str:
    """The first of some lines of a file, by number."""
    names = ", ".join(map(str, lines[:_NAMED]))
    more = f" and {len(lines) - _NAMED} more" if len(lines) > _NAMED else ""
    return f"{'line' if len(lines) == 1 else 'lines'} {names}{more}"


def _lines(path: Path) -> Iterator[tuple[int, _Line]]:
    """Number and content of each line that is not empty."""
    try:
        text = read_text(path, MOST_TEXT)
    except (OSError, UnicodeDecodeError) as error:
        raise DatasetError(f"{path} cannot be read: {error}") from error
    for number, line in enumerate(text.removeprefix("\ufeff").split("\n"), 1):
        if not line.strip():
            continue
        try:
            yield number, msgspec.json.decode(line.encode(), type=_Line)
        except msgspec.MsgspecError as error:
            raise DatasetError(f"{path}, line {number}: {one_line(str(error))}") from error


def _parts(pieces: Sequence[_Piece], folder: Path, where: str, own: OwnItems) -> list[Part]:
    return [
        Part(text=piece) if isinstance(piece, str) else _image(piece.image, folder, where, own)
        for piece in pieces
    ]


def _image(name: str, folder: Path, where: str, own: OwnItems) -> Part:
    relative = PurePosixPath(name)
    if relative.is_absolute() or ".." in relative.parts or "\0" in name:
        raise DatasetError(f"{where}: image {name!r} has to lie below the folder of the file")
    try:
        image = read_image(folder / name)
    except ImageError as error:
        raise DatasetError(f"{where}: image {name!r}: {error}") from error
    own.images[image.digest] = image
    return Part(image=image.digest)
