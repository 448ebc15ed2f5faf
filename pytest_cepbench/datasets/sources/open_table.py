"""Opening the table of a data set: on the hub, or in a folder of shards on this machine."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any

from pytest_cepbench.datasets.sources.data_file import local_file
from pytest_cepbench.datasets.sources.data_files import (
    COMPRESSED,
    SHARDS,
    Choice,
    DataFiles,
    find_files,
    read_card,
)
from pytest_cepbench.datasets.sources.file_names import refuse_unreadable
from pytest_cepbench.datasets.sources.hub import CARD, Repository, fetch_command
from pytest_cepbench.datasets.sources.location import require_library
from pytest_cepbench.datasets.sources.table import Table
from pytest_cepbench.datasets.sources.text_files import read_json
from pytest_cepbench.errors import DatasetError
from pytest_cepbench.files import MOST_TEXT, read_text


def open_hub_table(repository: Repository, choice: Choice, indexes: Path | None) -> Table:
    """The table in a data set of the hub. Raises DatasetError and MissingDependencyError."""
    location = str(repository.location)
    require_library("pyarrow", f"the table of {location}")
    card: Mapping[str, Any] = {}
    if CARD in repository.files:
        card = read_card(_read_card(repository.file(CARD).fetch()))
    files = find_files(location, repository.files, card, choice)
    if not (repository.listed or files.whole or files.rows is not None):
        pattern = f"*{Path(files.paths[0]).suffix}"
        command = fetch_command(repository.repo, repository.commit, pattern)
        raise DatasetError(
            f"{location}: nothing in the cache says whether all of its files are there: {command}"
        )
    return Table(
        name=_name(location, files),
        files=tuple(repository.file(path, indexes) for path in files.paths),
        source=_source(repository, choice, files),
        note=repository.note,
        rows=None if repository.listed else files.rows,
    )


def open_local_table(
    path: Path, listing: Sequence[str], choice: Choice, indexes: Path | None
) -> Table:
    """The table in a local folder or file. Raises DatasetError and MissingDependencyError.

    listing: the shards in the folder, as `local_shards` found them.
    """
    require_library("pyarrow", f"the table in {str(path)!r}")
    card = _local_card(path)
    if not path.is_dir():
        choice = replace(choice, path=path.name)
    files = find_files(repr(str(path)), _saved(path, listing), card, choice)
    return Table(
        name=_name(repr(str(path)), files),
        files=tuple(
            local_file(path / name if path.is_dir() else path, path, indexes)
            for name in files.paths
        ),
    )


def _name(location: str, files: DataFiles) -> str:
    config = f"config {files.config!r}, " if files.config not in (None, "default") else ""
    return f"{location} ({config}split {files.split!r})"


def _source(repository: Repository, choice: Choice, files: DataFiles) -> str:
    path = f"/{choice.path}" if choice.path and choice.path != files.config else ""
    config = f"config={files.config}&" if files.config else ""
    return f"hf://datasets/{repository.repo}@{repository.commit}{path}?{config}split={files.split}"


def _read_card(path: Path) -> str:
    try:
        return read_text(path, MOST_TEXT)
    except (OSError, UnicodeDecodeError) as error:
        raise DatasetError(f"{path} cannot be read: {error}") from error


def _saved(path: Path, listing: Sequence[str]) -> list[str]:
    """The shards that `save_to_disk` counts among a data set's, where it wrote the folder.

    Raises DatasetError for shards that it wrote and that are gone, and for a selection of rows that
    lies beside them.
    """
    states = sorted({name.rpartition("/")[0] for name in listing})
    kept: list[str] = []
    for folder in states:
        own = [name for name in listing if name.rpartition("/")[0] == folder]
        state = path / folder / "state.json"
        if not state.is_file():
            kept += own
            continue
        record = read_json(state, MOST_TEXT)
        entries = record.get("_data_files") if isinstance(record, dict) else None
        if not isinstance(entries, list) or any(not isinstance(e, dict) for e in entries):
            raise DatasetError(
                f"{state}: a list '_data_files' is expected, as save_to_disk writes it"
            )
        if record.get("_indices_data_files"):
            raise DatasetError(
                f"{state}: the rows are a selection: save the data set after flatten_indices()"
            )
        prefix = f"{folder}/" if folder else ""
        named = [f"{prefix}{entry.get('filename')}" for entry in entries]
        missing = sorted(set(named) - set(own))
        if missing:
            raise DatasetError(f"{state} names {missing[0]!r}, which is not there")
        kept += named
    return kept


def _local_card(folder: Path) -> Mapping[str, Any]:
    """What a folder says of its splits: the file of `DatasetDict.save_to_disk`, else a card."""
    splits_file = folder / "dataset_dict.json"
    if not splits_file.is_file():
        return read_card(_read_card(folder / CARD)) if (folder / CARD).is_file() else {}
    record = read_json(splits_file, MOST_TEXT)
    splits = record.get("splits") if isinstance(record, dict) else None
    if not isinstance(splits, list) or any(not isinstance(split, str) for split in splits):
        raise DatasetError(f"{splits_file}: a list 'splits' is expected, as save_to_disk writes it")
    data_files = [{"split": split, "path": f"{split}/**"} for split in splits]
    return {"configs": [{"config_name": "default", "data_files": data_files}]}


def local_shards(path: Path, own: Collection[str]) -> list[str]:
    """The shards in a folder by their paths in it, or the one that the path itself is.

    own: suffixes of the files that a loader reads by itself; where there is one, nothing is
    returned, and the rest of the folder is not looked at.
    Raises DatasetError for a folder that cannot be listed.
    """
    kinds = (*SHARDS, *COMPRESSED)
    if not path.is_dir():
        return [path.name] if path.name.endswith(kinds) and path.exists() else []
    shards: list[str] = []
    seen: set[str] = set()
    for folder, below, files in os.walk(path, onerror=refuse_unreadable, followlinks=True):
        real = os.path.realpath(folder)
        below[:] = [] if real in seen else [name for name in below if not name.startswith(".")]
        for name in files if real not in seen else ():
            if PurePosixPath(name).suffix.lower() in own and not name.startswith("."):
                return []
            if name.endswith(kinds):
                shards.append((Path(folder) / name).relative_to(path).as_posix())
        seen.add(real)
    return sorted(shards)
