"""Battles with stored verdicts, one a line, to measure judges with: `battles.jsonl` and its images.

    {"id": "swap/0003", "category": "swap", "verdict": "A",
     "question": [{"text": "..."}, {"image": "images/0c3f.webp"}],
     "first": [{"text": "...", "image": "images/77ab.webp"}, {"text": "..."}],
     "second": [...]}

Images are files in the folder of the table. A scene of the world of shapes can be written as its
caption instead, `{"drawing": "one shape : ...", "jitter": 7}`, and is drawn when it is needed.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from pytest_cepbench.artifacts import digest_json
from pytest_cepbench.artifacts.outcome import Winner
from pytest_cepbench.datasets.sample import (
    Dataset,
    DrawnImage,
    FileImage,
    GoldStep,
    Sample,
    SeedImage,
)
from pytest_cepbench.datasets.shapes import caption, parse_caption, render
from pytest_cepbench.datasets.sources.files import find_file
from pytest_cepbench.datasets.sources.text_files import convert_record, read_json_lines
from pytest_cepbench.errors import DatasetError

VERSION = 1

FILE_NAME = "battles.jsonl"

VERDICT = "verdict"
"""In a sample's metadata: the stored verdict, `A` for the first answer."""


class BattlePiece(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A text, an image, or both: a piece of a question or a step of an answer.

    image: a file, counted from the folder of the table.
    drawing: caption of a scene of the world of shapes, in the place of a file.
    jitter: of the drawing.
    """

    text: str = ""
    image: str | None = None
    drawing: str | None = None
    jitter: int = 0


class JudgedBattleLine(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A line of the table; see the module's text."""

    id: str
    category: str
    verdict: Winner
    question: list[BattlePiece]
    first: list[BattlePiece]
    second: list[BattlePiece]


def load_judged_battles(path: Path) -> Dataset:
    """Battles as samples: the first answer is the sample's own, the second its reference.

    path: the table, or the folder that has it as battles.jsonl. The metadata has the
    stored verdict. Raises DatasetError, naming file and line, for a field that is missing,
    unknown or of the wrong type, an id that is there twice, an empty question or answer, an image
    outside the folder, and a drawing that is no caption.
    """
    table = path / FILE_NAME if path.is_dir() else path
    samples = tuple(_sample(place, own, table.parent) for place, own in read_json_lines(table))
    digest = digest_json({sample.id: sample.metadata for sample in samples})[:16]
    identity = {"loader": "judged-battles", "version": VERSION, "digest": digest}
    return Dataset("judged-battles", identity, samples)


def _sample(place: str, value: Mapping[str, Any], root: Path) -> Sample:
    line = convert_record(place, value, JudgedBattleLine)
    for name in ("id", "category", "question", "first", "second"):
        if not getattr(line, name):
            raise DatasetError(f"{place}: {name} is empty")
    question: list[str | SeedImage] = []
    for piece in line.question:
        question += filter(None, (_image(f"{place}, question", piece, root), piece.text))
    first, second = (
        tuple(GoldStep(piece.text, _image(f"{place}, {side}", piece, root)) for piece in pieces)
        for side, pieces in (("first", line.first), ("second", line.second))
    )
    return Sample(
        line.id,
        (line.category,),
        question=tuple(question),
        gold=second,
        answer=first,
        metadata={VERDICT: line.verdict, "line": digest_json(dict(value))},
    )


def _image(place: str, piece: BattlePiece, root: Path) -> SeedImage | None:
    if not piece.text and piece.image is None and piece.drawing is None:
        raise DatasetError(f"{place}: a piece has neither a text nor an image")
    if piece.image is not None and piece.drawing is not None:
        raise DatasetError(f"{place}: a piece has an image and a drawing: give one of them")
    if piece.image is not None:
        if (path := find_file(root, piece.image, place)) is None:
            raise DatasetError(f"{place}: there is no image {piece.image!r:.60}")
        return FileImage(path)
    if piece.drawing is None:
        return None
    scene = parse_caption(piece.drawing)
    if caption(scene) != piece.drawing or piece.jitter < 0:
        raise DatasetError(
            f"{place}: {piece.drawing!r:.60} with jitter {piece.jitter} is no drawing: give the "
            "caption of a scene of the world of shapes, and a number from 0"
        )
    return DrawnImage(partial(render, scene, piece.jitter))
