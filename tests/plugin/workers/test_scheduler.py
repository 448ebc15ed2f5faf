"""Which worker judges what: cases that need the same chains stay together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import execnet
import pytest
from xdist.workermanage import NodeManager, WorkerController

from pytest_cepbench.evaluation.evaluator import Evaluator
from pytest_cepbench.evaluation.run_context import RunContext
from pytest_cepbench.evaluation.settings import read_settings
from pytest_cepbench.plugin.workers.scheduler import (
    CATEGORY,
    POOLED,
    WHOLE,
    CaseHint,
    CaseScheduling,
    grouped,
    read_hints,
    write_hints,
)
from pytest_cepbench.suites.gate_config import Overrides
from tests.plugin.project import SHAPES, Project
from tests.plugin.scored_project import scored_suite
from tests.suites.world import LOSSY, SUITE

SLOW = """\
import time
from PIL import Image
from pytest_cepbench.artifacts import ImageArtifact
from pytest_cepbench.datasets.shapes import caption, parse_image

class Slow:
    fingerprint, seeded = "slow/1", False

    def describe(self, images, prompt, seeds):
        time.sleep(0.004 * len(images))
        return [caption(parse_image(ImageArtifact.from_pil(image))) for image in images]
"""

STOPPING = """\
import time, pytest

@pytest.fixture(autouse=True)
def ending(request):
    if "color" in request.node.name:
        pytest.skip("nothing to do")
    time.sleep(1.5)
    pytest.fail("too late")
"""

CHOSEN = """\
import os
from pathlib import Path
from xdist.scheduler import LoadFileScheduling

def pytest_xdist_setupnodes(specs):
    for spec in specs:
        spec.env["OMP_NUM_THREADS"] = "77"

def pytest_xdist_make_scheduler(config, log):
    return LoadFileScheduling(config, log)

def pytest_runtest_setup():
    worker = os.environ["PYTEST_XDIST_WORKER"]
    Path(worker).write_text(os.environ["OMP_NUM_THREADS"])
"""


def test_a_scheduler_of_the_conftest_stands_and_so_do_leases(
    accepted: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One file is for one worker, as it deals; what is leased to a worker nothing overrides."""
    accepted.write("conftest.py", CHOSEN)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)

    result = accepted.run("-n", "2", "-k", "crowded or color", "--model=shapes:")

    assert result.ret == pytest.ExitCode.OK
    (worker,) = accepted.path.glob("gw*")
    assert worker.read_text() != "77"


@pytest.mark.slow
def test_a_worker_without_tests_helps(project: Project) -> None:
    """One case on two workers: its chains are shared, nothing is computed twice, all is counted."""
    project.write("slow.py", SLOW)
    text = SHAPES.replace("samples_per_category = 2", "samples_per_category = 16")
    project.suite(text.replace("iterations = 2", "iterations = 1"))
    args = ("-k", "overall-gc", "--model=python:slow:Slow")
    project.run("-p", "no:xdist", "--cep-store=alone", *args)
    alone = project.report()["effort"]

    result = project.run("-n", "2", *args)

    (case,) = project.report()["cases"]
    effort = project.report()["effort"]
    assert effort["inputs"] == alone["inputs"]
    assert 0 < case["effort"]["inputs"] < effort["inputs"]
    assert effort["roles"] == {"describer": 2, "generator": 2, "encoder": 2}
    result.stdout.fnmatch_lines(["* model loads (*) by 2 workers, *"])


@pytest.mark.slow
def test_helpers_hear_of_the_end(accepted: Project) -> None:
    """With `-x` the first failure ends what is done for others, in the middle of a model call."""
    accepted.write("slow.py", SLOW.replace("0.004 * len(images)", "60"))
    accepted.write("conftest.py", STOPPING)
    args = ("-k", "color-gc or count-gc", "--model=python:slow:Slow")

    result = accepted.run("-n", "2", "-x", *args)

    assert result.ret == pytest.ExitCode.INTERRUPTED
    assert result.duration < 30
    assert "INTERNALERROR" not in result.stdout.str()
    assert not (accepted.path / ".cepbench" / "runs").exists()


def test_long_work_is_dealt_first() -> None:
    """Of a suite: categories by cost, what is made of them, then the verdict; plain tests apart."""
    hints = [
        CaseHint("whole", "a", ("describer x",), WHOLE, 90),
        CaseHint("short", "a", ("describer x",), CATEGORY, 10),
        CaseHint("long", "a", ("describer x",), CATEGORY, 30),
        CaseHint("test_plain.py::test_one", ""),
        CaseHint("verdict", "a", ("describer x",), POOLED),
        CaseHint("long", "a", ("describer x",), CATEGORY, 20),
    ]
    suite, plain = grouped(hints)
    assert list(suite.units) == [(30, [2, 5]), (10, [1]), (90, [0]), (0, [4])]
    assert (set(suite.models), suite.left) == ({"describer x"}, 130)
    assert (list(plain.units), plain.models) == ([(0, [3])], frozenset())


