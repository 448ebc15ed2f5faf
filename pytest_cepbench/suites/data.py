"""Finding and loading the data set that a suite names."""

from __future__ import annotations

import importlib
import inspect
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from pkgutil import resolve_name
from typing import Any
from unittest import SkipTest

from pytest_cepbench.datasets.questions import METADATA, with_questions
from pytest_cepbench.datasets.sample import Dataset
from pytest_cepbench.datasets.sources.files import unsafe
from pytest_cepbench.datasets.sources.hub import (
    DataPlace,
    Repository,
    open_repository,
    parse_hub_location,
)
from pytest_cepbench.datasets.sources.open_table import (
    Choice,
    local_shards,
    open_hub_table,
    open_local_table,
)
from pytest_cepbench.datasets.sources.table import SHARDS, SourceTable
from pytest_cepbench.datasets.tables import TABLE_LOADERS, TableReader
from pytest_cepbench.errors import (
    DataAbsentError,
    DatasetError,
    SpecError,
    SuiteError,
    did_you_mean,
    is_exit,
    nearest_name,
    public_names,
    unknown_name,
)
from pytest_cepbench.files import names_beside
from pytest_cepbench.option_values import is_url
from pytest_cepbench.suites.definition import Suite

Loader = Callable[..., object]

LOADERS: Mapping[str, str] = {
    "folder": "folder:load_folder",
    "geneval": "geneval:load_geneval",
    "geneval2": "geneval:load_geneval2",
    "judged-battles": "judged_battles:load_judged_battles",
    "mme": "folder:load_mme",
    "mmgenbench": "mmgenbench:load_mmgenbench",
    "opening": "opening.questions:load_opening",
    "sdp": "nocaps_docci:load_pairs",
    "shapes": "shapes:load_shapes",
    "shapes-arena": "shapes.arena:load_shapes_arena",
    "shapes-tasks": "shapes.samples:load_shapes_tasks",
    "sounds": "folder:load_sounds",
    "tones": "tones:load_tones",
}
"""Name, as suites have it -> module of `datasets` and its function, imported when it loads."""


def named_loader(name: str) -> Loader:
    """The function of one of `LOADERS`."""
    loader: Loader = resolve_name(f"pytest_cepbench.datasets.{LOADERS[name]}")
    return loader


def load_data(
    suite: Suite,
    places: Mapping[str, DataPlace],
    most: int | None = None,
    run_folder: Path | None = None,
) -> Dataset:
    """The suite's data set.

    places: data set name -> path or URL, from `--cep-data`.
    most: samples of each category, from `--cep-samples`; all of them when None.
    run_folder: where processes of the run keep the commits that they read; None for one process.
    Raises DataAbsentError when no path is known for a loader that needs one, DatasetError from the
    loader, SuiteError for a loader or an option that does not exist, SpecError for a path that
    does not exist and a URL that cannot be read, MissingDependencyError where the extra `data` is
    needed.
    """
    loader = _loader(suite)
    parameter = inspect.signature(loader).parameters.get("path")
    if parameter is None:
        refuse_table_settings(suite)
        return _limited(_extended(suite, _call(suite, loader)), most)
    place = _place(suite, places, required=needs_path(suite))
    source = open_source(suite, place, run_folder)
    if source.table is not None:
        data = suite.table.data
        columns = {key: getattr(data, key) for key in ("id", "image", "text", "category")}
        reader = TableReader(source.table, columns, most)
        read = _call(suite, TABLE_LOADERS[suite.table.data.loader][0], reader=reader)
        return _extended(suite, read, source.side_file, whole=most is None)
    path = {} if source.path is None else {"path": source.path}
    dataset = _call(suite, loader, **path)
    if source.identity:
        identity = {**dataset.identity, "source": source.identity}
        dataset = replace(dataset, identity=identity, notes=(*dataset.notes, *source.notes))
    beside = None if source.path is None else partial(side_file, source.path)
    return _limited(_extended(suite, dataset, beside), most)


