"""`cepbench accept` on the results of a test, and what it prints."""

from __future__ import annotations

from typing import Any

from pytest_cepbench.gate import FreshMeasurement
from pytest_cepbench.report import CaseResult
from tests.cli.conftest import Ended, Home
from tests.cli.reports import write_report

WORSE = "shapes:?miss=0.3"


def accept(home: Home, results: list[CaseResult], *argv: str, **report: Any) -> Ended:
    """The command on a report with these results."""
    write_report(home.path / "r.json", results, **report)
    return home.command("accept", "r.json", "--reason=a better describer", *argv)


def row(text: str, case: str) -> list[str]:
    """The cells of a case in the table."""
    (words,) = [line.split() for line in text.splitlines() if line.startswith(f"{case} ")]
    return words[1:]


def by_name(measurements: tuple[FreshMeasurement, ...]) -> dict[str, FreshMeasurement]:
    """Measurements by PART/METRIC."""
    return {f"{m.key.part}/{m.key.metric}": m for m in measurements}
