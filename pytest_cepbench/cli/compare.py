"""`cepbench compare`: two or more runs, case by case, over the same samples."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator, Sequence
from pathlib import Path

from pytest_cepbench.cli.output import Section, Table, rank_range, show, write_and_show
from pytest_cepbench.errors import SpecError, did_you_mean, few_of
from pytest_cepbench.evaluation.run_report import RunReport, read_report
from pytest_cepbench.gate import CaseKey, Verdict
from pytest_cepbench.gate.baseline import record_of
from pytest_cepbench.gate.compare import losers_of
from pytest_cepbench.gate.policy import check_alpha
from pytest_cepbench.option_values import LEAST_ALPHA, split_name
from pytest_cepbench.report.case_table import battle_scores
from pytest_cepbench.report.headline import in_tolerances
from pytest_cepbench.report.number_format import bounds_of, change_of, counted, number, p_value
from pytest_cepbench.studies.comparison import (
    CaseLeaderboard,
    MeasuredRun,
    RunCase,
    RunComparison,
    compare_runs,
    rank_common_cases,
)

_MOST_SAMPLES = 3


def run(arguments: Namespace) -> int:
    """Compare and show, and write the ranks; exit codes as in `main`."""
    reports = _reports(arguments)
    runs = [_measured_run(name, report, arguments) for name, report in reports.items()]
    alpha = arguments.alpha
    try:
        check_alpha(alpha, "--alpha")
    except ValueError as error:
        raise SpecError(
            f"--alpha {alpha:g}: a probability from {LEAST_ALPHA:g} to 0.5 is expected"
        ) from error
    comparisons = [compare_runs(runs[0], other, alpha) for other in runs[1:]]
    ranked = len(runs) > 2 or arguments.out is not None
    boards = list(rank_common_cases(runs)) if ranked else []
    suites = ", ".join(dict.fromkeys(CaseKey.parse(board.case).suite for board in boards))
    shown = [_overview(suites, boards)] if boards else []
    shown += [*map(_section, comparisons), *map(_board_section, boards)]
    if arguments.out is None:
        show(shown)
        return 0
    if not boards:
        raise SpecError("--out: the runs have no case in common by which they could be ranked")
    write_and_show(arguments, {"cases": boards}, shown, "leaderboard")
    return 0


def _reports(arguments: Namespace) -> dict[str, RunReport]:
    """The reports that were named, by what the runs are called. Raises kinds of CepError."""
    reports: dict[str, RunReport] = {}
    for text in arguments.runs:
        given, place = split_name(text)
        report, name = read_report(Path(place)), given or Path(place).stem
        if report.incomplete:
            raise SpecError(f"the run of {place} is incomplete ({report.incomplete}): run it again")
        if name in reports:
            raise SpecError(f"two runs are called {name!r}: name them, NAME={place}")
        reports[name] = report
    if len(reports) < 2:
        raise SpecError("expected the reports (--cep-report FILE) of two or more runs")
    return reports


def _measured_run(name: str, report: RunReport, arguments: Namespace) -> MeasuredRun:
    """The cases of a run that are asked for. Raises SpecError where there is none."""
    suites, patterns = arguments.suite, arguments.case
    cases = {}
    for case in report.cases:
        key = case.key
        if (suites and case.suite not in suites) or (
            patterns and not any(key.matches(pattern) for pattern in patterns)
        ):
            continue
        cases[str(key)] = RunCase(
            case=str(key),
            value=case.value,
            tolerance=case.tolerance,
            primary=case.primary,
            record=None if case.measurement is None else record_of(case.measurement),
            opponents=case.shown.opponents,
            won=battle_scores(case) if case.shown.opponents else {},
            gate=case.gate,
        )
    if not cases:
        known = [str(case.key) for case in report.cases]
        asked = [*suites, *patterns]
        hint = did_you_mean(asked[0], known) if asked else ""
        msg = f"the run of {name} has no case that is asked for: it has {few_of(known) or 'none'}."
        raise SpecError(msg + hint)
    specs = dict.fromkeys(case.model.get("spec", "") for case in report.cases)
    return MeasuredRun(name, ", ".join(filter(None, specs)), cases)


# -- what is shown ---------------------------------------------------------------------------------


def _overview(suites: str, boards: Sequence[CaseLeaderboard]) -> Section:
    """The ranks of all models in all cases."""
    models = [model.model for model in boards[0].models]
    ranks = {
        (board.case, model.model): rank_range(model.rank_low, model.rank_high)
        for board in boards
        for model in board.models
    }
    rows = tuple((model, *(ranks[board.case, model] for board in boards)) for model in models)
    note = "ranks: those that a model may have, all right at once with 95 % confidence in each case"
    table = Table(("model", *(board.label for board in boards)), rows)
    return Section(f"leaderboard of {suites}: {len(models)} models", (note, table))


def _board_section(board: CaseLeaderboard) -> Section:
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
            model.value,
            number(model.difference, signed=True),
            number(model.low, signed=True),
            number(model.high, signed=True),
        )
        for model in board.models
    )
    head = ("model", "rank", "value", "to the best", "low", "high")
    return Section(f"{board.case}: {board.label}", (line, Table(head, rows)))


def _section(comparison: RunComparison) -> Section:
    first, second = comparison.first, comparison.second
    head = ("case", "verdict", first.name, second.name, "change", "bounds", "p", "n")
    rows = []
    for case in comparison.cases:
        verdict = case.verdict if case.second.primary else f"({case.verdict})"
        cells = ["-"] * 4
        if (judged := case.judgement) is not None:
            change, units = number(judged.difference, signed=True), str(judged.units or "-")
            cells = [change, bounds_of(judged), p_value(judged.p), units]
        rows.append((case.first.case, verdict, case.first.value, case.second.value, *cells))
    table = Table(head, rows)
    lines = (
        _headline(comparison),
        f"{first.name}: {first.model}" if first.model else first.name,
        f"{second.name}: {second.model}" if second.model else second.name,
    )
    return Section(f"{second.name} against {first.name}", (*lines, table, *_remarks(comparison)))


def _headline(comparison: RunComparison) -> str:
    """The result in a sentence, of the cases that could have failed a run."""
    first, second = comparison.first.name, comparison.second.name
    gating = [case for case in comparison.cases if case.second.primary]
    paired = [case for case in gating if case.judgement is not None]
    if not paired:
        return f"nothing was compared: no gating case of {first} and {second} is paired"
    regressed, undecided, improved = (
        [case for case in gating if case.verdict == verdict]
        for verdict in (Verdict.REGRESSED, Verdict.INCONCLUSIVE, Verdict.IMPROVED)
    )
    of = f"regressed in {len(regressed) or 'none'} of {counted(len(gating), 'gating case')}"
    changes = [
        (in_tolerances(case.judgement.difference, case.second.tolerance), case.second.case, change)
        for case in regressed
        if case.judgement is not None and (change := change_of(case.judgement))
    ]
    missing = sum(comparison.first.cases[case].primary for case in comparison.only_first)
    parts = [
        of,
        *(f"worst {case} {change}" for _, case, change in sorted(changes)[:1]),
        f"{len(undecided)} undecided" if undecided else "",
        f"{len(improved)} improved" if improved else "",
        f"{len(gating) - len(paired)} not compared" if len(paired) < len(gating) else "",
        f"{missing} more not measured by {second}" if missing else "",
    ]
    return f"{second} against {first}: {', '.join(filter(None, parts))}"


def _remarks(comparison: RunComparison) -> Iterator[str]:
    """What the table leaves out, and the samples of regressed cases that lost most."""
    obstacles = {case.obstacle: case.first.case for case in comparison.cases if case.obstacle}
    for obstacle, example in obstacles.items():
        yield f"not paired, such as {example}: {obstacle}"
    for name, only in (
        (comparison.first.name, comparison.only_first),
        (comparison.second.name, comparison.only_second),
    ):
        if only:
            yield f"only in {name}: {few_of(only)}"
    for case in comparison.cases:
        if case.verdict == Verdict.REGRESSED:
            worst = ", ".join(
                f"{sample} {number(case.differences[sample], signed=True)}"
                for sample in losers_of(case.differences)[:_MOST_SAMPLES]
            )
            if worst:
                yield f"{case.first.case} lost most at {worst}"