def _extended(
    suite: Suite,
    dataset: Dataset,
    beside: Callable[[str], Path] | None = None,
    *,
    whole: bool = True,
) -> Dataset:
    """With the questions that the suite names.

    beside: finds a file beside the data; where there is none, it is in the suite's folder.
    whole: whether all samples are there. Raises DatasetError as `with_questions`.
    """
    name = suite.table.data.questions
    if name == METADATA:
        from pytest_cepbench.datasets.geneval import with_metadata_questions

        dataset = with_metadata_questions(dataset)
    elif name is not None:
        path = side_file(suite.folder, name) if beside is None else beside(name)
        dataset = with_questions(dataset, path, whole=whole)
    return dataset


def data_name(suite: Suite) -> str | None:
    """What `--cep-data` calls the suite's data; None where the loader reads none from a path.

    Raises SuiteError for a loader that does not exist.
    """
    data = suite.table.data
    reads = "path" in inspect.signature(_loader(suite)).parameters
    return (data.name or data.loader) if reads else None


def needs_path(suite: Suite) -> bool:
    """Whether the suite's data has to be named, since its loader has none of its own.

    Raises SuiteError for a loader that does not exist.
    """
    parameter = inspect.signature(_loader(suite)).parameters.get("path")
    if parameter is None:
        return False
    return suite.table.data.needed or parameter.default is inspect.Parameter.empty


def _call(suite: Suite, loader: Loader, **arguments: Any) -> Dataset:
    """What a loader gives, with the suite's options. Raises SuiteError for those it has not."""
    data = suite.table.data
    accepted = inspect.signature(loader).parameters
    given = {"path", *arguments}
    for name in data.options:
        if name not in accepted or name in given:
            known = [option for option in accepted if option not in given]
            reads = " of tables" if "reader" in arguments else ""
            what = f"option of {data.loader}{reads}"
            raise SuiteError(f"suite {suite.name!r}: {unknown_name(what, name, known)}")
    try:
        with _no_exit(f"suite {suite.name!r}: loader {data.loader}"):
            dataset = loader(**arguments, **data.options)
    except TypeError as error:
        raise SuiteError(
            f"suite {suite.name!r}: loader {data.loader} refuses its options: {error}"
        ) from error
    if not isinstance(dataset, Dataset):
        kind = type(dataset).__name__
        raise SuiteError(
            f"suite {suite.name!r}: loader {data.loader} returned {kind}, a Dataset is expected"
        )
    return dataset


@contextmanager
def _no_exit(what: str) -> Iterator[None]:
    """Raise DatasetError where a loader calls `sys.exit()` or skips: its suite must not vanish.

    what: the code that runs.
    """
    try:
        yield
    except BaseException as error:
        if not (isinstance(error, SkipTest) or is_exit(error)):
            raise
        raise DatasetError(
            f"{what} raised {type(error).__name__}: {error}. A loader whose data is not here has a "
            "path that --cep-data gives: without it the suite is skipped"
        ) from error


def _limited(dataset: Dataset, most: int | None) -> Dataset:
    return dataset if most is None else dataset.limited(most)


def _place(suite: Suite, places: Mapping[str, DataPlace], *, required: bool) -> DataPlace | None:
    data = suite.table.data
    name = data.name or data.loader
    if name in places:
        place = places[name]
        known = isinstance(place, str)
        with suppress(ValueError):  # a NUL byte
            # Also a link that leads nowhere: its loader explains that.
            known = known or os.path.lexists(place)
        if isinstance(place, Path) and not known:
            near = did_you_mean(place.name, names_beside(place))
            raise SpecError(f"data set {name!r}: {str(place)!r} does not exist.{near}")
        return place
    if data.path is not None:
        if is_url(data.path):
            return data.path
        if "\0" in data.path:
            raise SuiteError(
                f"suite {suite.name!r}: data.path = {data.path!r} is no path: it holds a NUL byte"
            )
        # Not `resolve`, which ends at circular links; the loader says what is there.
        return Path(os.path.realpath(suite.folder / data.path))
    if not required:
        return None
    msg = f"data set {name!r} is not here: give it with --cep-data {name}=PATH. {data.how_to_get}"
    mistyped = nearest_name(name, places)
    if mistyped is not None:
        msg = f"{msg.strip()} --cep-data names {mistyped!r}: is {name!r} meant?"
    raise DataAbsentError(msg.strip())


