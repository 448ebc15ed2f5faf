"""`cepbench doctor`: what a set-up can see, checked before anything is gated with it."""

from __future__ import annotations

from argparse import Namespace
from collections import Counter
from contextlib import suppress

from pytest_cepbench.cli.output import NOT_DONE, Section, Table, tell, write_and_show
from pytest_cepbench.cli.session import measuring, prepared_trial, spent_line
from pytest_cepbench.files import parse_toml, read_text
from pytest_cepbench.report.number_format import counted
from pytest_cepbench.studies.doctor import Diagnosis, examine
from pytest_cepbench.suites import load_suite


def run(arguments: Namespace) -> int:
    """Check, print, and write the page; exit codes as in `main`, 1 also for a problem."""
    if arguments.model is None:
        _take_accepted_model(arguments)
    with measuring(arguments.store, arguments.suite) as (pool, begin):
        prepared = prepared_trial(arguments, pool)
        begin()
        diagnosis = examine(prepared, pool, tell)
    write_and_show(arguments, diagnosis, doctor_page(diagnosis), f"doctor-{diagnosis.suite}")
    return NOT_DONE if any(check.status == "problem" for check in diagnosis.checks) else 0


def _take_accepted_model(arguments: Namespace) -> None:
    """Where a role is left open, the model that was accepted in it stands in for `--model`."""
    suite = load_suite(arguments.suite)
    for path in sorted((arguments.baselines / suite.name).glob("*.toml")):
        with suppress(OSError, ValueError, KeyError):
            model = parse_toml(read_text(path))["model"]
            role, spec = model["role"], model["spec"]
            if getattr(suite.table.roles, role, None) or getattr(arguments, role, None):
                return
            arguments.model, arguments.role = spec, arguments.role or role
            tell(f"model: {spec}, which was accepted for this suite; --model names another")
            return


def doctor_page(diagnosis: Diagnosis) -> list[Section]:
    """The sections of a diagnosis: what was checked, each check, what to do."""
    checks = diagnosis.checks
    statuses = Counter(check.status for check in checks)
    found = [counted(statuses[s], s) for s in ("problem", "remark") if statuses[s]]
    seeds = f"seeds {diagnosis.seeds[0]} to {diagnosis.seeds[-1]}"
    opening = (
        f"suite {diagnosis.suite}, version {diagnosis.version}, {diagnosis.samples} samples",
        f"{diagnosis.under_test} {diagnosis.model}, {seeds}; models:",
        *(f"  {model.seat} {model.spec} ({model.identity})" for model in diagnosis.players),
        *(f"store: {note}: computed again" for note in diagnosis.damage),
        spent_line(diagnosis.effort),
    )
    summary = Table(("check", "result"), tuple((check.name, check.status) for check in checks))
    title = f"doctor of {diagnosis.suite}: {', '.join(found) or 'nothing found'}"
    sections = [Section(title, (*opening, summary))]
    for check in checks:
        tables = [Table(check.head, check.rows)] if check.rows else []
        sections.append(Section(f"{check.name}: {check.status}", (*check.said, *tables)))
    advice = [advice for check in checks for advice in check.advice]
    if advice:
        sections.append(Section("what to do", tuple(f"- {line}" for line in dict.fromkeys(advice))))
    return sections
