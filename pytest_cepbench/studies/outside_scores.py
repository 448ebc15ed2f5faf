"""Leaderboards and outside scores of the same models: how far they agree."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import isfinite, nan
from pathlib import Path

import numpy as np

from pytest_cepbench.errors import SpecError
from pytest_cepbench.metrics.correlation import FEWEST_CORRELATED, Method, correlation_estimate
from pytest_cepbench.metrics.uncertainty import Estimate
from pytest_cepbench.studies.rating_alignment import METHODS

Column = tuple[str, Mapping[str, float]]
"""A leaderboard or a column of a table: its name, and the scores by model."""

_BOARDS = (
    ("cases", "case", "models", "value"),
    ("leaderboards", "name", "standings", "rating"),
    ("scores", "name", "models", "overall"),
)
"""Lists of boards in the files of `compare` and `arena`: their name, their rows, a row's score."""


@dataclass(frozen=True)
class OutsideCorrelation:
    """How a leaderboard and a column of outside scores agree on the models that both have."""

    board: str
    column: str
    method: Method
    estimate: Estimate


def correlate_scores(
    pairs: Iterable[tuple[Column, Column]], draws: int
) -> tuple[list[OutsideCorrelation], list[str]]:
    """Correlate each pair over the models that both have, by every method.

    draws: of the bootstrap behind each interval.
    Returns also a line for each pair with too few models in common. Raises SpecError where nothing
    can be correlated.
    """
    found, few = [], []
    for (board, scores), (column, theirs) in pairs:
        shared = sorted(scores.keys() & theirs.keys())
        if len(shared) < FEWEST_CORRELATED:
            few.append(f"{board}, {column}: {len(shared)} models in common, too few to correlate")
            continue
        x, y = (np.array([given[name] for name in shared]) for given in (scores, theirs))
        for method in METHODS:
            estimate = correlation_estimate(x, y, method, draws)
            found.append(OutsideCorrelation(board, column, method, estimate))
    if not found:
        raise SpecError(f"nothing can be correlated: {'; '.join(few)}. Models need equal names")
    return found, few


def read_boards(path: Path) -> dict[str, dict[str, float]]:
    """The scores of each leaderboard in a file by model, higher where better.

    Raises SpecError for a file that cannot be read, and for one without a leaderboard.
    """
    boards: dict[str, dict[str, float]] = {}
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        for key, name, entries, value in _BOARDS:
            for board in document.get(key, ()):
                sign = 1 if board.get("higher_is_better", True) else -1
                rows = {row["model"]: sign * float(row[value]) for row in board[entries]}
                boards[board[name]] = rows
    except OSError as error:
        raise SpecError(f"{path}: {error.strerror}") from error
    except (AttributeError, KeyError, TypeError, ValueError):
        boards = {}
    if not boards:
        raise SpecError(
            f"{path} holds no leaderboard: the JSON that `cepbench compare --out` or `cepbench "
            "arena leaderboard` wrote is needed"
        )
    return boards


def read_outside(path: Path) -> dict[str, dict[str, float]]:
    """The columns of a CSV: the first names the models, an empty cell is not known.

    Raises SpecError for a file that cannot be read, names that are there twice, and cells that are
    no finite numbers.
    """
    try:
        lines = list(csv.reader(path.read_text(encoding="utf-8-sig").splitlines()))
    except OSError as error:
        raise SpecError(f"{path}: {error.strerror}") from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise SpecError(f"{path} is no table of comma-separated values: {error}") from error
    head, *rows = lines or [[]]
    columns: dict[str, dict[str, float]] = {name: {} for name in head[1:]}
    if not columns or len(columns) < len(head) - 1:
        raise SpecError(
            f'{path}: a first line with "model" and the name of each benchmark, none twice, is '
            "expected"
        )
    seen: set[str] = set()
    for number, row in enumerate(rows, 2):
        if not row:
            continue
        if row[0] in seen or len(row) > len(head):
            wrong = "has more cells than the first line" if row[0] not in seen else "is there twice"
            raise SpecError(f"{path}, line {number}: {row[0]!r} {wrong}")
        seen.add(row[0])
        for name, cell in zip(head[1:], row[1:], strict=False):
            if not cell.strip():
                continue
            try:
                columns[name][row[0]] = float(cell)
            except ValueError:
                columns[name][row[0]] = nan
            if not isfinite(columns[name][row[0]]):
                raise SpecError(f"{path}, line {number}: {name} is no number, {cell!r}")
    return columns
