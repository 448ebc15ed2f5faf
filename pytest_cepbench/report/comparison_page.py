"""Pages of several runs: a comparison case by case, and leaderboards."""

from __future__ import annotations

import os
from collections.abc import Sequence
from math import ceil
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

from markupsafe import Markup

from pytest_cepbench.artifacts.outcome import ANSWER_ERRORS
from pytest_cepbench.gate.compare import Judgement
from pytest_cepbench.gate.verdict import Verdict
from pytest_cepbench.metrics.battles import TiePolicy
from pytest_cepbench.report.chain_pairs import PairedChain, paired_steps
from pytest_cepbench.report.headline import in_tolerances
from pytest_cepbench.report.number_format import (
    change_of,
    counted,
    number,
)
from pytest_cepbench.report.pages import SCRIPT, ArtifactSource, PageImages, render, script_of
from pytest_cepbench.report.plots import (
    Scale,
    axis_plot,
    curve_plot,
    interval_plot,
    reach_of,
)
from pytest_cepbench.report.result import CaseResult, CurveShown
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
    RunComparison,
)

_MOST_SAMPLES = 10

# -- a comparison ----------------------------------------------------------------------------------


class ComparedCaseShown(NamedTuple):
    """A case of a comparison on the page.

    anchor: of its row.
    badge: classes of its verdict.
    interval: plot of its difference, or words where there is none.
    """

    case: ComparedCase
    anchor: str
    badge: str
    interval: Markup | str


class ComparisonShown(NamedTuple):
    """A comparison on the page.

    headline: its result in a sentence.
    forest: the gating cases that were compared, the worst first.
    cases: all of them, in the order of the first run.
    chains: cases of the second run, and their chains beside those of the first.
    """

    comparison: RunComparison
    headline: str
    forest: Sequence[ForestRow]
    cases: Sequence[ComparedCaseShown]
    chains: Sequence[tuple[CaseResult, Sequence[PairedChain]]]


def headline(comparison: RunComparison) -> str:
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
        worst = min(regressed, key=change_in_tolerances)
        parts.append(f"regressed in {len(regressed)} of {counted(len(gating), 'gating case')}")
        parts.append(f"worst {worst.second.case} {change_of(_judged(worst))}")
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
    comparisons: Sequence[RunComparison],
    boards: Sequence[CaseLeaderboard],
    folder: Path,
    chains: Sequence[Sequence[CaseResult]] = (),
    image: ArtifactSource = lambda _: None,
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
    runs = []
    for run in (comparisons[0].first, *(comparison.second for comparison in comparisons)):
        path = Path(run.report).absolute()
        page = path.with_suffix(".html")
        target = os.path.relpath(page if page.is_file() else path, folder)
        runs.append((run, quote(os.fsencode(target))))
    pictured = any(chain.steps for entry in shown for _, pairs in entry.chains for chain in pairs)
    return render(
        "comparison.html.jinja",
        images=PageImages(image),
        script=script_of(SCRIPT) if pictured else "",
        title=f"cepbench: {shown[0].headline}",
        shown=shown,
        runs=runs,
        boards=[_case_board(board) for board in boards],
        most_samples=_MOST_SAMPLES,
    )


def _shown(comparison: RunComparison, place: int, results: Sequence[CaseResult]) -> ComparisonShown:
    changes = [
        change_of_judgement(_judged(case), case.second.tolerance, _COLORS.get(case.verdict, ""))
        for case in comparison.cases
    ]
    reach = reach_of(change for change in changes if change is not None)
    cases = [
        ComparedCaseShown(
            case,
            f"case-{place + 1}-{at}",
            f"{case.verdict}{'' if case.second.primary else ' informational'}",
            interval_of(_judged(case), change, reach),
        )
        for at, (case, change) in enumerate(zip(comparison.cases, changes, strict=True), 1)
    ]
    gating = [shown for shown in cases if shown.case.second.primary and shown.interval]
    order = {Verdict.REGRESSED: 0, Verdict.INCONCLUSIVE: 1}
    gating.sort(
        key=lambda own: (order.get(_judged(own.case).verdict, 2), change_in_tolerances(own.case))
    )
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


_COLORS = {"held": "green", "improved": "green improved", "regressed": "red regressed"}


def _judged(case: ComparedCase) -> Judgement:
    return case.judgement or Judgement(Verdict.INCOMPARABLE)


def change_in_tolerances(case: ComparedCase) -> float:
    """The difference of a case in tolerances; 0 where there is none."""
    return in_tolerances(_judged(case).difference, case.second.tolerance)


# -- leaderboards ----------------------------------------------------------------------------------


POLICIES: dict[TiePolicy, str] = {
    "fdt": "ties forced",
    "without_ties": "no ties",
    "ties_as_zero": "ties 0",
    "ties_as_half": "ties 1/2",
}
"""What reports call the policies for ties."""


class Board(NamedTuple):
    """A leaderboard, the best model first.

    axis: what points and intervals are; scale: its numbers as a plot.
    column: what is shown at the right.
    rows: the ranks that a model may have, the model, its interval and its value in words.
    curves: of each model of an arena, its win rate by number of battles: the plot, and the numbers
    as (battles, win rate, low, high).
    rates: win rates of rows against columns under each policy for ties.
    errors: models, and of each kind of errors the number of their answers that have it.
    """

    title: str
    axis: str
    scale: Markup
    column: str
    rows: Sequence[tuple[str, str, Markup, str]]
    curves: Sequence[tuple[str, Markup, Sequence[tuple[int, float, float, float]]]] = ()
    rates: Sequence[tuple[str, HeatMap]] = ()
    errors: tuple[Sequence[str], Sequence[tuple[str, Sequence[int]]]] | None = None


