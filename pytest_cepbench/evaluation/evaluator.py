"""Suites, store and models of one process: the only one of a run, or a worker."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, TypeVar

from pytest_cepbench.artifacts import Artifact
from pytest_cepbench.chains import RoleRunner, total
from pytest_cepbench.chains.role_runner import DeviceSwap
from pytest_cepbench.chains.steps import Progress
from pytest_cepbench.errors import CepError, StoreError, UnreadError
from pytest_cepbench.evaluation.run_context import RunContext, stop_flag
from pytest_cepbench.evaluation.suite_cache import AssignedCase, SuiteCache
from pytest_cepbench.files import keep_out_of_git
from pytest_cepbench.gate import Judgement, Measurement, Policy, Verdict, judge
from pytest_cepbench.gate.baseline import accepted_value
from pytest_cepbench.gate.compare import differences_of, losers_of
from pytest_cepbench.gate.measurement import Scores
from pytest_cepbench.gate.policy import Pairing
from pytest_cepbench.gate.series import SeriesFile
from pytest_cepbench.models.binding import BindContext, BoundRole
from pytest_cepbench.models.devices import DeviceAssignment, usable_cores
from pytest_cepbench.models.protocols import Model, RoleName
from pytest_cepbench.report.result import UsageTotals
from pytest_cepbench.report.totals import total_usage, usage_between
from pytest_cepbench.store import Store
from pytest_cepbench.suites import Case, ModelPool, SuiteRun, assigned_role
from pytest_cepbench.suites.gate_config import Overrides, settle
from pytest_cepbench.suites.role_assignment import RoleAssignment, possible_roles
from pytest_cepbench.suites.shards import WorkQueue
from pytest_cepbench.suites.suite_run import CaseMeasurement

if TYPE_CHECKING:
    from pytest_cepbench.evaluation.ray_engine import RayEngine
    from pytest_cepbench.models.serving.run_servers import RunServers

T = TypeVar("T")


@dataclass(frozen=True)
class EvaluatedCase:
    """A case, measured and judged.

    policy: how it is judged, with its own share of alpha.
    baseline, anchor: what it was compared with; None where there is none.
    pairing: the samples by which they were compared.
    looks: samples at each look.
    partial: whether there are more samples.
    share: of alpha, at the last look.
    """

    case: Case
    policy: Policy
    measurement: CaseMeasurement
    baseline: Measurement | None
    anchor: Measurement | None
    pairing: Pairing
    looks: tuple[int, ...]
    partial: bool
    share: float

    @cached_property
    def judgement(self) -> Judgement:
        """The verdict, at the case's own alpha."""
        return self.judge_at(self.policy.alpha)

    @property
    def lost_since_anchor(self) -> bool:
        """True where the samples that got worse are those that did so since the anchor."""
        return self.judgement.reference == "anchor"

    @property
    def reference(self) -> Measurement | None:
        """What the samples that got worse are compared with: the baseline, or the anchor."""
        return self.anchor if self.lost_since_anchor else self.baseline

    @property
    def paired_scores(self) -> Scores:
        """The scores that are compared with the reference's; of battles those against it."""
        measurement = self.measurement
        battled = self.lost_since_anchor and measurement.answers
        return measurement.anchor_scores if battled else measurement.scores

    @cached_property
    def differences(self) -> dict[str, float]:
        """Sample id -> its paired difference to the reference, turned so that positive is better.

        Empty where nothing was compared, and where a score is that of a whole set.
        """
        measurement, reference = self.measurement, self.reference
        compared = self.judgement.difference is not None and not measurement.sizes
        if reference is None or not compared:
            return {}
        return differences_of(self.paired_scores, reference)

    @property
    def losers(self) -> list[str]:
        """The samples that got worse since the reference, most first; empty if not compared."""
        if self.judgement.verdict is Verdict.INCOMPARABLE:
            return []
        return losers_of(self.differences)

    def judge_at(self, alpha: float) -> Judgement:
        """The measurement judged at another alpha, of which the last look has its share."""
        return judge(
            self.measurement,
            self.baseline,
            replace(self.policy, alpha=min(0.5, alpha * self.share)),
            anchor=self.anchor,
            pairing=self.pairing,
            partial=self.partial,
        )


