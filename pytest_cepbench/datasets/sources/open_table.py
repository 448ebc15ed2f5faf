"""Opening the table of a data set: which of its files are read, on the hub or on this machine.

Configurations, splits and shards are found by the rules of the library `datasets`: the card's
`configs` first, then what `save_to_disk` left, then the names of folders and files.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any

import msgspec

from pytest_cepbench.datasets.sources.files import local_file, refuse_unreadable
from pytest_cepbench.datasets.sources.hub import CARD, Repository, fetch_command, require_library
from pytest_cepbench.datasets.sources.table import SourceTable
from pytest_cepbench.datasets.sources.text_files import convert_record, read_json
from pytest_cepbench.errors import DatasetError, did_you_mean
from pytest_cepbench.files import MOST_TEXT, read_text

SHARDS = {".parquet": "Parquet", ".arrow": "Arrow", ".tar": "tar"}
"""Suffixes of the files that are read in place, in the order in which they are preferred."""

COMPRESSED = (".tar.gz", ".tgz", ".tar.zst", ".tar.bz2", ".tar.xz")
"""Suffixes of archives of which no part can be read without all before it."""

_KEYWORDS = {
    "train": ("train", "training"),
    "validation": ("validation", "valid", "dev", "val"),
    "test": ("test", "testing", "eval", "evaluation"),
}

_DEFAULT_SPLIT = "train"
"""The split of files whose names speak of none."""

_PARTIAL = "partial"
"""Begins the names of splits of which the hub's conversion to Parquet has the first part alone."""

_WHOLE = "data"
"""A folder of shards that names no configuration."""

_NUMBERED = re.compile(r"(?P<stem>.*)-(?P<number>\d{5})-of-(?P<count>\d{5})(?P<rest>.*)")


@dataclass(frozen=True)
class Choice:
    """What is wanted of a data set that may have several parts.

    path: a folder, a file, a pattern or a configuration in it; empty for all of it.
    config, split: which of several; None where there is to be one.
    """

    path: str = ""
    config: str | None = None
    split: str | None = None


@dataclass(frozen=True)
class DataFiles:
    """The shards of one split.

    paths: in the data set, in the order of its rows.
    config, split: which they are; the configuration is None where none has a name.
    rows: as many as the card says; None where it does not.
    whole: whether their names or the choice prove that none is missing.
    note: a sentence on shards of other formats, which are passed over; empty where there are none.
    """

    paths: tuple[str, ...]
    config: str | None
    split: str
    rows: int | None
    whole: bool
    note: str = ""


def find_files(
    source: str, listing: Iterable[str], card: Mapping[str, Any], choice: Choice
) -> DataFiles:
    """The shards of the chosen split.

    source: the data set, for errors.
    listing: paths of all its files.
    card: the metadata of its README, empty where there is none.
    Raises DatasetError in one line where there is no shard, where several configurations or splits
    leave a choice, and where one of numbered shards is missing.
    """
    hidden = (".", "__")  # folders and files, such as caches
    files = sorted(
        path
        for path in listing
        if not any(part.startswith(hidden) for part in PurePosixPath(path).parts)
    )
    configs, default = _card_configs(card)
    config, path = choice.config, choice.path
    if path and path in configs and not any(_below(file, path) for file in files):
        config, path = path, ""
    named_file = path in files
    if path:
        files = _matching(path, files)
        configs = {}
    for suffix in SHARDS:
        shards = [file for file in files if file.endswith(suffix)]
        if shards:
            break
    else:
        compressed = [file for file in files if file.endswith(COMPRESSED)]
        if compressed:
            raise DatasetError(
                f"{source}: {compressed[0]!r} is compressed, so no image in it can be read without "
                "all before it: unpack it to a plain .tar"
            )
        where = f" under {path!r}" if path else ""
        raise DatasetError(f"{source} has no file{where} that ends in {', '.join(SHARDS)}")
    config, splits = _splits(source, shards, configs, config or (default if configs else None))
    split = _choose(source, "split", choice.split, splits)
    paths = tuple(splits[split])
    whole = named_file or _check_numbers(source, paths)
    rows = None if path else _rows(card, config, split)
    kind = PurePosixPath(paths[0]).suffix
    others = [file for file in files if file.endswith((*SHARDS, *COMPRESSED))]
    passed = len(others) - len(shards)
    note = (
        f"{source}: {passed} files of other formats than {kind} are passed over" if passed else ""
    )
    return DataFiles(paths, config, split, rows, whole, note)


