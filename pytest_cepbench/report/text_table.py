"""A table in plain text that fits a terminal: columns of least worth are left out, no name is cut.

Not rich's Table, which knows no worth of columns, no decimal points below one another and no
heading across a group of rows. The widths that these need are most of a table; what would be left
to rich costs 40 ms to import and 1.5 ms for each row.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from pytest_cepbench.escapes import width_of
from pytest_cepbench.report.text_layout import Line, Span, fold, wrap

_NUMBER = re.compile(r"[-+]?\d+\.(\d+)")

_MOST_NAME = 60  # columns of a name, however many there are

_LEAST_NAME = 24  # columns of a folded name, before a column that is kept for long goes


@dataclass(frozen=True)
class Layout:
    """Columns of a table.

    heads: their heads, in order.
    words: heads of the columns that begin at the left; others hold numbers and end at the right.
    name: head of the column that goes on below itself where it has no room.
    dropped: heads of columns in the order in which a narrow table goes without them. Those without
    a value go first.
    kept: those among them for which names are folded first.
    optional: heads of columns that are shown only where they have a value.
    """

    heads: tuple[str, ...]
    words: frozenset[str]
    name: str
    dropped: tuple[str, ...]
    kept: frozenset[str] = frozenset()
    optional: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Group:
    """Rows that belong together.

    rows: their cells, in the order of the layout's heads.
    heading: a text above them; empty for none.
    """

    rows: Sequence[Sequence[Span]]
    heading: str = ""


def table_lines(
    layout: Layout, groups: Sequence[Group], columns: int | None, *, rule: str = ""
) -> Iterator[Line]:
    """A table, its head first.

    columns: that a line may take; None where that does not matter.
    rule: glyph of a line below the head; empty for none.
    """
    cells = _cells(layout, groups)
    widths = _widths(layout, cells, columns)
    wide = columns is None or _total(widths, gap=2) <= columns
    gap = "  " if wide else " "
    yield _line({head: Span(head, "bold") for head in widths}, layout, widths, gap)
    if rule:
        yield (Span(gap.join(rule * width for width in widths.values())),)
    rows = zip(*(cells[head] for head in widths), strict=True)
    for group in groups:
        heading = wrap(group.heading, columns or sys.maxsize) if group.heading else []
        yield from ((Span(line, "bold"),) for line in heading)
        for _ in group.rows:
            yield from _folded(dict(zip(widths, next(rows), strict=True)), layout, widths, gap)


def _cells(layout: Layout, groups: Sequence[Group]) -> dict[str, list[Span]]:
    """Cells of each column, the decimal points of its numbers below one another."""
    columns = {}
    for place, head in enumerate(layout.heads):
        spans = [row[place] for group in groups for row in group.rows]
        matches = [_NUMBER.fullmatch(span.text) for span in spans]
        most = max((len(match[1]) for match in matches if match), default=0)
        columns[head] = [
            Span(span.text + " " * (most - len(match[1])), span.style) if match else span
            for span, match in zip(spans, matches, strict=True)
        ]
    return columns


def _widths(
    layout: Layout, cells: Mapping[str, Sequence[Span]], columns: int | None
) -> dict[str, int]:
    """Widths of the columns that are shown, by head."""
    texts = {head: [span.text for span in column] for head, column in cells.items()}
    known = {head: any(set(text) - {"-", " "} for text in column) for head, column in texts.items()}
    widths = {
        head: max(map(width_of, (head, *column)))
        for head, column in texts.items()
        if known[head] or head not in layout.optional
    }
    longest = widths[layout.name] = min(widths[layout.name], _MOST_NAME)
    if columns is None:
        return widths
    for head in sorted(layout.dropped, key=known.__getitem__):
        folds = head in layout.kept and known[head]
        widths[layout.name] = min(longest, _LEAST_NAME) if folds else longest
        if _total(widths) > columns:
            widths.pop(head, None)
    room = columns - (_total(widths) - widths[layout.name])
    widths[layout.name] = max(width_of(layout.name), min(longest, room))
    return widths


def _total(widths: Mapping[str, int], gap: int = 1) -> int:
    return sum(widths.values()) + gap * (len(widths) - 1)


def _folded(
    row: Mapping[str, Span], layout: Layout, widths: Mapping[str, int], gap: str
) -> Iterator[Line]:
    """A row, and below it what its name has no room for."""
    name = row[layout.name]
    first, *rest = fold(name.text, widths[layout.name])
    yield _line({**row, layout.name: Span(first, name.style)}, layout, widths, gap)
    empty = dict.fromkeys(widths, Span(""))
    for piece in rest:
        yield _line({**empty, layout.name: Span(piece, name.style)}, layout, widths, gap)


def _line(row: Mapping[str, Span], layout: Layout, widths: Mapping[str, int], gap: str) -> Line:
    """Cells at their places, without spaces at the end; styles cover texts and no spaces."""
    spans: list[Span] = []
    behind = ""
    for head, width in widths.items():
        cell = row[head]
        space = " " * (width - width_of(cell.text))
        before = behind + ("" if head in layout.words else space)
        spans += [Span(before), cell]
        behind = (space if head in layout.words else "") + gap
    while spans and not spans[-1].text.strip():
        spans.pop()
    last = spans.pop()
    return (*(span for span in spans if span.text), Span(last.text.rstrip(), last.style))
