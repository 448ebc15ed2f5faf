"""Locations of data sets as they are typed, and the files of those on the Hugging Face hub.

A location is a path, or `hf://datasets/OWNER/NAME`. What is fetched lies in huggingface_hub's own
cache; under HF_HUB_OFFLINE=1 nothing else is looked at.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from glob import escape
from pathlib import Path
from urllib.parse import parse_qsl

from pytest_cepbench.artifacts import digest_json
from pytest_cepbench.errors import DatasetError, MissingDependencyError, SpecError, unknown_name
from pytest_cepbench.escapes import mask_secrets
from pytest_cepbench.files import first_text

DataPlace = Path | str
"""A path, or a URL, which stays a text until the data set is needed."""

HUB = "hf://"

_FORM = "hf://datasets/OWNER/NAME[@REVISION][/PATH][?config=NAME&split=NAME]"

PARAMETERS = ("config", "split")


@dataclass(frozen=True)
class HubLocation:
    """A data set of the hub, or a part of it.

    repo: OWNER/NAME.
    revision: branch, tag or commit; None for the default branch.
    path: a folder, a file or a pattern in the repository; empty for all of it.
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
        if not value or key in parameters:
            raise SpecError(f"data at {text!r}: {key} is {'there twice' if value else 'empty'}")
        parameters[key] = value
    return HubLocation(uri.id, uri.revision, uri.path_in_repo.strip("/"), **parameters)


def require_library(package: str, what: str) -> None:
    """Raise MissingDependencyError where a package of the extra `data` is not installed."""
    from importlib.util import find_spec

    if find_spec(package) is None:
        raise MissingDependencyError(f"{what} needs {package}: pip install 'pytest-cepbench[data]'")


_DATASET = "dataset"


@dataclass(frozen=True)
class Repository:
    """A data set of the hub at one commit.

    location: as it was given.
    commit: the hash that its revision stands for.
    files: paths of all files in it.
    """

    location: HubLocation
    commit: str
    files: tuple[str, ...]

    @property
    def pinned(self) -> str:
        """The location of the commit, which identities hold."""
        return f"{HUB}datasets/{self.location.repo}@{self.commit}"

    @property
    def notes(self) -> tuple[str, ...]:
        """A sentence on the commit that was used, where the location does not pin one."""
        revision = self.location.revision
        if revision == self.commit:
            return ()
        named = "no revision is given" if revision is None else f"{revision!r} can move"
        return (
            f"{self.location}: {named}; commit {self.commit} was read, and {self.pinned} pins it",
        )

    def snapshot(self, paths: Sequence[str] | None = None) -> Path:
        """The folder of its files, those that are asked for are fetched. Raises DatasetError.

        paths: of files, and of folders with all below them, in the repository; None for all files.
        """
        from huggingface_hub import snapshot_download

        repo = self.location.repo
        wanted = None
        if paths is not None:
            wanted = [f"{escape(path)}{end}" for path in paths for end in ("", "/*")]
        with _explained(repo, self.commit, wanted):
            return Path(
                snapshot_download(
                    repo, repo_type=_DATASET, revision=self.commit, allow_patterns=wanted
                )
            )


def open_repository(location: HubLocation, run: Path | None = None) -> Repository:
    """Resolve a location's revision, and list the files. Raises DatasetError in one line.

    run: folder of the run, whose processes read the commit that the first of them found.
    """
    from huggingface_hub import (
        get_cached_repo_tree,
        is_offline_mode,
        resolve_revision,
        snapshot_download,
    )
    from huggingface_hub.errors import CachedRepoTreeNotFoundError

    repo, revision, offline = location.repo, location.revision, is_offline_mode()
    with _explained(repo, revision, None):
        resolved = resolve_revision(
            repo, repo_type=_DATASET, revision=revision, local_files_only=offline
        )
    commit = str(resolved.resolved)
    if run is not None:  # the first process of the run enters what it found, others read that
        path = run / f"commit-{digest_json([repo, revision])[:16]}"
        try:
            run.mkdir(parents=True, exist_ok=True)
            commit = first_text(path, commit)
        except OSError as error:
            raise DatasetError(
                f"{path}, where the run keeps the commit of {location}: {error.strerror}"
            ) from error
    try:
        tree = get_cached_repo_tree(repo, repo_type=_DATASET, revision=commit)
    except CachedRepoTreeNotFoundError as error:
        if offline:  # files in the cache do not tell which others there are
            raise DatasetError(_not_cached(repo, commit, None, "HF_HUB_OFFLINE=1")) from error
        with _explained(repo, commit, None):
            # Leaves a listing of the commit in the cache, which offline runs use.
            snapshot_download(
                repo, repo_type=_DATASET, revision=commit, allow_patterns=["README.md"]
            )
        tree = get_cached_repo_tree(repo, repo_type=_DATASET, revision=commit)
    return Repository(location, commit, tuple(file.path for file in tree))


def _not_cached(repo: str, revision: str | None, patterns: Sequence[str] | None, why: str) -> str:
    """A sentence with the command that brings a data set, or files of it, into the cache."""
    at = "" if revision is None else f" --revision {revision}"
    include = "" if not patterns else f' --include "{patterns[0]}"'
    is_hash = revision is not None and re.fullmatch("[0-9a-f]{40}", revision)
    shown = "" if revision is None else f"@{revision[:12] if is_hash else revision}"
    return (
        f"{HUB}datasets/{repo}{shown} is not, or not whole, in huggingface_hub's cache ({why}): "
        f"hf download {repo} --repo-type dataset{at}{include}"
    )


@contextmanager
def _explained(repo: str, revision: str | None, patterns: Sequence[str] | None) -> Iterator[None]:
    """Raise DatasetError in one line for what huggingface_hub raises."""
    from huggingface_hub import errors, is_offline_mode

    address = f"{HUB}datasets/{repo}"
    try:
        yield
    except errors.GatedRepoError as error:
        raise DatasetError(
            f"{address} is gated: accept its terms at https://huggingface.co/datasets/{repo}, and "
            "log in with: hf auth login"
        ) from error
    except errors.RepositoryNotFoundError as error:
        raise DatasetError(
            f"{address} is not on the hub, or is private: check the name, or log in with: hf auth "
            "login"
        ) from error
    except errors.RevisionNotFoundError as error:
        raise DatasetError(
            f"{address} has no revision {revision!r}: check the branch, tag or commit"
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
        raise DatasetError(_not_cached(repo, revision, patterns, why)) from error
