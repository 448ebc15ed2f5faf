"""Opening the table of a data set: which of its files are read, on the hub or on this machine.

Configurations, splits and shards are found by the rules of the library `datasets`: the card's
`configs` first, then what `save_to_disk` left, then the names of folders and files.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import msgspec

from pytest_cepbench.datasets.sources.files import SHARDS, SUFFIXES, DataFile, walk_files
from pytest_cepbench.datasets.sources.hub import Repository, require_library
from pytest_cepbench.datasets.sources.table import SourceTable
from pytest_cepbench.datasets.sources.text_files import convert_record, read_json
from pytest_cepbench.errors import DatasetError, did_you_mean
from pytest_cepbench.files import MOST_TEXT, read_text

_CARD = "README.md"

_KEYWORDS = {
    "train": {"train", "training"},
    "validation": {"validation", "valid", "dev", "val"},
    "test": {"test", "testing", "eval", "evaluation"},
}

_DEFAULT_SPLIT = "train"
"""The split of files whose names speak of none."""

_WHOLE = "data"
"""The folder of a data set that has one configuration."""

_PARTIAL = "partial"
"""Begins the names of splits of which the hub's conversion to Parquet has the first part alone."""

_NUMBERED = re.compile(r"(?P<stem>.*)-(?P<number>\d{5})-of-(?P<count>\d{5})(?P<rest>.*)")

Splits = Mapping[str, Sequence[str]]
"""Split -> its files, or their patterns."""


@dataclass(frozen=True)
class Found:
    """The shards of one split.

    paths: in the data set, in the order of its rows.
    config, split: which they are; the configuration is None where none has a name.
    note: a sentence on shards of other formats, which are passed over; empty where there are none.
    """

    paths: tuple[str, ...]
    config: str | None
    split: str
    note: str = ""


def find_shards(
    source: str,
    listing: Iterable[str],
    configs: Mapping[str, Splits],
    path: str = "",
    config: str | None = None,
    split: str | None = None,
) -> Found:
    """The shards of the chosen split.

    source: the data set, for errors.
    listing: paths of all its files.
    configs: of its card; empty where it has none.
    path: a folder, a file or a pattern in it that is wanted; empty for all of it.
    config, split: which of several; None where there is to be one.
    Raises DatasetError in one line where there is no shard, where several configurations or splits
    leave a choice, and where one of numbered shards is missing.
    """
    files = sorted(
        file
        for file in listing
        if not any(part.startswith((".", "__")) for part in PurePosixPath(file).parts)
    )
    if path:
        files, configs = _matching(path, files), {}
    every = [file for file in files if file.endswith(SHARDS)]
    if not every:
        where = f" under {path!r}" if path else ""
        raise DatasetError(f"{source} has no file{where} that ends in {', '.join(SHARDS)}")
    suffix = next(suffix for suffix in SHARDS if any(file.endswith(suffix) for file in every))
    shards = [file for file in every if file.endswith(suffix)]
    splits: dict[str, list[str]] = {}
    if configs:
        config = _choose(source, "config", config, configs)
        for name, patterns in configs[config].items():
            matched = [file for pattern in patterns for file in _matching(pattern, shards)]
            if matched:
                splits[name] = list(dict.fromkeys(matched))
        if not splits:
            raise DatasetError(
                f"{source}: the files of its configuration {config!r} are not there, or none of "
                f"them ends in {', '.join(SHARDS)}"
            )
    else:
        folders = _config_folders(shards)
        if folders:
            config = _choose(source, "config", config, folders)
        elif config is not None:
            raise DatasetError(f"{source} has one configuration: leave out config={config}")
        for file in folders.get(config or "", shards):
            splits.setdefault(_split_of(file) or _DEFAULT_SPLIT, []).append(file)
    split = _choose(source, "split", split, splits)
    paths = tuple(splits[split])
    if path not in paths:
        _check_numbers(source, paths)
    others = len(every) - len(shards)
    note = f"{source}: {others} files of other formats than {suffix} are passed over"
    return Found(paths, config, split, note if others else "")


def _matching(pattern: str, files: Sequence[str]) -> list[str]:
    if not re.search(r"[*?\[]", pattern):
        return [file for file in files if file == pattern or file.startswith(f"{pattern}/")]
    from fsspec.utils import glob_translate

    matches = re.compile(glob_translate(pattern)).match
    return [file for file in files if matches(file)]


