"""Files of data sets: how they are named and found, and what is kept of them for later runs."""

from __future__ import annotations

import os
import tempfile
import unicodedata
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import TYPE_CHECKING, NamedTuple

from pytest_cepbench.artifacts import Modality
from pytest_cepbench.artifacts.image import AVIF
from pytest_cepbench.errors import DatasetError
from pytest_cepbench.files import FileStamp, digest_json, open_regular

if TYPE_CHECKING:
    import pyarrow as pa

SUFFIXES = frozenset(
    {".png", ".jpg", ".jpeg", ".jpe", ".jfif", ".webp", ".bmp", ".gif", ".tif", ".tiff"}
    | ({".avif"} if AVIF else set())
)
"""Of the image files that are read."""

_UNREAD = frozenset(
    {
        *(".avif", ".heic", ".heif", ".jxl", ".jp2", ".svg", ".psd", ".tga", ".ico"),
        *(".dng", ".cr2", ".cr3", ".nef", ".arw", ".raf", ".orf"),
    }
    - SUFFIXES
)
"""Suffixes of pictures that are not read, so that they are counted."""

SOUND_SUFFIXES = frozenset({".wav", ".flac", ".ogg", ".oga"})
"""Of the sound files that are read."""

_UNREAD_SOUNDS = frozenset({".mp3", ".m4a", ".aac", ".opus", ".wma", ".aif", ".aiff", ".au"})


class FilesOf(NamedTuple):
    """Files of one kind of artifact: the loader that has them, suffixes, and formats to save."""

    loader: str
    suffixes: frozenset[str]
    save: str


FILES: Mapping[Modality, FilesOf] = {
    "image": FilesOf("folder", SUFFIXES, "PNG or JPEG"),
    "sound": FilesOf("sounds", SOUND_SUFFIXES, "WAV or FLAC"),
}

_SYSTEM_FOLDERS = frozenset(
    {
        "@eadir",
        "@recycle",
        "@recently-snapshot",
        "#recycle",
        "#snapshot",
        "$recycle.bin",
        "__macosx",
        "lost+found",
        "system volume information",
    }
)
"""Folders, in lower case, in which storage and systems keep thumbnails, copies and what was
deleted: no part of a data set."""

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


def walk_files(
    root: Path, unread: Counter[str] | None = None, kind: Modality = "image"
) -> Iterator[Path]:
    """Files of images or sounds below a folder by suffix, hidden ones left out; each real folder
    once.

    unread: counts the pictures and sounds that are not yielded, by suffix.
    Folders of thumbnails and deleted files, as storage and systems make them, are left out too.
    Raises DatasetError for a folder that cannot be listed: its files would be missing silently.
    """
    counted = _UNREAD | _UNREAD_SOUNDS | SUFFIXES | SOUND_SUFFIXES
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
        for name in sorted(files):
            suffix = Path(name).suffix.lower()
            if name.startswith("."):
                continue
            if suffix in FILES[kind].suffixes:
                yield Path(folder) / name
            elif unread is not None and suffix in counted:
                unread[suffix] += 1


def passed_over(unread: Counter[str], kind: Modality) -> str:
    """A sentence for people on the files that `walk_files` counted; empty where it counted none."""
    notes = []
    for other, (loader, suffixes, _) in FILES.items():
        names = _suffixes_of(unread, suffixes)
        if other != kind and names:
            notes.append(f'{names} passed over, as they are {other}s: loader = "{loader}" has them')
    names = _suffixes_of(unread, unread.keys() - SUFFIXES - SOUND_SUFFIXES)
    if names:
        save = FILES[kind].save
        notes.append(f"{names} passed over, as such files are not read: save them as {save}")
    return "; ".join(notes)


def _suffixes_of(unread: Counter[str], suffixes: Collection[str]) -> str:
    return ", ".join(
        f"{unread[suffix]} {suffix}" for suffix in sorted(unread) if suffix in suffixes
    )


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


@dataclass(frozen=True)
class LocalFile:
    """A file on this machine that must stay as it was when it was listed.

    path: of the file.
    stamp: taken when it was listed.
    indexes: folder where what was read of it is kept; None for nowhere.
    """

    path: Path
    stamp: FileStamp
    indexes: Path | None = None

    def __str__(self) -> str:
        return str(self.path)

    @property
    def name(self) -> str:
        """Of the file."""
        return self.path.name

    @property
    def known_path(self) -> Path:
        """Where it lies."""
        return self.path

    def fetch(self) -> Path:
        """Its path. Raises DatasetError where it is gone, changed, or no regular file."""
        try:
            if FileStamp.of(self.path) != self.stamp:
                raise DatasetError(f"{self.path} changed after its rows were listed: run again")
        except OSError as error:
            raise DatasetError(f"{self.path} cannot be read: {error.strerror}") from error
        return self.path