A, B = ("describer a",), ("describer b",)

NOTING = """\
received = []
for name, arguments in channel:
    if name == "report":
        channel.send(received)
    else:
        received += arguments.get("indices", [])
"""
"""What a worker's process does in the place of pytest."""


class Run:
    """A scheduler with workers that have all collected the same tests.

    gateways: the processes of the workers, asked for one by one.
    workers: how many there are from the beginning.
    """

    def __init__(
        self, gateways: Iterable[execnet.Gateway], hints: tuple[CaseHint, ...], workers: int
    ) -> None:
        self.reports: list[pytest.CollectReport] = []
        options = ("--noconftest", "-p", "no:cepbench", f"--tx={workers}*popen")
        self.config = pytest.Config.fromdictargs({}, list(options))
        self.config.pluginmanager.register(self)
        self.tests = [f"test_a.py::test[{number}]" for number in range(len(hints))]
        self.sched = CaseScheduling(self.config, lambda _: list(hints))
        self._manager = NodeManager(self.config, [])
        self._gateways = iter(gateways)
        self.workers: list[WorkerController] = []
        self.nodes = [self.add_node() for _ in range(workers)]

    def add_node(self) -> WorkerController:
        """Another worker."""
        node = WorkerController(self._manager, next(self._gateways), self.config, lambda _: None)
        node.channel = node.gateway.remote_exec(NOTING)
        self.workers.append(node)
        self.sched.add_node(node)
        return node

    def close(self) -> None:
        """End what the workers' processes do."""
        for node in self.workers:
            node.channel.close()

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """The hook, as the scheduler calls it."""
        self.reports.append(report)

    def begin(self) -> Run:
        """All workers say what they collected."""
        for node in self.nodes:
            self.sched.add_node_collection(node, self.tests)
        assert self.sched.collection_is_completed
        self.sched.schedule()
        return self

    def begins(self, index: int) -> None:
        """A worker begins a test."""
        self.sched.pytest_runtest_logstart(self.tests[index])

    def done(self, worker: int, index: int) -> None:
        """A worker is done with a test."""
        self.begins(index)
        self.sched.mark_test_complete(self.nodes[worker], index)

    @property
    def sent(self) -> list[list[int]]:
        """Indices that each worker received, those that came later last."""
        return [received(node) for node in self.workers]


def received(node: WorkerController) -> list[int]:
    """Indices of the tests that a worker received."""
    node.sendcommand("report")
    indices: list[int] = node.channel.receive(timeout=20)
    return indices


@pytest.fixture(scope="module")
def gateways() -> Iterator[list[execnet.Gateway]]:
    """The processes of three workers."""
    group = execnet.Group()
    yield [group.makegateway(f"popen//id=gw{number}") for number in range(3)]
    group.terminate(timeout=5)


Deal = Callable[..., Run]


@pytest.fixture
def deal(gateways: list[execnet.Gateway]) -> Iterator[Deal]:
    """Makes the run of tests with these hints."""
    runs: list[Run] = []

    def make(*hints: CaseHint, workers: int = 2) -> Run:
        runs.append(Run(gateways, hints, workers))
        return runs[-1]

    yield make
    for run in runs:
        run.close()


def _unit(name: str, cost: int = 1, models: tuple[str, ...] = A) -> CaseHint:
    return CaseHint(name, models[0] if models else "", models, cost=cost)


def test_each_worker_has_a_unit_before_any_has_two(deal: Deal) -> None:
    """Units stay whole, the longest first; one more test waits behind the one that runs.

    A worker goes on with its models.
    """
    run = deal(_unit("x"), _unit("x"), _unit("y", 9), _unit("z", 5), _unit("w", 3)).begin()

    assert run.sent == [[2, 4], [3, 0, 1]]
    assert not any(node.shutting_down for node in run.nodes)
    run.done(0, 2)
    assert run.nodes[0].shutting_down  # nothing is left: its last test runs, then it helps

    # Two suites for two workers: each keeps to one, and takes the other's only when alone.
    hints = [_unit(f"a{n}", 1, A) for n in range(3)] + [_unit(f"b{n}", 1, B) for n in range(3)]
    run = deal(*hints).begin()

    assert run.sent == [[0, 1], [3, 4]]
    run.done(0, 0)
    assert run.sent[0] == [0, 1, 2]
    run.done(0, 1)
    assert run.sent[0] == [0, 1, 2, 5]


