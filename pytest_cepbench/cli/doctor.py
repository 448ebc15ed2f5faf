"""`cepbench doctor`: what a set-up can see, checked before anything is gated with it."""

from __future__ import annotations

from argparse import Namespace
from collections import Counter
from collections.abc import Iterator

from pytest_cepbench.cli.output import NOT_DONE, Section, Table, tell, write_and_show
from pytest_cepbench.cli.session import measured, read_trial, spent_line
from pytest_cepbench.report.number_format import counted, number
from pytest_cepbench.studies.calibration import PreparedCalibration, prepare_calibration
from pytest_cepbench.studies.doctor import CheckTable, Diagnosis, examine
from pytest_cepbench.studies.doctor.diagnosis import Cell
from pytest_cepbench.suites import ModelPool


def run(arguments: Namespace) -> int:
    """Check, print, and write the page; exit codes as in `main`, 1 also for a problem."""

    def examined(prepared: PreparedCalibration, pool: ModelPool) -> Diagnosis:
        return examine(prepared, pool, arguments.baselines, tell)

    diagnosis = measured(
        arguments.store, lambda: read_trial(arguments), prepare_calibration, examined
    )
    if isinstance(diagnosis, int):
        return diagnosis
    command: str = arguments.command_line
    page, name = doctor_page(diagnosis, command), f"doctor-{diagnosis.suite}"
    code = write_and_show(diagnosis, page, command, arguments.out, name)
    return code or (NOT_DONE if diagnosis.problems else 0)


def doctor_page(diagnosis: Diagnosis, command: str) -> list[Section]:
    """The sections of a diagnosis: what was checked, each check, what to do."""
    checks = diagnosis.checks
    summary = Table(("check", "result"), tuple((check.name, check.status) for check in checks))
    sections = [Section(_title(diagnosis), (*_opening(diagnosis, command), summary))]
    for check in checks:
        blocks: list[str | Table] = [_table(figures) for figures in check.figures]
        sections.append(Section(f"{check.name}: {check.status}", (*check.said, *blocks)))
    advice = [advice for check in checks for advice in check.advice]
    if advice:
        sections.append(Section("what to do", tuple(f"- {line}" for line in dict.fromkeys(advice))))
    return sections


def _title(diagnosis: Diagnosis) -> str:
    statuses = Counter(check.status for check in diagnosis.checks)
    counts = [counted(statuses[s], s) for s in ("problem", "remark") if statuses[s]]
    return f"doctor of {diagnosis.suite}: {', '.join(counts) or 'nothing found'}"


def _opening(diagnosis: Diagnosis, command: str) -> Iterator[str]:
    yield f"suite {diagnosis.suite}, version {diagnosis.version}, {diagnosis.samples} samples"
    yield f"command: {command}"
    seeds = f"seeds {diagnosis.seeds[0]} to {diagnosis.seeds[-1]}"
    yield f"{diagnosis.under_test} {diagnosis.model}, {seeds}; models:"
    yield from (f"  {model.seat} {model.spec} ({model.identity})" for model in diagnosis.players)
    yield from (f"store: {note}: computed again" for note in diagnosis.damage)
    yield spent_line(diagnosis.effort)


def _table(figures: CheckTable) -> Table:
    return Table(figures.head, tuple(tuple(map(_cell, row, figures.head)) for row in figures.rows))


def _cell(value: Cell, head: str) -> str:
    if isinstance(value, float) and head == "seconds":
        return f"{value:.1f}"
    if isinstance(value, float):
        return number(value)
    return "-" if value is None else str(value)
