"""The folder of a study: `ratings/NAME` with its items, images, and one file of votes per person.

Files of votes are only added to. The last valid record of a person for an item counts; what does
not count is kept, and told in `Votes.remarks`.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TypeVar

import msgspec

from pytest_cepbench.artifacts.image import ImageArtifact, read_image
from pytest_cepbench.errors import DatasetError, ImageError, WriteError
from pytest_cepbench.escapes import one_line
from pytest_cepbench.files import MOST_TEXT, append_line, digest_bytes, read_regular
from pytest_cepbench.ratings.records import FORMAT, Item, Source, Study, Vote, VoteKind, fault_of

STUDY, ITEMS, SOURCES = "study.json", "items.jsonl", "sources.jsonl"

VOTES, IMAGES = "votes", "images"

_LINES = ".jsonl"

_MOST_ITEMS = 1024 * 2**20  # bytes

T = TypeVar("T")


@dataclass(frozen=True)
class Ratings:
    """A study as its folder has it.

    items: digest -> item, in the order of the file.
    """

    path: Path
    study: Study
    items: Mapping[str, Item]

    @cached_property
    def asked(self) -> dict[str, Item]:
        """The items that are asked for their answers: none whose answer is known."""
        return {digest: own for digest, own in self.items.items() if own.kind == "item"}

    def image_path(self, digest: str) -> Path:
        """The file of an image."""
        return self.path / IMAGES / f"{digest}.webp"

    def image(self, digest: str) -> ImageArtifact:
        """An image. Raises DatasetError for one that is missing, damaged or another."""
        path = self.image_path(digest)
        try:
            image = read_image(path)
        except ImageError as error:
            raise DatasetError(f"{path}: {error}") from error
        if image.digest != digest:
            raise DatasetError(f"{path} holds another image than its name says: restore it")
        return image

    @cached_property
    def sources(self) -> tuple[Source, ...]:
        """Which model made what; none where the file is not there. Raises DatasetError."""
        path = self.path / SOURCES
        if not path.exists():
            return ()
        return tuple(decoded_lines(read_file(path, MOST_TEXT), Source, path))

    def vote_path(self, annotator: str) -> Path:
        """The file of a person's votes."""
        return self.path / VOTES / f"{annotator}{_LINES}"


def read_ratings(path: Path) -> Ratings:
    """The study in a folder. Raises DatasetError for one that holds none, or a damaged one."""
    if not (path / STUDY).is_file():
        raise DatasetError(f"{str(path)!r} is no ratings folder: it has no {STUDY}")
    study = decoded(read_file(path / STUDY, MOST_TEXT), Study, str(path / STUDY))
    if fault := _version_fault(study.v):
        raise DatasetError(f"{path / STUDY}: {fault}")
    try:  # a folder may come from elsewhere, and files have the names of its people
        check_study(study)
    except DatasetError as error:
        raise DatasetError(f"{path / STUDY}: {error}") from error
    data = read_file(path / ITEMS, _MOST_ITEMS)
    if study.data and digest_bytes(data) != study.data:
        raise DatasetError(
            f"{path / ITEMS} is not the file that the study was written with: its votes would be "
            "of other items; restore it"
        )
    items = {item.item: item for item in decoded_lines(data, Item, path / ITEMS)}
    return Ratings(path, study, items)


_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


def check_study(study: Study) -> None:
    """Raise DatasetError for people and shares that no study can have."""
    names = study.annotators
    if not names:
        raise DatasetError("a study has at least one annotator")
    for name in names:  # of files, and in addresses
        if not _NAME.fullmatch(name):
            raise DatasetError(
                f"annotator {name!r}: letters, digits, '.', '_' and '-' are expected, at most 64, "
                "and a letter or a digit first"
            )
    if len({name.casefold() for name in names}) < len(names):
        raise DatasetError(
            f"annotators have to differ, also in lower case, got {', '.join(sorted(names))}"
        )
    if not 1 <= study.overlap <= len(names):
        raise DatasetError(
            f"an overlap of {study.overlap} needs as many annotators, at least 1, and there are "
            f"{len(names)}"
        )


Counting = tuple[str, str, VoteKind]
"""Annotator, digest of the item, kind of the vote: of which one answer counts."""


@dataclass(frozen=True)
class Votes:
    """All records of people for a study.

    records: annotator -> every valid record in the order of the file.
    remarks: what does not count and why, a sentence for each kind that there is.
    files: annotator -> the file that holds them.
    """

    records: Mapping[str, tuple[Vote, ...]]
    remarks: tuple[str, ...] = ()
    files: Mapping[str, Path] = field(default_factory=dict)

    @cached_property
    def counted(self) -> dict[Counting, Vote]:
        """The answers that count, skipped items among them."""
        return counted_votes(vote for votes in self.records.values() for vote in votes)

    def answers(self, kind: VoteKind = "item") -> list[Vote]:
        """The answers of a kind that count, without what was skipped."""
        return [vote for vote in self.counted.values() if vote.kind == kind and not vote.skip]


