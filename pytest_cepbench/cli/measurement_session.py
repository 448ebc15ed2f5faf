"""Commands that measure: what was asked is read and prepared, then the models play, on one store."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from pytest_cepbench.cli.home import open_store
from pytest_cepbench.cli.terminal import INTERRUPTED, MISTAKE, NOT_DONE, complain
from pytest_cepbench.errors import CepError
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
    """What comes of a question, or the exit code of what went wrong, which is complained of.

    store: folder of the store, opened once it is known what is asked.
    """
    try:
        question = ask()
        opened = open_store(store)
    except CepError as error:
        return complain(str(error), MISTAKE)
    with opened:
        roster = ModelPool(opened)
        try:
            ready = get_ready(question, roster)
        except CepError as error:
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
