"""Tables of figures, the rows of them that a page shows, and their places on the page."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

Row = Sequence[str]

Rows = Sequence[Row]


def table(head: Row, rows: Iterable[Row]) -> str:
    """A Markdown table."""
    lines = [f"| {' | '.join(line)} |" for line in (head, *rows)]
    return "\n".join([lines[0], "|" + "---|" * len(head), *lines[1:]])


def fill(page: str, tables: Mapping[str, str]) -> str:
    """The page with the table after each mark `<!-- name -->` replaced.

    Raises ValueError for a page without the mark of a table.
    """
    for name, text in tables.items():
        before, mark, rest = page.partition(f"<!-- {name} -->\n")
        if not mark:
            raise ValueError(f"expected a line <!-- {name} --> in the page, found none")
        lines = rest.split("\n")
        old = next((i for i, line in enumerate(lines) if line and not line.startswith("|")), None)
        after = "\n".join(lines[old:]) if old is not None else ""
        page = f"{before}{mark}\n{text}\n\n{after}"
    return page


def fill_in(page: Path, tables: Mapping[str, str]) -> None:
    """Replace tables in a file; see `fill`."""
    page.write_text(fill(page.read_text("utf-8"), tables), "utf-8")


def number(cell: str) -> float:
    """The first number of a cell, which may stand in brackets; 0 if it has none."""
    found = re.search(r"[\d.]+", cell)
    return float(found[0]) if found else 0.0


def largest(count: int, amount: Callable[[Row], float]) -> Callable[[Rows], Rows]:
    """So many rows with the largest amounts, in their order."""
    return lambda rows: [row for row in rows if row in sorted(rows, key=amount)[-count:]]
