"""The scheduler of xdist workers: cases that need the same chains and models stay together.

xdist's own grouping (`--dist loadgroup`) does nothing on pytest 9.2, so a scheduler is supplied. A
worker begins a test only when it holds the next one or was told to shut down. So no test is ever
held back until another one is done: what is averaged over categories is merely dealt after them.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from xdist.report import report_collection_diff

from pytest_cepbench.evaluation.run_context import CASES, write_message
from pytest_cepbench.plugin.options import worker_specs

if TYPE_CHECKING:
    from pytest_cepbench.evaluation.evaluator import Evaluator

_HELD = 2
"""Tests that a worker holds: the one that runs, and the next, without which it does not begin."""


@dataclass
class WorkerQueue:
    """The tests of one worker.

    tests: indices in the order of running, the first one running or about to.
    models: those that it was given work for.
    group: the group that it was given tests of last.
    """

    tests: list[int] = field(default_factory=list)
    models: set[str] = field(default_factory=set)
    group: Group | None = None


@dataclass(eq=False)
class Group:
    """What is left of a suite, or of the plain tests.

    models: its models, as "role spec".
    units: cost and indices of each unit, the next one first.
    left: their cost together.
    """

    models: frozenset[str]
    units: deque[tuple[int, list[int]]]
    left: int


class CaseScheduling:
    """A scheduler for xdist (its `Scheduling` protocol) that knows what cases cost and need.

    hints: gives the hint for each node id, when all tests are collected.
    A worker goes on with models that it has; among those, and where it has none, it takes the group
    that most is left of per worker.
    """

    def __init__(
        self, config: pytest.Config, hints: Callable[[Sequence[str]], list[CaseHint]]
    ) -> None:
        self.collection: list[str] | None = None
        self.config = config  # named as in xdist's own, where other plugins look for it
        self._hints = hints
        self._expected = len(worker_specs(config))
        self._queues: dict[Any, WorkerQueue] = {}
        self._collected: dict[Any, list[str]] = {}
        self._groups: list[Group] = []
        self._again: list[int] = []
        self._begun: set[str] = set()

    # -- what xdist asks ---------------------------------------------------------------------------

    @property
    def nodes(self) -> list[Any]:
        """The workers."""
        return list(self._queues)

    @property
    def collection_is_completed(self) -> bool:
        """Whether as many workers as were asked for have said what they collected."""
        return len(self._collected) >= self._expected

    @property
    def tests_finished(self) -> bool:
        """Whether nothing is left to deal, and no worker holds more than the test that runs."""
        return (
            self.collection_is_completed
            and not self._waiting
            and all(len(queue.tests) < _HELD for queue in self._queues.values())
        )

    @property
    def has_pending(self) -> bool:
        """Whether any test is not done."""
        return self._waiting or any(queue.tests for queue in self._queues.values())

    @property
    def _waiting(self) -> bool:
        return bool(self._again or self._groups)

    # -- workers come and go -----------------------------------------------------------------------

    def add_node(self, node: Any) -> None:
        """A worker is there."""
        self._queues[node] = WorkerQueue()

    def add_node_collection(self, node: Any, collection: Sequence[str]) -> None:
        """What a worker collected. A later one that collected something else gets no work."""
        if self.collection is None or self._same(self.collection, collection, node):
            self._collected[node] = list(collection)
        else:
            node.shutdown()

    def remove_node(self, node: Any) -> str | None:
        """A worker is gone: what it held is dealt again.

        Returns the test that it had begun and not done, which is dealt again only on request. A
        worker can also die between tests, or when it helps others after its last one.
        """
        tests = self._queues.pop(node).tests
        crashed = None
        if tests and self.collection is not None and self.collection[tests[0]] in self._begun:
            crashed = self.collection[tests.pop(0)]
        self._again += tests
        self._deal()
        return crashed

    # -- tests -------------------------------------------------------------------------------------

    def schedule(self) -> None:
        """Deal the tests, or what is left of them to workers that came later."""
        if self.collection is None:
            first, *others = self._collected.items()
            if not all(self._same(first[1], other, node) for node, other in others):
                return  # what differs was reported as an error of collection
            self.collection = first[1]
            self._groups = list(grouped(self._hints(self.collection)))
            for node in self._queues:  # each worker has a unit before any has two
                self._give(node)
        self._deal()

    def mark_test_complete(
        self,
        node: Any,
        item_index: int,
        duration: float = 0,  # noqa: ARG002 # xdist's name
    ) -> None:
        """A worker is done with a test."""
        self._queues[node].tests.remove(item_index)
        self._deal()

    def mark_test_pending(self, item: str) -> None:
        """A test over which a worker died is to run again; other plugins may ask for it as well."""
        assert self.collection is not None
        if item not in self._begun:
            return
        self._begun.discard(item)
        self._again.insert(0, self.collection.index(item))
        self._deal()

    def remove_pending_tests_from_node(self, node: Any, indices: Sequence[int]) -> None:
        """Never called: no test is taken from a worker that lives.

        xdist calls it when a worker gives tests back, which only `send_runtest_steal` of
        `--dist worksteal` asks of one; its other schedulers raise here as well.
        """
        raise NotImplementedError

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """A worker begins with a test."""
        self._begun.add(nodeid)

    # -- dealing -----------------------------------------------------------------------------------

    def _deal(self) -> None:
        """Give every worker what it needs to go on; one that gets nothing more is to finish."""
        if self.collection is None:
            return
        for node, queue in list(self._queues.items()):
            while len(queue.tests) < _HELD and not node.shutting_down and node in self._collected:
                if not self._give(node):
                    node.shutdown()  # it begins its last test now, and then helps those that work

    def _give(self, node: Any) -> bool:
        """Give a worker its next unit; returns whether there was one."""
        queue = self._queues[node]
        if node not in self._collected or not self._waiting:
            return False
        if self._again:
            unit = [self._again.pop(0)]
        else:

            def order(group: Group) -> tuple[bool, int, float]:
                queues = self._queues.values()
                others = sum(other.group is group for other in queues if other is not queue)
                missing = len(group.models - queue.models)
                return not group.models, missing, -group.left / (1 + others)

            queue.group = min(self._groups, key=order)  # plain tests, without models, fill gaps
            queue.models |= queue.group.models
            cost, unit = queue.group.units.popleft()
            queue.group.left -= cost
            if not queue.group.units:
                self._groups.remove(queue.group)
        queue.tests += unit
        with suppress(OSError):  # it just died: xdist will say so, and what it holds is dealt again
            node.send_runtest_some(unit)
        return True

    def _same(self, ours: Sequence[str], theirs: Sequence[str], node: Any) -> bool:
        """Whether two workers collected the same; where not, it is an error of collection."""
        name = next(iter(self._collected)).gateway.id
        difference = report_collection_diff(ours, theirs, name, node.gateway.id)
        if difference is None:
            return True
        report = pytest.CollectReport(node.gateway.id, "failed", difference, [])
        self.config.hook.pytest_collectreport(report=report)
        return False


def grouped(hints: Sequence[CaseHint]) -> Iterator[Group]:
    """Tests by suite, of each suite by unit: in turn, then longest first, then as collected."""
    suites: dict[str, dict[str, list[int]]] = {}
    for index, hint in enumerate(hints):
        suites.setdefault(hint.suite, {}).setdefault(hint.unit, []).append(index)
    for units in suites.values():
        ranked = []
        for unit in units.values():
            cost = max(hints[index].cost for index in unit)
            ranked.append((hints[unit[0]].turn, -cost, unit))
        dealt = deque((-cost, unit) for _, cost, unit in sorted(ranked))
        models = frozenset(hints[dealt[0][1][0]].models)
        yield Group(models, dealt, sum(cost for cost, _ in dealt))


# -- hints -----------------------------------------------------------------------------------------

# Workers know what cases need, since they have the suites and their data; the controller schedules.
# So a worker writes hints to the folder of the run before xdist tells the controller what was
# collected. The suites are imported late: a run that gates nothing has no use for them.

CATEGORY, WHOLE, POOLED = 0, 1, 2
"""Order of cases: categories, then what is made of several, then the verdict of all."""


@dataclass(frozen=True)
class CaseHint:
    """What one case needs.

    unit: cases of one unit need the same chains, so one worker judges them, one after the other.
    suite: its suite file.
    models: its models, as "role spec".
    turn: CATEGORY, WHOLE or POOLED.
    cost: samples times generations of its chains.
    """

    unit: str
    suite: str
    models: tuple[str, ...] = ()
    turn: int = CATEGORY
    cost: int = 0


def write_hints(evaluator: Evaluator, pooled: Mapping[str, Path]) -> None:
    """Write the hints of all collected cases, unless another worker has; all would write the same.

    pooled: suite file of each suite's own verdict, by node id.
    """
    from pytest_cepbench.measures.cases import OVERALL
    from pytest_cepbench.measures.chain_similarity import MAPPINGS

    folder = evaluator.context.folder
    if (folder / CASES).exists():
        return
    hints = {}
    for nodeid, assigned in evaluator.assigned.items():
        path, case = assigned.suite_file, assigned.case
        loaded = evaluator.suites.get(path)
        samples = {s.id for name in case.categories for s in loaded.dataset.in_category(name)}
        # Mappings read the chains of the whole suite.
        shared = case.key.part in (OVERALL, *MAPPINGS)
        whole = shared or len(case.categories) > 1
        test = nodeid.removesuffix(f"[{case.id}]")
        hints[nodeid] = CaseHint(
            unit=f"{test}[{OVERALL if shared else case.key.part}",
            suite=str(path),
            models=_models(evaluator, path),
            turn=WHOLE if whole else CATEGORY,
            cost=len(samples) * loaded.suite.length,
        )
    for nodeid, path in pooled.items():
        hints[nodeid] = CaseHint(nodeid, str(path), _models(evaluator, path), POOLED)
    text = json.dumps(msgspec.to_builtins(hints))
    with suppress(OSError):  # a full disk: each case is dealt by itself
        write_message(evaluator.context.make_folder(), CASES, text)


def _models(evaluator: Evaluator, path: Path) -> tuple[str, ...]:
    assignments = evaluator.suites.get(path).assignments
    chosen = {f"{each.role} {each.spec}" for each in assignments.roles.values()}
    return tuple(sorted(chosen | {f"{assignments.under_test} {assignments.subject}"}))


def read_hints(folder: Path, nodeids: Sequence[str]) -> list[CaseHint]:
    """The hint for each test, in their order; one that no worker wrote of is dealt by itself."""
    known: dict[str, CaseHint] = {}
    with suppress(OSError, ValueError):
        written = json.loads((folder / CASES).read_text(encoding="utf-8"))
        known = msgspec.convert(written, dict[str, CaseHint])
    return [known.get(nodeid) or CaseHint(nodeid, "") for nodeid in nodeids]