def _config_folders(shards: Sequence[str]) -> dict[str, list[str]]:
    """The shards of the top folders where these stand for configurations: there are several, none
    is a split, and each holds splits.
    """
    folders: dict[str, list[str]] = {}
    for file in shards:
        top, slash, below = file.partition("/")
        if not slash or top == _WHOLE or _split_of(f"{top}/_") or not _split_of(below):
            return {}
        folders.setdefault(top, []).append(file)
    return folders if len(folders) > 1 else {}


def _split_of(path: str) -> str | None:
    """The split that a path speaks of: by its shard number, its folders, or its name."""
    *folders, name = PurePosixPath(path).parts
    numbered = _NUMBERED.fullmatch(name)
    if numbered is not None and numbered["stem"] and folders[-1:] == [_WHOLE]:
        return numbered["stem"]
    for part in (*reversed(folders), PurePosixPath(name).stem):
        words = re.split(r"[-._ 0-9]+", part)
        if words[0] == _PARTIAL:
            return part
        for split, known in _KEYWORDS.items():
            if known & {*words}:
                return split
    return None


def _choose(source: str, what: str, wanted: str | None, known: Mapping[str, object]) -> str:
    names = ", ".join(sorted(known))
    if wanted is None:
        if len(known) == 1:
            return next(iter(known))
        raise DatasetError(
            f"{source} has several {what}s ({names}): choose one with ?{what}=NAME behind the "
            f'location, or {what} = "NAME" in [data]'
        )
    if wanted not in known:
        near = did_you_mean(wanted, known)
        raise DatasetError(f"{source} has no {what} {wanted!r}; its {what}s: {names}.{near}")
    return wanted


def _check_numbers(source: str, paths: Sequence[str]) -> None:
    """Raise DatasetError where one of numbered shards is missing or there twice."""
    # Older versions of `datasets` end every name with a digest of its own.
    series: dict[tuple[str, str], list[tuple[int, int]]] = {}
    for path in paths:
        if numbered := _NUMBERED.fullmatch(path):
            key = numbered["stem"], PurePosixPath(path).suffix
            series.setdefault(key, []).append((int(numbered["count"]), int(numbered["number"])))
    for (stem, suffix), numbers in series.items():
        counts = sorted({count for count, _ in numbers})
        if len(counts) > 1 or len(set(numbers)) < len(numbers):
            raise DatasetError(
                f"{source}: the shards '{stem}-*{suffix}' of {' and of '.join(map(str, counts))} "
                "are there more than once, as where a data set was written again: keep one state"
            )
        missing = sorted({*range(counts[0])} - {number for _, number in numbers})
        if missing:
            name = f"{stem}-{missing[0]:05}-of-{counts[0]:05}{suffix}"
            raise DatasetError(
                f"{source}: {len(missing)} of {counts[0]} shards are missing, the first {name!r}"
            )


# -- what cards and `save_to_disk` say of files ----------------------------------------------------

_Paths = str | list[str]


class _SplitFiles(msgspec.Struct):
    path: _Paths
    split: str = _DEFAULT_SPLIT


class _Config(msgspec.Struct):
    config_name: str
    data_files: str | list[str | _SplitFiles] | dict[str, _Paths] | None = None
    data_dir: str | None = None

    @property
    def splits(self) -> Splits:
        files = self.data_files or ("**" if self.data_dir else [])
        prefix = f"{self.data_dir.strip('/')}/" if self.data_dir else ""
        if isinstance(files, str):
            files = [files]
        if isinstance(files, dict):
            files = [_SplitFiles(path, split) for split, path in files.items()]
        splits: dict[str, list[str]] = {}
        for entry in files:
            part = _SplitFiles(entry) if isinstance(entry, str) else entry
            paths = [part.path] if isinstance(part.path, str) else part.path
            splits.setdefault(part.split, []).extend(f"{prefix}{path}" for path in paths)
        return splits


def read_configs(source: str, text: str) -> dict[str, Splits]:
    """Configuration -> split -> patterns of its files, by the text of a card; empty where it says
    nothing of files, or is no YAML.

    source: the data set, for errors. Names are what is written: `no` is no truth value.
    Raises DatasetError for an entry that cannot be read: without it, others would be merged.
    """
    import yaml

    match = re.match(r"\ufeff?---\s*\n(.*?)\n---\s*(\n|$)", text, re.DOTALL)
    card = None
    if match is not None:
        with suppress(yaml.YAMLError, ValueError, RecursionError):
            card = yaml.load(match[1], yaml.BaseLoader)  # noqa: S506 - it makes texts alone
    configs = (card.get("configs") or []) if isinstance(card, dict) else []
    try:
        entries = msgspec.convert(configs, list[_Config])
    except msgspec.ValidationError as error:
        raise DatasetError(f"{source}: configs of {_CARD} cannot be read: {error}") from error
    return {own.config_name: own.splits for own in entries if own.splits}


