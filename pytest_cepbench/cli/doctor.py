"""`cepbench doctor`: what a set-up can see, checked before anything is gated with it."""

from __future__ import annotations

import shlex
from argparse import Namespace
from collections import Counter
from collections.abc import Iterator, Sequence

from pytest_cepbench._version import __version__
from pytest_cepbench.cli.output import NOT_DONE, Section, Table, json_text, tell, write_and_show
from pytest_cepbench.cli.session import measured, read_trial
from pytest_cepbench.report.text import number
from pytest_cepbench.report.totals import usage_line
from pytest_cepbench.studies.calibration import PreparedCalibration, prepare_calibration
from pytest_cepbench.studies.doctor import CheckTable, Diagnosis, examine
from pytest_cepbench.studies.doctor.diagnosis import Cell
from pytest_cepbench.suites import ModelPool


def run(arguments: Namespace, argv: Sequence[str]) -> int:
    """Check, print, and write the page; exit codes as in `main`, 1 also for a problem."""

    def examined(prepared: PreparedCalibration, pool: ModelPool) -> Diagnosis:
        return examine(prepared, pool, arguments.baselines, tell)

    diagnosis = measured(
        arguments.store, lambda: read_trial(arguments), prepare_calibration, examined
    )
    if isinstance(diagnosis, int):
        return diagnosis
    command = shlex.join(["cepbench", *argv])
    document = json_text(diagnosis, __version__, command)
    name = f"doctor-{diagnosis.suite}"
    code = write_and_show(
        doctor_page(diagnosis, command), document, arguments.out, name, what="diagnosis"
    )
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
    counted = Counter(check.status for check in diagnosis.checks)
    counts = [
        f"{counted[status]} {status}{'' if counted[status] == 1 else 's'}"
        for status in ("problem", "remark")
        if counted[status]
    ]
    return f"doctor of {diagnosis.suite}: {', '.join(counts) or 'nothing found'}"


def _opening(diagnosis: Diagnosis, command: str) -> Iterator[str]:
    effort = diagnosis.effort
    spent = (
        f"{effort.loads} model loads, {effort.inputs} model inputs ({effort.model_seconds:.1f} s "
        f"in models), {effort.hits} results from the store"
    )
    if effort.usage.requests:
        spent += f"; {usage_line(effort.usage)}"
    yield f"suite {diagnosis.suite}, version {diagnosis.version}, {diagnosis.samples} samples"
    yield f"command: {command}"
    yield f"{diagnosis.under_test} {diagnosis.model}, seeds {_range(diagnosis.seeds)}; models:"
    yield from (f"  {model.seat} {model.spec} ({model.identity})" for model in diagnosis.players)
    yield from (f"store: {note}: computed again" for note in diagnosis.damage)
    yield spent


def _range(seeds: Sequence[int]) -> str:
    return f"{seeds[0]} to {seeds[-1]}"


def _table(figures: CheckTable) -> Table:
    return Table(figures.head, tuple(tuple(map(_cell, row, figures.head)) for row in figures.rows))


def _cell(value: Cell, head: str) -> str:
    if isinstance(value, float) and head == "seconds":
        return f"{value:.1f}"
    if isinstance(value, float):
        return number(value)
    return "-" if value is None else str(value)
