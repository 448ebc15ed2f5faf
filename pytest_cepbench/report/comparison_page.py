"""Pages of several runs: a comparison case by case, and leaderboards."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

from markupsafe import Markup

from pytest_cepbench.gate.compare import Judgement
from pytest_cepbench.gate.verdict import Verdict
from pytest_cepbench.report.chain_pairs import PairedChain, paired_steps
from pytest_cepbench.report.headline import in_tolerances
from pytest_cepbench.report.number_format import (
    change_of,
    counted,
    number,
)
from pytest_cepbench.report.page_images import ImageSource, PageImages
from pytest_cepbench.report.pages import SCRIPT, render, script_of
from pytest_cepbench.report.plots import (
    Scale,
    axis_plot,
    interval_plot,
    reach_of,
)
from pytest_cepbench.report.result import CaseResult
from pytest_cepbench.report.view import (
    ForestRow,
    HeatCell,
    HeatMap,
    change_of_judgement,
    interval_of,
)
from pytest_cepbench.studies.arena import Leaderboard
from pytest_cepbench.studies.comparison import (
    CaseLeaderboard,
    ComparedCase,
    Comparison,
    MeasuredRun,
)

_MOST_SAMPLES = 10

# -- a comparison ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class CaseShown:
    """A case of a comparison on the page.

    anchor: of its row.
    badge: classes of its verdict.
    interval: plot of its difference, or words where there is none.
    """

    case: ComparedCase
    anchor: str
    badge: str
    interval: Markup | str


@dataclass(frozen=True)
class ComparisonShown:
    """A comparison on the page.

    headline: its result in a sentence.
    forest: the gating cases that were compared, the worst first.
    cases: all of them, in the order of the first run.
    chains: cases of the second run, and their chains beside those of the first.
    """

    comparison: Comparison
    headline: str
    forest: Sequence[ForestRow]
    cases: Sequence[CaseShown]
    chains: Sequence[tuple[CaseResult, Sequence[PairedChain]]]


def headline(comparison: Comparison) -> str:
    """The result in a sentence, of the cases that could have failed a run."""
    first, second = comparison.first.name, comparison.second.name
    gating = [case for case in comparison.cases if case.second.primary]
    paired = [case for case in gating if case.judgement is not None]
    if not paired:
        return f"nothing was compared: no gating case of {first} and {second} is paired"
    regressed = comparison.of_verdict(Verdict.REGRESSED)
    undecided = comparison.of_verdict(Verdict.INCONCLUSIVE)
    improved = comparison.of_verdict(Verdict.IMPROVED)
    parts = []
    if regressed:
        parts.append(f"regressed in {len(regressed)} of {counted(len(gating), 'gating case')}")
        parts.append(f"worst {_named(min(regressed, key=change_in_tolerances))}")
    else:
        parts.append(f"regressed in none of {counted(len(gating), 'gating case')}")
    if undecided:
        parts.append(f"{len(undecided)} undecided")
    if improved:
        parts.append(f"{len(improved)} improved")
    if len(paired) < len(gating):
        parts.append(f"{len(gating) - len(paired)} not compared")
    missing = [case for case in comparison.only_first if comparison.first.cases[case].primary]
    if missing:
        parts.append(f"{len(missing)} more not measured by {second}")
    return f"{second} against {first}: {', '.join(parts)}"


def comparison_page(
    comparisons: Sequence[Comparison],
    boards: Sequence[CaseLeaderboard],
    folder: Path,
    chains: Sequence[Sequence[CaseResult]] = (),
    image: ImageSource = lambda _: None,
) -> str:
    """The page. Everything that models, files or users named is escaped, and `visible`.

    comparisons: of runs with the same first one, at least one.
    boards: leaderboards of all of them; none for two runs.
    folder: in which the page will lie, for the addresses of reports.
    chains: of each comparison; none where they are not shown.
    image: gives a stored image by digest, or None when it is gone.
    """
    shown = [
        _shown(comparison, place, chains[place] if chains else ())
        for place, comparison in enumerate(comparisons)
    ]
    runs = [comparisons[0].first, *(comparison.second for comparison in comparisons)]
    pictured = any(chain.steps for entry in shown for _, pairs in entry.chains for chain in pairs)
    return render(
        "comparison.html.jinja",
        images=PageImages(image),
        script=script_of(SCRIPT) if pictured else "",
        title=f"cepbench: {shown[0].headline}",
        shown=shown,
        runs=[(run, _address(run, folder)) for run in runs],
        boards=[_case_board(board) for board in boards],
        worst=_worst,
    )


def _shown(comparison: Comparison, place: int, results: Sequence[CaseResult]) -> ComparisonShown:
    changes = [
        change_of_judgement(_judged(case), case.second.tolerance, _COLORS.get(case.verdict, ""))
        for case in comparison.cases
    ]
    reach = reach_of(change for change in changes if change is not None)
    cases = [
        CaseShown(
            case,
            f"case-{place + 1}-{at}",
            f"{case.verdict}{'' if case.second.primary else ' informational'}",
            interval_of(_judged(case), change, reach),
        )
        for at, (case, change) in enumerate(zip(comparison.cases, changes, strict=True), 1)
    ]
    gating = [shown for shown in cases if shown.case.second.primary and shown.interval]
    gating.sort(key=lambda shown: (_order(shown.case), change_in_tolerances(shown.case)))
    chains = []
    for at, result in enumerate(results, 1):
        anchors = (f"sample-{place + 1}-{at}-{number}" for number in range(1, 10**6))
        pairs = [
            PairedChain(chain, anchor, steps=tuple(paired_steps(chain)))
            for chain, anchor in zip(result.shown.chains, anchors, strict=False)
        ]
        chains.append((result, pairs))
    forest = [
        ForestRow(
            shown.case.first.case.replace("/", " "),
            shown.anchor,
            _COLORS.get(shown.case.verdict, ""),
            shown.interval,
            number(_judged(shown.case).difference, signed=True),
        )
        for shown in gating
    ]
    return ComparisonShown(comparison, headline(comparison), forest, cases, chains)


def _order(case: ComparedCase) -> int:
    """Cases that regressed come first, then those that are undecided."""
    order = [Verdict.REGRESSED, Verdict.INCONCLUSIVE]
    return next((place for place, verdict in enumerate(order) if case.verdict == verdict), 2)


_COLORS = {"held": "green", "improved": "green improved", "regressed": "red regressed"}


def _judged(case: ComparedCase) -> Judgement:
    return case.judgement or Judgement(Verdict.INCOMPARABLE)


def _address(run: MeasuredRun, folder: Path) -> str:
    """The address of a run's report from the page: of its own page, else of its JSON."""
    path = Path(run.report).absolute()
    page = path.with_suffix(".html")
    return quote(os.fsencode(os.path.relpath(page if page.is_file() else path, folder)))


