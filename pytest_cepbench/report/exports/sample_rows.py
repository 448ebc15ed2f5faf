"""Samples as rows of a table: each sample of each case, with its score and the baseline's."""

from __future__ import annotations

from typing import Any

from pytest_cepbench.errors import SpecError
from pytest_cepbench.report.exports.exported_run import ExportedRun, table_row
from pytest_cepbench.report.result import CaseResult
from pytest_cepbench.report.sample_values import SampleValue, sample_values

SAMPLE_COLUMNS: dict[str, type] = {
    "run": str, "run_verdict": str, "step": int, "model": str,
    "suite": str, "part": str, "metric": str, "label": str, "higher_is_better": bool,
    "sample": str, "categories": str,
    "value": float, "baseline": float, "difference": float, "reference": str,
}  # fmt: skip
"""Column -> its type; docs/exports.md says what each is. None stands for what is not known."""


def sample_rows(run: ExportedRun) -> list[dict[str, Any]]:
    """A row for each sample of each case, with every column; those that lost most come first.

    Raises SpecError where the report has no score of a sample.
    """
    rows = [_row(run, case, values) for case in run.cases for values in sample_values(case)]
    if not rows:
        raise SpecError(
            f"{run.source} has no scores of samples: no case was measured, or all have one score "
            "of a whole set. --rows=cases exports its cases"
        )
    return rows


def _row(run: ExportedRun, case: CaseResult, values: SampleValue) -> dict[str, Any]:
    own = {
        "sample": values.sample,
        "categories": "; ".join(values.categories),
        "value": values.value,
        "baseline": values.baseline,
        "difference": values.difference,
        "reference": None if values.difference is None else case.reference,
    }
    return table_row(run, case, SAMPLE_COLUMNS, own)
