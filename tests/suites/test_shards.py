"""Which process grows which shard, each with its own queue, and the models of a process."""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from pytest_cepbench.datasets.sample import Sample
from pytest_cepbench.datasets.shapes import load_shapes
from pytest_cepbench.errors import DeviceMemoryError, MeasurementError
from pytest_cepbench.models.binding import BoundRole, bind
from pytest_cepbench.models.protocols import RoleName
from pytest_cepbench.models.spec import parse_spec
from pytest_cepbench.store import Store
from pytest_cepbench.suites import Case, ModelPool
from pytest_cepbench.suites.model_pool import describe_role
from pytest_cepbench.suites.role_assignment import RoleAssignment
from pytest_cepbench.suites.shards import WorkQueue
from tests.suites.world import SUITE, Staged, stage

METRICS = "[metrics.gc]\n[metrics.failures]\nparts = 'overall'\n"

MODELS = SUITE.replace(
    'describer = "shapes:?miss=0.3&recolor=0.2"',
    'describer = "python:tests.suites.test_shards:teller"',
)

TEXT = str(load_shapes(samples_per_category=1).samples[0].text)

PATIENCE = 20.0


class Teller:
    """A describer that notes what it was shown, and may wait, fail or die first."""

    fingerprint = "teller/1"
    seeded = False
    batch_size = 4

    def __init__(self) -> None:
        self.seen: Counter[bytes] = Counter()
        self.before: Callable[[Sequence[Image.Image]], None] = lambda _: None

    def describe(self, images: Sequence[Image.Image], _: str, __: Sequence[int]) -> list[str]:
        """The same for every image."""
        self.before(images)
        self.seen.update(image.tobytes() for image in images)
        return [TEXT] * len(images)


TELLER = Teller()


def teller() -> Teller:
    """The one describer of this process."""
    return TELLER


@pytest.fixture(autouse=True)
def forgetful() -> None:
    """Each test has the describer to itself."""
    TELLER.__init__()  # type: ignore[misc] # it lives as long as the process


@contextmanager
def at_work(
    folder: Path, *, processes: int = 1, **options: Any
) -> Iterator[tuple[WorkQueue, Staged]]:
    """One process of a run: its store, its suite with all cases queued, its queue."""
    with Store(folder / "store") as store:
        staged = stage(folder / f"suite-{threading.get_ident()}", MODELS + METRICS, store)
        queue = WorkQueue(
            store, lambda _: staged.run, "run", folder / "word", processes=processes, **options
        )
        for case in staged.cases.values():
            queue.add(folder, case, None)
        yield queue, staged


def judged(queue: WorkQueue, staged: Staged, folder: Path, case: str) -> float:
    """The value of a case, after everything was made ready for it."""
    queue.compute(folder, staged.cases[case])
    return staged.measure(case).value


