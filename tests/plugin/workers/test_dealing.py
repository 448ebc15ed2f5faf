"""Which worker the scheduler deals which tests, with workers that only note what they are sent."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytest_cepbench.evaluation.run_context import RunContext
from pytest_cepbench.evaluation.settings import read_settings
from pytest_cepbench.plugin.workers.scheduler import (
    CATEGORY,
    POOLED,
    WHOLE,
    CaseHint,
    CaseScheduling,
    guess_hint,
    read_hints,
    write_hints,
)

A, B = ("describer a",), ("describer b",)


class Node:
    """A worker. sent: indices that it was sent. done: whether it was told to finish."""

    def __init__(self, name: str) -> None:
        self.gateway = SimpleNamespace(id=name)
        self.sent: list[int] = []
        self.shutting_down = False

    def send_runtest_some(self, indices: list[int]) -> None:
        """Note them."""
        self.sent += indices

    def shutdown(self) -> None:
        """Note it."""
        self.shutting_down = True


class Run:
    """A scheduler with workers that have all collected the same tests."""

    def __init__(self, *hints: CaseHint, workers: int = 2) -> None:
        self.reports: list[pytest.CollectReport] = []
        config: Any = SimpleNamespace(getvalue=lambda _: [f"{workers}*popen"], hook=self)
        self.tests = [f"test_a.py::test[{number}]" for number in range(len(hints))]
        self.sched = CaseScheduling(config, lambda _: list(hints))
        self.nodes = [Node(f"gw{number}") for number in range(workers)]
        for node in self.nodes:
            self.sched.add_node(node)

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
        """Indices that each worker was sent."""
        return [node.sent for node in self.nodes]


def _unit(name: str, cost: int = 1, models: tuple[str, ...] = A) -> CaseHint:
    return CaseHint(name, models[0] if models else "", models, cost=cost)


def test_each_worker_has_a_unit_before_any_has_two() -> None:
    """Units stay whole, the longest first; one more test waits behind the one that runs."""
    run = Run(_unit("x"), _unit("x"), _unit("y", 9), _unit("z", 5), _unit("w", 3)).begin()

    assert run.sent == [[2, 4], [3, 0, 1]]
    assert not any(node.shutting_down for node in run.nodes)
    run.done(0, 2)
    assert run.nodes[0].shutting_down  # nothing is left: its last test runs, then it helps


def test_a_worker_goes_on_with_its_models() -> None:
    """Two suites for two workers: each keeps to one, and takes the other's only when it is alone."""
    hints = [_unit(f"a{n}", 1, A) for n in range(3)] + [_unit(f"b{n}", 1, B) for n in range(3)]
    run = Run(*hints).begin()

    assert run.sent == [[0, 1], [3, 4]]
    run.done(0, 0)
    assert run.sent[0] == [0, 1, 2]
    run.done(0, 1)
    assert run.sent[0] == [0, 1, 2, 5]


def test_plain_tests_come_last() -> None:
    """They need no model, and fill what gaps there are."""
    run = Run(_unit("plain", 100, ()), _unit("x", 1), _unit("y", 1), workers=1).begin()

    assert run.sent == [[1, 2]]
    run.done(0, 1)
    assert run.sent == [[1, 2, 0]]


def test_nothing_is_dealt_before_all_have_collected() -> None:
    """A worker of whom xdist knows nothing yet gets no test, and none is pending or done."""
    run = Run(_unit("x"), _unit("y"))
    run.sched.add_node_collection(run.nodes[0], run.tests)

    assert not run.sched.collection_is_completed
    assert not run.sched.tests_finished
    assert not run.sched.has_pending
    assert run.sched.nodes == run.nodes
    assert run.sent == [[], []]


def test_the_run_is_over_when_every_test_is_done() -> None:
    """Finished while the last ones run, and nothing pending after them."""
    run = Run(_unit("x"), _unit("y"), _unit("z")).begin()

    # Not finished while a worker holds a test that does not run yet.
    states = [(run.sched.has_pending, run.sched.tests_finished)]
    for worker, index in ((0, 0), (1, 1), (0, 2)):
        run.done(worker, index)
        states.append((run.sched.has_pending, run.sched.tests_finished))

    assert states == [(True, False), (True, True), (True, True), (False, True)]


