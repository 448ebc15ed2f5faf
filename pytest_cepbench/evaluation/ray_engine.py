"""The run's models on a Ray cluster: their pools, and the local threads that keep them busy."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import cache, partial
from pathlib import Path

from pytest_cepbench.chains import RoleRunner
from pytest_cepbench.chains.ray.cluster import connect
from pytest_cepbench.chains.ray.pools import PoolManager
from pytest_cepbench.chains.steps import Progress
from pytest_cepbench.evaluation.run_context import RunContext
from pytest_cepbench.evaluation.suite_cache import SuiteCache
from pytest_cepbench.models.binding import BindContext, BoundRole
from pytest_cepbench.store import Store
from pytest_cepbench.suites import Case, ModelPool, SuiteRun
from pytest_cepbench.suites.role_assignment import RoleAssignment
from pytest_cepbench.suites.shards import WorkQueue

MOST_THREADS = 64
"""More threads than these have one interpreter's lock to share, and nothing to gain."""

_PATIENCE = 30.0  # seconds for a thread to end: it may be writing a large image to a slow disk


class RayEngine:
    """The cluster and its pools, for one run.

    Threads grow and read what the run's cases need, each with models and measuring of its own, as
    xdist's workers do for one another: what they make is in the store when its case is judged. They
    start when the first batch is needed, so a run that finds everything in the store has none.

    context: the run, as this process knows it.
    suites: its suites.
    open_store: gives its store.
    binding: of its models.
    Raises what connecting raises.
    """

    def __init__(
        self,
        context: RunContext,
        suites: SuiteCache,
        open_store: Callable[[], Store],
        binding: BindContext,
    ) -> None:
        self._context = context
        self._suites = suites
        self._open_store = open_store
        self._over = threading.Event()
        self._offered = threading.Condition()
        self._offers: list[tuple[Path, Case, int | None]] = []
        self._helpers: list[tuple[threading.Thread, ModelPool, WorkQueue]] = []
        self._closed = False
        settings = context.settings
        cluster = connect(settings.ray_address)
        self.header = str(cluster)
        self.pools = PoolManager(cluster, settings.ray_pools, binding, begin=self._start_threads)

    def place(
        self, assignment: RoleAssignment, stopped: Callable[[], bool] = lambda: False
    ) -> BoundRole:
        """A role's model bound on the cluster.

        stopped: whether calls are to end. The thread that judges is interrupted by signals alone.
        """
        role, spec = assignment.role, assignment.spec
        return self.pools.bound(role, spec, stopped, force=assignment.force)

    def plan(self, assignments: Iterable[RoleAssignment]) -> str:
        """Divide the cluster among all roles of the run; the pools in a line. Raises SpecError."""
        places = dict.fromkeys((each.role, each.spec) for each in assignments)
        shares = self.pools.plan(list(places))
        return "pools of " + ", ".join(f"{role} {share}" for role, share in shares.items())

    def offer(self, path: Path, case: Case, most: int | None) -> None:
        """Announce a case that is needed, or more samples of one, to the threads."""
        with self._offered:
            if (path, case, most) not in self._offers:
                self._offers.append((path, case, most))
                self._offered.notify_all()

    @property
    def runners(self) -> list[RoleRunner]:
        """Those of all threads."""
        return [own for _, models, _ in self._helpers for own in list(models.runners.values())]

    @property
    def progress(self) -> Progress | None:
        """What the threads do together; None while they do nothing."""
        busy = [work.progress for _, _, work in self._helpers if work.progress.case]
        if not busy:
            return None
        count = "1 thread" if len(busy) == 1 else f"{len(busy)} threads"
        steps = Counter(progress.step for progress in busy if progress.step) or Counter([""])
        step, _ = steps.most_common(1)[0]
        return Progress(f"{count} on the cluster", step=step, parts=busy)

    def messages(self) -> list[str]:
        """What happened to the cluster and was made good, a sentence each."""
        return self.pools.messages()

    def close(self) -> None:
        """Stop the threads in the middle of their batches, end the actors, leave the cluster."""
        if self._closed:
            return
        self._closed = True
        self._over.set()
        with self._offered:
            self._offered.notify_all()
        until = time.monotonic() + _PATIENCE
        for thread, _, _ in self._helpers:
            thread.join(max(0.0, until - time.monotonic()))
        with suppress(Exception):  # a cluster that is gone answers nothing
            self.pools.close()
        self.pools.cluster.close()

    # -- threads ---------------------------------------------------------------------------------

    def _start_threads(self) -> None:
        """Each has models and measuring of its own, on the run's store."""
        if self._over.is_set():
            return
        store, stopped = self._open_store(), self._over.is_set
        for number in range(min(MOST_THREADS, self.pools.helpers)):
            progress = Progress()
            models = ModelPool(store, progress=progress, place=partial(self.place, stopped=stopped))
            work = WorkQueue(
                store,
                cache(partial(self._run, models)),
                self._context.run_id,
                self._context.folder,
                processes=2,  # at least: shards that are done are noted in the run's folder
                stopped=stopped,
                progress=progress,
            )
            name = f"cepbench-ray-{number}"
            thread = threading.Thread(target=self._work, args=(work,), name=name, daemon=True)
            self._helpers.append((thread, models, work))
        for thread, _, _ in self._helpers:
            thread.start()

    def _run(self, models: ModelPool, path: Path) -> SuiteRun:
        return self._suites.get(path).run(models, self._context.settings.baselines)

    def _work(self, shards: WorkQueue) -> None:
        """Grow and read what is offered, until the run is over."""
        seen = 0
        while not self._over.is_set():
            with self._offered:
                while seen == len(self._offers) and not self._over.is_set():
                    self._offered.wait(1.0)
                fresh, seen = self._offers[seen:], len(self._offers)
            for path, case, most in fresh:
                shards.add(path, case, most)
            # The thread that judges the case meets the same error, and reports it.
            with suppress(Exception):
                shards.compute_others()