def _worst(case: ComparedCase) -> list[tuple[str, str, str, str]]:
    """The samples that lost most: id, both scores, and the change."""
    return [
        (
            loser.sample,
            number(loser.baseline),
            number(loser.candidate),
            number(loser.difference, signed=True),
        )
        for loser in case.losers[:_MOST_SAMPLES]
    ]


def change_in_tolerances(case: ComparedCase) -> float:
    """The difference of a case in tolerances; 0 where there is none."""
    return in_tolerances(_judged(case).difference, case.second.tolerance)


def _named(case: ComparedCase) -> str:
    judgement = case.judgement
    return case.second.case if judgement is None else f"{case.second.case} {change_of(judgement)}"


# -- leaderboards ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class BoardRow:
    """A model in a leaderboard. rank: the ranks that it may have. shown: its value in words."""

    rank: str
    model: str
    interval: Markup
    shown: str


@dataclass(frozen=True)
class Board:
    """A leaderboard, the best model first.

    axis: what points and intervals are; scale: its numbers as a plot.
    column: what is shown at the right.
    rates: win rates of rows against columns; None where there were no battles.
    """

    title: str
    axis: str
    scale: Markup
    column: str
    rows: Sequence[BoardRow]
    rates: HeatMap | None = None


def case_leaderboard_page(suite: str, boards: Sequence[CaseLeaderboard]) -> str:
    """The models of a suite in each case: differences to the best one, and values."""
    return _page(f"leaderboard of {suite}", [_case_board(board) for board in boards])


