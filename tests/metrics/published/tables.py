"""Reader of the printed tables: one CSV each, named after its paper and number.

genception_2, _4 and _5: GenCeption, Tables 2, 4 and 5 of its first version. The text of the later
version has two slips of its character recognition, which the first version and the authors'
leaderboard.json settle: GC@3 of LLaVA-7B in numerical calculation is 0.155, and its overall rank 7.
mmgenbench_1, _6, _7 and _14: MMGenBench, Tables 1, 6, 7 and 14.
opening_2: OpenING, Table 2. opening_3: Table 3, GPT-4o and IntJudge. opening_12: Table 12, the
panel of IntJudge. opening_human and opening_gpt4o: verdicts for each two models, counted from the
files that the authors released.
geneval_humans: counted from the annotations that GenEval's authors released.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from math import nan
from pathlib import Path

import numpy as np
import numpy.typing as npt

Row = tuple[str, ...]


@dataclass(frozen=True)
class Table:
    """A printed table. columns: their names. rows: the words of a row -> its numbers, in order.

    A dash is NaN.
    """

    columns: Row
    rows: Mapping[Row, npt.NDArray[np.float64]]

    def column(self, name: str) -> npt.NDArray[np.float64]:
        """A column from the top down."""
        return np.array([numbers[self.columns.index(name)] for numbers in self.rows.values()])


def load(name: str, words: int = 1) -> Table:
    """The table of that name, whose first columns are words and the others numbers."""
    path = Path(__file__).with_name(f"{name}.csv")
    with path.open(encoding="utf-8", newline="") as lines:
        head, *body = csv.reader(lines)
    rows = {
        tuple(cells[:words]): np.array([float(cell) if cell else nan for cell in cells[words:]])
        for cells in body
    }
    assert len(rows) == len(body), f"{name}: a row is there twice"
    return Table(tuple(head[words:]), rows)
