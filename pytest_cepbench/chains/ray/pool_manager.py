"""The models of a run on the cluster: bound there once, a pool of actors for each needed one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from threading import Condition, RLock
from typing import Any

from pytest_cepbench.chains.ray.actor import bind_on_node
from pytest_cepbench.chains.ray.cluster import Cluster, Node
from pytest_cepbench.chains.ray.losses import (
    LossLog,
    PoisonBatches,
    format_actor_error,
    is_process_death,
)
from pytest_cepbench.chains.ray.messages import (
    ActorFault,
    ActorReady,
    ActorReply,
    ActorRequest,
    ActorSetup,
    exception_of,
)
from pytest_cepbench.chains.ray.remote_model import (
    ApiProxy,
    CountingModel,
    RemoteModel,
    SerializedModel,
)
from pytest_cepbench.chains.ray.resources import (
    Allocation,
    Place,
    ResourceRequest,
    allocate,
    check_requests,
    reserve,
)
from pytest_cepbench.chains.ray.supervisor import SupervisedActor, Supervisor
from pytest_cepbench.errors import (
    ActorLostError,
    CepError,
    MeasurementError,
    ModelError,
    StoppedError,
    error_line,
)
from pytest_cepbench.models.model_spec import ModelSpec
from pytest_cepbench.models.protocols import BindContext, BoundRole, Model, RoleName
from pytest_cepbench.models.registry import bind
from pytest_cepbench.models.schemes import SCHEMES

PREFETCH = 2
"""Batches that an actor has at most: one that it works on, one that is on its way there."""

_MOST_LOSSES = 8  # of a batch, with whole nodes counted: the cluster is being taken down

_WAIT_SECONDS = 0.1  # between looks at actors, and at whether the run stops


@dataclass(eq=False)
class ActorPool:
    """The actors of one model, as any thread may ask them.

    Not `ray.util.ActorPool`: that is for one thread, and knows nothing of actors that die.
    supervisor: starts and replaces them.
    """

    supervisor: Supervisor
    _poison: PoisonBatches = field(init=False)
    _exclusive: int = 0  # batches that wait for an actor of their own
    _changed: Condition = field(default_factory=Condition)

    def __post_init__(self) -> None:
        self._poison = PoisonBatches(self.supervisor.name)

    def start(self, stopped: Callable[[], bool]) -> None:
        """Start the actors, where there are none, and wait for the first that is ready.

        Raises what loading raises, ModelError where an actor's model is another one or where no
        actor can be placed, StoppedError.
        """
        with self._changed:
            self.supervisor.start()
        self._give_back(self._take(stopped))

    def ask(self, request: ActorRequest, stopped: Callable[[], bool]) -> ActorReply:
        """Send a batch to an actor, and to another one where it dies over it.

        stopped: whether to stop waiting. Raises the model's exceptions, MeasurementError for a
        batch that kills its actors, and what `start` raises.
        """
        losses = 0
        while True:
            # A batch over which an actor died is asked alone, so that no other is lost with it.
            slots = PREFETCH if self._poison.check(request) else 1
            actor = self._take(stopped, slots)
            try:
                reply = self._wait(actor.handle.answer.remote(request), stopped)
            except ActorLostError as error:
                losses += 1
                self._lose(actor, error.__cause__, request)
                if losses >= _MOST_LOSSES:
                    name = self.supervisor.name
                    raise MeasurementError(
                        f"infrastructure: {losses} actors of the {name} died over one batch"
                    ) from error
                continue
            finally:
                self._give_back(actor, slots)
            if isinstance(reply, ActorFault):
                raise exception_of(reply)
            assert isinstance(reply, ActorReply)
            self.supervisor.seconds += reply.seconds
            return reply

    def close(self) -> None:
        """End all actors."""
        import ray

        with self._changed:
            actors = self.supervisor.close()
            self._changed.notify_all()
        for actor in actors:
            ray.kill(actor.handle)

    def _take(self, stopped: Callable[[], bool], slots: int = 1) -> SupervisedActor:
        """The actor that has least to do, as soon as one has so many slots for batches."""
        supervisor, exclusive = self.supervisor, slots == PREFETCH
        with self._changed:
            self._exclusive += exclusive
            try:
                while True:
                    supervisor.update()
                    if supervisor.fault is not None:
                        self._changed.notify_all()
                        raise supervisor.fault
                    self._check_stop(stopped)
                    free = [actor for actor in supervisor.live if actor.busy + slots <= PREFETCH]
                    if free and (exclusive or not self._exclusive):
                        break
                    supervisor.check_patience()
                    self._changed.wait(_WAIT_SECONDS)
            finally:
                self._exclusive -= exclusive
            actor = min(free, key=lambda actor: actor.busy)
            actor.busy += slots
            # To the end, so that those with equally little to do take turns.
            supervisor.live.remove(actor)
            supervisor.live.append(actor)
            return actor

    def _check_stop(self, stopped: Callable[[], bool]) -> None:
        if self.supervisor.closed or stopped():
            raise StoppedError("the run stops")

    def _give_back(self, actor: SupervisedActor, slots: int = 1) -> None:
        with self._changed:
            actor.busy -= slots
            self._changed.notify_all()

    def _wait(self, ref: Any, stopped: Callable[[], bool]) -> Any:
        """The result of a call. Raises ActorLostError where its actor died."""
        import ray

        while True:
            try:
                return ray.get(ref, timeout=_WAIT_SECONDS)
            except ray.exceptions.GetTimeoutError:
                self._check_stop(stopped)
            except ray.exceptions.RayTaskError as error:
                raise ModelError(f"{self.supervisor.name}: {format_actor_error(error)}") from error
            except ray.exceptions.RayError as error:
                raise ActorLostError from error

    def _lose(
        self, actor: SupervisedActor, error: BaseException | None, request: ActorRequest
    ) -> None:
        """Note that an actor is gone, or the node that held its reply."""
        by_node = self.supervisor.is_lost_with_node(actor, error)
        with self._changed:
            self.supervisor.replace_lost(actor, error, by_node=by_node)
            if not by_node and is_process_death(error):
                self._poison.add(request)
        if actor.loss is not None:
            self.supervisor.losses.add_batch(actor.loss)


@dataclass(eq=False)
class PoolManager:
    """The pools of one run; any thread may ask for a role.

    cluster: closed by the caller that connected.
    requests: for the role's pools, as the user gave them.
    context: binds models of servers in this process.
    begin: called once, before the first model is loaded.
    losses: what the run lost.
    """

    cluster: Cluster
    requests: Mapping[str, ResourceRequest]
    context: BindContext
    begin: Callable[[], None] = lambda: None
    losses: LossLog = field(default_factory=LossLog)
    _planned: list[Place] = field(default_factory=list)
    _allocations: dict[str, Allocation] = field(default_factory=dict)
    _bound: dict[Place, BoundRole | CepError] = field(default_factory=dict)
    _pools: dict[str, ActorPool] = field(default_factory=dict)
    _served: dict[Place, SerializedModel] = field(default_factory=dict)
    _groups: dict[Place, list[Any]] | None = None
    _digests: dict[str, str] = field(default_factory=dict)
    _begun: bool = False
    _lock: RLock = field(default_factory=RLock)

    def __post_init__(self) -> None:
        check_requests(self.requests, self.cluster.nodes())

    def plan(self, places: Sequence[Place]) -> Mapping[str, Allocation]:
        """Divide the cluster among the models of the run; returns the pools by role.

        Raises SpecError where the cluster is too small.
        """
        with self._lock:
            self._planned = [place for place in places if not SCHEMES[place[1].scheme].served]
            roles = [role for role, _ in self._planned]
            self._allocations = allocate(roles, self.requests, self.cluster.nodes())
            return dict(self._allocations)

    @property
    def helpers(self) -> int:
        """How many threads keep the actors busy: while one batch is made, the next is prepared."""
        return 2 * max((pool.actors for pool in self._allocations.values()), default=1)

    def bound(
        self, role: RoleName, spec: ModelSpec, stopped: Callable[[], bool], *, force: bool = False
    ) -> BoundRole:
        """A role bound on the cluster; its model is that of a pool there.

        stopped: whether the thread that asks is to stop waiting. Raises what binding raises.
        """
        place = (role, spec)
        with self._lock:
            if place not in self._bound:
                try:
                    self._bound[place] = self._bind(place, force=force)
                except CepError as error:
                    self._bound[place] = error.with_traceback(None)
            bound = self._bound[place]
        if isinstance(bound, CepError):
            raise bound
        if place in self._served:
            return replace(bound, load=lambda: self._load_served(place, stopped))
        return replace(bound, load=lambda: self._load(place, bound, stopped, force=force))

    def usage(self) -> tuple[Counter[str], float]:
        """Models loaded, by role, and seconds in their code; of all actors and servers."""
        loads: Counter[str] = Counter()
        supervisors = [pool.supervisor for pool in list(self._pools.values())]
        for supervisor in supervisors:
            loads[supervisor.bound.role] += supervisor.loads
        served = list(self._served.items())
        for (role, _), model in served:
            loads[role] += model.loads
        seconds = sum(supervisor.seconds for supervisor in supervisors)
        return +loads, seconds + sum(model.seconds for _, model in served)

    def close(self) -> None:
        """End all actors."""
        with self._lock:
            for pool in self._pools.values():
                pool.close()

    # -- binding ---------------------------------------------------------------------------------

    def _bind(self, place: Place, *, force: bool) -> BoundRole:
        role, spec = place
        if SCHEMES[spec.scheme].served:  # its key lies here, and no device is needed for it
            bound = bind(spec, role, self.context, force=force)
            self._served[place] = SerializedModel(bound.load)
            return bound
        node, setup = self._node(role), self._setup(place, force=force)
        ready = self._bind_on(node, setup)
        self._digests |= ready.digests
        return replace(
            ready.bound,
            grows=False,  # how much room there is shows in the actor alone
            lasting=True,
            # Enters notes on batch sizes: on a cluster others fit than in this process.
            build=f"{ready.bound.build} on a cluster of Ray",
            provenance={**ready.bound.provenance, "engine": "ray"},
        )

    def _bind_on(self, node: Node, setup: ActorSetup) -> ActorReady:
        import ray

        try:
            reply = bind_on_node(setup, node.id)
        except ray.exceptions.RayError as error:
            text = error_line(error)
            raise ModelError(
                f"{setup.role} {setup.spec} could not be bound on node {node.name}: {text}"
            ) from error
        if isinstance(reply, ActorFault):
            fault = exception_of(reply)
            if isinstance(fault, CepError):
                fault = type(fault)(f"{fault} (looked up on node {node.name} of the cluster)")
            raise fault
        return reply

    def _node(self, role: str) -> Node:
        """One of the kind that the role's actors will be on."""
        nodes = self.cluster.nodes()
        request = self.requests.get(role, ResourceRequest())
        able = [node for node in nodes if node.gpus] if request.gpus != 0 else []
        return max(able or nodes, key=lambda node: node.cpus)

    def _setup(self, place: Place, *, force: bool) -> ActorSetup:
        role, spec = place
        allocation = self._allocations.get(role)
        threads = allocation.threads if allocation else None
        gpus = allocation.gpus if allocation else self.requests.get(role, ResourceRequest()).gpus
        if gpus is None:
            gpus = 1.0 if any(node.gpus for node in self.cluster.nodes()) else 0.0
        return ActorSetup(role, spec.text, force, threads, gpus, dict(self._digests))

    # -- loading ---------------------------------------------------------------------------------

    def _load(
        self, place: Place, bound: BoundRole, stopped: Callable[[], bool], *, force: bool
    ) -> Model:
        self._begin()
        with self._lock:
            name = bound.shares or f"{place[0]} {place[1]}"
            if name not in self._pools:
                self._pools[name] = self._pool(place, bound, force=force)
            pool = self._pools[name]
        pool.start(stopped)
        kind = CountingModel if pool.supervisor.counts else RemoteModel
        return kind(partial(pool.ask, stopped=stopped))

    def _load_served(self, place: Place, stopped: Callable[[], bool]) -> Model:
        self._begin()
        model = self._served[place]
        with model.turn(stopped):  # what loading raises is raised here
            return ApiProxy(model, stopped)

    def _begin(self) -> None:
        """Call `begin` once: outside the lock, since its threads ask for models at once."""
        with self._lock:
            begun, self._begun = self._begun, True
        if not begun:
            self.begin()

    def _pool(self, place: Place, bound: BoundRole, *, force: bool) -> ActorPool:
        role = place[0]
        if role not in self._allocations:  # it was not planned for
            roles = [*self._allocations, role]
            self._allocations |= allocate(roles, self.requests, self.cluster.nodes())
        if self._groups is None:
            self._groups = reserve(self._planned, self._allocations)
        groups = self._groups.get(place)
        allocation = self._allocations[role]
        if groups is None:  # the plan has given everything away
            allocation = replace(allocation, actors=1, cpus=0.0)
        setup = self._setup(place, force=force)
        return ActorPool(Supervisor(self.cluster, bound, setup, allocation, self.losses, groups))
