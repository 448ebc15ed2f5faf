"""The location of a data set as it is typed: a path, or `hf://datasets/OWNER/NAME` on the hub."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qsl

from pytest_cepbench.errors import MissingDependencyError, SpecError, unknown_name
from pytest_cepbench.option_values import is_url

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


def data_place(text: str) -> DataPlace:
    """A path as it was typed, made absolute, or a URL."""
    return text if is_url(text) else Path(text).absolute()


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
    _refuse_late_revision(text, address)
    try:
        uri = parse_hf_uri(address)
    except HfUriError as error:
        raise SpecError(f"data at {text!r}: {error.msg}: {_FORM} is expected") from error
    if uri.type != "dataset":
        raise SpecError(f"data at {text!r} is a {uri.type} of the hub: {_FORM} is expected")
    parameters = _parameters(text, query)
    return HubLocation(uri.id, uri.revision, uri.path_in_repo.strip("/"), **parameters)


def require_library(package: str, what: str) -> None:
    """Raise MissingDependencyError where a package of the extra `data` is not installed."""
    from importlib.util import find_spec

    if find_spec(package) is None:
        raise MissingDependencyError(f"{what} needs {package}: pip install 'pytest-cepbench[data]'")


def _refuse_late_revision(text: str, address: str) -> None:
    before, at, revision = address.removeprefix(f"{HUB}datasets/").partition("@")
    if at and before.count("/") > 1:
        owner, name, *path = before.split("/")
        right = f"{HUB}datasets/{owner}/{name}@{revision}/{'/'.join(path)}"
        raise SpecError(f"data at {text!r}: the revision stands behind the name: {right}")


def _parameters(text: str, query: str) -> dict[str, str]:
    pairs = parse_qsl(query, keep_blank_values=True)
    parameters = dict(pairs)
    for name, value in pairs:
        if name not in PARAMETERS:
            raise SpecError(f"data at {text!r}: {unknown_name('parameter', name, PARAMETERS)}")
        if not value:
            raise SpecError(f"data at {text!r}: {name} is empty")
    if len(parameters) < len(pairs):
        raise SpecError(f"data at {text!r}: a parameter is there twice")
    return parameters
