"""The models of a run on the cluster: a pool of actors for each, which any thread may ask.

Ray starts an actor's process again where it dies (`max_restarts`), and the process compares what it
loads with the run's model before it answers, so that no restart plays another one. Ray repeats no
batch by itself (`max_task_retries=0`): one that kills its process would kill one after the other
before it could be given up. Ray's own ActorPool serves one thread and knows of no deaths.

Why Ray Serve and Ray Data were not taken is in docs/clusters.md.
"""

from __future__ import annotations

import pickle
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from hashlib import sha256
from threading import Condition, Lock, RLock
from typing import Any, TypeVar

from pytest_cepbench.chains.batching import MOST_CRASHES
from pytest_cepbench.chains.ray.actor import (
    ActorAnswer,
    ActorFault,
    ActorSetup,
    ChainActor,
    RemoteModel,
    as_sent,
    bind_here,
    methods_of,
)
from pytest_cepbench.chains.ray.cluster import (
    Allocation,
    Cluster,
    ResourceRequest,
    allocate,
    is_reserved,
    reserve,
    same_imports,
)
from pytest_cepbench.errors import (
    CepError,
    DeviceMemoryError,
    MeasurementError,
    ModelError,
    StoppedError,
    error_line,
)
from pytest_cepbench.escapes import mask_secrets
from pytest_cepbench.models.binding import BindContext, BoundRole, bind
from pytest_cepbench.models.protocols import RoleName
from pytest_cepbench.models.spec import SCHEMES, ModelSpec

PATIENCE = 300.0
"""Seconds to wait while no actor of a model lives and Ray has no place for one."""

_RESTARTS = 2  # of an actor by Ray; one that was ready is made anew when they are used up

_WAIT_SECONDS = 0.1  # between looks at actors, and at whether the run stops

_SPARE_SECONDS = 2.0  # without any actor, after which one is started beside those of another node

_STOPS = "the run stops"

T = TypeVar("T")


@dataclass
class LossLog:
    """What a run lost, for the report; any thread may add to it.

    batches: lost with an actor, by the actor's role, node, and Ray's words.
    remarks: what else happened to the cluster, each once.
    """

    batches: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    remarks: dict[str, None] = field(default_factory=dict)

    def lines(self) -> list[str]:
        """A sentence for what was lost on each node for each reason."""
        lost = [
            f"node {node} lost {count} {role} actor{'s' * (count > 1)} in the middle of a batch, "
            f"which was asked for again: {words}"
            for (role, node, words), count in self.batches.items()
        ]
        return lost + list(self.remarks)


@dataclass(eq=False)
class PoolActor:
    """An actor.

    handle: Ray's, of all processes of the actor.
    place: number of its place in the placement group; None for one beside others.
    ready: Ray's reference to what the actor says when it has loaded its model; None while it is
        ready.
    initial: whether it is one of those that the pool began with, and was not ready yet.
    process: names the process that was ready last; empty before the first.
    node_id, node: id and name of its node.
    busy: whether it has a batch.
    """

    handle: Any
    place: int | None
    ready: Any
    initial: bool = True
    process: str = ""
    node_id: str = ""
    node: str = ""
    busy: bool = False


