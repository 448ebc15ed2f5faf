"""`cepbench arena leaderboard`: models ranked, and judges compared, by files of verdicts."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator, Sequence
from pathlib import Path

from pytest_cepbench.cli.agree import (
    agreement_table,
    confusion_table,
    number,
    percent,
)
from pytest_cepbench.cli.output import (
    Section,
    Table,
    rank_range,
    write_and_show,
)
from pytest_cepbench.datasets.opening.verdict_files import ModelNames, read_battles, read_verdicts
from pytest_cepbench.errors import SpecError
from pytest_cepbench.metrics.battles import TiePolicy
from pytest_cepbench.report.leaderboard_plots import draw_arena_leaderboards
from pytest_cepbench.studies.arena import (
    JudgeComparison,
    Leaderboard,
    compare_judges,
    make_leaderboard,
)

_POLICIES: dict[TiePolicy, str] = {
    "fdt": "ties forced",
    "without_ties": "no ties",
    "ties_as_zero": "ties 0",
    "ties_as_half": "ties 1/2",
}


def run(arguments: Namespace) -> int:
    """Compute, print and write a page; exit codes as in `main`."""
    command: str = arguments.command_line
    boards = _leaderboards(arguments)
    page = [section for board in boards for section in _board_page(board)]
    page[0] = Section(page[0].title, (f"command: {command}", *page[0].blocks))
    content = {"leaderboards": boards}
    drawing = draw_arena_leaderboards(boards)
    name = f"leaderboard-{'-'.join(board.name for board in boards)}"[:120]
    return write_and_show(content, page, command, arguments.out, name, "leaderboard", drawing)


def compare_two_judges(arguments: Namespace) -> int:
    """Print and write how far two judges agree; exit codes as in `main`."""
    command: str = arguments.command_line
    comparison = _compared(arguments)
    page = _agreement_page(comparison, command)
    name = f"agreement-{comparison.first}-{comparison.second}"[:120]
    content = {"comparison": comparison}
    return write_and_show(content, page, command, arguments.out, name, "agreement")


def _leaderboards(arguments: Namespace) -> list[Leaderboard]:
    names = ModelNames()
    if arguments.no_answer and arguments.battles is None:
        raise SpecError("--no-answer needs --battles FILE, the battles that were to be judged")
    arranged = [] if arguments.battles is None else read_battles(arguments.battles, names)
    titles = _titles(arguments.verdicts)
    panels = [(title, read_verdicts(path, names)) for path, title in titles.items()]
    return [
        make_leaderboard(
            title,
            battles,
            arguments.pair_model,
            arranged=arranged,
            without_answer=[names(name) for name in arguments.no_answer],
            forfeit_policy=arguments.forfeits.replace("-", "_"),
            grouping=arguments.by,
        )
        for title, battles in panels
    ]


def _compared(arguments: Namespace) -> JudgeComparison:
    names = ModelNames()
    first, second = _titles(arguments.verdicts).values()
    return compare_judges(
        (first, second),
        read_verdicts(arguments.verdicts[0], names),
        read_verdicts(arguments.verdicts[1], names),
        [names(name) for name in arguments.unseen],
    )


def _titles(paths: Sequence[Path]) -> dict[Path, str]:
    """A name for each file. Raises SpecError where two have the same."""
    titles: dict[Path, str] = {}
    for path in paths:
        if path in titles or path.stem in titles.values():
            raise SpecError(
                f"two files are called {path.stem!r}: rename one, results are named after them"
            )
        titles[path] = path.stem
    return titles


def _board_page(board: Leaderboard) -> Iterator[Section]:
    head = ("model", "rank", "rating", "+/-", "battles", *_POLICIES.values())
    rows = tuple(
        (
            standing.model,
            rank_range(standing.rank_low, standing.rank_high),
            f"{standing.rating:+.0f}",
            f"{1.96 * standing.error:.0f}",
            f"{standing.battles:g}",
            *(percent(standing.win_rates[policy]) for policy in _POLICIES),
        )
        for standing in board.standings
    )
    models = len(board.standings)
    title = (
        f"arena leaderboard of {board.name}: {models} models, {board.verdicts:,} verdicts on "
        f"{board.questions:,} questions"
    )
    yield Section(title, (*_board_notes(board), Table(head, rows)))
    groups = list(board.standings[0].groups)
    if groups:
        head = ("group", *(standing.model for standing in board.standings))
        cells = tuple(
            (group, *(percent(standing.groups[group]) for standing in board.standings))
            for group in groups
        )
        yield Section(f"{board.name}: win rate with ties as 1/2, in percent", (Table(head, cells),))


def _board_notes(board: Leaderboard) -> Iterator[str]:
    yield (
        f"ratings: Elo points by the {board.pair_model} model, mean 0, with 95 % intervals "
        "clustered by question; ranks: by simultaneous 95 % intervals of all differences; win "
        "rates in percent"
    )
    if board.order_effect is not None and board.order_error is not None:
        yield (
            f"the judge favours the first answer by {board.order_effect:+.3f} logits (standard "
            f"error {board.order_error:.3f}), which the ratings allow for and the win rates do not"
        )
    yield f"ties: {100 * board.tie_share:.1f} % of the verdicts"
    if board.forfeits:
        yield f"forfeits: {board.forfeits} battles without an answer count in the win rates"
    if board.unjudged:
        yield f"{board.unjudged} arranged battles have no verdict and are left out"
    if board.regularized:
        yield (
            "the battles alone leave some ratings without bound: half a battle of each model "
            "against an average one was added"
        )


def _agreement_page(comparison: JudgeComparison, command: str) -> list[Section]:
    unseen = ", ".join(comparison.unseen) or "none named (--unseen MODEL)"
    lines = (
        f"command: {command}",
        f"judged by {comparison.first} alone: {comparison.only_first}",
        f"judged by {comparison.second} alone: {comparison.only_second}",
        f"Krippendorff's alpha over the four verdicts in order: {number(comparison.alpha)}",
        f"unseen models: {unseen}",
        "chance: agreement of a judge that always gives the most frequent verdict of the first",
    )
    shares = agreement_table(comparison.agreements)
    counts = confusion_table(comparison.first, comparison.second, comparison.confusion)
    title = (
        f"agreement of {comparison.first} and {comparison.second}: {comparison.shared:,} battles"
    )
    return [Section(title, (*lines, shares)), Section("verdicts", (counts,))]