class _Splits(msgspec.Struct):
    splits: list[str]


class _StateFile(msgspec.Struct):
    filename: str


class _State(msgspec.Struct):
    files: list[_StateFile] = msgspec.field(name="_data_files")
    selection: Any = msgspec.field(name="_indices_data_files", default=None)


def _saved(root: Path, listing: Sequence[str]) -> list[str]:
    """The shards that `save_to_disk` counts among a data set's, where it wrote the folder.

    Raises DatasetError for shards that it wrote and that are gone, and for a selection of rows that
    lies beside them.
    """
    kept: list[str] = []
    for folder in sorted({name.rpartition("/")[0] for name in listing}):
        own = [name for name in listing if name.rpartition("/")[0] == folder]
        state = root / folder / "state.json"
        if not state.is_file():
            kept += own
            continue
        record = convert_record(str(state), read_json(state, MOST_TEXT), _State)
        if record.selection:
            raise DatasetError(
                f"{state}: the rows are a selection: save the data set after flatten_indices()"
            )
        prefix = f"{folder}/" if folder else ""
        named = [f"{prefix}{entry.filename}" for entry in record.files]
        missing = sorted(set(named) - set(own))
        if missing:
            raise DatasetError(f"{state} names {missing[0]!r}, which is not there")
        kept += named
    return kept


def open_hub_table(repository: Repository, config: str | None, split: str | None) -> SourceTable:
    """The table in a data set of the hub, whose shards are fetched.

    config, split: which of several; None where there is to be one.
    Raises DatasetError and MissingDependencyError.
    """
    location, path = str(repository.location), repository.location.path
    require_library("pyarrow", f"the table of {location}")
    configs: Mapping[str, Splits] = {}
    if _CARD in repository.files and not path:
        configs = _card(location, repository.snapshot([_CARD]))
    found = find_shards(location, repository.files, configs, path, config, split)
    root = repository.snapshot(found.paths)
    named = f"config={found.config}&" if found.config else ""
    source = f"{repository.pinned}{f'/{path}' if path else ''}?{named}split={found.split}"
    return _table(location, root, found, source, repository.notes)


def open_local_table(
    path: Path, listing: Sequence[str], config: str | None, split: str | None
) -> SourceTable:
    """The table in a local folder or file. Raises DatasetError and MissingDependencyError.

    listing: the shards in the folder, as `local_shards` found them.
    config, split: which of several; None where there is to be one.
    """
    name = repr(str(path))
    require_library("pyarrow", f"the table in {name}")
    splits_file = path / "dataset_dict.json"
    configs: Mapping[str, Splits] = {}
    if not path.is_dir():
        # Whatever lies beside a file that was named.
        found = find_shards(name, listing, configs, path.name, config, split)
        return _table(name, path.parent, found)
    if splits_file.is_file():  # as DatasetDict.save_to_disk writes it
        splits = convert_record(str(splits_file), read_json(splits_file, MOST_TEXT), _Splits).splits
        configs = {"default": {own: [f"{own}/**"] for own in splits}}
    elif (path / _CARD).is_file():
        configs = _card(name, path)
    found = find_shards(name, _saved(path, listing), configs, "", config, split)
    return _table(name, path, found)


def _card(source: str, folder: Path) -> dict[str, Splits]:
    try:
        return read_configs(source, read_text(folder / _CARD, MOST_TEXT))
    except (OSError, UnicodeDecodeError) as error:
        raise DatasetError(f"{folder / _CARD} cannot be read: {error}") from error


def _table(
    location: str, root: Path, found: Found, source: str = "", notes: tuple[str, ...] = ()
) -> SourceTable:
    config = f"config {found.config!r}, " if found.config not in (None, "default") else ""
    return SourceTable(
        f"{location} ({config}split {found.split!r})",
        tuple(DataFile.at(root / name) for name in found.paths),
        source,
        (*notes, *filter(None, [found.note])),
    )


def local_shards(path: Path, *, images_first: bool) -> list[str]:
    """The shards in a folder by their paths in it, or the one that the path itself is.

    images_first: nothing is returned where there is an image file, and the rest is not looked at.
    Raises DatasetError for a folder that cannot be listed.
    """
    if not path.is_dir():
        return [path.name] if path.name.endswith(SHARDS) and path.exists() else []
    shards: list[str] = []
    for file in walk_files(path):
        if images_first and file.suffix.lower() in SUFFIXES:
            return []
        if file.name.endswith(SHARDS):
            shards.append(file.relative_to(path).as_posix())
    return sorted(shards)
