"""Locations of data sets as they are typed, and the files of those on the Hugging Face hub.

A location is a path, or `hf://datasets/OWNER/NAME`. What is fetched lies in huggingface_hub's own
cache; under HF_HUB_OFFLINE=1 nothing else is looked at.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO
from urllib.parse import parse_qsl

from pytest_cepbench.artifacts import digest_json
from pytest_cepbench.errors import DatasetError, MissingDependencyError, SpecError, unknown_name
from pytest_cepbench.escapes import mask_secrets
from pytest_cepbench.files import write_small

DataPlace = Path | str
"""A path, or a URL, which stays a text until the data set is needed."""

HUB = "hf://"

_FORM = "hf://datasets/OWNER/NAME[@REVISION][/PATH][?config=NAME&split=NAME]"

PARAMETERS = ("config", "split")
"""What may follow `?` in a location on the hub."""


@dataclass(frozen=True)
class HubLocation:
    """A data set of the hub, or a part of it.

    repo: OWNER/NAME.
    revision: branch, tag or commit; None for the default branch.
    path: a folder, a file or a pattern in the repository, or a configuration; empty for all of it.
    config, split: which of several; None where the location does not say.
    """

    repo: str
    revision: str | None = None
    path: str = ""
    config: str | None = None
    split: str | None = None

    def __str__(self) -> str:
        revision = "" if self.revision is None else f"@{self.revision.replace('/', '%2F')}"
        path = f"/{self.path}" if self.path else ""
        return f"{HUB}datasets/{self.repo}{revision}{path}"


@dataclass(frozen=True)
class LoadingFolders:
    """Folders where reading a data set leaves files; None for nowhere.

    indexes: of what was read of shards, for later runs.
    run: of the commits that were read, so that all processes of the run read the same.
    """

    indexes: Path | None = None
    run: Path | None = None


def parse_hub_location(text: str) -> HubLocation:
    """The parts of a location on the hub, in the syntax of huggingface_hub and fsspec.

    What follows `?` is ours: `config` and `split`.
    Raises SpecError for any other URL, MissingDependencyError without huggingface_hub.
    """
    if not text.startswith(HUB):
        raise SpecError(f"data at {text!r} cannot be read in place: a path or {_FORM} is expected")
    require_library("huggingface_hub", f"data at {text!r}")
    from huggingface_hub import parse_hf_uri
    from huggingface_hub.errors import HfUriError

    address, _, query = text.partition("?")
    before, at, revision = address.removeprefix(f"{HUB}datasets/").partition("@")
    if at and before.count("/") > 1:
        owner, name, *path = before.split("/")
        right = f"{HUB}datasets/{owner}/{name}@{revision}/{'/'.join(path)}"
        raise SpecError(f"data at {text!r}: the revision stands behind the name: {right}")
    try:
        uri = parse_hf_uri(address)
    except HfUriError as error:
        raise SpecError(f"data at {text!r}: {error.msg}: {_FORM} is expected") from error
    if uri.type != "dataset":
        raise SpecError(f"data at {text!r} is a {uri.type} of the hub: {_FORM} is expected")
    parameters: dict[str, str] = {}
    for key, value in parse_qsl(query, keep_blank_values=True):
        if key not in PARAMETERS:
            raise SpecError(f"data at {text!r}: {unknown_name('parameter', key, PARAMETERS)}")
        if not value:
            raise SpecError(f"data at {text!r}: {key} is empty")
        if key in parameters:
            raise SpecError(f"data at {text!r}: a parameter is there twice")
        parameters[key] = value
    return HubLocation(uri.id, uri.revision, uri.path_in_repo.strip("/"), **parameters)


def require_library(package: str, what: str) -> None:
    """Raise MissingDependencyError where a package of the extra `data` is not installed."""
    from importlib.util import find_spec

    if find_spec(package) is None:
        raise MissingDependencyError(f"{what} needs {package}: pip install 'pytest-cepbench[data]'")


_DATASET = "dataset"

CARD = "README.md"


@dataclass(frozen=True)
class HubFile:
    """One file of a data set of the hub, at one commit.

    repo: OWNER/NAME.
    commit: its hash.
    path: in the repository.
    indexes: folder where what was read of it is kept; None for nowhere.
    size: bytes; None where the cache does not tell.
    """

    repo: str
    commit: str
    path: str
    indexes: Path | None = None
    size: int | None = None

    def __str__(self) -> str:
        return f"{HUB}datasets/{self.repo}@{self.commit[:12]}/{self.path}"

    @property
    def name(self) -> str:
        """The file's path within its data set."""
        return self.path

    @property
    def known_path(self) -> Path | None:
        """Where it lies in the cache; None where it was not fetched yet."""
        from huggingface_hub import try_to_load_from_cache

        path = try_to_load_from_cache(
            self.repo, self.path, revision=self.commit, repo_type=_DATASET
        )
        return Path(path) if isinstance(path, str) else None

    def fetch(self) -> Path:
        """Where it lies, once it is fetched. Raises DatasetError where it cannot be."""
        known = self.known_path
        if known is not None:
            return known
        from huggingface_hub import hf_hub_download

        with _explained(self.repo, self.commit, self.path):
            return Path(
                hf_hub_download(self.repo, self.path, repo_type=_DATASET, revision=self.commit)
            )

    @contextmanager
    def open_remote(self) -> Iterator[BinaryIO]:
        """The file as it lies on the hub, read by ranges. Raises DatasetError."""
        from huggingface_hub import HfFileSystem, is_offline_mode

        if is_offline_mode():
            raise DatasetError(_not_cached(self.repo, self.commit, self.path, "HF_HUB_OFFLINE=1"))
        address = f"datasets/{self.repo}@{self.commit}/{self.path}"
        with (
            _explained(self.repo, self.commit, self.path),
            # Without the size, a listing of the file's folder would be fetched for it.
            HfFileSystem().open(address, "rb", cache_type="none", size=self.size) as stream,
        ):
            yield stream