@dataclass(eq=False)
class ActorPool:
    """The actors of one model, as any thread may ask them, a batch at a time each.

    cluster: named where no actor gets a place.
    bound: the model as it was bound first, which every actor has to agree with.
    setup: sent to every actor.
    allocation: the resources of the pool.
    losses: where lost actors are noted.
    group: Ray's placement group, a bundle for each actor; None where they need nothing.
    methods: of `actor.ASKED`, those that the model has.
    loads: models loaded, by all actors so far.
    seconds: in the models' code, likewise.
    """

    cluster: Cluster
    bound: BoundRole
    setup: ActorSetup
    allocation: Allocation
    losses: LossLog
    group: Any = None
    actors: list[PoolActor] = field(default_factory=list)
    methods: tuple[str, ...] = ()
    loads: int = 0
    seconds: float = 0.0
    _deaths: Counter[str] = field(default_factory=Counter)  # by digest of the batch
    _waiting_since: float = 0.0
    _fault: Exception | None = None
    _spare: bool = False
    _closed: bool = False
    _changed: Condition = field(default_factory=Condition)

    @property
    def name(self) -> str:
        """Of the model, for people."""
        return f"{self.bound.role} {self.bound.spec}"

    def start(self, stopped: Callable[[], bool]) -> None:
        """Start the actors, where there are none, and wait for the first that is ready.

        Raises what loading raises, ModelError where an actor's model is another one or where no
        actor can be placed, StoppedError.
        """
        with self._changed:
            if not (self.actors or self._fault):
                self._waiting_since = time.monotonic()
                self.actors = [self._create(place) for place in range(self.allocation.actors)]
            self._await(lambda: next((a for a in self.actors if a.ready is None), None), stopped)

    def ask(self, method: str, args: Sequence[Any], stopped: Callable[[], bool]) -> ActorAnswer:
        """Send a batch to an actor, and once more to another one where it dies over it.

        method: of the role, with its arguments. stopped: whether to stop waiting. Raises the
        model's exceptions, MeasurementError for a batch that kills its actors, and what `start`
        raises.
        """
        import ray

        sent = as_sent(args)

        def digest() -> str:
            """Names the batch by its content; only needed where actors have died."""
            return sha256(pickle.dumps((method, sent))).hexdigest()

        def free() -> PoolActor | None:
            return next((a for a in self.actors if a.ready is None and not a.busy), None)

        while not (self._deaths and self._deaths[digest()] >= MOST_CRASHES):
            with self._changed:
                actor = self._await(free, stopped)
                actor.busy = True
            try:
                ref = actor.handle.answer.remote(method, sent)
                while not ray.wait([ref], timeout=_WAIT_SECONDS)[0]:
                    if self._closed or stopped():
                        raise StoppedError(_STOPS)
                answer: ActorAnswer | ActorFault | None = ray.get(ref)
                if answer is None:  # Ray started it again since it last answered
                    with self._changed:
                        actor.ready = actor.handle.state.remote()
            except ray.exceptions.RayTaskError as error:
                raise ModelError(f"{self.name}: {format_actor_error(error)}") from error
            except ray.exceptions.RayError as error:  # it died, or its node did, or memory ran out
                answer = None
                with self._changed:
                    self._deaths[digest()] += 1
                    self.losses.batches[self.bound.role, actor.node, _death_words(error)] += 1
                    # Those beside it may be gone with their node, and would lose the batch again.
                    for other in self.actors:
                        if other.node_id == actor.node_id:
                            other.ready = other.handle.state.remote()
            finally:
                with self._changed:
                    actor.busy = False
                    self._changed.notify_all()
            if isinstance(answer, ActorFault):
                raise answer.exception()
            if answer is not None:
                self.seconds += answer.seconds
                return answer
        raise MeasurementError(
            f"infrastructure: {MOST_CRASHES} actors of the {self.name} died while they worked on "
            f"the same batch of {len(sent[0])}: give them more memory, or smaller batches "
            "(batch_size=)"
        )

    def close(self) -> None:
        """End all actors."""
        import ray

        with self._changed:
            self._closed = True
            actors, self.actors = self.actors, []
            self._changed.notify_all()
        for actor in actors:
            ray.kill(actor.handle)

    def _create(self, place: int | None, *, initial: bool = True) -> PoolActor:
        allocation = self.allocation if place is not None else replace(self.allocation, cpus=0.0)
        handle = create_actor(self.setup, allocation, self.group, place)
        return PoolActor(handle, place, handle.state.remote(), initial)

    def _await(self, wanted: Callable[[], T | None], stopped: Callable[[], bool]) -> T:
        """Look at the actors until there is what is wanted. Raises as `start`."""
        while True:
            self._update()
            if self._fault is not None:
                raise self._fault
            if self._closed or stopped():
                raise StoppedError(_STOPS)
            found = wanted()
            if found is not None:
                return found
            if not self.actors:
                raise ModelError(
                    f"infrastructure: no actor of the {self.name} is left, and none can be started"
                )
            waiting = time.monotonic() - self._waiting_since
            crowds = not (self.allocation.gpus or self._spare) and waiting > _SPARE_SECONDS
            if any(actor.ready is None for actor in self.actors) or is_reserved(self.group):
                self._waiting_since = time.monotonic()
            elif crowds and self.cluster.lost_nodes():
                # Other models' places may fill the nodes that are left: better crowd one than stop.
                self._spare = True
                self.actors.append(self._create(None, initial=False))
            elif waiting > PATIENCE:
                raise ModelError(
                    f"infrastructure: no actor of the {self.name} could be placed within "
                    f"{PATIENCE:.0f} s (each asks for {self.allocation.gpus:g} GPUs and "
                    f"{self.allocation.cpus:g} CPUs): is the cluster in use by others, or have "
                    f"nodes left? {self.cluster}"
                )
            self._changed.wait(_WAIT_SECONDS)

    def _update(self) -> None:
        """Look which actors are ready by now, or dead for good."""
        import ray

        by_ref = {actor.ready: actor for actor in self.actors if actor.ready is not None}
        if not by_ref:
            return
        done, _ = ray.wait(list(by_ref), num_returns=len(by_ref), timeout=0)
        for actor in map(by_ref.__getitem__, done):
            try:
                reply = ray.get(actor.ready)
            except ray.exceptions.ActorUnavailableError:  # Ray is about to start it again
                actor.ready = actor.handle.state.remote()
            except ray.exceptions.RayError as error:
                escaped = isinstance(error, ray.exceptions.RayTaskError)
                if escaped or getattr(error, "actor_init_failed", False):
                    self._reject(actor, ModelError(f"{self.name}: {format_actor_error(error)}"))
                    continue
                self.actors.remove(actor)  # Ray does not start its process any more
                if actor.process:  # it is not the model that fails at its start
                    self.actors.append(self._create(actor.place, initial=False))
                else:
                    words = _death_words(error)
                    self.losses.remarks[f"the {self.name} has an actor less: {words}"] = None
            else:
                if isinstance(reply, ActorFault):
                    self._reject(actor, reply.exception())
                    continue
                if reply.process != actor.process:  # else it was only asked if it is still there
                    self.loads += 1
                    self.seconds += reply.seconds
                actor.process, actor.node_id, actor.node = reply.process, reply.node_id, reply.node
                actor.ready, actor.initial, self.methods = None, False, reply.methods

    def _reject(self, actor: PoolActor, error: Exception) -> None:
        """End an actor that cannot work: a first process ends the pool, a later one itself."""
        import ray

        self.actors.remove(actor)
        ray.kill(actor.handle)
        no_memory = isinstance(error, DeviceMemoryError | MemoryError)
        if no_memory and self.actors:
            self.losses.remarks[f"the {self.name} has an actor less: {error}"] = None
        elif no_memory:  # there may be room another time: the next that asks starts anew
            raise error
        elif actor.initial:
            self._fault = error
        else:
            self.losses.remarks[f"no new actor of the {self.name}: {error}"] = None


