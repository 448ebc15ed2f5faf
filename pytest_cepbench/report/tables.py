"""Tables in plain text that fit a terminal: columns of least worth go first, no name is cut.

Not rich's Table, which knows no worth of columns and no heading across a group of rows, and costs
40 ms to import.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from pytest_cepbench.escapes import cut, width_of
from pytest_cepbench.report.case_table import HEADS, cells_of
from pytest_cepbench.report.number_format import printable
from pytest_cepbench.report.result import CaseResult
from pytest_cepbench.report.totals import counts_line

_MOST_NAME = 60  # columns of a name, however many there are
_LEAST_NAME = 20  # columns of a folded name, before another column goes


class Span(NamedTuple):
    """A piece of a line.

    text: printable.
    style: names of pytest's markup, such as "bold red"; empty for none.
    """

    text: str
    style: str = ""


Line = tuple[Span, ...]


def text_of(line: Line) -> str:
    """A line without its styles."""
    return "".join(span.text for span in line)


_ELLIPSIS = ".."  # of ASCII, as the rule below a head: logs of any encoding can hold them


def wrap(text: str, columns: int, indent: str = "  ", *, shortened: bool = False) -> list[str]:
    """A line, broken between words where it is wider than so many columns.

    indent: before what is continued, beside the spaces that the line begins with.
    shortened: whether a word that no line has room for loses its middle, or stays whole and sticks
    out.
    """
    if width_of(text) <= columns:
        return [text]
    begin = text[: len(text) - len(text.lstrip())]
    first, *words = text.split()
    lines = [begin + first]
    for word in words:
        joined = f"{lines[-1]} {word}"
        if width_of(joined) <= columns:
            lines[-1] = joined
        else:
            lines.append(begin + indent + word)
    if not shortened:
        return lines
    return [
        space + shorten(line[len(space) :], columns - len(space))
        for line, space in zip(lines, [begin] + [begin + indent] * (len(lines) - 1), strict=True)
    ]


def fold(text: str, columns: int) -> list[str]:
    """A name on as many lines as it takes, none wider: nothing of it is left out."""
    pieces: list[str] = []
    for line in wrap(text, columns, indent=""):
        rest = line
        while width_of(rest) > columns:
            piece = cut(rest, columns) or rest[0]
            pieces.append(piece)
            rest = rest[len(piece) :]
        pieces.append(rest)
    return pieces


def shorten(text: str, columns: int) -> str:
    """A text in so many columns; two points stand for the middle of what is wider."""
    if width_of(text) <= columns:
        return text
    room = max(0, columns - len(_ELLIPSIS))
    end = cut(text[::-1], room // 2)[::-1]
    return f"{cut(text, room - room // 2)}{_ELLIPSIS}{end}"


class TableLayout(NamedTuple):
    """Columns of a table.

    heads: their heads, in order.
    words: heads of the columns that begin at the left; others hold numbers and end at the right.
    name: head of the column that goes on below itself where it has no room.
    dropped: heads of columns in the order in which a narrow table goes without them, after its
    names are folded. Those without a value go first.
    optional: heads of columns that are shown only where they have a value.
    """

    heads: tuple[str, ...]
    words: frozenset[str]
    name: str
    dropped: tuple[str, ...]
    optional: frozenset[str] = frozenset()


class RowGroup(NamedTuple):
    """Rows that belong together.

    rows: their cells, in the order of the layout's heads.
    heading: a text above them; empty for none.
    """

    rows: Sequence[Sequence[Span]]
    heading: str = ""


def table_lines(
    layout: TableLayout, groups: Sequence[RowGroup], columns: int | None, *, rule: bool = True
) -> Iterator[Line]:
    """A table, its head first.

    columns: that a line may take; None where that does not matter.
    rule: whether there is a line below the head.
    """
    texts = {
        head: [row[place].text for group in groups for row in group.rows]
        for place, head in enumerate(layout.heads)
    }
    known = {head: any(set(text) - {"-", " "} for text in column) for head, column in texts.items()}
    widths = {
        head: max(map(width_of, (head, *column)))
        for head, column in texts.items()
        if known[head] or head not in layout.optional
    }
    longest = widths[layout.name] = min(widths[layout.name], _MOST_NAME)
    if columns is not None:
        for head in (*sorted(layout.dropped, key=known.__getitem__), ""):
            others = sum(widths.values()) - widths[layout.name] + len(widths) - 1
            if others + min(longest, _LEAST_NAME) <= columns:
                break
            widths.pop(head, None)
        widths[layout.name] = max(width_of(layout.name), min(longest, columns - others))
    wide = columns is None or sum(widths.values()) + 2 * (len(widths) - 1) <= columns
    gap = "  " if wide else " "
    yield _line({head: Span(head, "bold") for head in widths}, layout, widths, gap)
    if rule:
        yield (Span(gap.join("-" * width for width in widths.values())),)
    for group in groups:
        heading = wrap(group.heading, columns or sys.maxsize) if group.heading else []
        yield from ((Span(line, "bold"),) for line in heading)
        for cells in group.rows:
            row = dict(zip(layout.heads, cells, strict=True))
            name = row[layout.name]
            # What its name has no room for goes on below it.
            for piece in fold(name.text, widths[layout.name]):
                yield _line({**row, layout.name: Span(piece, name.style)}, layout, widths, gap)
                row = dict.fromkeys(layout.heads, Span(""))


def _line(
    row: Mapping[str, Span], layout: TableLayout, widths: Mapping[str, int], gap: str
) -> Line:
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


_SHORT = {"baseline": "base", "tolerance": "tol."}
"""Heads where names need the room: a failing run fits on a screen."""


def summary_table(
    results: Sequence[CaseResult], columns: int | None = None, *, grouped: bool = True
) -> list[Line]:
    """A line for every case below its suite.

    columns: that a line may take; None where it does not matter. Where the table is wider, names go
    on below themselves, then columns are left out.
    grouped: False leaves out rule and headings, and each line names its suite.
    Verdicts of cases that cannot fail the run are in lower case.
    """
    suites: dict[str, list[CaseResult]] = {}
    for result in results:
        suites.setdefault(result.suite if grouped else "", []).append(result)
    groups = []
    for suite, cases in suites.items():
        rows = []
        for result in cases:
            word, _, now, baseline, change, *rest = cells_of(result)
            # Whole, unlike in sentences.
            name = f"{printable(result.part)} {printable(result.label)}"
            # What says why it does not hold is in the color of its verdict.
            color = "green" if result.accepted else result.presentation.color
            rows.append(
                (
                    Span(word, color),
                    Span(name if grouped else f"{result.suite} {name}"),
                    *map(Span, (now, baseline)),
                    Span(change, "" if color == "green" else color),
                    *map(Span, rest),
                )
            )
        heading = printable(suite) if grouped else ""
        groups.append(
            RowGroup(rows, f"{heading}: {counts_line(cases)}" if len(suites) > 1 else heading)
        )
    short = {} if grouped else _SHORT
    # First what the numbers beside it say too.
    dropped = ("tolerance", "n", "baseline", "now", "p", "bounds", "change")
    layout = TableLayout(
        heads=tuple(short.get(head, head) for head in HEADS),
        words=frozenset({"verdict", "case"}),
        name="case",
        dropped=tuple(short.get(head, head) for head in dropped),
        optional=frozenset({"p", "bounds"}),
    )
    return list(table_lines(layout, groups, columns, rule=grouped))