def _below(path: str, folder: str) -> bool:
    return path == folder or path.startswith(f"{folder}/")


def _matching(pattern: str, files: Sequence[str]) -> list[str]:
    if not re.search(r"[*?\[]", pattern):
        return [file for file in files if _below(file, pattern)]
    from fsspec.utils import glob_translate

    matches = re.compile(glob_translate(pattern)).match
    return [file for file in files if matches(file)]


def _splits(
    source: str,
    shards: Sequence[str],
    configs: Mapping[str, Mapping[str, Sequence[str]]],
    config: str | None,
) -> tuple[str | None, Mapping[str, Sequence[str]]]:
    """The configuration, and the files of each of its splits."""
    if configs:
        config = _choose(source, "config", config, configs)
        by_pattern: dict[str, Sequence[str]] = {}
        for split, patterns in configs[config].items():
            matched = [file for pattern in patterns for file in _matching(pattern, shards)]
            if matched:
                by_pattern[split] = tuple(dict.fromkeys(matched))
        if by_pattern:
            return config, by_pattern
        raise DatasetError(
            f"{source}: the files of its configuration {config!r} are not there, or none of them "
            f"ends in {', '.join(SHARDS)}"
        )
    # The top folders stand for configurations where there are several, none is a split, and each
    # holds the splits below it.
    folders: dict[str, list[str]] = {}
    for file in shards:
        top, slash, _ = file.partition("/")
        if not slash or top == _WHOLE or _keyword(top):
            folders.clear()
            break
        folders.setdefault(top, []).append(file)
    parts = [_split_of(file.partition("/")[2]) for files in folders.values() for file in files]
    if len(folders) > 1 and all(parts):
        config = _choose(source, "config", config, folders)
        return config, _by_name(folders[config])
    if config is not None:
        raise DatasetError(f"{source} has one configuration: leave out config={config}")
    return None, _by_name(shards)


def _by_name(shards: Sequence[str]) -> dict[str, list[str]]:
    splits: dict[str, list[str]] = {}
    for file in shards:
        splits.setdefault(_split_of(file) or _DEFAULT_SPLIT, []).append(file)
    return splits


def _split_of(path: str) -> str | None:
    """The split that a path speaks of: by its shard number, its folders, or its name."""
    *folders, name = PurePosixPath(path).parts
    numbered = _NUMBERED.fullmatch(name)
    if numbered is not None and numbered["stem"] and folders[-1:] == [_WHOLE]:
        return numbered["stem"]
    for folder in reversed(folders):
        if split := _keyword(folder):
            return split
    return _keyword(PurePosixPath(name).stem)


def _keyword(name: str) -> str | None:
    words = re.split(r"[-._ 0-9]+", name)
    if words[0] == _PARTIAL:
        return name
    return next((split for split, known in _KEYWORDS.items() if set(known) & set(words)), None)


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


def _check_numbers(source: str, paths: Sequence[str]) -> bool:
    """Whether all are numbered shards; DatasetError where one is missing or there twice."""
    # Older versions of `datasets` end every name with a digest of its own.
    series: dict[tuple[str, str], list[tuple[int, int]]] = {}
    for path in paths:
        numbered = _NUMBERED.fullmatch(path)
        if numbered is None:
            return False
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
    return True


# -- the card --------------------------------------------------------------------------------------


def read_card(text: str) -> Mapping[str, Any]:
    """The metadata at the top of a README; empty where there is none that can be read."""
    import yaml

    match = re.match(r"\ufeff?---\s*\n(.*?)\n---\s*(\n|$)", text, re.DOTALL)
    if match is None:
        return {}
    try:
        metadata = yaml.safe_load(match[1])
    except (yaml.YAMLError, ValueError, RecursionError):
        return {}
    return metadata if isinstance(metadata, dict) else {}


