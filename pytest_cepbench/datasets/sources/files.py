"""Files of data sets: how they are named and found, and what must not be used as a path."""

from __future__ import annotations

import os
import re
import unicodedata
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath, PureWindowsPath

from pytest_cepbench.artifacts import Modality
from pytest_cepbench.artifacts.image import AVIF
from pytest_cepbench.errors import DatasetError, few_of
from pytest_cepbench.files import FileStamp, open_regular

SUFFIXES = frozenset(
    {".png", ".jpg", ".jpeg", ".jpe", ".jfif", ".webp", ".bmp", ".gif", ".tif", ".tiff"}
    | ({".avif"} if AVIF else set())
)
"""Of the image files that are read."""

_UNREAD = frozenset(
    {".avif", ".heic", ".heif", ".jxl", ".jp2", ".svg", ".psd", ".tga", ".ico", ".dng", ".cr2"}
    - SUFFIXES
)
"""Suffixes of pictures that are not read, so that they are counted."""

SOUND_SUFFIXES = frozenset({".wav", ".flac", ".ogg", ".oga"})
"""Of the sound files that are read."""

_UNREAD_SOUNDS = frozenset({".mp3", ".m4a", ".aac", ".opus", ".wma", ".aif", ".aiff", ".au"})

SHARDS = (".parquet", ".arrow", ".tar")
"""Suffixes of tables that are read, in the order in which they are preferred."""

FILES: Mapping[Modality, tuple[str, frozenset[str]]] = {
    "image": ("folder", SUFFIXES),
    "sound": ("sounds", SOUND_SUFFIXES),
}
"""Kind of artifact -> the loader that has its files, and their suffixes."""

_SYSTEM_FOLDERS = frozenset(
    ("@eadir", "@recycle", "#recycle", "#snapshot", "$recycle.bin", "__macosx", "lost+found")
)
"""Folders, in lower case, in which storage and systems keep thumbnails, copies and what was
deleted: no part of a data set."""


def stem(name: str) -> str:
    """A name without the suffix of an image file, normalized (NFC); other suffixes stay."""
    name = unicodedata.normalize("NFC", name)
    suffix = PurePosixPath(name).suffix
    return name.removesuffix(suffix) if suffix.lower() in SUFFIXES else name


def unsafe(name: str) -> str | None:
    """Why a name that a file gives cannot be used as a path, or None where it can be."""
    if reason := outside(name):
        return reason
    long = len(max(name.encode().split(b"/"), key=len)) > 255  # bytes, on all usual file systems
    return f"{name!r:.80} is no file name: it is too long" if long else None


def outside(name: str) -> str | None:
    """Why a name must not be that of a file in a folder or an archive, or None where it may be.

    Absolute paths and `..` are refused as POSIX and Windows write them: a data set never points at
    files outside its own folder.
    """
    for path in (PurePosixPath(name), PureWindowsPath(name)):
        if path.anchor:
            return f"{name!r} is an absolute path: a name inside the folder is expected"
        if ".." in path.parts:
            return f"{name!r} leads out of the folder: a name inside the folder is expected"
    if not name.strip() or "\0" in name:
        return f"{name!r} is no file name"
    try:
        name.encode()
    except UnicodeEncodeError:
        return f"{name!r} is no file name: it is not UTF-8"
    return None


def some_of(names: Iterable[str]) -> str:
    """The first few names and how many there are, for a message."""
    return few_of(map(repr, names))


def require_folder(path: Path, expected: str, what: str = "") -> None:
    """Raise DatasetError for what is no folder. expected, what: in its place, and its name."""
    if not path.is_dir():
        is_there = "is a file" if path.exists() else "does not exist"
        raise DatasetError(f"{what}{str(path)!r} {is_there}: {expected} is expected")


def list_folder(folder: Path) -> list[Path]:
    """The entries of a folder, hidden ones left out, sorted by name.

    Raises DatasetError when it cannot be listed.
    """
    try:
        return sorted(path for path in folder.iterdir() if not path.name.startswith("."))
    except OSError as error:
        raise DatasetError(f"folder {str(folder)!r} cannot be read: {error.strerror}") from error


def only_file(folder: Path, suffixes: Collection[str], what: str, remedy: str) -> Path:
    """The one file of these suffixes directly in a folder; hidden ones are passed over.

    what, remedy: what the file is and what to do where it is not clear, for the message.
    Raises DatasetError when the folder cannot be listed, and for none or several.
    """
    files = [file for file in list_folder(folder) if file.suffix.lower() in suffixes]
    if len(files) != 1:
        names = some_of(file.name for file in files) or "none"
        raise DatasetError(f"{str(folder)!r}: one {what} is expected, found {names}; {remedy}")
    return files[0]