class _Ranked(NamedTuple):
    """A model in a leaderboard before it is drawn. ranks: the best and the worst it may have."""

    ranks: tuple[int, int]
    model: str
    value: float
    bounds: tuple[float, float] | None
    shown: str


def case_leaderboard_page(suite: str, boards: Sequence[CaseLeaderboard]) -> str:
    """The models of a suite in each case: differences to the best one, and values."""
    shown = [_case_board(board) for board in boards]
    return render("leaderboard.html.jinja", title=f"leaderboard of {suite}", boards=shown)


def _case_board(board: CaseLeaderboard) -> Board:
    better = "higher" if board.higher_is_better else "lower"
    intervals = " with simultaneous 95 % intervals" if board.units else ", without intervals"
    rows = [
        _Ranked(
            (model.rank_low, model.rank_high),
            model.model,
            model.difference,
            None if model.low is None or model.high is None else (model.low, model.high),
            number(model.value),
        )
        for model in board.models
    ]
    column = f"{board.label}, {better} is better"
    return _board(board.case, f"difference to the best{intervals}", column, rows)


def _board(title: str, axis: str, column: str, models: Sequence[_Ranked]) -> Board:
    ends = [end for model in models for end in (model.value, *(model.bounds or ()))]
    scale = Scale.over([0.0, *ends], 0.0, 100.0)
    rows = []
    for (low, high), model, value, bounds, shown in models:
        rank = str(low) if low == high else f"{low}-{high}"
        plot = interval_plot(value, bounds, scale, f"{model}: rank {rank}, {shown}")
        rows.append((rank, model, plot, shown))
    return Board(title, axis, axis_plot(scale), column, rows)


def arena_leaderboard_page(boards: Sequence[Leaderboard]) -> str:
    """The models of each panel: ratings, and win rates of pairs."""
    shown = []
    for board in boards:
        rows = []
        for standing in board.standings:
            half = 1.96 * standing.error
            bounds = standing.rating - half, standing.rating + half
            ranks = standing.rank_low, standing.rank_high
            value = f"{standing.rating:+.0f} ± {half:.0f}"
            rows.append(_Ranked(ranks, standing.model, standing.rating, bounds, value))
        names = [row.model for row in rows]
        curves = []
        for name, points in zip(names, board.curves, strict=True):
            sizes, means, lows, highs = (list(column) for column in zip(*points, strict=True))
            curve = CurveShown(sizes, means, lows, highs, sizes[-1])
            plot = curve_plot(
                curve, None, "", f"win rate of {name}", unit="battles", holds=(0.0, 1.0)
            )
            curves.append((name, plot, points))
        rates = [
            (words, _pair_map(names, board.pair_win_rates[policy], words))
            for policy, words in POLICIES.items()
        ]
        title = f"{board.name}: {board.verdicts:,} verdicts on {board.questions:,} questions"
        axis = "rating with 95 % interval, Elo points"
        errors = [
            (about, [standing.errors.get(kind, 0) for standing in board.standings])
            for kind, about in ANSWER_ERRORS.items()
        ]
        known = (names, errors) if any(standing.errors for standing in board.standings) else None
        drawn = _board(title, axis, "rating", rows)
        shown.append(drawn._replace(curves=curves, rates=rates, errors=known))
    title = f"arena leaderboard of {', '.join(board.name for board in boards)}"
    return render("leaderboard.html.jinja", title=title, boards=shown, beside=_beside(boards))


def _beside(boards: Sequence[Leaderboard]) -> tuple[Markup, list[tuple[str, str, Markup, str]]]:
    """Win rates of the models that several boards have, one under the other, and their scale.

    Rows are model, board, plot and value: of the same battles judged by whole answers, by their
    texts and by their images alone it is OpenING's Fig. 4.
    """
    rates = {
        (standing.model, board.name): points[-1][1:]
        for board in boards
        for standing, points in zip(board.standings, board.curves, strict=True)
    }
    order = dict.fromkeys(standing.model for board in boards for standing in board.standings)
    scale, rows = Scale.over([0.0, 1.0], 0.0, 100.0), []
    for model in order:
        own = [(board.name, rates[model, board.name]) for board in boards
               if (model, board.name) in rates]  # fmt: skip
        for name, (rate, low, high) in own if len(own) > 1 else ():
            shown = f"{100 * rate:.1f} %"
            plot = interval_plot(rate, (low, high), scale, f"{model} by {name}: {shown}")
            rows.append((model, name, plot, shown))
    return axis_plot(scale, signed=False), rows


def _pair_map(names: Sequence[str], rates: Sequence[Sequence[float | None]], words: str) -> HeatMap:
    """Win rates of rows against columns in shades. words: the policy for ties."""
    rows = []
    for place, (model, own) in enumerate(zip(names, rates, strict=True), 1):
        cells: list[HeatCell | None] = []
        for opponent, rate in zip(names, own, strict=True):
            pair = f"{model} against {opponent}, {words}"
            if opponent == model:
                cells.append(None)
            elif rate is None:
                cells.append(HeatCell("", "", "-", f"{pair}: no battle"))
            else:
                kind = f"{'worse' if rate < 0.5 else 'gained'} shade{ceil(abs(rate - 0.5) * 8)}"
                title = f"{pair}: {100 * rate:.1f} %"
                cells.append(HeatCell("", kind, f"{100 * rate:.0f}", title))
        rows.append((f"{place} {model}", cells))
    return HeatMap([str(place) for place in range(1, len(names) + 1)], rows)
