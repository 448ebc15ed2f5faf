"""A worker that dies: its case is judged again, the run says so, and no baseline is touched."""

from __future__ import annotations

import shutil
import signal
from collections.abc import Iterator
from itertools import count
from typing import Any

import execnet
import pytest
from xdist.workermanage import WorkerController

from pytest_cepbench.gate import Judgement, Verdict
from pytest_cepbench.plugin.ledger import RETRIED, Ledger
from pytest_cepbench.plugin.workers.crashes import CrashLog, explain_exit
from pytest_cepbench.plugin.workers.scheduler import CaseHint
from pytest_cepbench.report.result import CaseResult
from tests.plugin.project import REGRESSED, Project, contents
from tests.plugin.workers.test_scheduler import Run, received

DYING = """\
import os, pathlib, signal, pytest

@pytest.fixture(autouse=True)
def death(request):
    mark = pathlib.Path(__file__).with_name("died")
    if "crowded" in request.node.name and not mark.exists():
        mark.touch()
        {}
"""
"""A conftest.py with which the first worker dies that comes to the case `crowded`."""


@pytest.mark.slow
def test_a_dead_workers_case_is_judged_again(accepted: Project) -> None:
    """Verdicts, numbers and exit code are those of a run without the death, which is told too."""
    accepted.run_here(REGRESSED)
    calm, shown = accepted.numbers(), accepted.report()
    before = contents(accepted.baselines)
    accepted.write("conftest.py", DYING.format("os.kill(os.getpid(), signal.SIGKILL)"))
    result = accepted.run("-n", "2", REGRESSED, "--junitxml=junit.xml")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert accepted.numbers() == calm
    assert (accepted.path / "junit.xml").read_text().count("<testcase ") == 10
    document = accepted.report()
    assert (document["verdict"], document["problems"]) == ("failed", [])
    (death,) = document["infrastructure"]
    assert document["deaths"] == 1
    assert (
        "died (killed by signal 9, as the kernel does when memory runs out) while it judged"
        in death
    )
    assert " test_toy.py::test_drift[crowded-gc]" in death
    assert death.endswith("; retried alone")
    result.stdout.fnmatch_lines(
        [f"infrastructure: {death.replace('[', '[[]')}", "*9 failed, 1 passed, 1 rerun*"]
    )
    assert "- **infrastructure:** worker gw" in (
        accepted.path / ".cepbench" / "report.md"
    ).read_text(encoding="utf-8")
    assert (shown["infrastructure"], shown["deaths"]) == ([], 0)
    assert contents(accepted.baselines) == before
    assert not (accepted.path / ".cepbench" / "runs").exists()


@pytest.mark.slow
def test_a_dead_worker_spares_the_baselines(accepted: Project) -> None:
    """An update leaves baselines and anchors, byte for byte; none is made or deleted.

    It would change most baselines, freeze new anchors and leave one old one. The report of such a
    run says that it is incomplete, so that nothing is accepted from it afterwards.
    """
    anchored = next((accepted.baselines / "toy").glob("count-gc-*"))
    (accepted.baselines / "toy" / "anchors").mkdir()
    shutil.copy(anchored, accepted.baselines / "toy" / "anchors")
    unused = accepted.baselines / "toy" / "long-gone-gc-0123456789.toml"
    unused.write_text("an unused file")
    changed = next((accepted.baselines / "toy").glob("color-gc-*"))
    changed.write_text(changed.read_text().replace("Review it", "Look at it"))
    accepted.edit("suite.toml", 'describer = "shapes:"', 'describer = "shapes:?miss=0.3"')
    before = contents(accepted.baselines)
    accepted.write("conftest.py", DYING.format("os._exit(7)"))
    result = accepted.run("-n", "2", "--snapshot-update")
    assert result.ret not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED)
    result.stdout.fnmatch_lines(
        [
            "infrastructure: worker gw* died (it exited with code 7)*",
            (
                "INCOMPLETE: a worker died, and baselines are accepted only from a run in which "
                "none did*"
            ),
            "no baseline was changed: only a complete run without *",
        ]
    )
    assert contents(accepted.baselines) == before
    document = accepted.report()
    assert document["verdict"] == "incomplete"
    assert len(document["cases"]) == 10


NODEID = "test_a.py::test[0]"
"""The only test of the run."""


@pytest.fixture
def run() -> Iterator[Run]:
    """A run whose only worker has begun its only test."""
    group = execnet.Group()
    gateways = (group.makegateway(f"popen//id=gw{number}") for number in count())
    run = Run(gateways, (CaseHint("unit", "suite"),), workers=1).begin()
    run.begins(0)
    yield run
    run.close()
    group.terminate(timeout=5)


def _log(expected: str = NODEID) -> CrashLog:
    log = CrashLog(Ledger())
    log.ledger.expect({expected: "toy/color/gc"})
    return log


def _die(log: CrashLog, node: WorkerController) -> None:
    """The process of a worker ends, which xdist tells the log."""
    channel = node.gateway.remote_exec("import os; os.kill(os.getpid(), 9)")
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


def test_what_a_death_means_for_a_test(run: Run) -> None:
    """A case that was judged before it counts: only the end of its teardown is missing.

    A test that is no case fails, as ever under xdist. Where a scheduler deals a test once, as those
    of xdist do, the case is not judged, which nothing takes for a pass.
    """
    judged, other, once = _log(), _log(expected="test_toy.py::test_other"), _log()
    (node,) = run.workers
    _die(judged, node)
    for log in (other, once):
        log.note(node, "Not properly terminated")
    result = CaseResult(NODEID, "toy", "color", "gc", "GC@2", 0.01, Judgement(Verdict.HELD))
    judged.ledger.results.append(result)
    report = _settle(judged, node, run.sched)
    assert (report.when, report.outcome, report.longrepr) == ("teardown", "passed", None)
    (line,) = judged.lines()
    assert line.startswith("worker gw0 died (killed by signal 9, as the kernel does when memory ")
    assert line.endswith(f" after it had judged {NODEID}; nothing was lost")

    assert _settle(other, node, run.sched).outcome == "failed"
    assert other.lines()[0].endswith(f"while it ran {NODEID}, which counts as failed")

    assert _settle(once, node, object()).outcome == "failed"
    assert once.ledger.failures == [f"{NODEID} was not judged: a worker died over it"]


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


def test_the_system_says_how_a_worker_ended() -> None:
    """By the exit code of its process."""
    killed = "killed by signal 9, as the kernel does when memory runs out"
    assert explain_exit(-signal.SIGKILL) == killed
    assert explain_exit(-signal.SIGSEGV) == "killed by signal 11, SIGSEGV"
    assert explain_exit(-250) == "killed by signal 250, unknown"
    assert [explain_exit(code) for code in (0, 3)] == [f"it exited with code {n}" for n in (0, 3)]
