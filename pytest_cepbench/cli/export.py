"""`cepbench export`: the report of a run in the formats of other tools."""

from __future__ import annotations

from argparse import Namespace
from importlib.util import find_spec

from pytest_cepbench.cli.output import HOME, NOT_DONE, complain, show
from pytest_cepbench.errors import MissingDependencyError, SpecError, WriteError
from pytest_cepbench.evaluation.run_report import read_report
from pytest_cepbench.files import keep_out_of_git
from pytest_cepbench.report.exports import EXPORTERS, ExportedRun, Exporter


def run(arguments: Namespace) -> int:
    """Read the report and write it; exit codes as in `main`."""
    try:
        exporter = _exporter(arguments.to, arguments.rows)
        exported = _exported_run(arguments)
        name = arguments.results.stem
        rows = "" if arguments.rows == "cases" else f"-{arguments.rows}"
        target = arguments.out or HOME / f"exports/{name}{rows}-{arguments.to}{exporter.suffix}"
        if exporter.suffix and not target.suffix:
            target = target / f"{name}{rows}{exporter.suffix}"
        written = exporter.write(exported, target)
        keep_out_of_git(HOME, target)
    except (OSError, WriteError) as error:
        return complain(f"the export could not be written: {error}", NOT_DONE)
    show((), *(f"written: {place}" for place in written))
    return 0


def _exporter(name: str, rows: str) -> Exporter:
    """The format of that name, which has such rows.

    Raises SpecError for rows that it has not, MissingDependencyError for its packages.
    """
    exporter = EXPORTERS[name]
    if rows != "cases" and not exporter.tables:
        tables = " or ".join(known for known, other in EXPORTERS.items() if other.tables)
        raise SpecError(f"--rows {rows} is for tables: give --to {tables}, not {name}")
    missing = [package for package in exporter.packages if find_spec(package) is None]
    if missing:
        packages = " ".join(missing)
        raise MissingDependencyError(
            f"--to {name} needs {packages}, which is not installed: pip install {packages}"
        )
    return exporter


def _exported_run(arguments: Namespace) -> ExportedRun:
    """The report with what the user says of it. Raises SpecError."""
    report = read_report(arguments.results)
    return ExportedRun(
        name=arguments.name or arguments.results.stem,
        source=str(arguments.results.absolute()),
        verdict=report.verdict,
        problems=report.problems,
        cases=(*report.cases, *report.suite_verdicts),
        step=arguments.step,
        dataset=arguments.dataset or "",
        rows=arguments.rows,
    )
