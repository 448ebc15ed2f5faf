"""The run's models on a Ray cluster: their pools, and the threads of this process that keep them busy."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_cepbench.chains import RoleRunner
from pytest_cepbench.chains.progress import Progress
from pytest_cepbench.chains.ray import PoolManager, ResourceRequest, connect
from pytest_cepbench.models.protocols import BindContext, BoundRole
from pytest_cepbench.suites import Case, ModelPool, SuiteRun
from pytest_cepbench.suites.model_options import RoleAssignment
from pytest_cepbench.suites.shards import Work

if TYPE_CHECKING:
    from pytest_cepbench.plugin.evaluator import Evaluator

MOST_HELPERS = 64
"""More threads than these have one interpreter's lock to share, and nothing to gain."""

_JOIN = 30.0  # seconds for helpers to leave off: one may be writing a large image to a slow disk

Offer = tuple[Path, Case, int | None]


class RayEngine:
    """The cluster and its pools, for one run.

    Helpers grow and read what the run's cases need, each with models and measuring of its own, as
    xdist's workers do for one another: what they make is in the store when its case is judged. They
    begin when the first batch is needed, so a run that finds everything in the store has none.
    Raises what connecting raises.
    """

    def __init__(self, process: Evaluator) -> None:
        self._process = process
        self._over = threading.Event()
        self._offered = threading.Condition()
        self._offers: list[Offer] = []
        self._threads: list[threading.Thread] = []
        self._helpers: list[_Helper] = []
        self._closed: list[str] | None = None
        self.planned = False
        settings = process.settings
        wishes = {role: ResourceRequest(**wish) for role, wish in settings.ray_pools.items()}  # type: ignore[arg-type] # parsed so
        cluster = connect(settings.ray_address)
        self.header = str(cluster)
        try:
            self.pools = PoolManager(
                cluster, wishes, BindContext(process.hash_file), begin=self._begin
            )
        except BaseException:
            cluster.close()
            raise

    def place(self, seat: RoleAssignment) -> BoundRole:
        """A seat bound on the cluster, for the thread that judges."""
        return self.pools.bound(seat.role, seat.spec, _never, force=seat.force)

    def plan(self, seats: Iterable[RoleAssignment]) -> str:
        """Divide the cluster among all seats of the run; the pools in a line. Raises SpecError."""
        self.planned = True
        places = dict.fromkeys((seat.role, seat.spec) for seat in seats)
        shares = self.pools.plan(list(places))
        return "pools of " + ", ".join(f"{role} {share}" for role, share in shares.items())

    def offer(self, path: Path, case: Case, most: int | None) -> None:
        """Let the helpers know of a case that is needed, or of more samples of one."""
        with self._offered:
            if (path, case, most) not in self._offers:
                self._offers.append((path, case, most))
                self._offered.notify_all()

    @property
    def runners(self) -> list[RoleRunner]:
        """Those of all helpers."""
        return [one for helper in self._helpers for one in list(helper.roster.runners.values())]

    @property
    def progress(self) -> Progress | None:
        """What the helpers do together; None while they do nothing."""
        busy = [helper.progress for helper in self._helpers if helper.progress.case]
        if not busy:
            return None
        count = "1 thread" if len(busy) == 1 else f"{len(busy)} threads"
        steps = Counter(one.step for one in busy if one.step) or Counter([""])
        return _Together(
            case=f"{count} on the cluster",
            step=steps.most_common(1)[0][0],
            rates=[one.rate or 0.0 for one in busy],
        )

    def lines(self) -> list[str]:
        """What happened to the cluster and was made good, a sentence each."""
        told = [line for helper in self._helpers for line in helper.work.remarks]
        return [*self.pools.losses.lines(), *told]

    def spent(self) -> tuple[Counter[str], float]:
        """Models loaded, by role, and seconds in their code."""
        return self.pools.usage()

    def close(self) -> None:
        """Stop the helpers in the middle of what they are at, end the actors, leave the cluster."""
        if self._closed is not None:
            return
        self._closed = self.lines()
        self._over.set()
        with self._offered:
            self._offered.notify_all()
        until = time.monotonic() + _JOIN
        for thread in self._threads:
            thread.join(max(0.0, until - time.monotonic()))
        with suppress(Exception):  # a cluster that is gone can be told nothing
            self.pools.close()
        self.pools.cluster.close()

    # -- helping ---------------------------------------------------------------------------------

    def _begin(self) -> None:
        if self._over.is_set():
            return
        count = min(MOST_HELPERS, self.pools.helpers)
        self._helpers = [_Helper(self._process, self, self._over) for _ in range(count)]
        for number, helper in enumerate(self._helpers):
            name = f"cepbench-ray-{number}"
            thread = threading.Thread(target=partial(self._help, helper), name=name, daemon=True)
            self._threads.append(thread)
            thread.start()

    def _help(self, helper: _Helper) -> None:
        """Take on what is offered, until the run is over."""
        seen = 0
        while not self._over.is_set():
            with self._offered:
                while seen == len(self._offers) and not self._over.is_set():
                    self._offered.wait(1.0)
                fresh, seen = self._offers[seen:], len(self._offers)
            for path, case, most in fresh:
                helper.work.enlist(path, case, most)
            # Whoever judges the case meets the same error, and tells it there.
            with suppress(Exception):
                helper.work.help()


class _Helper:
    """What one thread holds: models and measuring of its own, on the run's store."""

    def __init__(self, process: Evaluator, engine: RayEngine, over: threading.Event) -> None:
        self._process = process
        self._runs: dict[Path, SuiteRun] = {}
        self.progress = Progress()

        def place(seat: RoleAssignment) -> BoundRole:
            return engine.pools.bound(seat.role, seat.spec, over.is_set, force=seat.force)

        self.roster = ModelPool(process.store, progress=self.progress, place=place)
        self.work = Work(
            process.store,
            self._run,
            process.run_id,
            process.folder,
            processes=2,  # at least: word is left of what is done
            stopped=over.is_set,
            progress=self.progress,
        )

    def _run(self, path: Path) -> SuiteRun:
        if path not in self._runs:
            self._runs[path] = self._process.suites.measuring(path, self.roster)
        return self._runs[path]


class _Together(Progress):
    """The progress of several threads, in one."""

    def __init__(self, case: str, step: str, rates: Sequence[float]) -> None:
        super().__init__(case=case, step=step)
        self._rates = rates

    @property
    def rate(self) -> float | None:
        """Steps per second of all of them."""
        return sum(self._rates) or None


def _never() -> bool:
    """The thread that judges is interrupted by signals alone."""
    return False
