"""A command that measures: its question is read, a store is opened, the models run."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from pytest_cepbench.cli.output import HOME, INTERRUPTED, MISTAKE, NOT_DONE, complain
from pytest_cepbench.errors import CepError
from pytest_cepbench.files import keep_out_of_git
from pytest_cepbench.store import Store

if TYPE_CHECKING:
    from pytest_cepbench.suites import ModelPool

Q = TypeVar("Q")
P = TypeVar("P")
R = TypeVar("R")


def measured(
    store: Path,
    read: Callable[[], Q],
    prepare: Callable[[Q, ModelPool], P],
    measure: Callable[[P, ModelPool], R],
) -> R | int:
    """Result of measuring, or the exit code of a failure, which is complained of.

    store: folder of the store, opened once the question is read.
    read: gives the question.
    prepare: gives what is measured for a question, before anything is.
    measure: gives the result.
    """
    try:
        question = read()
        opened = open_store(store)
    except CepError as error:
        return complain(str(error), MISTAKE)
    from pytest_cepbench.suites import ModelPool

    with opened:
        pool = ModelPool(opened)
        try:
            prepared = prepare(question, pool)
        except CepError as error:
            return complain(str(error), MISTAKE)
        except KeyboardInterrupt:
            return complain("interrupted before anything was measured", INTERRUPTED)
        try:
            return measure(prepared, pool)
        except CepError as error:
            return complain(str(error), NOT_DONE)
        except KeyboardInterrupt:
            remedy = "what was computed is in the store: the same command goes on from there"
            return complain(f"interrupted; {remedy}", INTERRUPTED)


def open_store(folder: Path) -> Store:
    """The store in a folder. Raises StoreError."""
    store = Store(folder.absolute())
    keep_out_of_git(HOME, folder)
    return store


def import_from(suite_file: Path) -> None:
    """As under pytest, modules of `python:` models and loaders lie here or beside the suite."""
    for folder in (str(suite_file.parent.absolute()), str(Path.cwd())):
        if folder not in sys.path:
            sys.path.insert(0, folder)
