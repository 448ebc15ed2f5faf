"""A command that measures: its question is read, a store is opened, the models run."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from pytest_cepbench.cli.output import HOME, INTERRUPTED, MISTAKE, NOT_DONE, complain
from pytest_cepbench.conventions import keep_out_of_git
from pytest_cepbench.errors import CepError
from pytest_cepbench.store import Store

if TYPE_CHECKING:
    from pytest_cepbench.suites import ModelPool

Q = TypeVar("Q")
P = TypeVar("P")
R = TypeVar("R")


def measured(
    store: Path,
    ask: Callable[[], Q],
    get_ready: Callable[[Q, ModelPool], P],
    play: Callable[[P, ModelPool], R],
) -> R | int:
    """Result of a question, or the exit code of a failure, which is complained of.

    store: folder of the store, opened once it is known what is asked.
    """
    try:
        question = ask()
        opened = open_store(store)
    except CepError as error:
        return complain(str(error), MISTAKE)
    from pytest_cepbench.suites import ModelPool, SuiteNotApplicableError
    from pytest_cepbench.suites.data import DataAbsentError

    with opened:
        roster = ModelPool(opened)
        try:
            ready = get_ready(question, roster)
        except (CepError, DataAbsentError, SuiteNotApplicableError) as error:
            return complain(str(error), MISTAKE)
        except KeyboardInterrupt:
            return complain("interrupted before anything was measured", INTERRUPTED)
        try:
            return play(ready, roster)
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
