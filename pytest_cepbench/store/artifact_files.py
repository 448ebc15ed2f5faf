"""Images and sounds of a store: files named by the digest of their content, some in memory."""

from __future__ import annotations

import errno
import os
import re
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from threading import Lock
from uuid import uuid4

from pytest_cepbench.artifacts import MODALITIES, Artifact
from pytest_cepbench.artifacts.image import MAX_PIXELS, reading_file
from pytest_cepbench.artifacts.modality import FILED, decode_artifact, modality_of
from pytest_cepbench.errors import ArtifactError
from pytest_cepbench.files import read_regular, tells_of_file

FOLDER = "images"
"""Of images and sounds: those of sounds have another suffix."""

NEW = "new"
"""Folder of files that are not whole yet."""

_NO_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EACCES)

SUFFIXES = tuple(MODALITIES[kind].suffix for kind in reversed(FILED))

MOST_BYTES = 3 * MAX_PIXELS + 2**20
"""Limit of a file in bytes: no image that is decoded, and no sound, needs more losslessly."""

CACHE_BYTES = 16 << 20
"""Pixels and samples that a cache keeps, in bytes: thousands of small images, or a few large ones,
which threads read ahead anyway."""

_NAME = re.compile(rf"([0-9a-f]{{64}})({'|'.join(map(re.escape, SUFFIXES))})")


def paths_of(root: Path, digest: str) -> list[Path]:
    """Paths that the artifact of this digest can have in a store: an image's, then a sound's."""
    return [_path(root, digest, suffix) for suffix in SUFFIXES]


def find_artifact(root: Path, digest: str) -> Path | None:
    """Path of the artifact of this digest in a store; None where it does not exist.

    Raises UnreadError where that cannot be known.
    """
    return next(filter(is_there, paths_of(root, digest)), None)


def artifact_path(root: Path, digest: str) -> Path:
    """As `find_artifact`; an image's path where there is none."""
    return find_artifact(root, digest) or paths_of(root, digest)[0]


def own_path(root: Path, artifact: Artifact) -> Path:
    """Path that an artifact has in a store, whether or not it exists."""
    return _path(root, artifact.digest, MODALITIES[modality_of(artifact)].suffix)


def _path(root: Path, digest: str, suffix: str) -> Path:
    # In one piece: joining paths part by part takes longer than looking for their files.
    return Path(f"{root}/{FOLDER}/{digest[:2]}/{digest}{suffix}")


def list_files(root: Path) -> Iterator[tuple[Path, str | None, os.stat_result]]:
    """Every file and link below the folder of images: path, digest in its name, status.

    The digest is None where the name is not that of an artifact. Raises UnreadError where a folder
    cannot be listed: its images would count as lost.
    """

    def stop(error: OSError) -> None:
        if not tells_of_file(error):
            raise error

    with reading_file(root / FOLDER):
        for folder, _, names in os.walk(root / FOLDER, onerror=stop):
            for name in names:
                path = Path(folder, name)
                with suppress(FileNotFoundError):  # another process removed it
                    status, match = path.lstat(), _NAME.fullmatch(name)
                    named = match is not None and path.parent.name == match[1][:2]
                    yield path, match[1] if match is not None and named else None, status


def is_there(path: Path) -> bool:
    """Whether a file is there. Raises UnreadError where that cannot be known.

    `Path.exists` says no to some errors of the file system, and to all of them from Python 3.14 on.
    """
    with reading_file(path):
        try:
            path.stat()
        except OSError as error:
            if tells_of_file(error):
                return False
            raise
    return True


def load_artifact(root: Path, digest: str) -> Artifact | None:
    """The image or sound, or None when it is absent.

    Raises ArtifactError when its content does not match, UnreadError when it could not be read.
    """
    for path in paths_of(root, digest):
        with reading_file(path), suppress(FileNotFoundError):
            return verify_artifact(read_regular(path, MOST_BYTES), digest)
    return None


def verify_artifact(data: bytes, digest: str) -> Artifact:
    """The image or sound in these bytes.

    Raises ArtifactError when it is damaged or has another digest, UnreadError without memory.
    """
    artifact = decode_artifact(data)
    if artifact.digest != digest:
        what = MODALITIES[modality_of(artifact)].content
        raise ArtifactError(f"its {what} do not match its name")
    return artifact


def write_whole(root: Path, target: Path, data: bytes, *, replace: bool = True) -> None:
    """Write a file of a store, whole or not at all.

    root: of the store. replace: whether it takes the place of an earlier one.
    Raises OSError, FileExistsError where it may not replace one.
    """
    fresh = root / NEW / uuid4().hex
    if not replace and target.exists():
        raise FileExistsError(target)

    def in_folder(path: Path, action: Callable[[], object]) -> None:
        try:
            action()
        except FileNotFoundError:
            if not root.is_dir():  # no longer mounted: create nothing on the disk below it
                raise
            path.parent.mkdir(parents=True, exist_ok=True)
            action()

    def place() -> None:
        try:
            if not replace:
                os.link(fresh, target)
                return
        except OSError as error:
            if error.errno not in _NO_LINKS:  # without links the last one wins
                raise
        fresh.replace(target)

    try:
        in_folder(fresh, lambda: fresh.write_bytes(data))
        in_folder(target, place)
    finally:
        fresh.unlink(missing_ok=True)


def drop_half_written(root: Path, seconds: float) -> None:
    """Remove what killed processes left so long ago. Raises OSError where nothing can be listed."""
    for fresh in (root / NEW).iterdir():
        with suppress(OSError):  # another process removed it first, or a file server put it there
            if time.time() - fresh.stat().st_mtime > seconds:
                fresh.unlink()


class ArtifactCache:
    """Images in memory by digest, the oldest dropped first; any thread may use it.

    The chains of one step often need the same image one after another, and read it once so. The
    cache is cleared when the chains are grown, so that damage on the disk is noticed afterwards.

    most: limit in bytes of pixels.
    """

    def __init__(self, most: int = CACHE_BYTES) -> None:
        self._most = most
        self._bytes = 0
        self._images: OrderedDict[str, Artifact] = OrderedDict()
        self._lock = Lock()

    def add(self, image: Artifact) -> None:
        """Keep an image."""
        with self._lock:
            if image.digest in self._images:
                return
            self._images[image.digest] = image
            self._bytes += image.nbytes
            while self._bytes > self._most:
                _, oldest = self._images.popitem(last=False)
                self._bytes -= oldest.nbytes

    def get(self, digest: str) -> Artifact | None:
        """The image, where it is in memory."""
        with self._lock:
            return self._images.get(digest)

    def clear(self) -> None:
        """Drop all images."""
        with self._lock:
            self._images.clear()
            self._bytes = 0
