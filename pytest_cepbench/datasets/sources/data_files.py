"""Which files of a data set are read: its configuration, its split, and the shards of that.

The rules are those of the library `datasets`: the card's `configs` first, then what `save_to_disk`
left, then the names of folders and files.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from pytest_cepbench.errors import DatasetError, did_you_mean

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

_WILD = re.compile(r"[*?\[]")


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
    """

    paths: tuple[str, ...]
    config: str | None
    split: str
    rows: int | None
    whole: bool


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
    files = sorted(path for path in listing if not _hidden(path))
    configs, default = _card_configs(card)
    config, path = choice.config, choice.path
    if path and path in configs and not any(_below(file, path) for file in files):
        config, path = path, ""
    named_file = path in files
    if path:
        files = _matching(path, files)
        configs = {}
    shards = _shards(source, files, path)
    config, splits = _splits(source, shards, configs, config or (default if configs else None))
    split = _choose(source, "split", choice.split, splits)
    paths = tuple(splits[split])
    whole = named_file or _check_numbers(source, paths)
    rows = None if path else _rows(card, config, split)
    return DataFiles(paths, config, split, rows, whole)


def _hidden(path: str) -> bool:
    return any(part.startswith((".", "__")) for part in PurePosixPath(path).parts)


def _below(path: str, folder: str) -> bool:
    return path == folder or path.startswith(f"{folder}/")


def _matching(pattern: str, files: Sequence[str]) -> list[str]:
    if not _WILD.search(pattern):
        return [file for file in files if _below(file, pattern)]
    matches = _matcher(pattern)
    return [file for file in files if matches(file)]


def _matcher(pattern: str) -> Callable[[str], object]:
    from fsspec.utils import glob_translate

    return re.compile(glob_translate(pattern)).match


def _shards(source: str, files: Sequence[str], path: str) -> list[str]:
    for suffix in SHARDS:
        shards = [file for file in files if file.endswith(suffix)]
        if shards:
            return shards
    compressed = [file for file in files if file.endswith(COMPRESSED)]
    if compressed:
        raise DatasetError(
            f"{source}: {compressed[0]!r} is compressed, so no image in it can be read without all "
            "before it: unpack it to a plain .tar"
        )
    where = f" under {path!r}" if path else ""
    raise DatasetError(f"{source} has no file{where} that ends in {', '.join(SHARDS)}")


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
    folders = _config_folders(shards)
    if folders:
        config = _choose(source, "config", config, folders)
        return config, _by_name(folders[config])
    if config is not None:
        raise DatasetError(f"{source} has one configuration: leave out config={config}")
    return None, _by_name(shards)


def _config_folders(shards: Sequence[str]) -> dict[str, list[str]]:
    """The shards below each top folder, where these stand for configurations; else nothing.

    So they do where there are several, none is a split, and each holds the splits below it.
    """
    folders: dict[str, list[str]] = {}
    for file in shards:
        top, slash, _ = file.partition("/")
        if not slash or top == _WHOLE or _keyword(top):
            return {}
        folders.setdefault(top, []).append(file)
    parts = ([_split_of(file.partition("/")[2]) for file in files] for files in folders.values())
    return folders if len(folders) > 1 and all(all(splits) for splits in parts) else {}


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
    """Whether all are numbered shards and none is missing; DatasetError where one is."""
    # Older versions of `datasets` end every name with a digest of its own.
    series: dict[tuple[str, str, int], set[int]] = {}
    for path in paths:
        numbered = _NUMBERED.fullmatch(path)
        if numbered is None:
            return False
        suffix = PurePosixPath(path).suffix
        key = numbered["stem"], suffix, int(numbered["count"])
        series.setdefault(key, set()).add(int(numbered["number"]))
    for (stem, suffix, count), numbers in series.items():
        missing = sorted(set(range(count)) - numbers)
        if missing:
            name = f"{stem}-{missing[0]:05}-of-{count:05}{suffix}"
            raise DatasetError(
                f"{source}: {len(missing)} of {count} shards are missing, the first {name!r}"
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
        splits = _card_splits(entry) if isinstance(name, str) else {}
        if splits:
            configs[str(name)] = splits
            if entry.get("default") is True or (name == "default" and default is None):
                default = str(name)
    return configs, default


def _card_splits(entry: Mapping[str, Any]) -> dict[str, list[str]]:
    files = entry.get("data_files")
    folder = entry.get("data_dir")
    prefix = f"{folder.strip('/')}/" if isinstance(folder, str) else ""
    if files is None:
        return {_DEFAULT_SPLIT: [f"{prefix}**"]} if prefix else {}
    if isinstance(files, str) or (isinstance(files, list) and all(_is_text(f) for f in files)):
        files = [{"split": _DEFAULT_SPLIT, "path": files}]
    elif isinstance(files, dict):
        files = [{"split": split, "path": path} for split, path in files.items()]
    splits: dict[str, list[str]] = {}
    for part in files if isinstance(files, list) else []:
        paths = part.get("path") if isinstance(part, dict) else None
        for path in [paths] if isinstance(paths, str) else paths or []:
            splits.setdefault(str(part.get("split")), []).append(f"{prefix}{path}")
    return splits


def _is_text(value: object) -> bool:
    return isinstance(value, str)


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