class _opened_once(cached_property[T]):  # noqa: N801 - used as `property` is
    """A resource of a process that is opened when it is first needed.

    What could not be opened raises its error again: a server that does not answer is asked once in
    a run, not for every case.
    """

    def __get__(self, evaluator: Evaluator, owner: object = None) -> T:  # type: ignore[override]
        if self.func in evaluator.errors:
            raise evaluator.errors[self.func]
        try:
            return super().__get__(evaluator)
        except CepError as error:
            evaluator.errors[self.func] = error
            raise


class Evaluator:
    """Suites, store and models of one process; each is opened when it is first needed.

    context: the run, as this process knows it.
    agree: called with every model that is bound; raises where another process of the run has bound
        another one under its name.
    assigned: node id -> how the case is judged, for every case that was collected; known when
        collection ends.
    judged: node id -> what this process judged, for the verdict of its suite.
    progress: how far the running case is.
    say: shows a sentence to the engineer while the run goes on; None for standard error.
    errors: why resources could not be opened, by what makes them.
    """

    def __init__(
        self, context: RunContext, agree: Callable[[BoundRole], None] = lambda _: None
    ) -> None:
        self.context = context
        self.settings = context.settings
        self.assigned: dict[str, AssignedCase] = {}
        self.judged: dict[str, EvaluatedCase] = {}
        self.progress = Progress()
        self.say: Callable[[str], None] | None = None
        self.suites = SuiteCache(context.settings, context.folder)
        self.stopped = stop_flag(context.folder)
        self.errors: dict[Callable[[Any], Any], CepError] = {}
        self._agree = agree
        self._plan_store: TemporaryDirectory[str] | None = None
        self._runs: dict[Path, SuiteRun] = {}
        self._shown_remarks: set[str] = set()
        self._charged = UsageTotals()

    # -- resources ---------------------------------------------------------------------------------

    @_opened_once
    def store(self) -> Store:
        """The store. Raises what opening it raises."""
        settings = self.settings
        root = settings.store
        if settings.plan and not root.exists():  # a plan leaves nothing behind
            self._plan_store = TemporaryDirectory(prefix="cepbench-plan-")
            root = Path(self._plan_store.name)
        writing, run = not settings.plan, self.context.run_id
        store = Store(root, settings.shared, settings.publish, writing=writing, run=run)
        keep_out_of_git(settings.home, root)
        if self.say is not None:
            store.locks.say = self.say
        return store

    @cached_property
    def series(self) -> SeriesFile | None:
        """The record of the run's series, if it is in one. Raises SeriesError for a wrong name."""
        settings = self.settings
        if settings.series is None:
            return None
        return SeriesFile(settings.baselines, settings.series, settings.series_length)

    @_opened_once
    def engine(self) -> RayEngine | None:
        """The Ray cluster, where models run on one. Raises what connecting to it raises."""
        settings = self.settings
        # A plan and a list of cases ask no model, and start no cluster.
        if settings.engine != "ray" or settings.plan or settings.listing:
            return None
        from pytest_cepbench.evaluation.ray_engine import RayEngine

        binding = BindContext(self.hash_file, servers=self._give_servers)
        return RayEngine(self.context, self.suites, lambda: self.store, binding)

    @_opened_once
    def models(self) -> ModelPool:
        """The models."""
        # More threads than cores make all workers slower. The environment may say how many.
        workers = self.context.workers
        divided = workers > 1 and "OMP_NUM_THREADS" not in os.environ
        engine = self.engine
        return ModelPool(
            self.store,
            max(1, usable_cores() // workers) if divided else None,
            residency=DeviceSwap(swap=self.settings.residency == "swap"),
            progress=self.progress,
            place=None if engine is None else engine.place,
            agree=self._agree,
            servers=self._give_servers,
            devices=self.devices,
        )

    @property
    def _give_servers(self) -> Callable[[], RunServers] | None:
        """Gives the servers that the run starts; a plan and a list of cases start none."""
        quiet = self.settings.plan or self.settings.listing
        return None if quiet else lambda: self._servers

    @_opened_once
    def _servers(self) -> RunServers:
        from pytest_cepbench.models.serving.run_servers import RunServers

        context = self.context
        return RunServers(
            context.folder / "servers",
            self.settings.home / "servers",
            unleased=context.unleased,
            show=partial(setattr, self.progress, "server"),
            is_controller=not context.is_worker,
        )

    @cached_property
    def devices(self) -> DeviceAssignment:
        """Which of this process's devices each model gets: those that the user named first."""
        if self.settings.engine == "ray":
            return DeviceAssignment(0)
        devices = DeviceAssignment.of_process()
        devices.assign(named.spec for named in self.suites.choices.assigned.values())
        return devices

    @_opened_once
    def shards(self) -> WorkQueue:
        """The shards of the run, as this process sees them."""
        context, local = self.context, self.engine is None
        return WorkQueue(
            self.store,
            self.suite_run,
            context.run_id,
            context.folder,
            processes=context.workers if local else max(2, context.workers),
            stopped=self.stopped,
            swap=self.models.residency.swap,
            progress=self.progress,
        )

    def inputs(self, path: Path) -> dict[str, str]:
        """What this process read by itself and judges a suite by: digests of its file and settings.

        All processes of a run have to have read the same.
        """
        return {str(path): self.suites.get(path).suite.digest, **self.settings.digest}

    def suite_run(self, path: Path) -> SuiteRun:
        """The measuring of a suite."""
        if path not in self._runs:
            assigned = self.suites.get(path).assignments.roles.values()
            self.devices.assign(assignment.spec for assignment in assigned)
            self._runs[path] = self.suites.get(path).run(self.models, self.settings.baselines)
        return self._runs[path]

    def forget(self, path: Path) -> None:
        """Forget what is in memory of a suite's chains, so that a failed step is tried again."""
        self._runs.pop(path, None)
        self.judged.clear()
        if "shards" in vars(self):
            self.shards.forget()
            self.store.drop_failures()

    def model(self, suite_file: Path, role: RoleName) -> Model:
        """The loaded model of a role, from the suite if there is one, else from its option.

        Raises SpecError when no model is named for it, and what loading raises.
        """
        known: dict[str, RoleAssignment] = {}
        if suite_file.exists():
            assignments = self.suites.get(suite_file).assignments
            known = {**assignments.spare, **assignments.roles}
        assignment = known.get(role) or assigned_role(self.suites.choices, role)
        return self.models.runner(assignment).model

    def bind_named(self, name: str) -> BoundRole:
        """A model that the user named, bound in its role, or the first that it can play.

        Raises what binding it in its role raises, where it can be bound in no other either.
        """
        first: CepError | None = None
        for assignment in possible_roles(self.suites.choices, name):
            try:
                return self.models.runner(assignment).bound
            except CepError as error:
                first = first or error
        assert first is not None  # there is at least its own role
        raise first

    def hash_file(self, path: Path) -> str:
        """SHA-256 of a file's bytes, remembered by the store."""
        return self.models.context.hash_file(path)

    def assign(self, cases: Mapping[str, tuple[Path, Case, Overrides]]) -> None:
        """Divide alpha among all cases of the run, so that a case's share is known before it runs.

        cases: node id -> suite file, case, and what its test says of how it is judged.
        """
        claims = {
            nodeid: self.suites.claim(path, case.key, overrides)
            for nodeid, (path, case, overrides) in cases.items()
        }
        for nodeid, policy in settle(claims).items():
            path, case, _ = cases[nodeid]
            self.assigned[nodeid] = AssignedCase(path, case, policy)

    def check_policies(self, *, accepting: bool) -> None:
        """Raise SuiteError for an assigned case that no drop could fail.

        See SuiteCache.check_policy.

        accepting: whether measurements are to take the place of the baselines.
        """
        for assigned in self.assigned.values():
            key = assigned.case.key
            accepted = () if accepting else self.suites.references(key, accepted_value)
            self.suites.check_policy(assigned, *accepted)

    # -- other processes and the cluster -----------------------------------------------------------

    def plan_pools(self) -> str | None:
        """Divide the cluster among the collected cases' models; in a line. Raises SpecError."""
        if self.engine is None:
            return None
        files = dict.fromkeys(assigned.suite_file for assigned in self.assigned.values())
        return self.engine.plan(
            assignment
            for file in files
            for assignment in self.suites.get(file).assignments.roles.values()
        )

    def offer(self, path: Path, case: Case, most: int | None) -> None:
        """Announce a case that is needed to the threads that work on a cluster.

        most: samples of each category that are looked at; None: all.
        """
        if self.engine is not None:
            self.engine.offer(path, case, most)

    @property
    def _cluster(self) -> RayEngine | None:
        """The cluster, where one was connected."""
        engine: RayEngine | None = vars(self).get("engine")
        return engine

    @property
    def cluster_progress(self) -> Progress | None:
        """How far the threads on a cluster are; None where there are none, or they do nothing."""
        return None if self._cluster is None else self._cluster.progress

    @property
    def infrastructure(self) -> list[str]:
        """What happened to the cluster and was made good, a sentence each."""
        return [] if self._cluster is None else self._cluster.messages()

    def leave_cluster(self) -> None:
        """End the threads and actors of a cluster."""
        if self._cluster is not None:
            self._cluster.close()

    # -- what was done -----------------------------------------------------------------------------

    @property
    def runners(self) -> list[RoleRunner]:
        """The models that were bound so far; none where the store could not be opened."""
        own = list(self.models.runners.values()) if "models" in vars(self) else []
        return own if self._cluster is None else own + self._cluster.runners

    @property
    def usage(self) -> UsageTotals:
        """Everything that the models of this process did so far."""
        tallies = [(runner.bound.role, runner.tally) for runner in self.runners]
        spent = total(tally for _, tally in tallies)
        seconds, loads = spent.seconds, Counter[str]()
        for role, tally in tallies:
            loads[role] += tally.loads
        if self._cluster is not None:
            # Threads that share models on a cluster also wait for them, so they cannot count these.
            loads, seconds = self._cluster.pools.usage()
        return UsageTotals(
            loads.total(),
            spent.inputs,
            spent.hits,
            model_seconds=seconds,
            roles=dict(+loads),
            usage=spent.usage,
            worker=self.context.worker,
        )

    def charge(self, before: UsageTotals, seconds: float) -> UsageTotals:
        """Usage for a case.

        before: the usage when the case began.
        seconds: how long it took.
        """
        spent = usage_between(before, self.usage, seconds, self.context.worker)
        self._charged = total_usage([self._charged, spent])
        return spent

    @property
    def background_usage(self) -> UsageTotals:
        """Usage outside of this process's cases: for cases of others, in tests of the engineer."""
        return usage_between(self._charged, self.usage, 0.0, self.context.worker)

    def drain_messages(self) -> list[str]:
        """New remarks on models since the last call."""
        remarks = dict.fromkeys(
            remark for runner in self.runners for remark in runner.tally.remarks
        )
        new = [remark for remark in remarks if remark not in self._shown_remarks]
        self._shown_remarks.update(new)
        return new

    def publish(self, seconds: float | None, waiting: Callable[[int], None] | None) -> list[str]:
        """Wait until all results are published; returns what went wrong with that.

        seconds: after which the rest is left.
        waiting: called with how many are left, where it takes long.
        """
        if "store" not in vars(self):
            return []
        self.store.flush(seconds, waiting)
        return list(dict.fromkeys(self.store.remarks))

    def stored_artifact(self, digest: str) -> Artifact | None:
        """An image or a sound for a report, by its digest; None where it is gone."""
        try:
            return self.store.get_artifact(digest)
        except (StoreError, UnreadError):  # removed, or its disk is full: the page does without
            return None

    @property
    def damage(self) -> list[str]:
        """Entries that the store found broken so far."""
        return self.store.damage if "store" in vars(self) else []

    def close(self) -> None:
        """Leave the cluster, end servers, and release the store."""
        self.leave_cluster()
        if "_servers" in vars(self):
            self._servers.close()
        if "store" in vars(self):
            self.store.close()
        if self._plan_store is not None:
            self._plan_store.cleanup()
