"""Results of the gate in the tests of this process, on their way to the ledger.

Verdicts travel on pytest's reports, but other plugins and a user's conftest.py replace reports,
change their outcome, keep them back and run tests again. So results are kept here, apart from any
report, and go out with the next report of their test, whatever happened to the reports before it.
"""

from __future__ import annotations

import enum
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from numbers import Integral, Real
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

import pytest

from pytest_cepbench.plugin.cases import is_case, stands_for
from pytest_cepbench.plugin.ledger import RETRIED, read_results
from pytest_cepbench.plugin.options import colored

if TYPE_CHECKING:
    from pytest_cepbench.report.result import CaseResult

GATED = "cepbench_gated"
"""Attribute of a report that fails by a verdict alone, whose text is the gate's own."""

SUITES = "regressed as a whole"
"""What pytest counts verdicts of whole suites as."""

_OUTCOMES = ("passed", "failed", "skipped")

_XFAIL = "  an xfail mark excuses no verdict: accept the checkpoint, or leave the case out"

_EXACT = frozenset({int, float, bool, type(None)})


@dataclass
class AttemptRecord:
    """One test, in its latest attempt: other plugins run a test again.

    case: the case that it was given to judge (`suite/part/metric`); None where it was given none.
    stands_for: what is not judged where the test is skipped, see `stands_for`.
    attempt: a name for this attempt that no other attempt in any process has.
    inputs: what the gate judged by, see `Evaluator.inputs`.
    results: of the gate, in this attempt.
    shown: how many of them belong to phases that are over.
    skipped: why the test was skipped; None where it was not.
    cut_short: whether the test failed, for whatever reason, or was not called.
    after_error: whether the attempt before met an error, so that what it left in memory is stale.
    waiting: results that no report has carried yet, with their attempt.
    """

    case: str | None
    stands_for: str
    attempt: str
    inputs: Mapping[str, str] = field(default_factory=dict)
    results: list[CaseResult] = field(default_factory=list)
    shown: int = 0
    skipped: str | None = None
    cut_short: bool = True
    after_error: bool = False
    waiting: list[tuple[str, CaseResult]] = field(default_factory=list)


class Records:
    """The tests of this process that gate cases, by node id. pid: of the process."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self._records: dict[str, AttemptRecord] = {}
        self._attempts = 0

    def of(self, item: pytest.Item) -> AttemptRecord:
        """The record of a test, begun where it has none."""
        return self._records.get(item.nodeid) or self.begin(item)

    def begin(self, item: pytest.Item) -> AttemptRecord:
        """Begin an attempt at a test, without what the one before left."""
        self._attempts += 1
        before = self._records.get(item.nodeid)
        record = AttemptRecord(case_name(item), stands_for(item), f"{self.pid}.{self._attempts}")
        if before is not None:
            record.waiting = before.waiting
            record.after_error = any(result.verdict == "error" for result in before.results)
            if before.results:
                from pytest_cepbench.report.writers import PREFIX

                item.user_properties[:] = [
                    (name, value)
                    for name, value in item.user_properties
                    if not str(name).startswith(PREFIX)
                ]
        self._records[item.nodeid] = record
        return record

    def judge(
        self, item: pytest.Item, call: pytest.CallInfo[None], report: pytest.TestReport
    ) -> pytest.TestReport:
        """The report of a phase, which a verdict that does not pass fails in any case.

        A test can catch what the gate raises, a fixture can skip after it, an xfail mark expects
        it. Where one line is shown of a failure, it is one line that begins with its numbers.
        """
        record = self.of(item) if is_case(item) else self._records.get(item.nodeid)
        if record is None:
            return report
        raised = None if call.excinfo is None else call.excinfo.value
        if call.when != "teardown":  # by then it is too late to leave a case out
            skip = raised if isinstance(raised, pytest.skip.Exception) else None
            record.skipped = None if skip is None else skip.msg or ""
        if call.when == "call":
            record.cut_short = raised is not None
        # A teardown answers for its own results; those of the call are reported already.
        begun = record.shown if call.when == "teardown" else 0
        record.shown = len(record.results)
        failing = next((result for result in record.results[begun:] if not result.passes), None)
        if failing is None:
            return report
        from pytest_cepbench.report.text import explain, figures_first

        text = explain(failing)
        expected = hasattr(report, "wasxfail")
        if expected or not report.failed:
            report.outcome = "failed"
            report.longrepr = f"{text}\n{_XFAIL}" if expected else text
            vars(report).pop("wasxfail", None)
            setattr(report, GATED, not expected)
            return report
        crash = getattr(report.longrepr, "reprcrash", None)
        if crash is not None and getattr(raised, "msg", None) == text:
            crash.message = figures_first(failing)
            setattr(report, GATED, True)
        return report

    def put_on(self, report: pytest.TestReport) -> None:
        """Put the test's record on its report, whichever plugin made that; results go out once."""
        record = self._records.get(report.nodeid)
        if record is None:
            return
        sent: list[Any] = []
        if record.waiting and not (report.when == "setup" and report.passed):  # the call shows them
            import msgspec

            sent = to_wire(msgspec.to_builtins(record.waiting, enc_hook=to_wire))
            record.waiting = []
        report.cepbench = {  # type: ignore[attr-defined]
            "case": record.case,
            "stands_for": record.stands_for,
            "skipped": None if record.skipped is None else to_wire(record.skipped),
            "cut_short": record.cut_short,
            "inputs": to_wire(record.inputs),
            "results": sent,
        }


