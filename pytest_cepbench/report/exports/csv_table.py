"""A run as CSV (RFC 4180): a header, and a row for each case or sample."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

from pytest_cepbench.report.exports.exported_run import ExportedRun
from pytest_cepbench.report.exports.table import table_of
from pytest_cepbench.report.writers import write_reports

_FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""Beginnings of texts that spreadsheets compute."""


def export(run: ExportedRun, path: Path) -> list[Path]:
    """Write the table; see `report.exports.Export`."""
    table = table_of(run)
    stream = io.StringIO(newline="")
    writer = csv.writer(stream)
    writer.writerow(table.columns)
    writer.writerows([_cell(row[name]) for name in table.columns] for row in table.rows)
    return write_reports(path, {path.suffix: stream.getvalue()})


def _cell(value: Any) -> Any:
    """A value as it is written: numbers that Python reads back, empty for what is not known.

    A text that a spreadsheet would compute is a text after an apostrophe.
    """
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str) and value.startswith(_FORMULA):
        return f"'{value}"
    return value
