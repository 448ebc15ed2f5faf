"""Finding and loading the data set that a suite names."""

from __future__ import annotations

import importlib
import inspect
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from pkgutil import resolve_name
from typing import Any
from unittest import SkipTest

from pytest_cepbench.datasets.questions import METADATA, with_questions
from pytest_cepbench.datasets.sample import Dataset
from pytest_cepbench.datasets.sources.files import SHARDS, unsafe
from pytest_cepbench.datasets.sources.hub import (
    DataPlace,
    Repository,
    open_repository,
    parse_hub_location,
)
from pytest_cepbench.datasets.sources.open_table import (
    local_shards,
    open_hub_table,
    open_local_table,
)
from pytest_cepbench.datasets.sources.table import SourceTable
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
    loader, data = _loader(suite), suite.table.data
    reads_path = "path" in inspect.signature(loader).parameters
    place = _place(suite, places, required=needs_path(suite)) if reads_path else None
    table: SourceTable | None = None
    notes: tuple[str, ...] = ()
    lacks, source = "reads no tables", ""
    beside = partial(_side_file, place if isinstance(place, Path) else suite.folder)
    if isinstance(place, str):
        location = parse_hub_location(place)
        repository = open_repository(location, run_folder)
        config, split = location.config or data.config, location.split or data.split
        if data.loader in TABLE_LOADERS and any(f.endswith(SHARDS) for f in repository.files):
            table = open_hub_table(repository, config, split)
            beside = partial(_hub_side_file, repository)
        else:
            lacks = f"finds none in {place}"
            if location.config is not None or location.split is not None:
                raise SuiteError(
                    f"data at {place!r}: config and split are about tables, and there are none"
                )
            _refuse_table_settings(suite, lacks)
            source, notes = f"{repository.pinned}/{location.path}".rstrip("/"), repository.notes
            place = repository.snapshot(_fetched(suite, location.path)) / location.path
            beside = partial(_side_file, place)
    elif place is not None and data.loader in TABLE_LOADERS:
        asked = any(getattr(data, key) is not None for key in _SETTINGS)
        shards = local_shards(place, images_first=not asked)
        lacks = f"finds none in {str(place)!r}"
        if shards:
            table = open_local_table(place, shards, data.config, data.split)
    if table is not None:
        columns = {key: getattr(data, key) for key in ("id", "image", "text", "category")}
        reader = TableReader(table, columns, most)
        dataset = _call(suite, TABLE_LOADERS[data.loader], reader=reader)
    else:
        _refuse_table_settings(suite, lacks)
        dataset = _call(suite, loader, **({} if place is None else {"path": place}))
    if source:
        identity = {**dataset.identity, "source": source}
        dataset = replace(dataset, identity=identity, notes=(*dataset.notes, *notes))
    if data.questions == METADATA:
        from pytest_cepbench.datasets.geneval import with_metadata_questions

        dataset = with_metadata_questions(dataset)
    elif data.questions is not None:
        whole = table is None or most is None
        dataset = with_questions(dataset, beside(data.questions), whole=whole)
    return dataset if table is not None or most is None else dataset.limited(most)


_SETTINGS = ("config", "split", "id", "image", "text", "category")
"""Keys of `[data]` that are about tables alone."""


def _refuse_table_settings(suite: Suite, lacks: str) -> None:
    """Raise SuiteError where the suite names parts of tables, and there are none."""
    data = suite.table.data
    for key in _SETTINGS:
        if getattr(data, key) is not None:
            raise SuiteError(
                f"suite {suite.name!r}: [data] {key} = {getattr(data, key)!r} is about tables "
                f"({', '.join(SHARDS)}), and loader {data.loader} {lacks}"
            )


def _fetched(suite: Suite, path: str) -> list[str] | None:
    """The files and folders of a repository that a loader needs; None for all.

    Where options name files, no other one is fetched.
    """
    data, prefix = suite.table.data, f"{path}/" if path else ""
    names = [data.options.get(key) for key in ("file", "labels")]
    named = [f"{prefix}{name}" for name in names if isinstance(name, str)]
    if not named:
        return [path] if path else None
    return named if data.questions in (None, METADATA) else [*named, f"{prefix}{data.questions}"]


def _side_file(folder: Path, name: str) -> Path:
    """The file of a name in a folder, or beside a file. Raises DatasetError for another place."""
    reason = unsafe(name)
    if reason is not None:
        raise DatasetError(reason)
    return (folder if folder.is_dir() else folder.parent) / name


def _hub_side_file(repository: Repository, name: str) -> Path:
    if name not in repository.files:
        raise DatasetError(
            f"{repository.location} has no file {name!r}.{did_you_mean(name, repository.files)}"
        )
    return repository.snapshot([name]) / name


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
    if scheme != "python" or not function or module[:1] in ("", "."):
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
