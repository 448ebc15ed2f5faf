"""Tables of a run in plain text: its cases below their suites, and what undecided ones need."""

from __future__ import annotations

from collections.abc import Sequence

from pytest_cepbench.report.case_table import HEADS, SHORTAGE_HEADS, cells_of, shortage_cells
from pytest_cepbench.report.headline import undecided
from pytest_cepbench.report.interval_bar import Axis, axis_head
from pytest_cepbench.report.number_format import printable
from pytest_cepbench.report.result import CaseResult
from pytest_cepbench.report.text_layout import ASCII, Glyphs, Line, Span
from pytest_cepbench.report.text_table import Group, Layout, table_lines
from pytest_cepbench.report.totals import counts_line

_SHORTAGE = Layout(
    heads=SHORTAGE_HEADS,
    words=frozenset({"verdict", "case"}),
    name="case",
    dropped=("tolerance", "visible drop"),
)


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
    grouped: False leaves out rule and headings, and each line names its suite.
    Verdicts of cases that cannot fail the run are in lower case. Columns are as wide as what is in
    them.
    """
    axis = Axis.over(results)
    suites: dict[str, list[CaseResult]] = {}
    for result in results:
        suites.setdefault(result.suite if grouped else "", []).append(result)
    groups = [
        Group(
            [_row(result, axis, glyphs, grouped=grouped) for result in cases],
            _heading(suite, cases if len(suites) > 1 else []) if grouped else "",
        )
        for suite, cases in suites.items()
    ]
    rule = glyphs.rule if grouped else ""
    return list(table_lines(_cases_layout(glyphs), groups, columns, rule=rule))


def _cases_layout(glyphs: Glyphs) -> Layout:
    """Columns of the table of cases; the least worth is what the numbers beside it say too."""
    bar = axis_head(glyphs)
    return Layout(
        heads=(*HEADS, bar),
        words=frozenset({"verdict", "case", bar}),
        name="case",
        dropped=(bar, "tolerance", "n", "baseline", "now", "p", "bounds", "change"),
        kept=frozenset({"bounds", "change"}),
        optional=frozenset({bar, "p"}),
    )


def _row(result: CaseResult, axis: Axis, glyphs: Glyphs, *, grouped: bool) -> Sequence[Span]:
    """Cells of a case; those that say why it does not hold are in the color of its verdict."""
    word, _, now, baseline, change, bounds, *rest = cells_of(result)
    name = f"{printable(result.part)} {printable(result.label)}"  # whole, unlike in sentences
    color = "green" if result.accepted else result.presentation.color
    remarkable = "" if color == "green" else color
    return (
        Span(word, color),
        Span(name if grouped else f"{result.suite} {name}"),
        *map(Span, (now, baseline)),
        Span(change, remarkable),
        *map(Span, (bounds, *rest)),
        Span(axis.draw(result, glyphs), color),
    )


def _heading(suite: str, cases: Sequence[CaseResult]) -> str:
    """Name of a suite, and the verdicts of these cases."""
    return f"{printable(suite)}: {counts_line(cases)}" if cases else printable(suite)


def shortage_table(
    results: Sequence[CaseResult], columns: int | None = None, *, glyphs: Glyphs = ASCII
) -> list[Line]:
    """A table of the undecided cases: samples now and needed, drop that is visible and tolerance.

    columns, glyphs: as in `summary_table`. Empty where no gating case is undecided.
    """
    cases = undecided(results)
    if not cases:
        return []
    rows = [[Span(cell, "yellow") for cell in shortage_cells(result)] for result in cases]
    return list(table_lines(_SHORTAGE, [Group(rows)], columns, rule=glyphs.rule))
