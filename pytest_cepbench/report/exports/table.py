"""The table of a run that CSV and Parquet hold: a row for each case, or for each of its samples."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pytest_cepbench.report.exports.case_rows import COLUMNS, case_rows
from pytest_cepbench.report.exports.exported_run import ExportedRun
from pytest_cepbench.report.exports.sample_rows import SAMPLE_COLUMNS, sample_rows


@dataclass(frozen=True)
class Table:
    """Rows with columns of one type each.

    columns: name -> type of its values, in order.
    rows: column -> value; None for what is not known.
    """

    columns: Mapping[str, type]
    rows: list[dict[str, Any]]


_KINDS: Mapping[str, tuple[Mapping[str, type], Callable[[ExportedRun], list[dict[str, Any]]]]] = {
    "cases": (COLUMNS, case_rows),
    "samples": (SAMPLE_COLUMNS, sample_rows),
}


def table_of(run: ExportedRun) -> Table:
    """The table of the rows that the user asked for. Raises SpecError where there are none."""
    columns, rows = _KINDS[run.rows]
    return Table(columns, rows(run))
