"""The shards that a run's cases need, divided among the processes that work on the same store.

A process locks a shard before it grows its chains and reads them, so that no result is computed
twice. While another process has a shard, this one works on shards of other cases of the run, which
then find them in the store. Where a run has more processes than shards, these are grown in parts,
whose batches are those of the whole shard, and read whole afterwards.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from functools import cached_property
from math import ceil
from pathlib import Path

from pytest_cepbench.artifacts import digest_json
from pytest_cepbench.chains.batching import MOST_CRASHES
from pytest_cepbench.chains.growth import CHUNK
from pytest_cepbench.chains.steps import Progress
from pytest_cepbench.datasets.sample import Sample
from pytest_cepbench.errors import CepError, DeviceMemoryError, MeasurementError
from pytest_cepbench.measures.cases import SHARD, Case
from pytest_cepbench.store import Store
from pytest_cepbench.store.locks import PATIENCE, WorkLock
from pytest_cepbench.suites.suite_run import SuiteRun

_WAIT = 0.05  # seconds between looks at a shard that another process has locked

_OTHER_CASES = "cases of other workers"

PART = 8
"""Samples of the smallest part of a shard. Each such part has a lock, so that processes which
divide shards in other ways do not compute the same."""


def part_size(shards: Iterable[int], processes: int, batches: Sequence[int]) -> int:
    """Samples that one process grows at a time: a shard's, or a half, a quarter or an eighth of it.

    As small as gives each process two parts, and as leaves every batch what it is in a whole shard.
    shards: samples of each. batches: sizes of the growing models' batches.
    """
    sizes = list(shards)
    chunk = max(CHUNK, *batches)
    size = SHARD
    while size > PART and sum(ceil(own / size) for own in sizes) < 2 * processes:
        half = size // 2
        if half % chunk and any(half % batch for batch in batches):
            break
        size = half
    return size


def longest_share(shards: Iterable[int], processes: int, batches: Sequence[int]) -> float:
    """The share of all samples that the busiest of a run's processes grows.

    shards, batches: as of `part_size`; without batches shards are not divided.
    """
    sizes = list(shards)
    size = part_size(sizes, processes, batches) if batches else SHARD
    pieces = [min(size, own - low) for own in sizes for low in range(0, own, size)]
    busy = [0] * processes
    for piece in sorted(pieces, reverse=True):
        busy[busy.index(min(busy))] += piece
    return max(busy) / sum(sizes)


def busiest_share(run: SuiteRun, processes: int) -> float:
    """The share of a suite's samples that the busiest of a run's processes grows."""
    shards = run.data.shards(run.data.population.samples).values()
    return longest_share(map(len, shards), processes, run.batches)


@dataclass(frozen=True)
class ShardTask:
    """A shard, read for one case; or a part of one, whose chains are only grown for it.

    name: of the shard, which all cases of its chains share.
    parts: numbers of the smallest parts, whose locks it takes.
    grows: whether it is such a part.
    """

    run: SuiteRun
    case: Case
    samples: tuple[Sample, ...]
    name: str
    parts: range = range(SHARD // PART)
    grows: bool = False

    @cached_property
    def id(self) -> str:
        """Names the work: cases that read the same of the same samples share it, done once."""
        samples = [sample.id for sample in self.samples]
        reads = self.run.reads(self.case)
        grown = sorted({str(read[0]) for read in reads})
        work = ["grown", grown, samples] if self.grows else [reads, samples]
        return f"{self.name}-{digest_json(work)[:16]}"

    @property
    def steps(self) -> int:
        """How many results it comes to."""
        return len(self.samples) * self.run.steps(self.case, read=not self.grows)

    def do(self) -> None:
        """Grow, and read. Raises what these raise."""
        (self.run.grow_apart if self.grows else self.run.read)(self.case, self.samples)


@dataclass
class WorkQueue:
    """The shards of one run, as one process sees them.

    run_of: gives the measuring of a suite.
    run_id: shared by the processes of the run.
    folder: where they note for one another what is done.
    processes: how many they are.
    stopped: whether to compute no more for other cases.
    release_models: takes all models off their devices.
    swap: whether models take turns there, so that each should do all it can before the next.
    packs: whether small categories are grown together, for which all processes have to know the
    same cases from the beginning.
    remarks: what had to be done about memory, for people.
    cases: of the run: the suite's file, the case, and the samples of each category that it looks
    at first.
    """

    store: Store
    run_of: Callable[[Path], SuiteRun]
    run_id: str
    folder: Path
    processes: int = 1
    stopped: Callable[[], bool] = lambda: False
    release_models: Callable[[], None] = lambda: None
    swap: bool = False
    packs: bool = False
    progress: Progress = field(default_factory=Progress)
    remarks: list[str] = field(default_factory=list)
    cases: list[tuple[Path, Case, int | None]] = field(default_factory=list)
    _tasks: list[ShardTask] | None = field(default=None)
    _packed: bool = field(default=False)
    _done: set[str] = field(default_factory=set)
    _given_up: set[str] = field(default_factory=set)
    _waited: dict[str, float] = field(default_factory=dict)

    def add(self, path: Path, case: Case, most: int | None) -> None:
        """A case that the run judges. most: samples of each category that it looks at first."""
        self.cases.append((path, case, most))
        self._tasks = None

    def forget(self) -> None:
        """Forget which shards were done: what failed there in passing is to be tried again."""
        self._tasks = None
        self._done.clear()
        self._given_up.clear()

    def take_remarks(self) -> list[str]:
        """What had to be done about memory since this was asked last."""
        remarks, self.remarks[:] = list(self.remarks), []
        return remarks

    def compute(self, path: Path, case: Case, most: int | None = None) -> None:
        """Have all made that a case needs and the store does not hold, by this process or another.

        most: samples of each category; all where None. Raises what growing and reading chains
        raise, and MeasurementError for a shard that kills the processes which work on it.
        """
        self._pack()
        own = self._tasks_of(self.run_of(path), case, most)
        samples = sum(len(task.samples) for task in own if not task.grows)
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
        waiting = list(own or ())
        while waiting or own is None:
            left = [task for task in waiting if not self._settled(task)]
            settled, waiting = len(left) < len(waiting), left
            if settled or (not self.stopped() and self._compute_one()):
                continue
            if own is None:
                return
            self.progress.waiting = True
            waiting = [task for task in waiting if not self._take_over(task)]
            time.sleep(_WAIT)
            self.progress.waiting, self.progress.holder = False, ""

    def _pack(self) -> None:
        """Have each suite know all samples that the run needs of it, before the first is grown."""
        if self._packed or not self.packs:
            return
        self._packed = True
        wanted: dict[SuiteRun, dict[str, Sample]] = {}
        for path, case, most in self.cases:
            with suppress(CepError):  # as in `compute_others`
                run = self.run_of(path)
                samples = run.looked_at(case, most)
                wanted.setdefault(run, {}).update((sample.id, sample) for sample in samples)
        for run, needed in wanted.items():
            run.data.pack(needed.values())

    def _settled(self, task: ShardTask) -> bool:
        """True where a task of the running case is done, just now or before."""
        if self._is_done(task):
            self.progress.add(task.steps)
        elif not self._take(task):
            return False
        self.progress.samples += 0 if task.grows else len(task.samples)
        return True

    def _take(self, task: ShardTask) -> bool:
        """Do a task, unless another process has it."""
        with ExitStack() as stack:
            locks = self._lock(task, stack)
            if not locks:
                return False
            crashes = max(lock.crashes for lock in locks)
            if crashes >= MOST_CRASHES:
                for lock in locks:
                    lock.keep = True
                raise MeasurementError(
                    f"infrastructure: {crashes} processes of this run died while they worked "
                    f"on {len(task.samples)} samples from {task.samples[0].id!r} on, the last one "
                    "alone: give them more memory, or smaller batches (batch_size=)"
                )
            self._do(task, alone=crashes > 0)
        self._note_done(task)
        return True

    def _lock(self, task: ShardTask, stack: ExitStack) -> list[WorkLock]:
        """The locks of a task's parts, which the stack releases; none while a process has one."""
        taken: list[WorkLock] = []
        for part in task.parts:
            lock = self.store.locks.acquire(f"{task.name}-{part}", self.run_id)
            if lock is None:
                for own in taken:  # in between nothing crashed
                    own.keep = own.crashes > 0
                stack.close()
                return []
            taken.append(stack.enter_context(lock))
        return taken

    def _take_over(self, task: ShardTask) -> bool:
        """Do what another process locked and makes no progress with: its lock guards no data."""
        since = self._waited.setdefault(task.name, time.monotonic())
        waited = time.monotonic() - since
        locks = f"{task.name}-*"
        self.progress.holder = self.store.locks.say_who(waited, locks)
        if waited < PATIENCE or self.store.locks.since_heartbeat(locks) < PATIENCE:
            return False
        self._do(task, alone=False)
        self._note_done(task)
        self.progress.samples += 0 if task.grows else len(task.samples)
        self.remarks.append(
            f"infrastructure: another process has had {len(task.samples)} samples from "
            f"{task.samples[0].id!r} on for {waited / 60:.0f} minutes and has stored nothing: they "
            "were computed without waiting for it"
        )
        return True

    def _do(self, task: ShardTask, *, alone: bool) -> None:
        """Grow and read; where not even one input fits, once more with the machine for itself."""
        locks = self.store.locks
        try:
            with locks.exclusive() if alone else locks.shared(self.release_models):
                task.do()
        except DeviceMemoryError as error:
            if alone:
                raise
            problem = str(error)
        else:
            return
        self.release_models()  # not before the error and the tensors in its traceback are gone
        try:
            with locks.exclusive():
                task.do()
        except DeviceMemoryError as error:
            raise DeviceMemoryError(f"infrastructure, tried once more alone: {error}") from error
        self.remarks.append(
            f"infrastructure: {problem}; it went well alone, with the models off their devices"
        )

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

        Parts before whole shards, which have them grown already then.
        From the end: the process that judges a case begins at its beginning.
        """
        if self._tasks is None:
            self._pack()
            by_id: dict[str, ShardTask] = {}
            for path, case, most in self.cases:
                with suppress(CepError):  # as in `compute_others`
                    run = self.run_of(path)
                    by_id.update((task.id, task) for task in self._tasks_of(run, case, most))
            backwards = list(by_id.values())[::-1]
            self._tasks = sorted(backwards, key=lambda task: (not task.grows, -task.steps))
        return sorted(self._tasks, key=lambda task: not task.run.loaded)

    def _grow_share(self, own: Sequence[ShardTask]) -> None:
        """Grow and read a fair share of all shards in step, so each model works once a generation.

        own: of the case that runs, which come first.
        """
        tasks = {task.id: task for task in (*own, *self._others()) if not self._is_done(task)}
        names = {task.name: task for task in tasks.values()}
        with ExitStack() as stack:
            locked = set()
            for name in list(names)[: ceil(len(names) / self.processes)]:
                crashes = 0
                locks = self._lock(names[name], stack.enter_context(ExitStack()))
                for lock in locks:
                    crashes = max(crashes, lock.crashes)
                    lock.keep = lock.crashes > 0  # left to `_take`, which does it alone
                if locks and not crashes:
                    locked.add(name)
            mine = [task for task in tasks.values() if task.name in locked]
            try:
                with self.store.locks.shared(self.release_models):
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

    def _tasks_of(self, run: SuiteRun, case: Case, most: int | None) -> list[ShardTask]:
        """The shards that a case reads, in order; before them their parts, where there are any."""
        shards = run.data.shards(run.looked_at(case, most))
        whole = [ShardTask(run, case, tuple(own), run.lock_name(at)) for at, own in shards.items()]
        batches = run.batches
        if self.processes < 2 or self.swap or not batches:
            return whole
        every = run.data.shards(run.data.population.samples).values()
        size = part_size(map(len, every), self.processes, batches)
        parts = []
        for task in whole if size < SHARD else ():
            for low in range(0, len(task.samples), size):
                own = task.samples[low : low + size]
                numbers = range(low // PART, ceil((low + size) / PART))
                parts.append(ShardTask(run, case, own, task.name, numbers, grows=True))
        return [*parts, *whole]
