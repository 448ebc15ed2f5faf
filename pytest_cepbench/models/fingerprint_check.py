"""Loaded files are the fingerprinted files: a model's files are checked again around loading.

A fingerprint is taken when a run starts, weights are read when they are first needed, and a trainer
may write into the folder meanwhile. Answers of one checkpoint would then be stored under another's
name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path

from pytest_cepbench.artifacts.digest import FileStamp
from pytest_cepbench.errors import (
    CheckpointError,
    DeviceMemoryError,
    IdentityError,
    UnfitFileError,
)

HashFile = Callable[[Path], str]
"""SHA-256 of a file's bytes, hexadecimal."""

_FileDigests = Mapping[Path, tuple[FileStamp, str]]

_NAMED = 5

_REMEDY = (
    "What is loaded has to be what was fingerprinted, so nothing made with it is stored. Copy the "
    "checkpoint to a folder of its own and gate the copy, or gate it when the trainer has finished"
)


class CoveredFiles:
    """The files that a model's fingerprint covers.

    place: folder or file of the model, for people. hash_file: the digest of a file. identify: lists
    the files, has each hashed by what it is given, and makes one digest of them; called again
    whenever the files are looked at again, so that what appears or vanishes counts. Raises what
    `identify` raises.
    """

    def __init__(
        self, place: Path | str, hash_file: HashFile, identify: Callable[[HashFile], str]
    ) -> None:
        self._place = place
        self._hash_file = hash_file
        self._identify = identify
        self._digests: _FileDigests = {}

    @cached_property
    def fingerprint(self) -> str:
        """The digest at the first request. Raises IdentityError where a file vanishes meanwhile."""
        try:
            digest, self._digests = self._identify_files({})
        except OSError as error:
            raise IdentityError(
                f"{self._place}: its files changed while they were fingerprinted "
                f"({error}). {_REMEDY}"
            ) from error
        return digest

    @contextmanager
    def unchanged(self, what: str = "the model was loaded") -> Iterator[None]:
        """Load inside of this: the files are those of the fingerprint before and after.

        what: happens inside, for people. Files whose stamps did not move are not read again. Raises
        IdentityError naming the files that are others, also in the place of an error that loading
        raises then: what a library makes of half of a file explains nothing.
        """
        self._check(f"before {what}")
        try:
            yield
        except DeviceMemoryError:
            raise
        except Exception:
            self._check(f"while {what}")
            raise
        self._check(f"while {what}")

    def _check(self, when: str) -> None:
        expected = self.fingerprint
        try:
            digest, seen = self._identify_files(self._digests)
        except (OSError, CheckpointError) as error:
            raise IdentityError(self._describe(when, str(error))) from error
        if digest != expected:
            raise IdentityError(self._describe(when, self._differences(seen)))
        self._digests = seen

    def _identify_files(self, known: _FileDigests) -> tuple[str, _FileDigests]:
        """The digest now, and each file's stamp and digest; known: those of the last time."""
        seen: dict[Path, tuple[FileStamp, str]] = {}

        def digest_of(path: Path) -> str:
            stamp = FileStamp.of(path)
            before, digest = known.get(path, (None, ""))
            if before is None or before != stamp or not before.settled:
                try:
                    digest = self._hash_file(path)
                except UnfitFileError as error:
                    raise CheckpointError(f"{path}: {error}") from error
            seen[path] = (stamp, digest)
            return digest

        return self._identify(digest_of), seen

    def _differences(self, seen: _FileDigests) -> str:
        both = self._digests.keys() & seen.keys()
        kinds = {
            "written again": [path for path in both if self._digests[path][1] != seen[path][1]],
            "new": list(seen.keys() - self._digests.keys()),
            "gone": list(self._digests.keys() - seen.keys()),
        }
        changes = [f"{kind}: {self._listed(paths)}" for kind, paths in kinds.items() if paths]
        return "; ".join(changes) or "its configuration is another one"

    def _listed(self, paths: list[Path]) -> str:
        place = Path(self._place)
        names = sorted(
            str(path.relative_to(place))
            if path != place and path.is_relative_to(place)
            else path.name
            for path in paths
        )
        more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
        return ", ".join(names[:_NAMED]) + more

    def _describe(self, when: str, what: str) -> str:
        return (
            f"{self._place}: the checkpoint changed after it was fingerprinted, {when} ({what}). "
            f"{_REMEDY}"
        )
