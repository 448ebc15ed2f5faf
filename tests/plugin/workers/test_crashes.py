"""What becomes of the test over which a worker died, and what is said of the worker."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from itertools import count
from typing import Any

import execnet
import pytest
from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController

from pytest_cepbench.gate import Judgement, Verdict
from pytest_cepbench.plugin.ledger import RETRIED, Ledger
from pytest_cepbench.plugin.workers.crashes import CrashLog, explain_exit
from pytest_cepbench.plugin.workers.scheduler import CaseHint
from pytest_cepbench.report import CaseResult
from tests.plugin.workers.test_dealing import Run, received

NODEID = "test_a.py::test[0]"
"""The only test of the run."""


@pytest.fixture
def group() -> Iterator[execnet.Group]:
    """The processes of a test."""
    group = execnet.Group()
    yield group
    group.terminate(timeout=5)


@pytest.fixture
def run(group: execnet.Group) -> Iterator[Run]:
    """A run whose only worker has begun its only test."""
    gateways = (group.makegateway(f"popen//id=gw{number}") for number in count())
    run = Run(gateways, (CaseHint("unit", "suite"),), workers=1).begin()
    run.begins(0)
    yield run
    run.close()


def _log(expected: str = NODEID) -> CrashLog:
    log = CrashLog(Ledger())
    log.ledger.expect({expected: "toy/color/gc"})
    return log


def _die(log: CrashLog, node: WorkerController, code: str = "os.kill(os.getpid(), 9)") -> None:
    """The process of a worker ends, which xdist tells the log."""
    channel = node.gateway.remote_exec(f"import os; {code}")
    with pytest.raises(EOFError):
        channel.receive(timeout=20)
    log.note(node, "Not properly terminated")


def _replace(run: Run) -> WorkerController:
    """Another worker, as xdist starts one when a worker died; it is dealt what is left."""
    node = run.add_node()
    run.sched.add_node_collection(node, run.tests)
    run.sched.schedule()
    return node


def _settle(log: CrashLog, node: WorkerController, sched: object) -> Any:
    """Xdist's report of the test, after the log has decided about it."""
    report: Any = pytest.TestReport(
        NODEID,
        ("test_a.py", None, "test_a.py"),
        {},
        "failed",
        "worker crashed",
        "???",  # type: ignore[arg-type] # the word that xdist gives
    )
    report.node = node
    log.settle(NODEID, report, sched)
    return report


def test_a_case_is_judged_again_once(run: Run) -> None:
    """The first death over a case is infrastructure; a second one makes the run incomplete."""
    log = _log()
    (first,) = run.workers
    _die(log, first)
    assert run.sched.remove_node(first) == NODEID
    report = _settle(log, first, run.sched)
    assert (report.outcome, report.cepbench) == ("rerun", RETRIED)
    assert (log.retried, log.ledger.failures) == ({NODEID}, [])
    assert log.lines()[0].endswith(f"while it judged {NODEID}; not judged again")

    second = _replace(run)
    assert received(second) == [0]
    run.begins(0)
    _die(log, second)
    assert run.sched.remove_node(second) == NODEID
    assert _settle(log, second, run.sched).outcome == "failed"
    assert received(_replace(run)) == []
    assert log.ledger.failures == [
        f"{NODEID} was not judged: a worker died over it, and one before it"
    ]
    assert [line.rpartition("; ")[2] for line in log.lines()] == [
        "retried alone",
        "not judged again",
    ]


def test_a_scheduler_that_deals_no_test_again_leaves_the_run_incomplete(run: Run) -> None:
    """One of xdist's own that the engineer chose."""
    log = _log()
    (node,) = run.workers
    _die(log, node)

    assert _settle(log, node, LoadScopeScheduling(run.config)).outcome == "failed"
    assert log.ledger.failures == [f"{NODEID} was not judged: a worker died over it"]
    assert log.retried == set()


def test_a_case_that_was_judged_before_the_death_counts(run: Run) -> None:
    """Only the end of its teardown is missing."""
    log = _log()
    (node,) = run.workers
    _die(log, node)
    result = CaseResult(NODEID, "toy", "color", "gc", "GC@2", 0.01, Judgement(Verdict.HELD))
    log.ledger.results.append(result)
    report = _settle(log, node, run.sched)

    assert (report.when, report.outcome, report.longrepr) == ("teardown", "passed", None)
    (line,) = log.lines()
    assert line.startswith("worker gw0 died (killed by signal 9, as the kernel does when memory ")
    assert line.endswith(f" after it had judged {NODEID}; nothing was lost")


def test_a_test_that_is_no_case_fails(run: Run) -> None:
    """As ever under xdist."""
    log = _log(expected="test_toy.py::test_other")
    (node,) = run.workers
    _die(log, node)

    assert _settle(log, node, run.sched).outcome == "failed"
    assert log.lines()[0].endswith(f"while it ran {NODEID}, which counts as failed")


def test_an_interrupted_worker_makes_the_run_incomplete(run: Run) -> None:
    """It is no death, and its test is not judged again."""
    log = _log()
    (node,) = run.workers
    log.note(node, "keyboard-interrupt")
    run.sched.remove_node(node)

    assert log.ledger.failures == ["worker gw0 was interrupted"]
    assert _settle(log, node, run.sched).outcome == "failed"
    assert log.lines() == []
    assert received(_replace(run)) == []


def test_a_death_between_tests_loses_nothing(run: Run) -> None:
    """The system says how the process ended."""
    log = _log()
    _die(log, run.workers[0], "os._exit(3)")

    assert log.lines() == [
        "worker gw0 died (it exited with code 3) between tests; nothing was lost"
    ]


def test_of_a_process_elsewhere_xdist_says_how_it_ended(run: Run, group: execnet.Group) -> None:
    """One that another process started has no exit code here."""
    log = _log()
    (first,) = run.workers
    gateway = group.makegateway("popen//via=gw0//id=gw1")
    node = WorkerController(first.nodemanager, gateway, run.config, lambda _: None)
    log.note(node, "Not properly terminated")

    assert log.lines() == [
        "worker gw1 died (Not properly terminated) between tests; nothing was lost"
    ]


@pytest.mark.parametrize(
    ("code", "how"),
    [
        (-signal.SIGKILL, "killed by signal 9, as the kernel does when memory runs out"),
        (-signal.SIGSEGV, "killed by signal 11, SIGSEGV"),
        (-250, "killed by signal 250, unknown"),
        (0, "it exited with code 0"),
        (3, "it exited with code 3"),
    ],
)
def test_the_system_says_how_a_worker_ended(code: int, how: str) -> None:
    """By the exit code of its process."""
    assert explain_exit(code) == how