def _card_configs(card: Mapping[str, Any]) -> tuple[dict[str, dict[str, list[str]]], str | None]:
    """Configuration -> split -> patterns of its files, and which of them is the default."""
    entries = card.get("configs")
    configs: dict[str, dict[str, list[str]]] = {}
    default = None
    for entry in entries if isinstance(entries, list) else []:
        name = entry.get("config_name") if isinstance(entry, dict) else None
        if not isinstance(name, str):
            continue
        files, folder = entry.get("data_files"), entry.get("data_dir")
        prefix = f"{folder.strip('/')}/" if isinstance(folder, str) else ""
        if files is None and prefix:
            files = "**"
        if isinstance(files, str) or (
            isinstance(files, list) and all(isinstance(file, str) for file in files)
        ):
            files = [{"split": _DEFAULT_SPLIT, "path": files}]
        elif isinstance(files, dict):
            files = [{"split": split, "path": path} for split, path in files.items()]
        splits: dict[str, list[str]] = {}
        for part in files if isinstance(files, list) else []:
            paths = part.get("path") if isinstance(part, dict) else None
            for path in [paths] if isinstance(paths, str) else paths or []:
                splits.setdefault(str(part.get("split")), []).append(f"{prefix}{path}")
        if splits:
            configs[name] = splits
            if entry.get("default") is True or (name == "default" and default is None):
                default = name
    return configs, default


def _rows(card: Mapping[str, Any], config: str | None, split: str) -> int | None:
    """The number of rows of a split, as the card tells it."""
    infos = card.get("dataset_info")
    for info in infos if isinstance(infos, list) else [infos]:
        if not isinstance(info, dict):
            continue
        if config is not None and info.get("config_name", config) != config:
            continue
        splits = info.get("splits")
        for part in splits if isinstance(splits, list) else []:
            if isinstance(part, dict) and part.get("name") == split:
                count = part.get("num_examples")
                return count if isinstance(count, int) else None
    return None


def open_hub_table(repository: Repository, choice: Choice, indexes: Path | None) -> SourceTable:
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
    path = f"/{choice.path}" if choice.path and choice.path != files.config else ""
    config = f"config={files.config}&" if files.config else ""
    pinned = f"hf://datasets/{repository.repo}@{repository.commit}{path}"
    return SourceTable(
        name=_name(location, files),
        files=tuple(repository.file(path, indexes) for path in files.paths),
        source=f"{pinned}?{config}split={files.split}",
        notes=tuple(filter(None, (repository.note, files.note))),
        rows=None if repository.listed else files.rows,
    )


def open_local_table(
    path: Path, listing: Sequence[str], choice: Choice, indexes: Path | None
) -> SourceTable:
    """The table in a local folder or file. Raises DatasetError and MissingDependencyError.

    listing: the shards in the folder, as `local_shards` found them.
    """
    require_library("pyarrow", f"the table in {str(path)!r}")
    card: Mapping[str, Any] = {}
    splits_file = path / "dataset_dict.json"
    if splits_file.is_file():  # as DatasetDict.save_to_disk writes it
        splits = convert_record(str(splits_file), read_json(splits_file, MOST_TEXT), _Splits).splits
        data_files = [{"split": split, "path": f"{split}/**"} for split in splits]
        card = {"configs": [{"config_name": "default", "data_files": data_files}]}
    elif (path / CARD).is_file():
        card = read_card(_read_card(path / CARD))
    if not path.is_dir():
        choice = replace(choice, path=path.name)
    files = find_files(repr(str(path)), _saved(path, listing), card, choice)
    return SourceTable(
        name=_name(repr(str(path)), files),
        files=tuple(
            local_file(path / name if path.is_dir() else path, indexes) for name in files.paths
        ),
        notes=(files.note,) if files.note else (),
    )


def _name(location: str, files: DataFiles) -> str:
    config = f"config {files.config!r}, " if files.config not in (None, "default") else ""
    return f"{location} ({config}split {files.split!r})"


class _Splits(msgspec.Struct):
    splits: list[str]


class _DataFile(msgspec.Struct):
    filename: str


class _State(msgspec.Struct):
    files: list[_DataFile] = msgspec.field(name="_data_files")
    selection: Any = msgspec.field(name="_indices_data_files", default=None)


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
