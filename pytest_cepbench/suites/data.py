"""Finding and loading the data set that a suite names."""

from __future__ import annotations

import importlib
import inspect
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from pkgutil import resolve_name
from typing import Any
from unittest import SkipTest

from pytest_cepbench.datasets.questions import METADATA, with_questions
from pytest_cepbench.datasets.sample import Dataset, SampleChoice
from pytest_cepbench.datasets.sources.hub import DataPlace, LoadingFolders
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
from pytest_cepbench.suites.data_source import (
    open_source,
    refuse_table_settings,
    side_file,
    table_columns,
)
from pytest_cepbench.suites.definition import Suite

Loader = Callable[..., object]

_NOWHERE = LoadingFolders()

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
    folders: LoadingFolders = _NOWHERE,
) -> Dataset:
    """The suite's data set.

    places: data set name -> path or URL, from `--cep-data`.
    most: samples of each category, from `--cep-samples`; all of them when None.
    folders: where reading may leave files.
    Raises DataAbsentError when no path is known for a loader that needs one, DatasetError from the
    loader, SuiteError for a loader or an option that does not exist, SpecError for a path that
    does not exist and a URL that cannot be read, MissingDependencyError where the extra `data` is
    needed.
    """
    loader = _loader(suite)
    parameter = inspect.signature(loader).parameters.get("path")
    if parameter is None:
        refuse_table_settings(suite)
        return _chosen(suite, _extended(suite, _call(suite, loader)), most)
    place = _place(suite, places, required=needs_path(suite))
    source = open_source(suite, place, folders)
    if source.table is not None:
        choice = SampleChoice(suite.table.data.skip, most)
        reader = TableReader(source.table, table_columns(suite), choice, source.side_file)
        read = _call(suite, TABLE_LOADERS[suite.table.data.loader].load, reader=reader)
        whole = most is None and not suite.table.data.skip
        dataset = _extended(suite, read, source.side_file, whole=whole)
        # The reader limits what is in the table: edited samples are counted here.
        return dataset.limited(most) if suite.table.data.edits and most is not None else dataset
    path = {} if source.path is None else {"path": source.path}
    dataset = _call(suite, loader, **path)
    if source.identity:
        identity = {**dataset.identity, "source": source.identity}
        dataset = replace(dataset, identity=identity, notes=(*dataset.notes, *source.notes))
    beside = None if source.path is None else partial(side_file, source.path)
    return _chosen(suite, _extended(suite, dataset, beside), most)


def _extended(
    suite: Suite,
    dataset: Dataset,
    beside: Callable[[str], Path] | None = None,
    *,
    whole: bool = True,
) -> Dataset:
    """With the questions and the edited samples that the suite names.

    beside, whole: as in `_asked`. Raises DatasetError as `with_questions` and `with_edits`.
    """
    asked, edits = _asked(suite, dataset, beside, whole=whole), suite.table.data.edits
    if not edits:
        return asked
    from pytest_cepbench.datasets.edits import with_edits

    return with_edits(asked, edits)


def _asked(
    suite: Suite, dataset: Dataset, beside: Callable[[str], Path] | None, *, whole: bool
) -> Dataset:
    """The data set with the questions that the suite names: of a file, or of the metadata.

    beside: finds a file beside the data; where there is none, it is in the suite's folder.
    """
    name = suite.table.data.questions
    if name is None:
        return dataset
    if name == METADATA:
        from pytest_cepbench.datasets.metadata_questions import with_metadata_questions

        return with_metadata_questions(dataset)
    path = side_file(suite.folder, name) if beside is None else beside(name)
    return with_questions(dataset, path, whole=whole)


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


def _chosen(suite: Suite, dataset: Dataset, most: int | None) -> Dataset:
    if suite.table.data.skip:
        skip = suite.table.data.skip
        left = dataset.without(skip)
        gone = [name for name in dataset.categories if left is None or name not in left.categories]
        if left is None or gone:
            raise SuiteError(
                f"suite {suite.name!r}: [data] skip = {skip} leaves no sample of "
                f"{', '.join(gone[:3])}: skip fewer, or add samples"
            )
        dataset = left
    return dataset if most is None else dataset.limited(most)


def _place(suite: Suite, places: Mapping[str, DataPlace], *, required: bool) -> DataPlace | None:
    data = suite.table.data
    name = data.name or data.loader
    if name in places:
        place = places[name]
        if isinstance(place, Path) and not _exists(place):
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


def _exists(path: Path) -> bool:
    """Whether anything has this name, also a link that leads nowhere, which its loader explains."""
    try:
        return os.path.lexists(path)
    except ValueError:  # a NUL byte
        return False


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
