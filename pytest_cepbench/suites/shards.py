"""The shards that a run's cases need, divided among the processes that work on the same store.

A process locks a shard before it grows its chains and reads them, so that no result is computed
twice. While another process has a shard, this one works on shards of other cases of the run, which
then find them in the store.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from functools import cached_property
from math import ceil
from pathlib import Path

from pytest_cepbench.artifacts import digest_json
from pytest_cepbench.chains.batching import MOST_CRASHES
from pytest_cepbench.chains.progress import Progress
from pytest_cepbench.datasets.sample import Sample
from pytest_cepbench.errors import CepError, DeviceMemoryError, MeasurementError
from pytest_cepbench.store import Store
from pytest_cepbench.store.locks import PATIENCE, WorkLock
from pytest_cepbench.suites.cases import Case
from pytest_cepbench.suites.suite_run import SuiteRun

_WAIT = 0.05  # seconds between looks at a shard that another process has locked

_HELPING = "cases of other workers"


@dataclass(frozen=True)
class Task:
    """A shard, read for one case. name: of the lock, which all cases of its chains share."""

    run: SuiteRun
    case: Case
    samples: tuple[Sample, ...]
    name: str

    @cached_property
    def id(self) -> str:
        """What is done when it is done: cases that read the same of the same samples are one."""
        samples = [sample.id for sample in self.samples]
        return f"{self.name}-{digest_json([self.run.reach(self.case), samples])[:16]}"

    @property
    def steps(self) -> int:
        """How many results it comes to."""
        return len(self.samples) * self.run.steps(self.case)


@dataclass
class Work:
    """The shards of one run, as one process sees them.

    run_of: gives the measuring of a suite. run_id: shared by the processes of the run. folder: where
    they leave word for one another. processes: how many they are. stopped: whether to help no more.
    let_go: takes all models off their devices. swap: whether models take turns there, so that each
    should do all it can before the next. packs: whether small categories are grown together, for which
    all processes have to know the same cases from the beginning. remarks: what had to be done about memory, for people.
    """

    store: Store
    run_of: Callable[[Path], SuiteRun]
    run_id: str
    folder: Path
    processes: int = 1
    stopped: Callable[[], bool] = lambda: False
    let_go: Callable[[], None] = lambda: None
    swap: bool = False
    packs: bool = False
    progress: Progress = field(default_factory=Progress)
    remarks: list[str] = field(default_factory=list)
    _enlisted: list[tuple[Path, Case, int | None]] = field(default_factory=list)
    _all: list[Task] | None = field(default=None)
    _packed: bool = field(default=False)
    _done: set[str] = field(default_factory=set)
    _given_up: set[str] = field(default_factory=set)
    _waited: dict[str, float] = field(default_factory=dict)

    def enlist(self, path: Path, case: Case, most: int | None) -> None:
        """A case that the run judges. most: samples of each category that it looks at first."""
        self._enlisted.append((path, case, most))
        self._all = None

    def forget(self) -> None:
        """Forget which shards were done: what failed there in passing is to be tried again."""
        self._all = None
        self._done.clear()
        self._given_up.clear()

    @property
    def enlisted(self) -> bool:
        """Whether the cases of the run are known."""
        return bool(self._enlisted)

    @property
    def needed(self) -> Sequence[tuple[Path, Case, int | None]]:
        """What was enlisted."""
        return tuple(self._enlisted)

    def ready(self, path: Path, case: Case, most: int | None = None) -> None:
        """Have all made that a case needs and the store does not hold, by this process or another.

        most: samples of each category; all where None. Raises what growing and reading chains raise,
        and MeasurementError for a shard that kills the processes which work on it.
        """
        self._pack()
        tasks = list(_tasks(self.run_of(path), case, most))
        samples = sum(len(task.samples) for task in tasks)
        self.progress.begin(_title(case), samples, sum(task.steps for task in tasks))
        try:
            if self.swap:
                self._grow_share(tasks)
            self._finish(tasks)
        finally:
            self.progress.end()

    def _pack(self) -> None:
        """Have each suite know all samples that the run needs of it, before the first is grown."""
        if self._packed or not self.packs:
            return
        self._packed = True
        wanted: dict[SuiteRun, dict[str, Sample]] = {}
        for path, case, most in self._enlisted:
            with suppress(CepError):  # as in `help`
                run = self.run_of(path)
                samples = run.looked_at(case, most)
                wanted.setdefault(run, {}).update((sample.id, sample) for sample in samples)
        for run, needed in wanted.items():
            run.chain_data.pack(needed.values())

    def told(self) -> list[str]:
        """What had to be done about memory since this was asked last."""
        told, self.remarks[:] = list(self.remarks), []
        return told

    def help(self) -> None:
        """Take on what nobody has, until nothing is left or the run is stopped.

        What goes wrong is left to the case that needs it: it will meet the same.
        """
        self.progress.begin(_HELPING, 0, 0)
        try:
            if self.swap and not self.stopped():
                self._grow_share(())
            while not self.stopped() and self._help_once():
                pass
        finally:
            self.progress.end()

    def _finish(self, tasks: Sequence[Task]) -> None:
        waiting = [task for task in tasks if not self._settled(task)]
        while waiting:
            left = [task for task in waiting if not self._settled(task)]
            if len(left) == len(waiting) and (self.stopped() or not self._help_once()):
                self.progress.waiting = True
                left = [task for task in left if not self._taken_over(task)]
                time.sleep(_WAIT)
            waiting = left
            self.progress.waiting = False

    def _settled(self, task: Task) -> bool:
        """Whether a task of the running case is done, here and now or before."""
        if self._is_done(task):
            self.progress.add(task.steps)
        elif not self._take(task):
            return False
        self.progress.samples += len(task.samples)
        return True

    def _take(self, task: Task) -> bool:
        """Do a task, unless another process has it."""
        lock = self.store.locks.acquire(task.name, self.run_id)
        if lock is None:
            return False
        with lock:
            self._check_crashes(lock, task)
            self._do(task, alone=lock.crashes > 0)
        self._note_done(task)
        return True

    def _taken_over(self, task: Task) -> bool:
        """Do what another process has and does not get on with: its lock guards no data."""
        since = self._waited.setdefault(task.name, time.monotonic())
        waited = time.monotonic() - since
        if waited < PATIENCE or self.store.locks.since_heartbeat(task.name) < PATIENCE:
            return False
        self._do(task, alone=False)
        self._note_done(task)
        self.progress.samples += len(task.samples)
        self.remarks.append(
            f"infrastructure: another process has had {len(task.samples)} samples from "
            f"{task.samples[0].id!r} on for {waited / 60:.0f} minutes and has stored nothing: they "
            "were computed without waiting for it"
        )
        return True

    def _check_crashes(self, lock: WorkLock, task: Task) -> None:
        if lock.crashes >= MOST_CRASHES:
            lock.keep = True
            msg = (
                f"infrastructure: {lock.crashes} processes of this run died while they worked on "
                f"{len(task.samples)} samples from {task.samples[0].id!r} on, the last one alone: give "
                "them more memory, or smaller batches (batch_size=)"
            )
            raise MeasurementError(msg)

    def _do(self, task: Task, *, alone: bool) -> None:
        """Grow and read; where not even one input fits, once more with the machine for itself."""
        locks = self.store.locks
        try:
            with locks.exclusive() if alone else locks.shared(self.let_go):
                task.run.read(task.case, task.samples)
        except DeviceMemoryError as error:
            if alone:
                raise
            words = str(error)
        else:
            return
        self.let_go()  # not before the error and the tensors in its traceback are gone
        try:
            with locks.exclusive():
                task.run.read(task.case, task.samples)
        except DeviceMemoryError as error:
            msg = f"infrastructure, tried once more alone: {error}"
            raise DeviceMemoryError(msg) from error
        self.remarks.append(
            f"infrastructure: {words}; it went well alone, with the models let go of"
        )

    def _help_once(self) -> bool:
        """Do one task that nobody has; False where there is none."""
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

    def _others(self) -> list[Task]:
        """All tasks of the run: those whose models are at hand first, the longest first among them.

        From the end: whoever judges a case begins at its beginning.
        """
        if self._all is None:
            self._pack()
            found = {}
            for path, case, most in self._enlisted:
                try:
                    tasks = list(_tasks(self.run_of(path), case, most))
                except CepError:
                    continue  # as in `help`
                found.update({task.id: task for task in tasks})
            backwards = list(found.values())[::-1]
            self._all = sorted(backwards, key=lambda task: -task.steps)
        return sorted(self._all, key=lambda task: not task.run.loaded)

    def _grow_share(self, own: Sequence[Task]) -> None:
        """Grow and read a fair share of all shards in step, so that each model works once a generation.

        own: of the case that runs, which come first.
        """
        tasks = {task.id: task for task in (*own, *self._others()) if not self._is_done(task)}
        names = list(dict.fromkeys(task.name for task in tasks.values()))
        with ExitStack() as stack:
            held = set()
            for name in names[: ceil(len(names) / self.processes)]:
                lock = self.store.locks.acquire(name, self.run_id)
                if lock is not None:
                    stack.enter_context(lock)
                    lock.keep = lock.crashes > 0  # left to `_take`, which does it alone
                    if not lock.crashes:
                        held.add(name)
            mine = [task for task in tasks.values() if task.name in held]
            try:
                with self.store.locks.shared(self.let_go):
                    _grow_in_step(mine)
                    for task in sorted(mine, key=lambda task: task.case.key.metric):
                        task.run.read(task.case, task.samples)
                        self._note_done(task)
            except CepError:
                return  # met again, shard by shard, by the case that needs it

    def _is_done(self, task: Task) -> bool:
        """Whether a process of this run did it."""
        if task.id in self._done:
            return True
        if self.processes < 2 or not (self.folder / "done" / task.id).exists():
            return False
        self._done.add(task.id)
        return True

    def _note_done(self, task: Task) -> None:
        self._done.add(task.id)
        if self.processes > 1:
            with suppress(OSError):  # a full disk: others find what was computed in the store
                (self.folder / "done").mkdir(parents=True, exist_ok=True)
                (self.folder / "done" / task.id).touch()


def _tasks(run: SuiteRun, case: Case, most: int | None) -> Iterator[Task]:
    """The shards that a case reads, in order."""
    for cell, samples in run.chain_data.shards(run.looked_at(case, most)).items():
        yield Task(run, case, tuple(samples), run.lock_name(cell))


def _grow_in_step(tasks: Sequence[Task]) -> None:
    """Grow the chains of all tasks, by suite, a generation of all of them before the next."""
    for run in dict.fromkeys(task.run for task in tasks):
        own = [task for task in tasks if task.run is run]
        for start in run.starts(task.case for task in own):
            wanted = (task for task in own if start in run.starts([task.case]))
            samples = {sample.id: sample for task in wanted for sample in task.samples}
            run.chain_data.grow(start, list(samples.values()))


def _title(case: Case) -> str:
    return f"{case.key.suite} {case.key.part} {case.label}"