def local_file(path: Path, indexes: Path | None = None) -> LocalFile:
    """A file as it lies now. Raises DatasetError for what cannot be read or is not regular."""
    try:
        stamp = FileStamp.of(path)
        open_regular(path).close()  # not a pipe or a device, which would block
    except OSError as error:
        raise DatasetError(f"{str(path)!r} cannot be read: {error.strerror or error}") from error
    return LocalFile(path, stamp, indexes)


class ImageFiles:
    """The files below a folder, found by name; each folder in it is listed once."""

    def __init__(self, root: Path) -> None:
        """root: a folder; a link to one is followed."""
        self._root = root
        self._real = Path(os.path.realpath(root))
        self._listed: dict[Path, dict[str, bool]] = {}
        self._spellings: dict[str, list[str]] | None = None

    def find(self, place: str, name: str) -> Path | None:
        """The regular file of a name; None where there is none.

        place: who gives the name, for messages.
        Raises DatasetError for a name or a link that leads out of the folder, and for a folder that
        cannot be listed.
        """
        relative = PurePosixPath(name)
        reason = unsafe(name) or (None if relative.name else f"{name!r} is no file name")
        if reason is not None:
            raise DatasetError(f"{place}: image {reason}")
        path = self._root / relative
        if path.parent not in self._listed:
            self._listed[path.parent] = self._list(place, path.parent)
        linked = self._listed[path.parent].get(path.name)
        if linked:
            self.refuse_outside(place, path)
            return path if path.is_file() else None
        return None if linked is None else path

    def spell(self, name: str) -> str:
        """The spelling of a name directly in the folder, where only upper and lower case differ.

        The name itself where it is there, or where none or several are like it.
        """
        if self._spellings is None:
            names = self._listed[self._root] = self._list(str(self._root), self._root)
            self._spellings = {}
            for known in sorted(names):
                self._spellings.setdefault(known.casefold(), []).append(known)
        alike = self._spellings.get(name.casefold(), [])
        return alike[0] if len(alike) == 1 else name

    def refuse_outside(self, place: str, path: Path) -> None:
        """Raises DatasetError for a path that leads out of the folder by a link.

        place: who names it, for the message.
        """
        if not Path(os.path.realpath(path)).is_relative_to(self._real):
            raise DatasetError(
                f"{place}: {str(path)!r} is a link out of {str(self._root)!r}: put the file itself "
                "there"
            )

    def _list(self, place: str, folder: Path) -> dict[str, bool]:
        """The names in a folder that may be files, and whether they are links."""
        try:
            self.refuse_outside(place, folder)
            with os.scandir(folder) as entries:
                return {
                    entry.name: entry.is_symlink()
                    for entry in entries
                    if entry.is_symlink() or entry.is_file(follow_symlinks=False)
                }
        except (FileNotFoundError, NotADirectoryError):
            return {}
        except OSError as error:
            raise DatasetError(
                f"{place}: folder {str(folder)!r} cannot be read: {error.strerror}"
            ) from error


INDEX_VERSION = 1
"""Of what the indexes hold."""

_SEAL = b"cepbench"


def index_of_file(
    folder: Path | None, path: Path, kind: str, build: Callable[[], pa.Table]
) -> pa.Table:
    """An index of a file, kept while its size, times and inode stay the same.

    Indexes are a cache, small Parquet files: a folder that cannot be written to, or a damaged
    index, costs time alone.

    folder: where indexes are kept; None for none.
    kind: of the index.
    build: makes it; what that raises is not kept.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    if folder is None:
        return build()
    resolved = path.resolve()
    before = FileStamp.of(resolved)
    target = index_path(folder, [kind, str(resolved)])
    seal = str(before).encode("utf-8", "backslashreplace")
    with suppress(OSError, pa.ArrowException, ValueError):  # it is not there, or is damaged
        known = pq.read_table(target, page_checksum_verification=True)
        if (known.schema.metadata or {}).get(_SEAL) == seal:
            return known
    table = build()
    if before.settled and before == FileStamp.of(resolved):
        sealed = table.replace_schema_metadata({**(table.schema.metadata or {}), _SEAL: seal})
        place_file(target, lambda file: pq.write_table(sealed, file, write_page_checksum=True))
    return table


def index_path(folder: Path, key: list[str]) -> Path:
    """Where the index of a key lies."""
    names = [part.encode("utf-8", "backslashreplace").decode() for part in key]
    return folder / f"{digest_json([INDEX_VERSION, *names])}.parquet"


def place_file(path: Path, write: Callable[[Path], object]) -> bool:
    """Have a file written beside its place and moved there; False where that cannot be."""
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=".new-")
        os.close(handle)
        try:
            write(Path(name))
            Path(name).replace(path)
        except BaseException:
            with suppress(OSError):
                Path(name).unlink()
            raise
        return True
    return False
