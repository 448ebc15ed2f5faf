"""`cepbench export`: the report of a run in the formats of other tools."""

from __future__ import annotations

from argparse import Namespace
from importlib.util import find_spec

from pytest_cepbench.cli.output import HOME, show
from pytest_cepbench.errors import MissingDependencyError, SpecError, WriteError
from pytest_cepbench.evaluation.run_report import read_report
from pytest_cepbench.files import keep_out_of_git
from pytest_cepbench.report.exports import EXPORTERS, ExportedRun


def run(arguments: Namespace) -> int:
    """Read the report and write it; exit codes as in `main`."""
    form, rows, stem = arguments.to, arguments.rows, arguments.results.stem
    exporter = EXPORTERS[form]
    if rows != "cases" and not exporter.tables:
        tables = " or ".join(known for known, other in EXPORTERS.items() if other.tables)
        raise SpecError(f"--rows {rows} is for tables: give --to {tables}, not {form}")
    missing = " ".join(package for package in exporter.packages if find_spec(package) is None)
    if missing:
        raise MissingDependencyError(
            f"--to {form} needs {missing}, which is not installed: pip install {missing}"
        )
    report = read_report(arguments.results)
    exported = ExportedRun(
        name=arguments.name or stem,
        source=str(arguments.results.absolute()),
        verdict=report.verdict,
        problems=report.problems,
        cases=(*report.cases, *report.suite_verdicts),
        step=arguments.step,
        dataset=arguments.dataset or "",
        rows=rows,
    )
    named = stem if rows == "cases" else f"{stem}-{rows}"
    target = arguments.out or HOME / f"exports/{named}-{form}{exporter.suffix}"
    if exporter.suffix and not target.suffix:
        target = target / f"{named}{exporter.suffix}"
    try:
        written = exporter.write(exported, target)
        keep_out_of_git(HOME, target)
    except (OSError, WriteError) as error:
        raise WriteError(f"the export could not be written: {error}") from error
    show((), *(f"written: {place}" for place in written))
    return 0
