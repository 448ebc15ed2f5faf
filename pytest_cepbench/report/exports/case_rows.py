"""Cases as rows of a table: columns with their types, for CSV and Parquet."""

from __future__ import annotations

from typing import Any

from pytest_cepbench.report.exports.exported_run import ExportedRun, table_row
from pytest_cepbench.report.result import CaseResult

COLUMNS: dict[str, type] = {
    "run": str, "run_verdict": str, "step": int, "model": str,
    "suite": str, "part": str, "metric": str, "label": str,
    "verdict": str, "accepted": bool, "passes": bool, "primary": bool, "higher_is_better": bool,
    "value": float, "baseline": float, "difference": float, "p": float, "low": float, "high": float,
    "method": str, "tolerance": float, "alpha": float, "gate": str, "n": int, "units": int,
    "visible": float, "floor": float, "anchor": float, "reasons": str, "nodeid": str,
}  # fmt: skip
"""Column -> its type; docs/exports.md says what each is. None stands for what is not known."""


def case_rows(run: ExportedRun) -> list[dict[str, Any]]:
    """A row for each case, with every column."""
    return [_row(run, case) for case in run.cases]


def _row(run: ExportedRun, case: CaseResult) -> dict[str, Any]:
    own = {
        "anchor": None if case.anchor is None else case.anchor.value,
        "reasons": "; ".join(case.reasons),
    }
    return table_row(run, case, COLUMNS, own)
