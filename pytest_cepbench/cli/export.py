"""`cepbench export`: the report of a run as a table."""

from __future__ import annotations

from argparse import Namespace

from pytest_cepbench.cli.output import HOME, show
from pytest_cepbench.errors import SpecError, WriteError
from pytest_cepbench.evaluation.run_report import read_report
from pytest_cepbench.files import keep_out_of_git
from pytest_cepbench.report.writers import csv_table, write_reports


def run(arguments: Namespace) -> int:
    """Read the report and write it; exit codes as in `main`."""
    samples, stem = arguments.rows == "samples", arguments.results.stem
    report = read_report(arguments.results)
    name = arguments.name or stem
    said = {
        "run": name,
        "run_verdict": report.verdict,
        "step": arguments.step,
        "model": next((c.model["spec"] for c in report.cases if "spec" in c.model), name),
    }
    table = csv_table((*report.cases, *report.suite_verdicts), said, samples=samples)
    if samples and table.count("\n") == 1:
        raise SpecError(
            f"{arguments.results} has no scores of samples: no case was measured, or all have one "
            "score of a whole set. --rows=cases exports its cases"
        )
    named = f"{stem}{'-samples' * samples}.csv"
    target = arguments.out or HOME / "exports" / named
    target = target if target.suffix else target / named
    try:
        if target.exists() and target.samefile(arguments.results):
            raise SpecError(f"--out {str(target)!r} is the report itself: name another file")
        written = write_reports(target, {target.suffix: table})
        keep_out_of_git(HOME, target)
    except (OSError, WriteError) as error:
        raise WriteError(f"the export could not be written: {error}") from error
    show((), *(f"written: {place}" for place in written))
    return 0
