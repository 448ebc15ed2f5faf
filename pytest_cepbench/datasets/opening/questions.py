"""OpenING's questions and gold answers, as its authors released them.

`test_data.jsonl` has 2,160 questions and `dev_data.jsonl` 3,240, with images in `images/TASK/`:
inputs `INSTANCE-i-1.jpg`, ..., gold answers `INSTANCE-o-1.jpg`, .... Source: Zhou et al., OpenING,
section 3, and the authors' repository.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pytest_cepbench.datasets.opening.image_files import ImageFiles
from pytest_cepbench.datasets.opening.records import (
    BEGIN_MARKER,
    IMAGE_MARKER,
    Record,
    RecordedPart,
    parse_record,
)
from pytest_cepbench.datasets.opening.task_names import META_TOPICS, TASKS
from pytest_cepbench.datasets.sample import Dataset, FileImage, GoldStep, Sample, SeedImage
from pytest_cepbench.datasets.sources.file_names import list_folder
from pytest_cepbench.datasets.sources.text_files import read_json_lines
from pytest_cepbench.errors import DatasetError, unknown_name

VERSION = 1

SPLITS = ("test", "dev")

RELEASED_FOLDER = "opening-benchmark"
"""Name of the released folder, which the authors' code writes with a small and with a large B."""


def load_opening(path: Path, *, split: str = "test", partial: bool = False) -> Dataset:
    """The questions of a split with their gold answers, by the ids of the release.

    path: the folder that holds `test_data.jsonl` and `images/`, whatever its name, or the one that
    holds the released folder.
    split: one of `SPLITS`.
    partial: leave out questions whose images are not all there, instead of refusing the folder.
    The categories of a sample are its task and its meta-topic. Its `metadata` has the record's
    fields as they are written, and its `input`; without those no answer can be exported.
    Raises DatasetError, with file and line, for missing and unknown fields, ids that contradict one
    another or are there twice, unknown tasks, an image without its marker and the reverse, and
    paths out of the folder; for an unknown split, a folder that is none of the release, and images
    that are missing.
    """
    if split not in SPLITS:
        raise DatasetError(f"OpenING: {unknown_name('split', str(split), SPLITS)}")
    if partial not in (False, True):
        raise DatasetError(f"OpenING: the option partial is true or false, got {partial!r:.60}")
    table = _table(path, f"{split}_data.jsonl")
    files = ImageFiles(table.parent)
    files.refuse_outside("OpenING", table)
    samples: list[Sample] = []
    missing: list[str] = []
    named = 0
    for record in _records(table):
        images = _images(record, files)
        named += len(images)
        absent = [f"{name!r} ({record.place})" for name, file in images.items() if file is None]
        missing += absent
        if not absent:
            samples.append(_sample(record, images))
    if missing and not (partial and samples):
        msg = (
            f"{str(table.parent)!r}: {len(missing):,} of {named:,} images are missing, the first "
            f"{missing[0]}: "
        )
        if samples:
            msg += "give the whole archive, or set the option partial = true for what is complete"
        else:
            msg += "no question is complete; give the whole archive"
        raise DatasetError(msg)
    return Dataset(
        name="opening",
        identity={
            "loader": "opening",
            "version": VERSION,
            "split": split,
            "partial": bool(partial),
        },
        samples=tuple(sorted(samples, key=lambda sample: sample.id)),
    )


def _table(path: Path, name: str) -> Path:
    """The file of a split, in the folder that was given or in a released one in it."""
    if not path.is_dir():
        what = "is a file" if path.exists() else "does not exist"
        raise DatasetError(
            f"OpenING's folder {str(path)!r} {what}: the folder that holds {name} is expected"
        )
    inner = [
        entry / name
        for entry in list_folder(path)
        if entry.name.casefold() == RELEASED_FOLDER and (entry / name).is_file()
    ]
    tables = [path / name] if (path / name).is_file() else inner
    if len(tables) != 1:
        what = "several folders with" if tables else "no"
        raise DatasetError(f"{str(path)!r} holds {what} {name}: give the folder in which it lies")
    return tables[0]


def _records(table: Path) -> Iterator[Record]:
    """The questions in a file, each checked, with its markers."""
    places: dict[str, str] = {}
    for place, value in read_json_lines(table):
        record = parse_record(place, value)
        if record.uid in places:
            raise DatasetError(
                f"{place}: {record.uid!r} is there twice, first at {places[record.uid]}"
            )
        places[record.uid] = place
        if record.uid[:4] not in TASKS:
            raise DatasetError(
                f"{place}: {record.uid!r} is of a task {record.uid[:4]!r} that OpenING has not"
            )
        for side, parts in (("input", record.question), ("output", record.answer)):
            if not parts:
                raise DatasetError(f"{place}: {side} has no step")
            for number, part in enumerate(parts, 1):
                _check_marker(f"{place}, {side} {number}", part)
        yield record


def _check_marker(place: str, part: RecordedPart) -> None:
    markers = part.text.count(IMAGE_MARKER)
    if markers != (part.image is not None):
        raise DatasetError(
            f"{place}: {markers} {IMAGE_MARKER} in the text, and image is {part.image!r:.200}"
        )
    if part.image is None and not _without_markers(part.text):
        raise DatasetError(f"{place}: neither a text nor an image")


def _images(record: Record, files: ImageFiles) -> dict[str, Path | None]:
    """The image files of a record by the names that it gives them; None for those not there."""
    return {
        part.image: files.find(record.place, part.image)
        for part in (*record.question, *record.answer)
        if part.image is not None
    }


def _sample(record: Record, images: Mapping[str, Path | None]) -> Sample:
    def image_of(part: RecordedPart) -> FileImage | None:
        file = None if part.image is None else images[part.image]
        return None if file is None else FileImage(file)

    question: list[str | SeedImage] = []
    for part in record.question:
        before, _, after = part.text.partition(IMAGE_MARKER)
        image = image_of(part)
        pieces = (_without_markers(before), image, _without_markers(after))
        question += [piece for piece in pieces if piece]
    metadata: dict[str, Any] = dict(record.fields)
    metadata["input"] = [{"image": part.image, "text": part.text} for part in record.question]
    return Sample(
        id=record.uid,
        categories=(TASKS[record.uid[:4]], META_TOPICS[record.uid[:2]]),
        metadata=metadata,
        question=tuple(question),
        gold=tuple(GoldStep(_without_markers(part.text), image_of(part)) for part in record.answer),
    )


def _without_markers(text: str) -> str:
    """A text without markers: in the place of each is a space, or the line end that was beside it.

    White space at both ends is cut.
    """
    for marker in (BEGIN_MARKER, IMAGE_MARKER):
        whole, *rest = text.split(marker)
        for part in rest:
            before, after = whole.rstrip(), part.lstrip()
            space = whole[len(before) :] + part[: len(part) - len(after)]
            whole = f"{before}\n{after}" if "\n" in space else f"{before} {after}"
        text = whole
    return text.strip()
