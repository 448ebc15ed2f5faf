"""Runs for histories, as the gate would record them."""

from __future__ import annotations

from typing import Any

from pytest_cepbench.report.history import FORMAT, HistoryRun, run_record
from pytest_cepbench.report.result import CaseResult
from tests.report.results import FULL, replace

DAY = 86_400.0


def origin(number: int, **changes: Any) -> HistoryRun:
    """The facts of a run, the number of its day."""
    fields: dict[str, Any] = {
        "format": FORMAT,
        "cases": [],
        "run": f"{number:032x}",
        "started": 1_790_000_000 + DAY * number,
        "seconds": 60.0,
        "verdict": "passed",
        "report": "",
        "digest": "",
        "host": "host",
        "cepbench": "0.1.0",
    }
    return HistoryRun(**(fields | changes))


def judged(value: float | None, **changes: Any) -> CaseResult:
    """A case of this value, compared with a baseline of 0.75 where there is a value."""
    difference = None if value is None else round(value - 0.75, 6)
    fields: dict[str, Any] = {
        "verdict": "held" if value is not None else "error",
        "value": value,
        "baseline": None if value is None else 0.75,
        "difference": difference,
        "low": None if difference is None else difference - 0.02,
        "high": None if difference is None else difference + 0.02,
        "model": {"role": "describer", "spec": "runs/a", "identity": "a 0123"},
        "identity": {"samples": "50", "prompt": "describe"},
    }
    return replace(FULL, **(fields | changes))


def recorded(number: int, *results: CaseResult, **changes: Any) -> HistoryRun:
    """The line of a run."""
    return run_record(origin(number, **changes), results or [judged(0.75)])