def create_actor(setup: ActorSetup, allocation: Allocation, group: Any, place: int | None) -> Any:
    """The handle of a new actor, which may wait for its place.

    group, place: a placement group and the number of a bundle of it; None lets Ray spread actors.
    """
    import ray
    from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

    strategy: Any = "SPREAD"
    if group is not None and place is not None:
        strategy = PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=place)
    kind: Any = ray.remote(ChainActor)
    return kind.options(
        num_cpus=allocation.cpus,
        num_gpus=allocation.gpus,
        max_restarts=_RESTARTS,
        max_task_retries=0,
        scheduling_strategy=strategy,
        runtime_env=same_imports(),
    ).remote(setup)


def start_binding(node_id: str, setup: ActorSetup) -> Any:
    """Bind a model on a node, beside its actors; returns a reference of Ray to the result."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    there = NodeAffinitySchedulingStrategy(node_id, soft=False)
    task: Any = ray.remote(bind_here)
    return task.options(num_cpus=0, scheduling_strategy=there, runtime_env=same_imports()).remote(
        setup
    )


def _death_words(error: BaseException) -> str:
    """Ray's name of an actor's loss and the beginning of what it says, without ids."""
    words = re.sub(r"\b[0-9a-f]{16,}\b ?", "", error_line(error))
    return f"{type(error).__name__}: {words[:200]}"


def format_actor_error(error: BaseException) -> str:
    """What Ray says of an exception in an actor: the last line of its traceback."""
    lines = [line for line in mask_secrets(str(error)).splitlines() if line.strip()]
    return " ".join(lines[-1].split())[:300] if lines else type(error).__name__


class ServedModel:
    """A model of the driver that is loaded once, and called by one thread at a time.

    So a server has as many requests at once, and as many a minute, as in a run in one process.
    loads: how often it was loaded: 0 or 1. seconds: in its code.
    """

    def __init__(self, load: Callable[[], Any]) -> None:
        self._load = load
        self._model: Any = None
        self._lock = Lock()
        self.loads = 0
        self.seconds = 0.0

    def remote(self, stopped: Callable[[], bool]) -> Any:
        """The model for one thread. stopped: whether the run stops; calls raise StoppedError."""

        @contextmanager
        def turn() -> Iterator[None]:
            while not self._lock.acquire(timeout=_WAIT_SECONDS):
                if stopped():
                    raise StoppedError(_STOPS)
            started = time.perf_counter()
            try:
                yield
            finally:
                self.seconds += time.perf_counter() - started
                self._lock.release()

        def ask(method: str, args: Sequence[Any]) -> ActorAnswer:
            with turn():
                return ActorAnswer(getattr(self._model, method)(*args))

        with turn():
            if self._model is None:
                self._model = self._load()  # what it raises is raised here
                self.loads = 1
        return RemoteModel(methods_of(self._model), ask)


Place = tuple[RoleName, ModelSpec]
"""A role, and the spec of its model."""


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
    _roles: list[str] = field(default_factory=list)
    _allocations: dict[str, Allocation] = field(default_factory=dict)
    _bound: dict[Place, BoundRole | CepError] = field(default_factory=dict)
    _pools: dict[str, ActorPool] = field(default_factory=dict)
    _served: dict[Place, ServedModel] = field(default_factory=dict)
    _groups: list[Any] = field(default_factory=list)
    _shared: Any = None  # the group of the pools that share their places
    _begun: bool = False
    _closed: bool = False
    _lock: RLock = field(default_factory=RLock)

    def plan(self, places: Sequence[Place]) -> Mapping[str, Allocation]:
        """Divide the cluster among the models of the run; returns the pools by role.

        Raises SpecError where the cluster is too small.
        """
        with self._lock:
            self._roles = [role for role, spec in places if not SCHEMES[spec.scheme].served]
            self._allocations = allocate(self._roles, self.requests, self.cluster.nodes())
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
                    if SCHEMES[spec.scheme].served:  # its key lies here, and it needs no device
                        own = bind(spec, role, self.context, force=force)
                        self._served[place] = ServedModel(own.load)
                        self._bound[place] = own
                    else:
                        self._bound[place] = self._bind_on_node(self._setup(place, force=force))
                except CepError as error:
                    self._bound[place] = error.with_traceback(None)
            bound = self._bound[place]
        if isinstance(bound, CepError):
            raise bound
        return replace(bound, load=lambda: self._load(place, bound, stopped, force=force))

    def usage(self) -> tuple[Counter[str], float]:
        """Models loaded, by role, and seconds in their code; of all actors and servers."""
        models: list[tuple[str, ActorPool | ServedModel]] = [
            *((pool.bound.role, pool) for pool in list(self._pools.values())),
            *((role, model) for (role, _), model in list(self._served.items())),
        ]
        loads: Counter[str] = Counter()
        for role, model in models:
            loads[role] += model.loads
        return +loads, sum(model.seconds for _, model in models)

    def messages(self) -> list[str]:
        """What was lost and made good, a sentence each."""
        if not self._closed:
            for node in self.cluster.lost_nodes():
                self.losses.remarks[f"node {node.name} left the cluster"] = None
        return self.losses.lines()

    def close(self) -> None:
        """End all actors, and leave their places."""
        from ray.util.placement_group import remove_placement_group

        with self._lock:
            self.messages()
            self._closed = True
            for pool in self._pools.values():
                pool.close()
            for group in self._groups:
                remove_placement_group(group)

    def _setup(self, place: Place, *, force: bool) -> ActorSetup:
        role, spec = place
        if role not in self._allocations:  # it was not planned for
            alone = allocate([role], self.requests, self.cluster.nodes())[role]
            self._allocations[role] = replace(alone, actors=1, cpus=0.0, shared=False)
        allocation = self._allocations[role]
        return ActorSetup(role, spec.text, force, allocation.threads, allocation.gpus)

    def _bind_on_node(self, setup: ActorSetup) -> BoundRole:
        """Bind on one node of the kind that the role's actors will be on."""
        import ray

        nodes = self.cluster.nodes()
        able = [node for node in nodes if node.gpus] if setup.gpus else []
        node = max(able or nodes, key=lambda node: node.cpus)
        try:
            reply = ray.get(start_binding(node.id, setup))
        except ray.exceptions.RayError as error:
            raise ModelError(
                f"{setup.role} {setup.spec} could not be bound on node {node.name}: "
                f"{error_line(error)}"
            ) from error
        if isinstance(reply, ActorFault):
            fault = reply.exception()
            if isinstance(fault, CepError):
                fault = type(fault)(f"{fault} (looked up on node {node.name} of the cluster)")
            raise fault
        bound: BoundRole = reply.bound
        return replace(
            bound,
            resources=replace(
                bound.resources,
                grows=False,  # how much room there is shows in the actor alone
                lasting=True,
                # Enters notes on batch sizes: on a cluster others fit than in this process.
                build=f"{bound.resources.build} on a cluster of Ray",
            ),
            provenance={**bound.provenance, "engine": "ray"},
        )

    def _load(
        self, place: Place, bound: BoundRole, stopped: Callable[[], bool], *, force: bool
    ) -> Any:
        with self._lock:
            begun, self._begun = self._begun, True
        if not begun:  # outside the lock, since its threads ask for models at once
            self.begin()
        if place in self._served:
            return self._served[place].remote(stopped)
        with self._lock:
            name = bound.resources.shares or f"{place[0]} {place[1]}"
            if name not in self._pools:
                setup = replace(self._setup(place, force=force), identity=bound.identity)
                allocation = self._allocations[place[0]]
                group = self._shared if allocation.shared else None
                if group is None:
                    planned = [self._allocations[role] for role in self._roles]
                    sharing = [own for own in planned if own.shared]
                    group = reserve(sharing if allocation.shared else [allocation])
                    self._groups += [] if group is None else [group]
                    self._shared = group if allocation.shared else self._shared
                self._pools[name] = ActorPool(
                    self.cluster, bound, setup, allocation, self.losses, group
                )
            pool = self._pools[name]
        pool.start(stopped)
        return RemoteModel(pool.methods, lambda method, args: pool.ask(method, args, stopped))
