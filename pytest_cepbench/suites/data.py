"""Finding and loading the data set that a suite names."""

from __future__ import annotations

import importlib
import inspect
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pytest_cepbench.datasets.folder import load_folder
from pytest_cepbench.datasets.geneval import load_geneval
from pytest_cepbench.datasets.mme import load_mme
from pytest_cepbench.datasets.mmgenbench import load_mmgenbench
from pytest_cepbench.datasets.nocaps_docci import load_pairs
from pytest_cepbench.datasets.opening.questions import load_opening
from pytest_cepbench.datasets.sample import Dataset
from pytest_cepbench.datasets.shapes import load_shapes
from pytest_cepbench.datasets.shapes.arena import load_shapes_arena
from pytest_cepbench.datasets.shapes.tasks import load_shapes_tasks
from pytest_cepbench.errors import DataAbsentError, SuiteError, nearest_name, unknown_name
from pytest_cepbench.suites.definition import Suite

Loader = Callable[..., object]

LOADERS: Mapping[str, Loader] = {
    "folder": load_folder,
    "geneval": load_geneval,
    "mme": load_mme,
    "mmgenbench": load_mmgenbench,
    "opening": load_opening,
    "sdp": load_pairs,
    "shapes": load_shapes,
    "shapes-arena": load_shapes_arena,
    "shapes-tasks": load_shapes_tasks,
}


def load_data(suite: Suite, places: Mapping[str, Path], most: int | None = None) -> Dataset:
    """The suite's data set.

    places: data set name -> path, from `--cep-data`.
    most: samples of each category, from `--cep-samples`; all of them when None.
    Raises DataAbsentError when no path is known for a loader that needs one, DatasetError from the
    loader, SuiteError for a loader or an option that does not exist.
    """
    data = suite.table.data
    loader = _loader(suite)
    accepted = inspect.signature(loader).parameters
    arguments: dict[str, Any] = {}
    for name, value in data.options.items():
        if name not in accepted or name == "path":
            known = [option for option in accepted if option != "path"]
            msg = f"suite {suite.name!r}: {unknown_name(f'option of {data.loader}', name, known)}"
            raise SuiteError(msg)
        arguments[name] = value
    if "path" in accepted:
        required = data.needed or accepted["path"].default is inspect.Parameter.empty
        path = _path(suite, places, required=required)
        if path is not None:
            arguments["path"] = path
    try:
        dataset = loader(**arguments)
    except TypeError as error:
        msg = f"suite {suite.name!r}: loader {data.loader} refuses its options: {error}"
        raise SuiteError(msg) from error
    if not isinstance(dataset, Dataset):
        kind = type(dataset).__name__
        msg = f"suite {suite.name!r}: loader {data.loader} returned {kind}, a Dataset is expected"
        raise SuiteError(msg)
    if data.skip:
        dataset = _without_first(suite, dataset)
    return dataset if most is None else dataset.limited(most)


def _without_first(suite: Suite, dataset: Dataset) -> Dataset:
    """Without the samples that the suite leaves out. Raises SuiteError if a category loses all."""
    skip = suite.table.data.skip
    left = dataset.without(skip)
    gone = [name for name in dataset.categories if left is None or name not in left.categories]
    if left is None or gone:
        msg = (
            f"suite {suite.name!r}: [data] skip = {skip} leaves no sample of "
            f"{', '.join(gone[:3])}: skip fewer, or add samples"
        )
        raise SuiteError(msg)
    return left


def _path(suite: Suite, places: Mapping[str, Path], *, required: bool) -> Path | None:
    data = suite.table.data
    name = data.name or data.loader
    if name in places:
        return places[name]
    if data.path is not None:
        if "\0" in data.path:
            msg = f"suite {suite.name!r}: data.path = {data.path!r} is no path: it holds a NUL byte"
            raise SuiteError(msg)
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
        return LOADERS[name]
    scheme, _, target = name.partition(":")
    module, _, function = target.partition(":")
    if scheme != "python" or not function:
        known = [*LOADERS, "python:package.module:function"]
        msg = f"suite {suite.name!r}: {unknown_name('loader', name, known)}"
        raise SuiteError(msg)
    try:
        loader = getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError) as error:
        msg = f"suite {suite.name!r}: loader {name!r} cannot be imported: {error}"
        raise SuiteError(msg) from error
    if not callable(loader):
        msg = f"suite {suite.name!r}: loader {name!r} is not a function"
        raise SuiteError(msg)
    return loader  # type: ignore[no-any-return] # what it returns is checked by Dataset's users