def test_a_dead_workers_tests_are_dealt_again() -> None:
    """Those that it had not begun at once; the one that it had begun only on request, and first."""
    run = Run(_unit("x"), _unit("y"), _unit("z"), _unit("w"), _unit("v")).begin()
    assert run.sent == [[0, 2], [1, 3]]
    run.begins(0)

    assert run.sched.remove_node(run.nodes[0]) == run.tests[0]
    late = Node("gw2")
    run.sched.add_node(late)
    run.sched.add_node_collection(late, run.tests)
    run.sched.mark_test_pending(run.tests[0])
    run.sched.schedule()

    assert late.sent == [0, 2]
    run.sched.mark_test_pending(run.tests[0])  # it waits already
    run.done(1, 1)
    assert run.sent[1] == [1, 3, 4]


def test_a_worker_that_dies_between_tests_had_begun_none() -> None:
    """No test is to blame, and all that it held is dealt again."""
    run = Run(_unit("x"), _unit("y"), _unit("z"), _unit("w")).begin()
    assert run.sent == [[0, 2], [1, 3]]

    assert run.sched.remove_node(run.nodes[1]) is None
    run.done(0, 0)
    assert run.sent[0] == [0, 2, 1]
    assert run.sched.remove_node(run.nodes[0]) is None
    assert run.sched.has_pending


def test_workers_that_collected_other_tests_are_an_error() -> None:
    """Nothing is dealt, and both workers are named."""
    run = Run(_unit("x"), _unit("y"))
    first, second = run.nodes
    run.sched.add_node_collection(first, run.tests)
    run.sched.add_node_collection(second, run.tests[:1])
    run.sched.schedule()

    (report,) = run.reports
    assert report.outcome == "failed"
    assert "gw0" in str(report.longrepr)
    assert "gw1" in str(report.longrepr)
    assert run.sent == [[], []]


def test_a_worker_that_comes_later_with_other_tests_gets_none() -> None:
    """It is told to finish."""
    run = Run(_unit("x"), _unit("y")).begin()
    late = Node("gw2")
    run.sched.add_node(late)
    run.sched.add_node_collection(late, ["test_a.py::other"])
    run.sched.remove_node(run.nodes[0])

    assert late.shutting_down
    assert late.sent == []
    assert len(run.reports) == 1


def test_hints_come_from_the_worker_that_has_the_suites(tmp_path: Path) -> None:
    """Models, order, and the cost: samples, each once, times the length of their chains."""
    samples = {"a": ["1", "2"], "b": ["2", "3"]}
    roles = {"describer": SimpleNamespace(role="describer", spec="x")}
    suite = SimpleNamespace(
        dataset=SimpleNamespace(
            in_category=lambda name: [SimpleNamespace(id=each) for each in samples[name]]
        ),
        suite=SimpleNamespace(table=SimpleNamespace(chain=SimpleNamespace(length=4))),
        assignments=SimpleNamespace(roles=roles, under_test="describer", subject="x"),
    )
    cases = {"a-gc": ("a",), "ab-gc": ("a", "b"), "overall-gc": ("a",)}
    path = Path("suite.toml")
    evaluator: Any = SimpleNamespace(
        context=RunContext(read_settings({}, {}, tmp_path)),
        suites=SimpleNamespace(get=lambda _: suite),
        assigned={
            f"test_a.py::test[{name}]": SimpleNamespace(
                suite_file=path, case=SimpleNamespace(categories=categories)
            )
            for name, categories in cases.items()
        },
    )
    verdict = "test_a.py::test[suite-verdict]"
    write_hints(evaluator, {verdict: path})

    nodeids = [*evaluator.assigned, verdict, "test_plain.py::test_plain"]
    *hints, plain = read_hints(evaluator.context.folder, nodeids)
    assert {(hint.suite, hint.models) for hint in hints} == {("suite.toml", ("describer x",))}
    assert [(hint.turn, hint.cost) for hint in hints] == [
        (CATEGORY, 8),
        (WHOLE, 12),
        (WHOLE, 8),
        (POOLED, 0),
    ]
    assert plain == guess_hint("test_plain.py::test_plain")


def test_hints_are_guessed_where_no_worker_could_write_them(tmp_path: Path) -> None:
    """As on a full disk, or where the file is damaged."""
    nodeid = "test_a.py::test[overall-gc]"
    assert read_hints(tmp_path, [nodeid]) == [guess_hint(nodeid)]
    (tmp_path / "cases.json").write_text("{")
    assert read_hints(tmp_path, [nodeid]) == [guess_hint(nodeid)]