def images_by_stem(folder: Path) -> dict[str, Path]:
    """The image files directly in a folder by their stems; hidden ones are passed over.

    Raises DatasetError when the folder cannot be listed, when a name is not UTF-8, or when two
    files have one stem: neither may stand for the other silently.
    """
    images: dict[str, Path] = {}
    for file in list_folder(folder):
        if file.suffix.lower() not in SUFFIXES:
            continue
        key = stem(sample_name(folder, file))
        if key in images:
            raise DatasetError(
                f"{str(folder)!r} holds {images[key].name!r} and {file.name!r}: keep one of them"
            )
        images[key] = file
    return images


def walk_files(root: Path) -> Iterator[Path]:
    """The files below a folder, hidden ones left out; each real folder once.

    Folders of thumbnails and deleted files, as storage and systems make them, are left out too.
    Raises DatasetError for a folder that cannot be listed: its files would be missing silently.
    """
    seen: set[str] = set()
    for folder, below, files in os.walk(root, onerror=refuse_unreadable, followlinks=True):
        real = os.path.realpath(folder)
        if real in seen:  # a link to a folder that is being walked already
            below.clear()
            continue
        seen.add(real)
        below[:] = sorted(
            name
            for name in below
            if not name.startswith(".") and name.casefold() not in _SYSTEM_FOLDERS
        )
        yield from (Path(folder) / name for name in sorted(files) if not name.startswith("."))


def seed_files(
    root: Path, unread: Counter[str] | None = None, kind: Modality = "image"
) -> Iterator[Path]:
    """Files of images or sounds among those that `walk_files` finds, by suffix.

    unread: counts the pictures, sounds and tables that are not yielded, by suffix.
    """
    counted = {*_UNREAD, *_UNREAD_SOUNDS, *SUFFIXES, *SOUND_SUFFIXES, *SHARDS}
    for path in walk_files(root):
        suffix = path.suffix.lower()
        if suffix in FILES[kind][1]:
            yield path
        elif unread is not None and suffix in counted:
            unread[suffix] += 1


def refuse_unreadable(error: OSError) -> None:
    """Raises DatasetError for a folder that `os.walk` cannot list."""
    raise DatasetError(f"folder {error.filename!r} cannot be read: {error.strerror}") from error


def sample_name(root: Path, file: Path) -> str:
    """Path relative to the root, with `/`, normalized; the sample's id.

    Raises DatasetError when the name is not UTF-8: it could not be written into a baseline.
    """
    name = unicodedata.normalize("NFC", file.relative_to(root).as_posix())
    try:
        name.encode()
    except UnicodeEncodeError as error:
        raise DatasetError(
            f"the file name {name!r} in {str(root)!r} is not UTF-8: rename it"
        ) from error
    return name


def refuse_outside(root: Path, path: Path, place: str = "") -> None:
    """Raises DatasetError for a path that leads out of a folder by a link: it is not followed.

    place: who names it, for the message.
    """
    inside = [os.path.realpath(root).rstrip("/")]
    # In huggingface_hub's cache every file is a link to one among the blobs beside the snapshots.
    if cached := re.match("(.*/datasets--[^/]+)/snapshots/", f"{inside[0]}/"):
        inside.append(os.path.realpath(f"{cached[1]}/blobs"))
    real = f"{os.path.realpath(path)}/"
    if not any(real.startswith(f"{folder}/") for folder in inside):
        what = f"{str(path)!r} is a link out of {str(root)!r}: put the file itself there"
        raise DatasetError(f"{place}: {what}" if place else what)


def find_file(root: Path, name: str, place: str) -> Path | None:
    """The regular file of a name below a folder; None where there is none.

    place: who gives the name, for messages.
    Raises DatasetError for a name or a link that leads out of the folder.
    """
    if reason := unsafe(name):
        raise DatasetError(f"{place}: image {reason}")
    path = root / name
    refuse_outside(root, path, place)
    return path if path.is_file() else None


@dataclass(frozen=True)
class DataFile:
    """A file that must stay as it was when it was listed.

    stamp: taken when it was listed.
    """

    path: Path
    stamp: FileStamp

    def __str__(self) -> str:
        return str(self.path)

    @classmethod
    def at(cls, path: Path) -> DataFile:
        """A file as it lies now. Raises DatasetError for what cannot be read or is not regular."""
        try:
            stamp = FileStamp.of(path)
            open_regular(path).close()  # not a pipe or a device, which would block
        except OSError as error:
            why = error.strerror or error
            raise DatasetError(f"{str(path)!r} cannot be read: {why}") from error
        return cls(path, stamp)

    def check(self) -> None:
        """Raises DatasetError where it is gone or changed."""
        try:
            if FileStamp.of(self.path) != self.stamp:
                raise DatasetError(f"{self.path} changed after its rows were listed: run again")
        except OSError as error:
            raise DatasetError(f"{self.path} cannot be read: {error.strerror}") from error
