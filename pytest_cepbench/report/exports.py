"""A run as a table for spreadsheets and data frames: a row for each case, or for each sample."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from typing import Any

from pytest_cepbench.report.case_table import sample_values
from pytest_cepbench.report.result import CaseResult

_RUN = ("run", "run_verdict", "step", "model", "suite", "part", "metric", "label")

COLUMNS = (
    *_RUN, "verdict", "accepted", "passes", "primary", "higher_is_better", "value", "baseline",
    "difference", "p", "low", "high", "method", "tolerance", "alpha", "gate", "n", "units",
    "visible", "floor", "anchor", "reasons", "nodeid",
)  # fmt: skip
"""Of a row for each case; docs/report.md says what each is."""

SAMPLE_COLUMNS = (
    *_RUN, "higher_is_better", "sample", "categories", "value", "baseline", "difference",
    "reference",
)  # fmt: skip
"""Of a row for each sample."""

_FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""Beginnings of texts that spreadsheets compute: such a text stands behind an apostrophe."""


def csv_table(cases: Sequence[CaseResult], run: dict[str, Any], *, samples: bool = False) -> str:
    """The table as CSV, as of RFC 4180; what is not known is empty.

    cases: judged ones, in order, and the verdicts of whole suites, which have no value.
    run: its columns that cases do not tell: `run`, `run_verdict`, `step`, `model`.
    samples: whether rows are those of samples, of each case those that lost most first.
    """
    columns = SAMPLE_COLUMNS if samples else COLUMNS
    stream = io.StringIO(newline="")
    writer = csv.writer(stream)
    writer.writerow(columns)
    for case in cases:
        known: dict[str, Any] = {
            **run,
            "verdict": str(case.verdict),
            "method": case.judgement.method,
            "reasons": "; ".join(case.reasons),
            **case.numbers,
        }
        own: list[dict[str, Any]] = [{}]
        if samples:
            own = [
                values._asdict()
                | {
                    "categories": "; ".join(values.categories),
                    "reference": None if values.difference is None else case.judgement.reference,
                }
                for values in sample_values(case)
            ]
        for row in own:
            cells = known | row
            writer.writerow(
                _cell(cells[name] if name in cells else getattr(case, name)) for name in columns
            )
    return stream.getvalue()


def _cell(value: Any) -> Any:
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA) else value