def case_name(item: pytest.Item) -> str | None:
    """`suite/part/metric` of the case that a test was given; None where it was given none."""
    callspec = getattr(item, "callspec", None)
    key = getattr(None if callspec is None else callspec.params.get("cep_case"), "key", None)
    return None if key is None else str(to_wire(str(key)))


def to_wire(value: Any) -> Any:
    """The same value of exact types str (UTF-8), int, float, bool, None, list and dict.

    A NumPy scalar, an enum or a path in a test report makes execnet drop the report, and with it
    the test, from the run. Raises TypeError for what has no such form.
    """
    kind = type(value)
    # Most values by far, and a case can have thousands.
    if kind in _EXACT or (kind is str and value.isascii()):
        return value
    if isinstance(value, enum.Enum):
        value = value.value
    if hasattr(value, "dtype") and hasattr(value, "tolist"):  # NumPy's arrays and scalars
        value = value.tolist()
    if isinstance(value, Mapping):
        return {to_wire(key): to_wire(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [to_wire(item) for item in value]
    if type(value) in _EXACT:  # of an enum or an array
        return value
    if isinstance(value, str | PurePath):
        # execnet sends UTF-8: lone surrogates, which some tokenizers emit, go as their escapes.
        return str.encode(str(value), "utf-8", "backslashreplace").decode()
    if isinstance(value, Real):
        return int(value) if isinstance(value, Integral) else float(value)
    raise TypeError(f"{kind.__name__} cannot be sent between processes")


def status_of(
    report: pytest.CollectReport | pytest.TestReport, payload: Any
) -> tuple[str, str, Any] | None:
    """What pytest counts and prints a report as. payload: what the report carries."""
    if payload == RETRIED:
        return "rerun", "R", colored("RERUN", "yellow")
    if not isinstance(payload, dict) or not payload["results"] or hasattr(report, "wasxfail"):
        return None
    # Those of which pytest counts none, and those that other plugins count as run again.
    if (report.when == "teardown" and report.passed) or report.outcome not in _OUTCOMES:
        return None
    from pytest_cepbench.report.number_format import word_of

    results = [result for _, result in read_results(payload)]
    worst = next((result for result in results if not result.passes), results[-1])
    if worst.passes != report.passed:  # something else in the test failed
        return None
    shown = worst.presentation
    if not worst.passes and worst.verdict == "regressed" and worst.is_pooled:
        # No further failure: it sums up cases that are counted as failed.
        return SUITES, shown.letter, colored(word_of(worst), shown.color)
    if worst.accepted:
        return "passed", ".", colored("ACCEPTED", "green")
    return shown.outcome, shown.letter, colored(word_of(worst), shown.color)
