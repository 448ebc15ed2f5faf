"""Folders of files: the names in them, and which may be used as paths."""

from __future__ import annotations

import os
import unicodedata
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path, PurePosixPath, PureWindowsPath

from pytest_cepbench.errors import DatasetError

SUFFIXES = frozenset({".png", ".jpg", ".jpeg", ".webp", ".bmp", ".gif", ".tif", ".tiff"})

_SHOWN = 5


def stem(name: str) -> str:
    """A name without the suffix of an image file, normalized (NFC); other suffixes stay."""
    name = unicodedata.normalize("NFC", name)
    suffix = PurePosixPath(name).suffix
    return name.removesuffix(suffix) if suffix.lower() in SUFFIXES else name


def unsafe(name: str) -> str | None:
    """Why a name that a file gives must not be used as a path, or None where it may be.

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
    ordered = sorted(names)
    shown = ", ".join(map(repr, ordered[:_SHOWN]))
    more = len(ordered) - _SHOWN
    return f"{shown} and {more} more" if more > 0 else shown


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


def walk_images(root: Path) -> Iterator[Path]:
    """Image files below a folder by suffix, hidden ones left out; each real folder once.

    Raises DatasetError for a folder that cannot be listed: its images would be missing silently.
    """
    seen: set[str] = set()
    for folder, below, files in os.walk(root, onerror=refuse_unreadable, followlinks=True):
        real = os.path.realpath(folder)
        if real in seen:  # a link to a folder that is being walked already
            below.clear()
            continue
        seen.add(real)
        below[:] = sorted(name for name in below if not name.startswith("."))
        for name in sorted(files):
            if not name.startswith(".") and Path(name).suffix.lower() in SUFFIXES:
                yield Path(folder) / name


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
