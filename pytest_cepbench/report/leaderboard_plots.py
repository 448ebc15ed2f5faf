"""Leaderboards as SVG: values with their intervals, ranks, and win rates of pairs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pytest_cepbench.report import svg
from pytest_cepbench.report.number_format import number
from pytest_cepbench.report.svg import Scale
from pytest_cepbench.studies.arena import Leaderboard
from pytest_cepbench.studies.comparison import CaseLeaderboard

_MARGIN = 16.0
_ROW = 24.0
_TITLE = 28.0
_AXIS = 30.0
_PLOT = 420.0  # width of the part with intervals
_LONGEST_NAME = 240.0
_GAP = 14.0
_CELL = 36.0
_RADIUS = 4.0


@dataclass(frozen=True)
class RankingRow:
    """A model in a plot.

    name: of the model.
    rank: the ranks that it may have: 2, or 1-3.
    value: where its dot stands.
    low, high: ends of its interval; None where it has none.
    shown: its value in words.
    """

    name: str
    rank: str
    value: float
    low: float | None
    high: float | None
    shown: str


@dataclass(frozen=True)
class RankingPlot:
    """Models below one another, the best first.

    axis: what the dots and intervals are.
    column: what is shown at the right.
    """

    title: str
    axis: str
    column: str
    rows: tuple[RankingRow, ...]


@dataclass(frozen=True)
class WinRateMatrix:
    """Win rates of models against one another.

    names: of the models, in the order of rows and columns.
    rates: of the row's model against the column's, in [0, 1]; None where they never met.
    """

    title: str
    names: tuple[str, ...]
    rates: tuple[tuple[float | None, ...], ...]


def draw_case_leaderboards(suite: str, boards: Sequence[CaseLeaderboard]) -> str:
    """The models of a suite in each case: differences to the best one, and values."""
    return _draw(f"leaderboard of {suite}", [_case_plot(board) for board in boards])


def draw_arena_leaderboards(boards: Sequence[Leaderboard]) -> str:
    """The models of each panel: ratings, and win rates of pairs."""
    names = ", ".join(board.name for board in boards)
    plots = [plot for board in boards for plot in (_rating_plot(board), _matrix(board))]
    return _draw(f"arena leaderboard of {names}", plots)


def _case_plot(board: CaseLeaderboard) -> RankingPlot:
    better = "higher" if board.higher_is_better else "lower"
    intervals = " with simultaneous 95 % intervals" if board.units else ", without intervals"
    rows = tuple(
        RankingRow(
            model.model,
            _ranks(model.rank_low, model.rank_high),
            model.difference,
            model.low,
            model.high,
            number(model.value),
        )
        for model in board.models
    )
    column = f"{board.label}, {better} is better"
    return RankingPlot(board.case, f"difference to the best{intervals}", column, rows)


def _rating_plot(board: Leaderboard) -> RankingPlot:
    rows = tuple(
        RankingRow(
            standing.model,
            _ranks(standing.rank_low, standing.rank_high),
            standing.rating,
            standing.rating - 1.96 * standing.error,
            standing.rating + 1.96 * standing.error,
            f"{standing.rating:+.0f} ± {1.96 * standing.error:.0f}",
        )
        for standing in board.standings
    )
    title = f"{board.name}: {board.verdicts:,} verdicts on {board.questions:,} questions"
    return RankingPlot(title, "rating with 95 % interval, Elo points", "rating", rows)


def _matrix(board: Leaderboard) -> WinRateMatrix:
    return WinRateMatrix(
        f"{board.name}: win rates of rows against columns, ties as 1/2, in percent",
        tuple(standing.model for standing in board.standings),
        board.pair_win_rates["ties_as_half"],
    )


def _ranks(low: int, high: int) -> str:
    return str(low) if low == high else f"{low}-{high}"


@dataclass(frozen=True)
class _Columns:
    """Places of the columns of ranking plots, which are below one another in a picture.

    ranks, shown: right ends of the texts. names: left end of the texts.
    left, right: of the intervals.
    """

    ranks: float
    names: float
    left: float
    right: float
    shown: float

    @classmethod
    def over(cls, plots: Sequence[RankingPlot]) -> _Columns:
        """Columns that hold the texts of all plots."""
        rows = [row for plot in plots for row in plot.rows]
        ranks = _MARGIN + _widest("rank", *(row.rank for row in rows))
        names = ranks + _GAP
        shortened = (svg.shorten(row.name, _LONGEST_NAME) for row in rows)
        left = names + _widest("model", *shortened) + _GAP
        right = left + _PLOT
        heads = (plot.column for plot in plots)
        shown = right + _GAP + _widest(*heads, *(row.shown for row in rows))
        return cls(ranks, names, left, right, shown)


def _widest(*texts: str) -> float:
    return max(map(svg.text_width, texts), default=0.0)


def _draw(label: str, plots: Sequence[RankingPlot | WinRateMatrix]) -> str:
    shapes: list[str] = []
    columns = _Columns.over([plot for plot in plots if isinstance(plot, RankingPlot)])
    width, y = columns.shown, _MARGIN
    for plot in plots:
        if isinstance(plot, RankingPlot):
            bottom = _draw_intervals(plot, columns, y, shapes)
        else:
            right, bottom = _draw_matrix(plot, y, shapes)
            width = max(width, right)
        width, y = max(width, _MARGIN + svg.text_width(plot.title)), bottom + _MARGIN
    return svg.document(width + _MARGIN, y, label, shapes)


def _draw_intervals(plot: RankingPlot, columns: _Columns, top: float, shapes: list[str]) -> float:
    """Add the shapes of a plot; returns its lower end."""
    first = top + 2 * _TITLE
    bottom = first + _ROW * len(plot.rows)
    ends = [end for row in plot.rows for end in (row.value, row.low, row.high) if end is not None]
    scale = Scale.over([*ends, 0.0], columns.left, columns.right)

    head = top + 1.5 * _TITLE
    shapes += [
        svg.text(_MARGIN, top + _TITLE / 2, plot.title, bold=True),
        svg.text(columns.ranks, head, "rank", "soft", "end"),
        svg.text(columns.names, head, "model", "soft"),
        svg.text(columns.shown, head, plot.column, "soft", "end"),
    ]
    for tick in scale.ticks:
        x = scale.place(tick)
        kind = "zero" if tick == 0 else "grid"
        shapes.append(svg.line(x, first - _ROW / 4, x, bottom, kind))
        shapes.append(svg.text(x, bottom + _AXIS / 3, scale.show(tick), "soft", "middle"))
    middle = (columns.left + columns.right) / 2
    shapes.append(svg.text(middle, bottom + _AXIS, plot.axis, "soft", "middle"))
    for i, row in enumerate(plot.rows):
        y = first + _ROW * (i + 0.5)
        parts = [
            svg.text(columns.ranks, y, row.rank, "ink", "end"),
            svg.text(columns.names, y, svg.shorten(row.name, _LONGEST_NAME)),
            *_interval(row, y, scale),
            svg.text(columns.shown, y, row.shown, "ink", "end"),
        ]
        shapes.append(svg.labelled(f"{row.name}: rank {row.rank}, {row.shown}", parts))
    return bottom + _AXIS + _ROW / 2


def _interval(row: RankingRow, y: float, scale: Scale) -> Iterator[str]:
    if row.low is not None and row.high is not None:
        low, high = scale.place(row.low), scale.place(row.high)
        yield svg.line(low, y, high, y, "bar")
        for end in (low, high):
            yield svg.line(end, y - _RADIUS, end, y + _RADIUS, "bar")
    yield svg.circle(scale.place(row.value), y, _RADIUS, "dot")


def _draw_matrix(plot: WinRateMatrix, top: float, shapes: list[str]) -> tuple[float, float]:
    """Add the shapes of a matrix; returns its right and its lower end.

    Columns have the numbers of the rows: names would have to be turned.
    """
    names = [
        f"{i}  {svg.shorten(name, _LONGEST_NAME)}" for i, name in enumerate(plot.names, start=1)
    ]
    left = _MARGIN + max(map(svg.text_width, names)) + _GAP
    first = top + 2 * _TITLE
    shapes.append(svg.text(_MARGIN, top + _TITLE / 2, plot.title, bold=True))
    for i in range(len(names)):
        x = left + _CELL * (i + 0.5)
        shapes.append(svg.text(x, top + 1.5 * _TITLE, str(i + 1), "soft", "middle"))
    for i, rates in enumerate(plot.rates):
        y = first + _CELL * i
        shapes.append(svg.text(_MARGIN, y + _CELL / 2, names[i]))
        shapes += [_cell(plot, i, j, left + _CELL * j, y) for j in range(len(rates)) if i != j]
    return left + _CELL * len(names), first + _CELL * len(names)


def _cell(plot: WinRateMatrix, row: int, column: int, x: float, y: float) -> str:
    rate = plot.rates[row][column]
    names = f"{plot.names[row]} against {plot.names[column]}"
    size = _CELL - 2
    if rate is None:
        return svg.labelled(f"{names}: no battle", [svg.rectangle(x, y, size, size, "none")])
    ink = "#ffffff" if abs(rate - 0.5) > 0.3 else "#1c2024"
    shown = f"{100 * rate:.0f}"
    parts = [
        svg.rectangle(x, y, size, size, fill=_color(rate)),
        svg.text(x + size / 2, y + size / 2, shown, anchor="middle", fill=ink),
    ]
    return svg.labelled(f"{names}: {100 * rate:.1f} %", parts)


_LOST, _EVEN, _WON = (178, 24, 43), (247, 247, 247), (33, 102, 172)
"""Red, grey and blue, which people who confuse red and green tell apart."""


def _color(rate: float) -> str:
    end = _WON if rate > 0.5 else _LOST
    share = min(1.0, abs(rate - 0.5) * 2)
    mixed = (round(a + (b - a) * share) for a, b in zip(_EVEN, end, strict=True))
    return "#" + "".join(f"{value:02x}" for value in mixed)
