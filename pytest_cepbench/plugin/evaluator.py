"""What one process (the only one, or an xdist worker) holds while it judges cases."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import pytest

from pytest_cepbench.chains import RoleRunner, total
from pytest_cepbench.chains.progress import Progress
from pytest_cepbench.errors import CepError
from pytest_cepbench.files import keep_out_of_git
from pytest_cepbench.gate import Policy
from pytest_cepbench.models.protocols import BoundRole, Model, RoleName
from pytest_cepbench.models.system_limits import usable_cores
from pytest_cepbench.plugin.helpers import Helpers
from pytest_cepbench.plugin.run_settings import RunSettings
from pytest_cepbench.plugin.suite_cache import SuiteCache
from pytest_cepbench.plugin.workers.run_dir import STOP, run_folder
from pytest_cepbench.report import UsageTotals
from pytest_cepbench.report.usage import between, together
from pytest_cepbench.store import Store
from pytest_cepbench.suites import (
    Case,
    ModelPool,
    SuiteRun,
    named_seat,
)
from pytest_cepbench.suites.model_options import RoleAssignment
from pytest_cepbench.suites.shards import Work

if TYPE_CHECKING:
    from pytest_cepbench.plugin.ray_pools import RayEngine

_LOOK = 0.2  # seconds


@dataclass(frozen=True)
class AssignedCase:
    """A case of this run, and how it is judged, its share of alpha included."""

    suite_file: Path
    case: Case
    policy: Policy


class Evaluator:
    """Suites, store and models of this process; everything is made when it is first needed.

    run_id: shared by all processes of a run. started: when that began, in seconds since the epoch.
    workers: how many of them share this machine. name: of this one among them. assigned: node id ->
    how the case is judged, of every case that was collected; known when collection ends. agree: told of
    every model that is bound; raises where other processes of the run have bound another one.
    """

    def __init__(
        self,
        settings: RunSettings,
        run_id: str,
        started: float,
        workers: int = 1,
        name: str = "",
        agree: Callable[[BoundRole], None] = lambda _: None,
    ) -> None:
        self.settings = settings
        self.run_id = run_id
        self.started = started
        self.assigned: dict[str, AssignedCase] = {}
        self.progress = Progress()
        self._workers = workers
        self._aside: TemporaryDirectory[str] | None = None
        self._unopened: CepError | None = None
        self._unreached: CepError | None = None
        self._name = name
        self._agree = agree
        self._charged = UsageTotals()
        self._told: set[str] = set()
        self._stopped, self._look_again = False, 0.0
        self.suites = SuiteCache(settings)
        self._runs: dict[Path, SuiteRun] = {}

    @cached_property
    def store(self) -> Store:
        """The store, opened."""
        if self._unopened is not None:  # a server that did not answer is not asked for every case
            raise self._unopened
        settings = self.settings
        root = settings.store
        if settings.plan and not root.exists():  # a plan leaves nothing behind
            self._aside = TemporaryDirectory(prefix="cepbench-plan-")
            root = Path(self._aside.name)
        try:
            store = Store(root, settings.shared, settings.publish, writing=not settings.plan)
        except CepError as error:
            self._unopened = error
            raise
        keep_out_of_git(settings.home, root)
        return store

    @cached_property
    def roster(self) -> ModelPool:
        """The models."""
        # More threads than cores make all workers slower. A lease or the user may have said how many.
        unsaid = self._workers > 1 and "OMP_NUM_THREADS" not in os.environ
        threads = max(1, usable_cores() // self._workers) if unsaid else None
        swap = self.settings.residency == "swap"
        place = None if self.engine is None else self.engine.place
        begin = self.helpers.begin if place is None else None
        return ModelPool(
            self.store,
            threads,
            swap=swap,
            progress=self.progress,
            place=place,
            begin=begin,
            agree=self._agree,
        )

    @cached_property
    def helpers(self) -> Helpers:
        """Processes that grow chains beside this one, where that is worth it."""
        return Helpers(self)

    @cached_property
    def engine(self) -> RayEngine | None:
        """Where models play, if not in this process. Raises what connecting to a cluster raises."""
        # A plan and a list of cases ask no model, and start no cluster.
        settings = self.settings
        if settings.engine != "ray" or settings.plan or settings.listing:
            return None
        if self._unreached is not None:  # a cluster that did not answer is not asked for every case
            raise self._unreached
        from pytest_cepbench.plugin.ray_pools import RayEngine

        try:
            return RayEngine(self)
        except CepError as error:
            self._unreached = error
            raise

    @property
    def is_worker(self) -> bool:
        """Whether this is one of several processes of the run, which share its work."""
        return bool(self._name)

    @property
    def cluster_line(self) -> str:
        """The cluster and its nodes, for people; only where there is one."""
        assert self.engine is not None
        return self.engine.header

    def plan_pools(self) -> str | None:
        """Divide the cluster among the models of what is to be judged; in a line. Raises SpecError."""
        if self.engine is None:
            return None
        files = dict.fromkeys(one.suite_file for one in self.assigned.values())
        return self.engine.plan(
            s for file in files for s in self.suites.get(file).lineup.seats.values()
        )

    @property
    def _engine(self) -> RayEngine | None:
        """The engine, if it was needed so far."""
        found: RayEngine | None = self.__dict__.get("engine")
        return found

    def hash_file(self, path: Path) -> str:
        """SHA-256 of a file's bytes, remembered by the store."""
        return self.roster.context.hash_file(path)

    def offer(self, path: Path, case: Case, most: int | None) -> None:
        """Let whoever helps in this process know what is needed now."""
        if self.engine is not None:
            self.engine.offer(path, case, most)

    @property
    def elsewhere(self) -> Progress | None:
        """How far others of this process are; None where there are none, or they do nothing."""
        return None if self._engine is None else self._engine.progress

    @property
    def infrastructure(self) -> list[str]:
        """What happened to the cluster and was made good."""
        return [*self.helpers.lines, *([] if self._engine is None else self._engine.lines())]

    def dismiss_helpers(self) -> None:
        """Have nobody work any more but the thread that asks."""
        self.helpers.close()
        if self._engine is not None:
            self._engine.close()

    @cached_property
    def work(self) -> Work:
        """The shards of this run, as this process sees them."""
        return Work(
            self.store,
            self.run,
            self.run_id,
            self.folder,
            processes=self._workers if self.engine is None else max(2, self._workers),
            stopped=self.stopped,
            let_go=self.roster.residency.clear,
            swap=self.roster.residency.swap,
            packs=self.engine is None,
            progress=self.progress,
        )

    @property
    def runners(self) -> list[RoleRunner]:
        """The models that were bound so far; none where the store could not be opened."""
        own = list(self.roster.runners.values()) if "roster" in self.__dict__ else []
        return own if self._engine is None else own + self._engine.runners

    @property
    def effort(self) -> UsageTotals:
        """What the models of this process did so far."""
        tallies = [(runner.bound.role, runner.tally) for runner in self.runners]
        loads: Counter[str] = Counter()
        for role, tally in tallies:
            loads[role] += tally.loads
        spent = total(tally for _, tally in tallies)
        seconds = spent.seconds
        if self._engine is not None:  # threads share models, and wait for them
            loads, seconds = self._engine.spent()
        return UsageTotals(
            loads.total(),
            spent.inputs,
            spent.hits,
            model_seconds=seconds,
            roles=dict(+loads),
            usage=spent.usage,
            worker=self._name,
        )

    def charge(self, before: UsageTotals, seconds: float) -> UsageTotals:
        """What was done for a case since `before`, which took so many seconds."""
        spent = between(before, self.effort, seconds, self._name)
        self._charged = together([self._charged, spent])
        return spent

    @property
    def beside(self) -> UsageTotals:
        """What this process did outside of cases: for those of others, or in tests of the user."""
        own = between(self._charged, self.effort, 0.0, self._name)
        return together([own, *self.helpers.efforts]) if self.helpers.efforts else own

    def told(self) -> list[str]:
        """What had to be done about memory, and what models had to say, since this was asked last."""
        said = dict.fromkeys(remark for one in self.runners for remark in one.tally.remarks)
        new = [remark for remark in said if remark not in self._told]
        self._told.update(new)
        return [*(self.work.told() if "work" in self.__dict__ else []), *new]

    def publish(self, seconds: float | None, waiting: Callable[[int], None] | None) -> list[str]:
        """Wait until all results are where they are published, and say what went wrong with that.

        seconds: after which the rest is left. waiting: told how many are left, where it takes long.
        """
        if "store" not in self.__dict__:
            return []
        self.store.flush(seconds, waiting)
        return list(dict.fromkeys(self.store.remarks))

    @property
    def damage(self) -> list[str]:
        """What the store found broken so far."""
        return self.store.damage if "store" in self.__dict__ else []

    @property
    def folder(self) -> Path:
        """Where the processes of this run leave word for one another; gone when it ends."""
        return run_folder(self.settings.home, self.run_id)

    def stopped(self) -> bool:
        """Whether this run is to stop: whoever works on what no case here waits for leaves off.

        The file system is asked five times a second at most.
        """
        now = time.monotonic()
        if not self._stopped and now >= self._look_again:
            self._stopped = (self.folder / STOP).exists()
            self._look_again = now + _LOOK
        return self._stopped

    @property
    def staged(self) -> Path:
        """Where this run's new baselines wait for the run to be complete."""
        return self.settings.report.parent / "staged" / self.run_id

    def run(self, path: Path) -> SuiteRun:
        """The measuring of a suite, one per process."""
        if path not in self._runs:
            self._runs[path] = self.suites.measuring(path, self.roster)
        return self._runs[path]

    def forget(self, path: Path) -> None:
        """Forget what is in memory of a suite's chains: what failed in passing is asked for again."""
        self._runs.pop(path, None)
        if "work" in self.__dict__:
            self.work.forget()

    def model(self, suite_file: Path, role: RoleName) -> Model:
        """The loaded model that plays a role, in the suite if there is one, else by its option.

        Raises SpecError when nobody plays it, and what loading raises.
        """
        seats: dict[str, RoleAssignment] = {}
        if suite_file.exists():
            lineup = self.suites.get(suite_file).lineup
            seats |= lineup.spare
            seats |= lineup.seats
        seat = seats[role] if role in seats else named_seat(self.suites.choices, role)
        return self.roster.runner(seat).model

    def close(self) -> None:
        """Release the store, if it was opened."""
        self.dismiss_helpers()
        if "store" in self.__dict__:
            self.store.close()
        if self._aside is not None:
            self._aside.cleanup()


PROCESS = pytest.StashKey[Evaluator]()
