"""Test reports that show verdicts: hooks between a test and the terminal."""

from __future__ import annotations

from collections.abc import Generator

import pytest

from pytest_cepbench.plugin.records import RECORDS, is_case

_OUTCOMES = ("passed", "failed", "skipped")

_XFAIL = "  an xfail mark excuses no verdict: accept the checkpoint, or leave the case out"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Fail the phase with a verdict that does not pass, whatever the test did with it.

    A test can catch what the gate raises, a fixture can skip after it, and an xfail mark expects it.
    """
    report = yield
    records = item.config.stash[RECORDS]
    record = records.of(item) if is_case(item) else records.get(item)
    failing = None if record is None else record.end_phase(call)
    expected = hasattr(report, "wasxfail")
    if failing is not None and (expected or not report.failed):
        from pytest_cepbench.report.text import explain

        report.outcome = "failed"
        report.longrepr = f"{explain(failing)}\n{_XFAIL}" if expected else explain(failing)
        vars(report).pop("wasxfail", None)
    return report


@pytest.hookimpl(tryfirst=True)
def pytest_report_teststatus(
    report: pytest.CollectReport | pytest.TestReport,
) -> tuple[str, str, tuple[str, dict[str, bool]]] | None:
    """Show the verdict in the place of PASSED and FAILED."""
    payload = getattr(report, "cepbench", None)
    if not isinstance(payload, dict) or not payload["results"] or hasattr(report, "wasxfail"):
        return None
    # Those of which pytest counts none, and those that other plugins count as run again.
    if (report.when == "teardown" and report.passed) or report.outcome not in _OUTCOMES:
        return None
    from pytest_cepbench.plugin.ledger import read_results
    from pytest_cepbench.report.formatting import word_of

    results = [result for _, result in read_results(payload)]
    worst = next((result for result in results if not result.passes), results[-1])
    if worst.passes != report.passed:  # something else in the test failed
        return None
    shown = worst.presentation
    if worst.accepted:
        return "passed", ".", ("ACCEPTED", {"green": True})
    return shown.outcome, shown.letter, (word_of(worst), {shown.color: True})