def test_two_processes_compute_nothing_twice(tmp_path: Path) -> None:
    """Each judges all cases at the same time; every image is described once."""
    values: list[dict[str, float]] = []

    def run() -> None:
        with at_work(tmp_path, processes=2) as (queue, staged):
            values.append({name: judged(queue, staged, tmp_path, name) for name in staged.cases})

    threads = [threading.Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert len(values) == 2
    assert values[0] == values[1]
    assert set(TELLER.seen.values()) == {1}


def test_a_process_that_waits_for_a_shard_takes_another(tmp_path: Path) -> None:
    """While another process has what a case needs, the rest of the run is grown here."""
    with at_work(tmp_path, processes=2) as (queue, staged):
        (first, *_), *_ = [
            list(staged.run.data.shards(staged.run.looked_at(staged.cases[name])).items())
            for name in ("a-gc", "b-gc")
        ]
        lock = queue.store.locks.acquire(staged.run.lock_name(first[0]), "run")
        assert lock is not None
        elsewhere = {s.id for s in staged.run.looked_at(staged.cases["overall-gc"])} - {
            s.id for s in first[1]
        }
        done = threading.Thread(
            target=queue.compute, args=(tmp_path, staged.cases["a-gc"]), daemon=True
        )
        done.start()
        deadline = threading.Event()
        for _ in range(200):
            if TELLER.seen.total() >= len(elsewhere) and queue.progress.waiting:
                break
            deadline.wait(0.05)
        assert done.is_alive()
        assert queue.progress.waiting
        assert TELLER.seen.total() >= len(elsewhere)
        with lock:
            pass
        done.join(PATIENCE)
        assert not done.is_alive()


def test_a_process_without_cases_computes_until_nothing_is_left(tmp_path: Path) -> None:
    """A process that judges afterwards finds everything in the store. A stopped run is not helped:
    after a first failure under -x no process goes on growing chains for hours.
    """
    with at_work(tmp_path, processes=2, stopped=lambda: True) as (queue, _):
        queue.compute_others()
    assert not TELLER.seen
    with at_work(tmp_path, processes=2) as (queue, _):
        queue.compute_others()
    described = TELLER.seen.total()
    assert described
    with at_work(tmp_path, processes=2) as (queue, staged):
        for name in staged.cases:
            judged(queue, staged, tmp_path, name)
    assert TELLER.seen.total() == described


def test_a_shard_that_kills_twice_is_left_alone(tmp_path: Path) -> None:
    """The third process says what happened, and so does every one after it."""
    for _ in range(2):
        child = os.fork()
        if child == 0:
            TELLER.before = lambda _: os._exit(7)
            with at_work(tmp_path, processes=2) as (queue, staged):
                queue.compute(tmp_path, staged.cases["overall-gc"])
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    for _ in range(2):
        with (
            at_work(tmp_path, processes=2) as (queue, staged),
            pytest.raises(MeasurementError, match="infrastructure: 2 processes of this run died"),
        ):
            queue.compute(tmp_path, staged.cases["overall-gc"])


@pytest.mark.parametrize("swap", [False, True], ids=["all", "swap"])
def test_an_error_is_left_to_the_case_that_needs_the_shard(tmp_path: Path, *, swap: bool) -> None:
    """A process that computes for other cases ends all the same, and tries such a shard once."""

    def short_of_memory(_: Sequence[Image.Image]) -> None:
        raise MemoryError

    TELLER.before = short_of_memory
    with at_work(tmp_path, processes=2, swap=swap) as (queue, staged):
        queue.compute_others()
        with pytest.raises(DeviceMemoryError, match="runs out of memory"):
            queue.compute(tmp_path, staged.cases["overall-gc"])


def test_what_is_done_is_read_once_until_it_is_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A step that failed in passing is tried again only where its shard is not taken for done."""
    reads: list[str] = []
    with at_work(tmp_path) as (queue, staged):
        read = staged.run.read

        def counted(case: Case, samples: Sequence[Sample]) -> None:
            reads.append(case.id)
            read(case, samples)

        monkeypatch.setattr(staged.run, "read", counted)
        for _ in range(2):
            queue.compute(tmp_path, staged.cases["overall-gc"])
        first = len(reads)
        queue.forget()
        queue.compute(tmp_path, staged.cases["overall-gc"])
    assert first > 0
    assert len(reads) == 2 * first


@pytest.mark.parametrize("swap", [False, True], ids=["all", "swap"])
def test_taking_turns_changes_no_number(tmp_path: Path, *, swap: bool) -> None:
    """Only the order in which models queue."""
    with at_work(tmp_path, swap=swap) as (queue, staged):
        values = {name: judged(queue, staged, tmp_path, name) for name in staged.cases}
    with at_work(tmp_path / "plain") as (_, staged):
        assert values == {name: staged.measure(name).value for name in staged.cases}


def _assign(role: RoleName, spec: str = "shapes:") -> RoleAssignment:
    return RoleAssignment(role, parse_spec(spec), "a test")


def test_a_role_is_bound_once(store: Store) -> None:
    """The same role and spec have one runner, which every agreement is asked about once. Where the
    processes of a run do not agree on a model, its error comes each time.
    """
    bound: list[BoundRole] = []
    pool = ModelPool(store, agree=bound.append)
    runner = pool.runner(_assign("describer"))
    assert pool.runner(_assign("describer")) is runner
    assert pool.runner(_assign("describer", "shapes:?miss=0.5")) is not runner
    assert [str(role.spec) for role in bound] == ["shapes:", "shapes:?miss=0.5"]

    def refuse(bound: BoundRole) -> None:
        raise RuntimeError(f"other weights of {bound.role}")

    pool = ModelPool(store, agree=refuse)
    for _ in range(2):
        with pytest.raises(RuntimeError, match="other weights of describer"):
            pool.runner(_assign("describer"))
    assert not pool.runners


def test_roles_of_one_model_share_its_handle(store: Store) -> None:
    """Until the last of them is dismissed; then the model is loaded anew."""

    def place(assignment: RoleAssignment) -> BoundRole:
        bound = bind(assignment.spec, assignment.role, pool.context)
        return replace(bound, resources=replace(bound.resources, shares="one model"))

    pool = ModelPool(store, place=place)
    describer, generator = (pool.runner(_assign(role)) for role in ("describer", "generator"))
    assert describer.handle is generator.handle
    pool.dismiss(("describer", parse_spec("shapes:")))
    assert pool.runner(_assign("describer")).handle is generator.handle
    for role in ("describer", "generator"):
        assert pool.dismiss((role, parse_spec("shapes:"))).inputs == 0
    assert pool.runner(_assign("describer")).handle is not generator.handle


def test_an_identity_names_what_decides_the_results(store: Store) -> None:
    """What it is, its adapter and weights, then its parameters by name; unset ones are left out."""
    bound = ModelPool(store).runner(_assign("describer", "shapes:?miss=0.5")).bound
    plain = f"{bound.what} {bound.adapter} {bound.short_fingerprint}"
    assert describe_role(replace(bound, params={"b": 2, "a": 1, "c": None})) == f"{plain} a=1,b=2"
    assert describe_role(replace(bound, params={"c": None})) == plain