@dataclass(frozen=True)
class Repository:
    """A data set of the hub at one commit.

    location: as it was given.
    commit: the hash that its revision stands for.
    files: paths of the files in it, with their sizes in bytes as far as they are known.
    listed: whether these are all of its files; otherwise those that the cache happens to have.
    """

    location: HubLocation
    commit: str
    files: Mapping[str, int | None]
    listed: bool

    @property
    def repo(self) -> str:
        """OWNER/NAME."""
        return self.location.repo

    @property
    def note(self) -> str:
        """A sentence on the commit that was used, where the location does not pin one."""
        revision = self.location.revision
        if revision == self.commit:
            return ""
        named = "no revision is given" if revision is None else f"{revision!r} can move"
        return (
            f"{self.location}: {named}; commit {self.commit} was read, and "
            f"{HUB}datasets/{self.repo}@{self.commit} pins it"
        )

    def file(self, path: str, indexes: Path | None = None) -> HubFile:
        """One of its files. indexes: as of `HubFile`."""
        return HubFile(self.repo, self.commit, path, indexes, self.files.get(path))

    def snapshot(self, patterns: Sequence[str] | None = None) -> Path:
        """The folder of its files, all that match are fetched. Raises DatasetError.

        patterns: of paths in the repository; all files where None.
        """
        from huggingface_hub import snapshot_download

        if not self.listed and (patterns is None or set(patterns) - set(self.files)):
            pattern = patterns[0] if patterns else None
            raise DatasetError(_not_cached(self.repo, self.commit, pattern, "the cache is partial"))
        with _explained(self.repo, self.commit, None):
            folder = snapshot_download(
                self.repo, repo_type=_DATASET, revision=self.commit, allow_patterns=patterns
            )
        return Path(folder)