def test_a_dead_workers_tests_are_dealt_again(deal: Deal) -> None:
    """Those that it had not begun at once; the one that it had begun only on request, and first."""
    run = deal(_unit("x"), _unit("y"), _unit("z"), _unit("w"), _unit("v")).begin()
    assert run.sent == [[0, 2], [1, 3]]
    run.begins(0)

    assert run.sched.remove_node(run.nodes[0]) == run.tests[0]
    late = run.add_node()
    run.sched.add_node_collection(late, run.tests)
    run.sched.mark_test_pending(run.tests[0])
    run.sched.schedule()

    assert received(late) == [0, 2]
    run.sched.mark_test_pending(run.tests[0])  # it waits already
    run.done(1, 1)
    assert run.sent[1] == [1, 3, 4]


def test_nothing_is_dealt_before_all_have_collected(deal: Deal) -> None:
    """None is pending or done then. Where a worker dies meanwhile, the others wait for the one that
    takes its place.
    """
    run = deal(_unit("x"), _unit("y"))
    run.sched.add_node_collection(run.nodes[0], run.tests)

    assert not run.sched.collection_is_completed
    assert not run.sched.tests_finished
    assert not run.sched.has_pending
    assert run.sched.nodes == run.nodes
    assert run.sent == [[], []]
    assert run.sched.remove_node(run.nodes[1]) is None
    assert not run.nodes[0].shutting_down
    late = run.add_node()
    run.sched.add_node_collection(late, run.tests)
    run.sched.schedule()

    assert run.sent == [[0], [], [1]]


def test_workers_that_collected_other_tests_are_an_error(deal: Deal) -> None:
    """Nothing is dealt, and both workers are named; one that comes later is told to finish."""
    run = deal(_unit("x"), _unit("y"))
    first, second = run.nodes
    run.sched.add_node_collection(first, run.tests)
    run.sched.add_node_collection(second, run.tests[:1])
    run.sched.schedule()

    (report,) = run.reports
    assert report.outcome == "failed"
    assert "gw0" in str(report.longrepr)
    assert "gw1" in str(report.longrepr)
    assert run.sent == [[], []]

    run = deal(_unit("x"), _unit("y")).begin()
    late = run.add_node()
    run.sched.add_node_collection(late, ["test_a.py::other"])
    run.sched.remove_node(run.nodes[0])

    assert late.shutting_down
    assert received(late) == []
    assert len(run.reports) == 1


def test_hints_come_from_the_worker_that_has_the_suites(tmp_path: Path) -> None:
    """Models, order, and the cost: samples, each once, times the length of their chains.

    Where no worker could write them, as on a full disk, or the file is damaged, a case is dealt by
    itself.
    """
    nodeid = "test_a.py::test[overall-gc]"
    assert read_hints(tmp_path, [nodeid]) == [CaseHint(nodeid, "")]
    (tmp_path / "cases.json").write_text("{")
    assert read_hints(tmp_path, [nodeid]) == [CaseHint(nodeid, "")]

    evaluator = Evaluator(RunContext(read_settings({}, {}, tmp_path)))
    groups = '[groups]\nboth = ["a", "b"]\n'
    several, single = tmp_path / "several.toml", tmp_path / "single.toml"
    several.write_text(f"{SUITE}{groups}[metrics.gc]\n")
    single.write_text(scored_suite(n=3).replace("python:scored:", "python:tests.plugin.scored:"))
    evaluator.assign(
        {
            f"test_{path.stem}.py::test[{case.id}]": (path, case, Overrides())
            for path in (several, single)
            for case in evaluator.suites.get(path).cases
        }
    )
    verdict = "test_several.py::test[suite-verdict]"
    write_hints(evaluator, {verdict: several})

    nodeids = [*evaluator.assigned, verdict, "test_plain.py::test_plain"]
    hints = dict(zip(nodeids, read_hints(evaluator.context.folder, nodeids), strict=True))
    assert hints.pop("test_plain.py::test_plain") == CaseHint("test_plain.py::test_plain", "")
    alone = hints.pop("test_single.py::test[overall-gc]")
    assert (alone.suite, alone.turn, alone.cost) == (str(single), WHOLE, 6)
    models = (f"describer {LOSSY}", "encoder shapes:", "generator shapes:")
    assert {(hint.suite, hint.models) for hint in hints.values()} == {(str(several), models)}
    assert [hint.unit for hint in hints.values()] == [
        *(f"test_several.py::test[{part}" for part in ("a", "b", "both", "overall")),
        verdict,
    ]
    assert {nodeid.partition("[")[2]: (hint.turn, hint.cost) for nodeid, hint in hints.items()} == {
        "a-gc]": (CATEGORY, 40),
        "b-gc]": (CATEGORY, 32),
        "both-gc]": (WHOLE, 48),
        "overall-gc]": (WHOLE, 48),
        "suite-verdict]": (POOLED, 0),
    }
