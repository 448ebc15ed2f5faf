"""Tables in plain text that fit a terminal: columns of least worth go first, no name is cut."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from pytest_cepbench.escapes import cut, width_of
from pytest_cepbench.report.case_table import HEADS, cells_of
from pytest_cepbench.report.number_format import ends_of, printable
from pytest_cepbench.report.result import CaseResult
from pytest_cepbench.report.totals import counts_line


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


class Glyphs(NamedTuple):
    """Characters that tables are drawn with; all but the ellipsis are one column wide.

    rule: below the head of a table.
    interval, point: a change between its bounds.
    tolerance, zero: marks on the axis of changes.
    crossed: a mark that an interval covers.
    ellipsis: in the place of what was left out.
    """

    rule: str
    interval: str
    point: str
    tolerance: str
    zero: str
    crossed: str
    ellipsis: str


UNICODE = Glyphs(
    rule="─", interval="━", point="●", tolerance="┊", zero="·", crossed="┿", ellipsis="…"
)

ASCII = Glyphs(
    rule="-", interval="=", point="o", tolerance="|", zero=".", crossed="+", ellipsis=".."
)


def glyphs_for(encoding: str | None) -> Glyphs:
    """Those of Unicode where the encoding has all of them. encoding: None for UTF-8."""
    try:
        "".join(UNICODE).encode(encoding or "utf-8")
    except (UnicodeEncodeError, LookupError):
        return ASCII
    return UNICODE


def wrap(text: str, columns: int, indent: str = "  ", ellipsis: str = "") -> list[str]:
    """A line, broken between words where it is wider than so many columns.

    indent: before what is continued, beside the spaces that the line begins with.
    ellipsis: what stands for the middle of a word that no line has room for; without one it stays
    whole and sticks out.
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
    if not ellipsis:
        return lines
    return [
        space + shorten(line[len(space) :], columns - len(space), ellipsis)
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


def shorten(text: str, columns: int, ellipsis: str) -> str:
    """A text in so many columns; the ellipsis stands for the middle of what is wider."""
    if width_of(text) <= columns:
        return text
    room = max(0, columns - width_of(ellipsis))
    end = cut(text[::-1], room // 2)[::-1]
    return f"{cut(text, room - room // 2)}{ellipsis}{end}"


# -- a table in plain text that fits a terminal: columns of least worth are left out, no name is cut
# Not rich's Table, which knows no worth of columns, no decimal points below one another and no
# heading across a group of rows. The widths that these need are most of a table; what would be
# left to rich costs 40 ms to import and 1.5 ms for each row.


_NUMBER = re.compile(r"[-+]?\d+\.(\d+)")

_MOST_NAME = 60  # columns of a name, however many there are

_LEAST_NAME = 20  # columns of a folded name, before a column that is kept for long goes


class TableLayout(NamedTuple):
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


class RowGroup(NamedTuple):
    """Rows that belong together.

    rows: their cells, in the order of the layout's heads.
    heading: a text above them; empty for none.
    """

    rows: Sequence[Sequence[Span]]
    heading: str = ""


def table_lines(
    layout: TableLayout, groups: Sequence[RowGroup], columns: int | None, *, rule: str = ""
) -> Iterator[Line]:
    """A table, its head first.

    columns: that a line may take; None where that does not matter.
    rule: glyph of a line below the head; empty for none.
    """
    cells = {}
    for place, head in enumerate(layout.heads):
        spans = [row[place] for group in groups for row in group.rows]
        matches = [_NUMBER.fullmatch(span.text) for span in spans]
        most = max((len(match[1]) for match in matches if match), default=0)
        cells[head] = [
            # Decimal points stand below one another.
            Span(span.text + " " * (most - len(match[1])), span.style) if match else span
            for span, match in zip(spans, matches, strict=True)
        ]
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
            row = dict(zip(widths, next(rows), strict=True))
            name = row[layout.name]
            # What its name has no room for goes on below it.
            for piece in fold(name.text, widths[layout.name]):
                yield _line({**row, layout.name: Span(piece, name.style)}, layout, widths, gap)
                row = dict.fromkeys(widths, Span(""))


def _widths(
    layout: TableLayout, cells: Mapping[str, Sequence[Span]], columns: int | None
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


# -- a change and its bounds as a bar of text, on an axis of tolerances ----------------------------
# `worse┊  0  ┊better` is the axis: a mark at each tolerance and one at no change, always in the
# same columns. A case holds, or improved, by the side of a mark on which its interval begins, and
# a bar answers that exactly: no end stands on a mark or beyond that does not lie there. Between
# the marks the axis is linear, beyond them logarithmic.


_BEYOND = 6  # columns on the far side of each tolerance
_WITHIN = 2  # columns between a tolerance and no change
_TOLERANCE = _WITHIN + 1
_END = _TOLERANCE + _BEYOND

WIDTH = 2 * _END + 1


def axis_head(glyphs: Glyphs) -> str:
    """The axis in words."""
    mark, middle = glyphs.tolerance, "0".center(2 * _WITHIN + 1)
    return f"{'worse':>{_BEYOND}}{mark}{middle}{mark}{'better':{_BEYOND}}"


class Axis(NamedTuple):
    """Axis of the bars of a table.

    most: the largest change or bound that it has to hold, in tolerances.
    """

    most: float

    @classmethod
    def over(cls, results: Sequence[CaseResult]) -> Axis:
        """The axis that holds all of these cases."""
        values = (
            abs(_in_tolerances(value, result))
            for result in results
            for value in (result.judgement.difference, result.judgement.low, result.judgement.high)
            if value is not None
        )
        return cls(max(filter(math.isfinite, values), default=0.0))

    def draw(self, result: CaseResult, glyphs: Glyphs) -> str:
        """The bar of a case in `WIDTH` columns; empty where nothing was compared.

        It reaches the edge where a bound excludes nothing.
        """
        if result.judgement.difference is None:
            return ""
        point = self._column(_in_tolerances(result.judgement.difference, result))
        bounds = ends_of(result.judgement) or ()
        ends = [point, *(self._column(_in_tolerances(bound, result)) for bound in bounds)]
        covered = range(min(ends), max(ends) + 1) if bounds else ()
        marks = {-_TOLERANCE: glyphs.tolerance, 0: glyphs.zero, _TOLERANCE: glyphs.tolerance}
        row = marks | dict.fromkeys(covered, glyphs.interval)
        row |= dict.fromkeys(marks.keys() & set(covered), glyphs.crossed) | {point: glyphs.point}
        return "".join(row.get(column, " ") for column in range(-_END, _END + 1))

    def _column(self, tolerances: float) -> int:
        """Column of a value, counted from no change."""
        size = abs(tolerances)
        if size < 1e-12:
            column = 0
        elif size < 1:
            column = min(_WITHIN, 1 + int(size * _WITHIN))
        elif size == 1:
            column = _TOLERANCE
        elif size >= self.most:
            column = _END
        else:
            share = math.log(size) / math.log(self.most)
            column = _TOLERANCE + max(1, math.ceil(share * _BEYOND))
        return int(math.copysign(column, tolerances))


def _in_tolerances(value: float, result: CaseResult) -> float:
    """A change in the tolerances of its case; beyond all of them where none is tolerated."""
    if result.tolerance:
        return value / result.tolerance
    return math.copysign(math.inf, value) if value else 0.0


_SHORT = {"baseline": "base", "tolerance": "tol."}
"""Heads where names need the room."""


def summary_table(
    results: Sequence[CaseResult],
    columns: int | None = None,
    *,
    glyphs: Glyphs = ASCII,
    grouped: bool = True,
) -> list[Line]:
    """A line for every case below its suite, with a bar of the change and its bounds.

    columns: that a line may take; None where it does not matter. Where the table is wider, columns
    are left out, the bars first; then names go on below themselves.
    grouped: False leaves out rule and headings, and each line names its suite. On 80 columns it has
        all numbers: names go on below themselves, and p stands for the bounds.
    Verdicts of cases that cannot fail the run are in lower case. Columns are as wide as what is in
    them.
    """
    axis = Axis.over(results)
    suites: dict[str, list[CaseResult]] = {}
    for result in results:
        suites.setdefault(result.suite if grouped else "", []).append(result)
    groups = []
    for suite, cases in suites.items():
        rows = []
        for result in cases:
            word, _, now, baseline, change, bounds, *rest = cells_of(result)
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
                    *map(Span, (bounds, *rest)),
                    Span(axis.draw(result, glyphs), color),
                )
            )
        heading = printable(suite) if grouped else ""
        groups.append(
            RowGroup(rows, f"{heading}: {counts_line(cases)}" if len(suites) > 1 else heading)
        )
    bar = axis_head(glyphs)
    heads = {head: head if grouped else _SHORT.get(head, head) for head in HEADS}
    # First what the numbers beside it say too.
    worth = ("tolerance", "n", "baseline", "now", "p", "bounds", "change")
    dropped = [heads[head] for head in worth]
    if not grouped and all(result.judgement.p is not None for result in results):
        dropped.insert(0, "bounds")
    layout = TableLayout(
        heads=(*heads.values(), bar),
        words=frozenset({"verdict", "case", bar}),
        name="case",
        dropped=(bar, *dict.fromkeys(dropped)),
        kept=frozenset({"bounds", "change"} if grouped else dropped),
        optional=frozenset({bar, "p", "bounds"}),
    )
    return list(table_lines(layout, groups, columns, rule=glyphs.rule if grouped else ""))
