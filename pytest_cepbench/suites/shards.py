"""The shards that a run's cases need, divided among the processes that work on the same store.

A process locks a shard before it grows its chains and reads them, so that no result is computed
twice. While another process has a shard, this one works on shards of other cases of the run, which
then find them in the store. The lock of a process that ended is free; a living one is waited for.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from functools import cached_property
from math import ceil
from pathlib import Path

from pytest_cepbench.artifacts import digest_json
from pytest_cepbench.chains.batching import MOST_CRASHES
from pytest_cepbench.chains.steps import Progress
from pytest_cepbench.datasets.sample import Sample
from pytest_cepbench.errors import CepError, MeasurementError
from pytest_cepbench.measures.cases import Case
from pytest_cepbench.store import Store
from pytest_cepbench.suites.suite_run import SuiteRun

_WAIT = 0.05  # seconds between looks at a shard that another process has locked

_OTHER_CASES = "cases of other workers"


@dataclass(frozen=True)
class ShardTask:
    """A shard, read for one case.

    name: of the lock, which all cases of its chains share.
    """

    run: SuiteRun
    case: Case
    samples: tuple[Sample, ...]
    name: str

    @cached_property
    def id(self) -> str:
        """Names the work: cases that read the same of the same samples share it, done once."""
        samples = [sample.id for sample in self.samples]
        return f"{self.name}-{digest_json([self.run.reads(self.case), samples])[:16]}"

    @property
    def steps(self) -> int:
        """How many results it comes to."""
        return len(self.samples) * self.run.steps(self.case)


@dataclass
class WorkQueue:
    """The shards of one run, as one process sees them.

    run_of: gives the measuring of a suite.
    run_id: shared by the processes of the run.
    folder: where they note for one another what is done.
    processes: how many they are.
    stopped: whether to compute no more for other cases.
    swap: whether models take turns there, so that each should do all it can before the next.
    cases: of the run: the suite's file, the case, and the samples of each category that it looks
    at first.
    """

    store: Store
    run_of: Callable[[Path], SuiteRun]
    run_id: str
    folder: Path
    processes: int = 1
    stopped: Callable[[], bool] = lambda: False
    swap: bool = False
    progress: Progress = field(default_factory=Progress)
    cases: list[tuple[Path, Case, int | None]] = field(default_factory=list)
    _tasks: list[ShardTask] | None = field(default=None)
    _done: set[str] = field(default_factory=set)
    _given_up: set[str] = field(default_factory=set)

    def add(self, path: Path, case: Case, most: int | None) -> None:
        """A case that the run judges. most: samples of each category that it looks at first."""
        self.cases.append((path, case, most))
        self._tasks = None

    def forget(self) -> None:
        """Forget which shards were done: what failed there in passing is to be tried again."""
        self._tasks = None
        self._done.clear()
        self._given_up.clear()

    def compute(self, path: Path, case: Case, most: int | None = None) -> None:
        """Have all made that a case needs and the store does not hold, by this process or another.

        most: samples of each category; all where None. Raises what growing and reading chains
        raise, and MeasurementError for a shard that kills the processes which work on it.
        """
        own = _tasks_of(self.run_of(path), case, most)
        samples = sum(len(task.samples) for task in own)
        title = f"{case.key.suite} {case.key.part} {case.label}"
        self.progress.begin(title, samples, sum(task.steps for task in own))
        try:
            self._work(own)
        finally:
            self.progress.end()

    def compute_others(self) -> None:
        """Compute shards that no process has locked, until none is left or the run is stopped.

        An error is left to the case that needs the shard: it will meet the same.
        """
        self.progress.begin(_OTHER_CASES, 0, 0)
        try:
            if not self.stopped():
                self._work(None)
        finally:
            self.progress.end()

    def _work(self, own: Sequence[ShardTask] | None) -> None:
        """Do what the running case needs, and other tasks of the run while others have those.

        own: tasks of that case; None: do others until none is free, or the run is stopped.
        """
        if self.swap:
            self._grow_share(own or ())
        waiting, since = list(own or ()), time.monotonic()
        while waiting or own is None:
            left = []
            for task in waiting:
                done = self._is_done(task)
                if done:
                    self.progress.add(task.steps)
                if done or self._take(task):
                    self.progress.samples += len(task.samples)
                else:
                    left.append(task)
            settled, waiting = len(left) < len(waiting), left
            if settled or (not self.stopped() and self._compute_one()):
                since = time.monotonic()
                continue
            if own is None:
                return
            waited = time.monotonic() - since
            self.progress.waiting = True
            self.progress.holder = self.store.locks.say_who(waited, waiting[0].name)
            time.sleep(_WAIT)
            self.progress.waiting, self.progress.holder = False, ""

    def _take(self, task: ShardTask) -> bool:
        """Do a task, unless another process has it."""
        lock = self.store.locks.acquire(task.name, self.run_id)
        if lock is None:
            return False
        with lock:
            if lock.crashes >= MOST_CRASHES:
                lock.keep = True
                raise MeasurementError(
                    f"infrastructure: {lock.crashes} processes of this run died while they worked "
                    f"on {len(task.samples)} samples from {task.samples[0].id!r} on: give them "
                    "more memory, or smaller batches (batch_size=)"
                )
            task.run.read(task.case, task.samples)
        self._note_done(task)
        return True

    def _compute_one(self) -> bool:
        """Do one task of another case that no process has locked; False where there is none."""
        for task in self._others():
            if task.id in self._given_up or self._is_done(task):
                continue
            try:
                if self._take(task):
                    self.progress.of_steps += task.steps  # which were counted as they were made
                    return True
            except CepError:  # the case that needs it meets the same, and says so
                self._given_up.add(task.id)
        return False

    def _others(self) -> list[ShardTask]:
        """All tasks of the run: those whose models are loaded first, the longest first among them.

        From the end: the process that judges a case begins at its beginning.
        """
        if self._tasks is None:
            by_id: dict[str, ShardTask] = {}
            for path, case, most in self.cases:
                with suppress(CepError):  # left to the case, as in `compute_others`
                    run = self.run_of(path)
                    by_id.update((task.id, task) for task in _tasks_of(run, case, most))
            backwards = list(by_id.values())[::-1]
            self._tasks = sorted(backwards, key=lambda task: -task.steps)
        return sorted(self._tasks, key=lambda task: not task.run.loaded)

    def _grow_share(self, own: Sequence[ShardTask]) -> None:
        """Grow and read a fair share of all shards in step, so each model works once a generation.

        own: of the case that runs, which come first.
        """
        tasks = {task.id: task for task in (*own, *self._others()) if not self._is_done(task)}
        names = list(dict.fromkeys(task.name for task in tasks.values()))
        with ExitStack() as stack:
            locked = set()
            for name in names[: ceil(len(names) / self.processes)]:
                lock = self.store.locks.acquire(name, self.run_id)
                if lock is not None:
                    stack.enter_context(lock)
                    lock.keep = lock.crashes > 0  # left to `_take`, which does no other with it
                    if not lock.crashes:
                        locked.add(name)
            mine = [task for task in tasks.values() if task.name in locked]
            try:
                for run in dict.fromkeys(task.run for task in mine):
                    run.grow([(task.case, task.samples) for task in mine if task.run is run])
                for task in sorted(mine, key=lambda task: task.case.key.metric):
                    task.run.read(task.case, task.samples)
                    self._note_done(task)
            except CepError:
                return  # met again, shard by shard, by the case that needs it

    def _is_done(self, task: ShardTask) -> bool:
        """True where a process of this run did it."""
        if task.id in self._done:
            return True
        if self.processes < 2 or not (self.folder / "done" / task.id).exists():
            return False
        self._done.add(task.id)
        return True

    def _note_done(self, task: ShardTask) -> None:
        self._done.add(task.id)
        if self.processes > 1:
            with suppress(OSError):  # a full disk: others find what was computed in the store
                (self.folder / "done").mkdir(parents=True, exist_ok=True)
                (self.folder / "done" / task.id).touch()


def _tasks_of(run: SuiteRun, case: Case, most: int | None) -> list[ShardTask]:
    """The shards that a case reads, in order."""
    shards = run.data.shards(run.looked_at(case, most))
    return [ShardTask(run, case, tuple(own), run.lock_name(at)) for at, own in shards.items()]
