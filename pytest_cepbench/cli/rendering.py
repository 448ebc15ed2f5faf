"""A page of headings, lines and tables, as text for a terminal and as Markdown."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pytest_cepbench.report.text import printable

LONGEST_NAME = 32
"""Characters of a name in a table of the terminal; longer ones lose their beginning, since
checkpoints of one run differ at their end."""

_GAP = "  "


@dataclass(frozen=True)
class Table:
    """Rows under a head; the first column names the row, all others hold numbers or short words."""

    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Section:
    """A title with lines and tables below it."""

    title: str
    blocks: tuple[str | Table, ...]


def to_text(sections: Sequence[Section], width: int) -> str:
    """The page for a terminal of so many columns.

    Lines are wrapped; a table that is too wide goes on below itself, with its first column again.
    """
    lines: list[str] = []
    for section in sections:
        lines += [*_wrapped(section.title, width), ""]
        for block in section.blocks:
            if isinstance(block, Table):
                lines += [*_text_table(block, width), ""]
            else:
                lines += _wrapped(block, width)
        if lines[-1]:
            lines.append("")
    return "\n".join(lines) + "\n"


def to_markdown(sections: Sequence[Section]) -> str:
    """The page as Markdown; whatever models, files and data sets are called stands as it is."""
    lines: list[str] = []
    for number, section in enumerate(sections):
        lines += [f"{'#' if number == 0 else '##'} {_escaped(section.title)}", ""]
        for block in section.blocks:
            if isinstance(block, Table):
                lines += [*([""] if lines[-1] else []), *_markdown_table(block), ""]
            else:
                indent = "  " if block.startswith("  ") else ""
                lines.append(f"{indent}- {_escaped(block)}")
        lines += [""] if lines[-1] else []
    return "\n".join(lines).rstrip() + "\n"


def short(name: str) -> str:
    """A name on one line, from its end, as long as tables take it."""
    clean = printable(name, 10_000)
    return clean if len(clean) <= LONGEST_NAME else f"...{clean[3 - LONGEST_NAME :]}"


def _wrapped(line: str, width: int) -> list[str]:
    first, rest = ("  ", "    ") if line.startswith("  ") else ("", "")
    return textwrap.wrap(
        printable(line, 10_000),
        max(width, 20),
        initial_indent=first,
        subsequent_indent=rest,
        break_on_hyphens=False,
    ) or [""]


def _text_table(table: Table, width: int) -> list[str]:
    cells = [tuple(short(cell) for cell in row) for row in (table.head, *table.rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(table.head))]
    lines: list[str] = []
    for columns in _folded(widths, width):
        lines += [""] if lines else []
        for row in cells:
            first = f"{row[0]:{widths[0]}}"
            rest = [f"{row[i]:>{widths[i]}}" for i in columns]
            lines.append(_GAP.join([first, *rest]).rstrip())
    return lines


def _folded(widths: Sequence[int], width: int) -> Iterator[list[int]]:
    """The columns beside the first one, as many at a time as the width has room for."""
    columns: list[int] = []
    used = widths[0]
    for i in range(1, len(widths)):
        needed = len(_GAP) + widths[i]
        if columns and used + needed > width:
            yield columns
            columns, used = [], widths[0]
        columns.append(i)
        used += needed
    yield columns


def _markdown_table(table: Table) -> list[str]:
    rule = ["---", *["---:"] * (len(table.head) - 1)]
    rows = [[_escaped(cell) for cell in row] for row in (table.head, *table.rows)]
    return [f"| {' | '.join(row)} |" for row in (rows[0], rule, *rows[1:])]


def _escaped(text: str) -> str:
    return re.sub(r"([\\`*_\[\]<>|#&~])", r"\\\1", printable(text, 10_000))