def open_repository(location: HubLocation, run: Path | None = None) -> Repository:
    """Resolve a location's revision, and list the files. Raises DatasetError in one line.

    run: folder of the run, whose processes read the commit that the first of them found.
    """
    from huggingface_hub import (
        constants,
        get_cached_repo_tree,
        is_offline_mode,
        resolve_revision,
        snapshot_download,
    )
    from huggingface_hub.errors import CachedRepoTreeNotFoundError
    from huggingface_hub.file_download import repo_folder_name

    repo, revision, offline = location.repo, location.revision, is_offline_mode()
    with _explained(repo, revision, None):
        resolved = resolve_revision(
            repo, repo_type=_DATASET, revision=revision, local_files_only=offline
        )
    commit = str(resolved.resolved)
    if run is not None:
        commit = _first_commit(run, location, commit)

    def cached() -> dict[str, int | None] | None:
        try:
            tree = get_cached_repo_tree(repo, repo_type=_DATASET, revision=commit)
        except CachedRepoTreeNotFoundError:
            return None
        return {file.path: file.size for file in tree}

    files = cached()
    if files is None and not offline:
        with _explained(repo, commit, None):
            # Leaves a listing of the commit in the cache, which offline runs use.
            snapshot_download(repo, repo_type=_DATASET, revision=commit, allow_patterns=[CARD])
        files = cached()
    if files is not None:
        return Repository(location, commit, files, listed=True)
    folder = repo_folder_name(repo_id=repo, repo_type=_DATASET)
    snapshot = Path(constants.HF_HUB_CACHE) / folder / "snapshots" / commit
    paths = [path for path in snapshot.rglob("*") if path.is_file()]
    if not paths:
        raise DatasetError(_not_cached(repo, commit, None, "HF_HUB_OFFLINE=1"))
    found = {path.relative_to(snapshot).as_posix(): None for path in paths}
    return Repository(location, commit, found, listed=False)


def _first_commit(run: Path, location: HubLocation, commit: str) -> str:
    """The commit that the first process of the run entered, which is this one if none did."""
    name = f"commit-{digest_json([location.repo, location.revision])[:16]}"
    fresh = run / f".{name}.{os.getpid()}"
    try:
        run.mkdir(parents=True, exist_ok=True)
        write_small(fresh, commit)
        with suppress(FileExistsError):
            (run / name).hardlink_to(fresh)  # whole at once, and never over another
        return (run / name).read_text(encoding="ascii")
    except OSError as error:
        raise DatasetError(
            f"{run / name}, where the run keeps the commit of {location}: {error.strerror}"
        ) from error
    finally:
        with suppress(OSError):
            fresh.unlink(missing_ok=True)


def fetch_command(repo: str, commit: str | None, pattern: str | None) -> str:
    """The command that brings a data set, or the files of a pattern, into the cache."""
    revision = "" if commit is None else f" --revision {commit}"
    include = "" if pattern is None else f' --include "{pattern}"'
    return f"hf download {repo} --repo-type dataset{revision}{include}"


def _not_cached(repo: str, commit: str | None, pattern: str | None, why: str) -> str:
    is_hash = commit is not None and re.fullmatch("[0-9a-f]{40}", commit)
    revision = "" if commit is None else f"@{commit[:12] if is_hash else commit}"
    what = f"{HUB}datasets/{repo}{revision}" + (f"/{pattern}" if pattern else "")
    return (
        f"{what} is not in huggingface_hub's cache ({why}): {fetch_command(repo, commit, pattern)}"
    )


@contextmanager
def _explained(repo: str, revision: str | None, path: str | None) -> Iterator[None]:
    """Raise DatasetError in one line for what huggingface_hub raises."""
    from huggingface_hub import errors, is_offline_mode

    try:
        yield
    except errors.GatedRepoError as error:
        raise DatasetError(
            f"{HUB}datasets/{repo} is gated: accept its terms at "
            f"https://huggingface.co/datasets/{repo}, and log in with: hf auth login"
        ) from error
    except errors.RepositoryNotFoundError as error:
        raise DatasetError(
            f"{HUB}datasets/{repo} is not on the hub, or is private: check the name, or log in "
            "with: hf auth login"
        ) from error
    except errors.RevisionNotFoundError as error:
        raise DatasetError(
            f"{HUB}datasets/{repo} has no revision {revision!r}: check the branch, tag or commit"
        ) from error
    except (
        errors.RevisionResolutionError,
        errors.EntryNotFoundError,
        errors.HTTPError,
        OSError,
    ) as error:
        why = "HF_HUB_OFFLINE=1"
        if not is_offline_mode():
            lines = mask_secrets(str(error)).strip().splitlines()
            why = f"the hub does not answer: {lines[0][:200] if lines else type(error).__name__}"
        raise DatasetError(_not_cached(repo, revision, path, why)) from error