def _loader(suite: Suite) -> Loader:
    name = suite.table.data.loader
    if name in LOADERS:
        return named_loader(name)
    scheme, _, target = name.partition(":")
    module, _, function = target.partition(":")
    if scheme != "python" or not function:
        known = [*LOADERS, "python:package.module:function"]
        raise SuiteError(f"suite {suite.name!r}: {unknown_name('loader', name, known)}")
    try:
        with _no_exit(f"suite {suite.name!r}: the module of loader {name!r}"):
            loader = getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError) as error:
        msg = f"suite {suite.name!r}: loader {name!r} cannot be imported: {error}"
        if isinstance(error, AttributeError) and module in sys.modules:
            near = did_you_mean(function, public_names(sys.modules[module]))
            msg += f".{near}" if near else ""
        raise SuiteError(msg) from error
    if not callable(loader):
        raise SuiteError(f"suite {suite.name!r}: loader {name!r} is not a function")
    return loader  # type: ignore[no-any-return] # what it returns is checked by Dataset's users


# -- where the data is read from: files, the tables among them, or the hub -------------------------

_SETTINGS = ("config", "split", "id", "image", "text", "category")
"""Keys of `[data]` that are about tables alone."""

_FILE_OPTIONS = ("file", "labels")
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
    table: SourceTable | None = None
    side_file: Callable[[str], Path] = Path
    identity: str = ""
    notes: tuple[str, ...] = ()


def open_source(suite: Suite, place: DataPlace | None, run_folder: Path | None) -> DataSource:
    """The source of a suite's data. Raises as `load_data`."""
    if place is None:
        refuse_table_settings(suite)
        return DataSource()
    loader = TABLE_LOADERS.get(suite.table.data.loader)
    if isinstance(place, str):
        return _hub_source(suite, place, run_folder)
    if loader is None:
        refuse_table_settings(suite)
        return DataSource(place)
    data = suite.table.data
    asked = any(getattr(data, key) is not None for key in _SETTINGS)
    shards = local_shards(place, () if asked else loader[1])
    if not shards:
        refuse_table_settings(suite, f"finds none in {str(place)!r}")
        return DataSource(place)
    choice = Choice("", data.config, data.split)
    table = open_local_table(place, shards, choice)
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


def side_file(folder: Path, name: str) -> Path:
    """The file of a name in a folder, or beside a file. Raises DatasetError for another place."""
    reason = unsafe(name)
    if reason is not None:
        raise DatasetError(reason)
    return (folder if folder.is_dir() else folder.parent) / name


def _hub_source(suite: Suite, text: str, run_folder: Path | None) -> DataSource:
    location = parse_hub_location(text)
    repository = open_repository(location, run_folder)
    data = suite.table.data
    prefix = f"{location.path}/" if location.path else ""
    named = {
        key: f"{prefix}{data.options[key]}"
        for key in _FILE_OPTIONS
        if isinstance(data.options.get(key), str)
    }
    if data.loader in TABLE_LOADERS and any(file.endswith(SHARDS) for file in repository.files):
        choice = Choice(location.path, location.config or data.config, location.split or data.split)
        table = open_hub_table(repository, choice)
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
    identity = f"{repository.pinned}/{location.path}".rstrip("/")
    return DataSource(folder / location.path, identity=identity, notes=repository.notes)


def _hub_side_file(repository: Repository, name: str) -> Path:
    if name not in repository.files:
        raise DatasetError(
            f"{repository.location} has no file {name!r}.{did_you_mean(name, repository.files)}"
        )
    return repository.snapshot([name]) / name
