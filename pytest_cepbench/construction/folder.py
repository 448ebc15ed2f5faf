"""The folder of a construction: its images, the records of each stage, and their files."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from pytest_cepbench.artifacts import ImageArtifact, read_image
from pytest_cepbench.datasets.sources.files import require_folder, seed_files, some_of
from pytest_cepbench.datasets.sources.files import sample_name as relative_name
from pytest_cepbench.errors import DatasetError, ImageError
from pytest_cepbench.escapes import escape_json
from pytest_cepbench.ratings.folder import decoded, decoded_lines, read_file
from pytest_cepbench.replacement import replace_files

FORMAT = 1
"""Version of the records of a folder; raised when a field changes its meaning."""


class ImageRecord(msgspec.Struct, frozen=True, kw_only=True):
    """An image of the source.

    number: of the image in this data set, for ever: the `index` of the frozen table.
    image: digest of its pixels.
    path: relative to the folder of images. same: other files with the same pixels.
    """

    number: int
    image: str
    path: str
    same: tuple[str, ...] = ()


class Annotation(msgspec.Struct, frozen=True, kw_only=True):
    """What a model said of an image.

    patterns: their names; of the closed list where there is one.
    reasons: name -> reason.
    dropped: names that are not in the closed list, and count for nothing.
    repaired: whether the first reply could not be read, and the second could.
    failure, detail: kind of failure and a line about it, where there is no annotation.
    reply: the text that could not be read, cut.
    fingerprint, prompt_digest: of the model and of the question.
    """

    image: str
    description: str = ""
    patterns: tuple[str, ...] = ()
    reasons: Mapping[str, str] = {}
    dropped: tuple[str, ...] = ()
    repaired: bool = False
    failure: str = ""
    detail: str = ""
    reply: str = ""
    fingerprint: str = ""
    prompt_digest: str = ""


class PatternCounts(msgspec.Struct, frozen=True, kw_only=True):
    """How often patterns were named.

    images: that have an annotation. failures: kind -> images that have none.
    patterns: name -> images, the most frequent first.
    """

    images: int
    failures: Mapping[str, int]
    patterns: Mapping[str, int]


class PatternShare(msgspec.Struct, frozen=True):
    """Images of a pattern, and how many of them were chosen."""

    images: int
    chosen: int


class ChosenImages(msgspec.Struct, frozen=True, kw_only=True):
    """The images of the set.

    images: digests, sorted. patterns: name -> its images.
    """

    per_pattern: int
    images: tuple[str, ...]
    patterns: Mapping[str, PatternShare]


class ModelRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A model that was asked, and with what.

    prompt: as it was sent. prompt_digest: of it.
    """

    role: str
    spec: str
    what: str
    adapter: str
    fingerprint: str
    params: Mapping[str, Any]
    prompt: str
    prompt_digest: str


class ConstructionRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What a folder was constructed from; `construction.json`.

    source: the folder of images, as it was typed.
    prompts: of the questions to models.
    unreadable: path -> why an image was left out.
    models: stage -> the model whose answers its file has.
    """

    v: int = FORMAT
    source: str
    prompts: str
    unreadable: Mapping[str, str] = {}
    models: Mapping[str, ModelRecord] = {}


CONSTRUCTION = "construction.json"

IMAGES, EXTRACT, ANNOTATE = "images.jsonl", "extract.jsonl", "annotate.jsonl"

COUNTS, CHOSEN = "counts.json", "chosen.json"

PATTERNS = "patterns.toml"

RATINGS, FROZEN = "ratings", "frozen"

_LARGEST = 2**30  # bytes

T = TypeVar("T")


@dataclass(frozen=True)
class ConstructionFolder:
    """A folder in which a data set is constructed."""

    path: Path

    def has(self, name: str) -> bool:
        """Whether a file is there."""
        return (self.path / name).is_file()

    def read(self, name: str, kind: type[T]) -> T:
        """The record in a file. Raises DatasetError where it cannot be read."""
        return decoded(read_file(self.path / name, _LARGEST), kind, str(self.path / name))

    def read_lines(self, name: str, kind: type[T]) -> list[T]:
        """The records in the lines of a file. Raises DatasetError."""
        path = self.path / name
        return list(decoded_lines(read_file(path, _LARGEST), kind, path))

    def write(self, contents: Mapping[str, Any]) -> None:
        """Write records, lists of records and texts into files, all or none. Raises WriteError."""
        replace_files(
            self.path, {self.path / name: encode(value) for name, value in contents.items()}
        )


def encode(value: object) -> bytes:
    """A text as it is, a list as lines, a record as indented JSON; invisible characters escaped."""
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, list):
        return "".join(f"{_json(record)}\n" for record in value).encode()
    return f"{msgspec.json.format(_json(value), indent=2)}\n".encode()


def _json(record: object) -> str:
    return escape_json(msgspec.json.encode(record).decode("utf-8", "surrogatepass"))


def open_construction(path: Path) -> ConstructionFolder:
    """The folder of a data set that is being constructed. Raises DatasetError where it is none."""
    folder = ConstructionFolder(path)
    if not folder.has(CONSTRUCTION):
        raise DatasetError(
            f"{str(path)!r} holds no data set that is being constructed: it has no {CONSTRUCTION}; "
            "begin with cepbench dataset patterns IMAGES --out FOLDER"
        )
    if folder.read(CONSTRUCTION, ConstructionRecord).v != FORMAT:
        raise DatasetError(
            f"{str(path)!r} was written by another version of the package: update it"
        )
    return folder


def start_construction(path: Path) -> ConstructionFolder:
    """The folder for a data set, which may have been begun already.

    Raises DatasetError for a folder that holds something else.
    """
    if path.exists() and not path.is_dir():
        raise DatasetError(f"--out {str(path)!r} is a file: a folder is expected")
    if (path / CONSTRUCTION).is_file():
        return open_construction(path)
    if path.is_dir() and any(not entry.name.startswith(".") for entry in path.iterdir()):
        raise DatasetError(
            f"--out {str(path)!r} holds other files and no data set: name a new folder"
        )
    return ConstructionFolder(path)


@dataclass(frozen=True)
class SourceImages:
    """The images that a data set is constructed from.

    records: those of different pixels, by number.
    unreadable: path -> why no image could be read there.
    """

    folder: Path
    records: tuple[ImageRecord, ...]
    unreadable: Mapping[str, str]

    def load(self, record: ImageRecord) -> ImageArtifact:
        """An image. Raises DatasetError where its file holds another by now, or none."""
        path = self.folder / record.path
        remedy = "restore it, or run cepbench dataset patterns where the images lie now"
        try:
            image = read_image(path)
        except ImageError as error:
            raise DatasetError(f"{str(path)!r}: {error}; {remedy}") from error
        if image.digest != record.image:
            raise DatasetError(f"{str(path)!r} has changed since it was read first: {remedy}")
        return image


def pixels_digest(path: Path) -> str:
    """The digest of the pixels of the image in a file. Raises ImageError."""
    return read_image(path).digest


def find_images(
    folder: Path,
    earlier: Sequence[ImageRecord] = (),
    look: Callable[[Path], str] = pixels_digest,
    without: Path | None = None,
) -> SourceImages:
    """The images below a folder; hidden files and files of other kinds are passed over.

    earlier: those of the data set so far, which keep their numbers; others may have been added.
    look: as `pixels_digest`, which may remember what it saw.
    without: a folder, such as that of the data set, whose images are passed over where it lies
        below the other one.
    Files of the same pixels are one image, and files that hold no image are left out with the
    reason. Raises DatasetError for a folder without an image, and where one of `earlier` is gone.
    """
    require_folder(folder, "a folder of images")
    files: dict[str, list[str]] = {}
    unreadable: dict[str, str] = {}
    whole = folder.resolve()
    own = None if without is None or without.resolve() == whole else without.resolve()
    for path in sorted(seed_files(folder)):
        relative_name(folder, path)  # refuses one that is not UTF-8
        name = path.relative_to(folder).as_posix()  # as it is written on disk, to be read again
        if own is not None and (whole / name).is_relative_to(own):
            continue
        try:
            files.setdefault(look(path), []).append(name)
        except (ImageError, OSError) as error:  # OSError: a link that leads nowhere
            unreadable[name] = str(error)
    if not files:
        why = f": {len(unreadable)} files hold none that can be read" if unreadable else ""
        raise DatasetError(f"no images in {str(folder)!r}{why}")
    gone = [record.path for record in earlier if record.image not in files]
    if gone:
        raise DatasetError(
            f"the data set was begun with other images: {len(gone)} of its {len(earlier)} are not "
            f"in {str(folder)!r} ({some_of(gone)}): give the folder that it was begun with, or "
            "another --out"
        )
    known = {record.image: record.number for record in earlier}
    new = sorted((names[0], digest) for digest, names in files.items() if digest not in known)
    first = max(known.values(), default=-1) + 1
    known |= {digest: number for number, (_, digest) in enumerate(new, first)}
    records = tuple(
        ImageRecord(number=number, image=digest, path=first_path, same=tuple(others))
        for digest, number in sorted(known.items(), key=lambda item: item[1])
        for first_path, *others in [files[digest]]
    )
    return SourceImages(folder, records, unreadable)


def choose_images(labels: Mapping[str, Sequence[str]], per_pattern: int) -> list[str]:
    """The chosen images, sorted by digest: so many of each pattern, the same on every machine.

    Every pattern gets its first image, then its second, and so on, the rarest one first; an image
    counts for all its patterns. In rounds and not pattern by pattern, since only then a larger
    quota takes all that a smaller one takes.
    labels: digest of an image -> its patterns.
    """
    members = members_of(labels)
    chosen: set[str] = set()
    counts = dict.fromkeys(members, 0)
    waiting = {pattern: iter(images) for pattern, images in members.items()}
    for wanted in range(1, per_pattern + 1):
        for pattern, left in waiting.items():
            if counts[pattern] >= wanted:
                continue
            image = next((image for image in left if image not in chosen), None)
            if image is not None:
                chosen.add(image)
                for own in dict.fromkeys(labels[image]):
                    counts[own] += 1
    return sorted(chosen)


def members_of(labels: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    """Pattern -> its images in order of their digests; the rarest pattern first, then by name."""
    members: dict[str, list[str]] = {}
    for image in sorted(labels):
        for pattern in dict.fromkeys(labels[image]):
            members.setdefault(pattern, []).append(image)
    return dict(sorted(members.items(), key=lambda item: (len(item[1]), item[0])))
