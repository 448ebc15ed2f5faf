"""What becomes of the test over which a worker died, and what is said of the worker."""

from __future__ import annotations

import signal
from types import SimpleNamespace
from typing import Any

import pytest

from pytest_cepbench.plugin.ledger import RETRIED, Ledger
from pytest_cepbench.plugin.workers import crashes
from pytest_cepbench.plugin.workers.crashes import CrashLog
from pytest_cepbench.report import CaseResult

NODEID = "test_toy.py::test_drift[color-gc]"


class _Sched:
    """Takes tests that are to run again."""

    def __init__(self) -> None:
        self.again: list[str] = []

    def mark_test_pending(self, nodeid: str) -> None:
        """As xdist's schedulers."""
        self.again.append(nodeid)


@pytest.fixture
def sched(monkeypatch: pytest.MonkeyPatch) -> _Sched:
    """A scheduler that can deal a test again."""
    monkeypatch.setattr(crashes, "_retries", lambda sched: isinstance(sched, _Sched))
    return _Sched()


def _node(name: str, code: int | None = -9) -> Any:
    popen = None if code is None else SimpleNamespace(wait=lambda _: code)
    return SimpleNamespace(gateway=SimpleNamespace(id=name, _io=SimpleNamespace(popen=popen)))


def _log(*workers: str, expected: str = NODEID) -> CrashLog:
    log = CrashLog(Ledger())
    log.ledger.expect({expected: "toy/color/gc"})
    for worker in workers:
        log.note(_node(worker), "Not properly terminated")
    return log


def _settle(log: CrashLog, worker: str, sched: object) -> Any:
    """Xdist's report of the test, after the log has decided about it."""
    report: Any = SimpleNamespace(
        node=_node(worker), when="???", outcome="failed", longrepr="worker crashed"
    )
    log.settle(NODEID, report, sched)
    return report


def test_a_case_is_judged_again_once(sched: _Sched) -> None:
    """The first death over a case is infrastructure; a second one makes the run incomplete."""
    log = _log("gw0", "gw1")
    first = _settle(log, "gw0", sched)

    assert (first.outcome, first.cepbench) == ("rerun", RETRIED)
    assert (sched.again, log.retried, log.ledger.failures) == ([NODEID], {NODEID}, [])
    assert log.lines()[0].endswith(f"while it judged {NODEID}; not judged again")

    second = _settle(log, "gw1", sched)
    assert second.outcome == "failed"
    assert sched.again == [NODEID]
    assert log.ledger.failures == [
        f"{NODEID} was not judged: a worker died over it, and one before it"
    ]
    assert [line.rpartition("; ")[2] for line in log.lines()] == [
        "retried alone",
        "not judged again",
    ]


def test_a_scheduler_that_deals_no_test_again_leaves_the_run_incomplete(sched: _Sched) -> None:
    """One of xdist's own that the engineer chose."""
    log = _log("gw0")

    assert _settle(log, "gw0", object()).outcome == "failed"
    assert log.ledger.failures == [f"{NODEID} was not judged: a worker died over it"]
    assert sched.again == []


def test_a_case_that_was_judged_before_the_death_counts(sched: _Sched) -> None:
    """Only the end of its teardown is missing."""
    log = _log("gw0")
    result = CaseResult(NODEID, "toy", "color", "gc", "GC@2", "held", 0.01)
    log.ledger.results.append(result)
    report = _settle(log, "gw0", sched)

    assert (report.when, report.outcome, report.longrepr) == ("teardown", "passed", None)
    (line,) = log.lines()
    assert line.startswith("worker gw0 died (killed by signal 9, as the kernel does when memory ")
    assert line.endswith(f" after it had judged {NODEID}; nothing was lost")


def test_a_test_that_is_no_case_fails(sched: _Sched) -> None:
    """As ever under xdist."""
    log = _log("gw0", expected="test_toy.py::test_other")

    assert _settle(log, "gw0", sched).outcome == "failed"
    assert log.lines()[0].endswith(f"while it ran {NODEID}, which counts as failed")


def test_a_death_between_tests_loses_nothing() -> None:
    """No test was begun."""
    assert _log("gw3").lines()[0].endswith(" between tests; nothing was lost")


def test_an_interrupted_worker_makes_the_run_incomplete(sched: _Sched) -> None:
    """It is no death, and its test is not judged again."""
    log = _log()
    log.note(_node("gw0"), "keyboard-interrupt")

    assert log.ledger.failures == ["worker gw0 was interrupted"]
    assert _settle(log, "gw0", sched).outcome == "failed"
    assert (log.lines(), sched.again) == ([], [])


@pytest.mark.parametrize(
    ("code", "how"),
    [
        (-signal.SIGKILL, "killed by signal 9, as the kernel does when memory runs out"),
        (-signal.SIGSEGV, "killed by signal 11, SIGSEGV"),
        (-250, "killed by signal 250, unknown"),
        (0, "it exited with code 0"),
        (3, "it exited with code 3"),
        (None, "Not properly terminated"),
    ],
)
def test_the_system_says_how_a_worker_ended(code: int | None, how: str) -> None:
    """By the exit code of its process; xdist's own words where there is no process here."""
    log = CrashLog(Ledger())
    log.note(_node("gw0", code), "Not properly terminated")

    assert log.lines() == [f"worker gw0 died ({how}) between tests; nothing was lost"]