def counted_votes(records: Iterable[Vote]) -> dict[Counting, Vote]:
    """The last answer of each person to each item that was not withdrawn.

    records: of any number of people, those of each person in order.
    """
    counted: dict[Counting, Vote] = {}
    earlier: dict[Counting, list[Vote]] = {}  # answers that were given again: few
    for vote in records:
        key = (vote.annotator, vote.item, vote.kind)
        if not vote.undo:
            if key in counted:
                earlier.setdefault(key, []).append(counted[key])
            counted[key] = vote
        elif earlier.get(key):
            counted[key] = earlier[key].pop()
        else:
            counted.pop(key, None)
    return counted


def read_votes(ratings: Ratings) -> Votes:
    """All votes of a study.

    Raises DatasetError for a file that cannot be read, and where two files have votes of one
    person.
    """
    unreadable, unknown, faults = 0, 0, list[str]()
    records: dict[str, tuple[Vote, ...]] = {}
    owners: dict[str, Path] = {}
    folder = ratings.path / VOTES
    for path in sorted(folder.glob(f"*{_LINES}")):
        votes = []
        for line in filter(bytes.strip, read_file(path, _MOST_ITEMS).splitlines()):
            try:
                vote = msgspec.json.decode(line, type=Vote)
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
                unreadable += 1
                continue
            item = ratings.items.get(vote.item)
            if item is None:
                unknown += 1
            elif fault := _version_fault(vote.v) or fault_of(vote, ratings.study, item):
                faults.append(fault)
            else:
                votes.append(vote)
        for annotator in dict.fromkeys(vote.annotator for vote in votes):
            if owners.setdefault(annotator, path) != path:
                raise DatasetError(
                    f"{owners[annotator]} and {path} both have votes of {annotator!r}: keep the "
                    "one that is whole, or rename the annotator in the other"
                )
            records[annotator] = tuple(vote for vote in votes if vote.annotator == annotator)
    first_fault = faults[0] if faults else ""
    counts = {
        "that cannot be read are left out, such as one cut off in a crash": unreadable,
        "for items that the study does not have are left out": unknown,
        f"that answer no question are left out ({first_fault})": len(faults),
    }
    remarks = [f"{count} records of votes {words}" for words, count in counts.items() if count]
    return Votes(records, tuple(remarks), owners)


class LineFile:
    """A file, open for adding lines; a line is on the disk when `append` returns.

    path: created when absent. A line that was cut off when a machine stopped stays as it is, and
    the next one begins below it.
    Raises WriteError where it cannot be opened.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = os.open(path, flags, 0o666)
            folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            with suppress(OSError):  # some file systems cannot sync folders
                os.fsync(folder)
            os.close(folder)
        except OSError as error:
            raise WriteError(
                f"{path} could not be opened for writing: {error.strerror or error}"
            ) from error

    def append(self, line: bytes) -> None:
        """Add a line and sync it. Raises WriteError, after which no part of it is left."""
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX)  # another process may add to it as well
            append_line(self._file, line)
        except OSError as error:
            reason = "the disk is full" if error.errno == errno.ENOSPC else error.strerror or error
            raise WriteError(
                f"{self._path} could not be written: {reason}; it is as it was before"
            ) from error
        finally:
            with suppress(OSError):
                fcntl.flock(self._file, fcntl.LOCK_UN)

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)


# -- reading -------------------------------------------------------------------------------------


def read_file(path: Path, most: int) -> bytes:
    """The content of a file that is no link. Raises DatasetError."""
    try:
        return read_regular(path, most, links=False)
    except OSError as error:
        raise DatasetError(f"{path} cannot be read: {error.strerror or error}") from error


def decoded_lines(data: bytes, kind: type[T], path: Path) -> Iterator[T]:
    """The records in the lines of a file. Raises DatasetError, which names the line."""
    for number, line in enumerate(data.splitlines(), 1):
        if line.strip():
            record = decoded(line, kind, f"{path}, line {number}")
            if fault := _version_fault(getattr(record, "v", FORMAT)):
                raise DatasetError(f"{path}: {fault}")
            yield record


def decoded(data: bytes, kind: type[T], where: str) -> T:
    """A record of JSON. where: names it in an error. Raises DatasetError, in one line."""
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise DatasetError(f"{where}: {one_line(str(error))}") from error


def _version_fault(version: int) -> str:
    if version == FORMAT:
        return ""
    remedy = "update the package" if version > FORMAT else "it is older: write a new study"
    return f"version {version} of its form is not known here, {FORMAT} is: {remedy}"
