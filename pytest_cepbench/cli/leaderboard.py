"""`cepbench leaderboard`: the models of several runs of a suite, ranked by paired differences."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

from pytest_cepbench.cli.output import (
    Section,
    Table,
    rank_range,
    write_and_show,
)
from pytest_cepbench.cli.results import read_report
from pytest_cepbench.errors import SpecError
from pytest_cepbench.gate import Baseline
from pytest_cepbench.option_values import split_name
from pytest_cepbench.report.leaderboard_plots import draw_case_leaderboards
from pytest_cepbench.report.text import number
from pytest_cepbench.studies.leaderboard import CaseLeaderboard, rank_runs


def run(arguments: Namespace) -> int:
    """Rank, print and write a page; exit codes as in `main`."""
    command = arguments.command_line
    suite = Path(arguments.suite).name
    boards = rank_runs(suite, _runs(arguments.reports), arguments.case)
    content = {"suite": suite, "cases": boards}
    name = f"leaderboard-{suite}"
    page = _page(suite, boards, command)
    drawing = draw_case_leaderboards(suite, boards)
    return write_and_show(content, page, command, arguments.out, name, "leaderboard", drawing)


def _runs(reports: Sequence[str]) -> dict[str, list[Baseline]]:
    """Model -> what a run measured. Raises SpecError for unreadable, incomplete or equal names."""
    runs: dict[str, list[Baseline]] = {}
    for text in reports:
        name, path = split_name(text)
        report = read_report(Path(path))
        name = name or Path(path).stem
        if report.incomplete:
            raise SpecError(f"the run of {name} is incomplete ({report.incomplete}): run it again")
        if name in runs:
            raise SpecError(f"two runs are called {name!r}: name them, NAME={path}")
        runs[name] = [case.measured for case in report.cases if case.measured is not None]
    return runs


def _page(suite: str, boards: Sequence[CaseLeaderboard], command: str) -> list[Section]:
    models = [model.model for model in boards[0].models]
    ranks = {
        (board.case, model.model): rank_range(model.rank_low, model.rank_high)
        for board in boards
        for model in board.models
    }
    head = ("model", *(board.label for board in boards))
    rows = tuple((m, *(ranks[board.case, m] for board in boards)) for m in models)
    notes = (
        f"command: {command}",
        "ranks: those that a model may have, all right at once with 95 % confidence in each case",
    )
    sections = [
        Section(f"leaderboard of {suite}: {len(models)} models", (*notes, Table(head, rows)))
    ]
    return [*sections, *map(leaderboard_section, boards)]


def leaderboard_section(board: CaseLeaderboard) -> Section:
    """The models of a case, the best first, with the ranks that each may have."""
    better = "higher" if board.higher_is_better else "lower"
    units = "blocks of samples" if board.blocks else "independent samples"
    if board.units:
        line = f"{better} is better; {board.units} {units}"
    else:
        line = f"{better} is better; too few {units} for intervals: nothing is told apart"
    rows = tuple(
        (
            model.model,
            rank_range(model.rank_low, model.rank_high),
            number(model.value),
            number(model.difference, signed=True),
            number(model.low, signed=True),
            number(model.high, signed=True),
        )
        for model in board.models
    )
    head = ("model", "rank", "value", "to the best", "low", "high")
    return Section(f"{board.case}: {board.label}", (line, Table(head, rows)))
