"""Where the data of a suite is read from: files, the tables among them, or the hub."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from pytest_cepbench.datasets.questions import METADATA
from pytest_cepbench.datasets.sources.files import unsafe
from pytest_cepbench.datasets.sources.hub import (
    DataPlace,
    LoadingFolders,
    Repository,
    open_repository,
    parse_hub_location,
)
from pytest_cepbench.datasets.sources.open_table import (
    COMPRESSED,
    SHARDS,
    Choice,
    local_shards,
    open_hub_table,
    open_local_table,
)
from pytest_cepbench.datasets.sources.table import Table
from pytest_cepbench.datasets.tables import TABLE_LOADERS, TableColumns, TableLoader
from pytest_cepbench.errors import DatasetError, SuiteError, did_you_mean
from pytest_cepbench.suites.definition import Suite

_SETTINGS = ("config", "split", "id", "image", "text", "category")
"""Keys of `[data]` that are about tables alone."""

_TABLE_OPTIONS = ("file", "ids")
"""Options of loaders that name the file which stands in place of a table."""

_FILE_OPTIONS = (*_TABLE_OPTIONS, "labels")
"""Options of loaders that name files: where there are any, no other file is fetched."""


@dataclass(frozen=True)
class DataSource:
    """What a loader is given.

    path: for a loader that reads files; None for data of its own.
    table: for a loader of tables, in place of the path.
    side_file: finds a file beside a table by its name.
    identity: what identities hold of a source on the hub; empty for local files.
    notes: sentences for the reader of results.
    """

    path: Path | None = None
    table: Table | None = None
    side_file: Callable[[str], Path] = Path
    identity: str = ""
    notes: tuple[str, ...] = ()


def open_source(suite: Suite, place: DataPlace | None, folders: LoadingFolders) -> DataSource:
    """The source of a suite's data. Raises as `load_data`."""
    if place is None:
        refuse_table_settings(suite)
        return DataSource()
    loader = TABLE_LOADERS.get(suite.table.data.loader)
    if isinstance(place, str):
        return _hub_source(suite, place, loader, folders)
    if loader is None:
        refuse_table_settings(suite)
        return DataSource(place)
    data = suite.table.data
    asked = any(getattr(data, key) is not None for key in _SETTINGS)
    shards = local_shards(place, () if asked else loader.own_files)
    if not shards:
        refuse_table_settings(suite, f"finds none in {str(place)!r}")
        return DataSource(place)
    choice = Choice("", data.config, data.split)
    table = open_local_table(place, shards, choice, folders.indexes)
    return DataSource(table=table, side_file=partial(side_file, place))


def refuse_table_settings(suite: Suite, what: str = "reads no tables") -> None:
    """Raise SuiteError where the suite names parts of tables, and there are none."""
    data = suite.table.data
    for key in _SETTINGS:
        if getattr(data, key) is not None:
            raise SuiteError(
                f"suite {suite.name!r}: [data] {key} = {getattr(data, key)!r} is about tables "
                f"({', '.join(SHARDS)}), and loader {data.loader} {what}"
            )


def table_columns(suite: Suite) -> TableColumns:
    """The columns that the suite names."""
    data = suite.table.data
    return TableColumns(data.id, data.image, data.text, data.category)


def side_file(folder: Path, name: str) -> Path:
    """The file of a name in a folder, or beside a file. Raises DatasetError for another place."""
    reason = unsafe(name)
    if reason is not None:
        raise DatasetError(reason)
    return (folder if folder.is_dir() else folder.parent) / name


def _hub_source(
    suite: Suite, text: str, loader: TableLoader | None, folders: LoadingFolders
) -> DataSource:
    location = parse_hub_location(text)
    repository = open_repository(location, folders.run)
    data = suite.table.data
    prefix = f"{location.path}/" if location.path else ""
    named = {
        key: f"{prefix}{data.options[key]}"
        for key in _FILE_OPTIONS
        if isinstance(data.options.get(key), str)
    }
    own = any(named.get(key) in repository.files for key in _TABLE_OPTIONS)
    if (
        loader is not None
        and not own
        and any(file.endswith((*SHARDS, *COMPRESSED)) for file in repository.files)
    ):
        choice = Choice(location.path, location.config or data.config, location.split or data.split)
        table = open_hub_table(repository, choice, folders.indexes)
        return DataSource(table=table, side_file=partial(_hub_side_file, repository))
    refuse_table_settings(suite, f"finds none in {text}")
    if location.config is not None or location.split is not None:
        raise SuiteError(f"data at {text!r}: config and split are about tables, and there are none")
    patterns: Sequence[str] | None = list(named.values())
    if not named:
        patterns = [location.path, f"{location.path}/*"] if location.path else None
    elif data.questions not in (None, METADATA):
        patterns = [*named.values(), f"{prefix}{data.questions}"]
    folder = repository.snapshot(patterns)
    identity = f"hf://datasets/{repository.repo}@{repository.commit}/{location.path}".rstrip("/")
    notes = (repository.note,) if repository.note else ()
    return DataSource(folder / location.path, identity=identity, notes=notes)


def _hub_side_file(repository: Repository, name: str) -> Path:
    if name not in repository.files:
        raise DatasetError(
            f"{repository.location} has no file {name!r}.{did_you_mean(name, repository.files)}"
        )
    return repository.file(name).fetch()