def arena_leaderboard_page(boards: Sequence[Leaderboard]) -> str:
    """The models of each panel: ratings, and win rates of pairs."""
    names = ", ".join(board.name for board in boards)
    return _page(f"arena leaderboard of {names}", [_arena_board(board) for board in boards])


def _page(title: str, boards: Sequence[Board]) -> str:
    return render("leaderboard.html.jinja", title=title, boards=boards)


def _case_board(board: CaseLeaderboard) -> Board:
    better = "higher" if board.higher_is_better else "lower"
    intervals = " with simultaneous 95 % intervals" if board.units else ", without intervals"
    rows = [
        _Ranked(
            _ranks(model.rank_low, model.rank_high),
            model.model,
            model.difference,
            None if model.low is None or model.high is None else (model.low, model.high),
            number(model.value),
        )
        for model in board.models
    ]
    column = f"{board.label}, {better} is better"
    return _board(board.case, f"difference to the best{intervals}", column, rows)


def _arena_board(board: Leaderboard) -> Board:
    rows = [
        _Ranked(
            _ranks(standing.rank_low, standing.rank_high),
            standing.model,
            standing.rating,
            (standing.rating - 1.96 * standing.error, standing.rating + 1.96 * standing.error),
            f"{standing.rating:+.0f} ± {1.96 * standing.error:.0f}",
        )
        for standing in board.standings
    ]
    names = [standing.model for standing in board.standings]
    won = zip(names, board.pair_win_rates["ties_as_half"], strict=True)
    rates = HeatMap(
        [str(place) for place in range(1, len(names) + 1)],
        [
            (f"{place} {name}", list(_rates(name, names, rates)))
            for place, (name, rates) in enumerate(won, 1)
        ],
    )
    title = f"{board.name}: {board.verdicts:,} verdicts on {board.questions:,} questions"
    return _board(title, "rating with 95 % interval, Elo points", "rating", rows, rates)


class _Ranked(NamedTuple):
    """A model in a leaderboard before it is drawn."""

    rank: str
    model: str
    value: float
    bounds: tuple[float, float] | None
    shown: str


def _board(
    title: str, axis: str, column: str, models: Sequence[_Ranked], rates: HeatMap | None = None
) -> Board:
    ends = [end for model in models for end in (model.value, *(model.bounds or ()))]
    scale = Scale.over([0.0, *ends], 0.0, 100.0)
    rows = []
    for model in models:
        title_of = f"{model.model}: rank {model.rank}, {model.shown}"
        plot = interval_plot(model.value, model.bounds, scale, title_of)
        rows.append(BoardRow(model.rank, model.model, plot, model.shown))
    return Board(title, axis, axis_plot(scale), column, rows, rates)


def _rates(
    model: str, opponents: Sequence[str], rates: Sequence[float | None]
) -> Iterator[HeatCell | None]:
    """Win rates of a model against each, in shades."""
    for opponent, rate in zip(opponents, rates, strict=True):
        if opponent == model:
            yield None
        elif rate is None:
            yield HeatCell("", "", "-", f"{model} against {opponent}: no battle")
        else:
            kind = f"{'worse' if rate < 0.5 else 'gained'} shade{ceil(abs(rate - 0.5) * 8)}"
            title = f"{model} against {opponent}: {100 * rate:.1f} %"
            yield HeatCell("", kind, f"{100 * rate:.0f}", title)


def _ranks(low: int, high: int) -> str:
    return str(low) if low == high else f"{low}-{high}"
