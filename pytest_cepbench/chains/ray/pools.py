"""The models of a run on the cluster: a pool of actors for each, which any thread may ask.

Ray starts an actor's process again where it dies (`max_restarts`), and the process compares what it
loads with the run's model before it answers, so that no restart plays another one. Ray repeats no
batch by itself (`max_task_retries=0`): one that kills its process would kill one after the other,
and those of other batches with it, before it could be given up.

Why Ray Serve and Ray Data were not taken is in docs/clusters.md.
"""

from __future__ import annotations

import pickle
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from hashlib import sha256
from threading import Condition, Lock, RLock
from typing import Any

from pytest_cepbench.chains.batching import MOST_CRASHES
from pytest_cepbench.chains.ray.actor import (
    ActorAnswer,
    ActorFault,
    ActorReady,
    ActorSetup,
    RemoteModel,
    as_sent,
    methods_of,
)
from pytest_cepbench.chains.ray.cluster import Cluster, Node, node_preparation, start_on_node
from pytest_cepbench.chains.ray.resources import (
    Allocation,
    Place,
    ResourceRequest,
    allocate,
    check_requests,
    reserve,
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
"""Seconds to wait while no actor of a model lives and none has a place."""

PREFETCH = 2
"""Batches that an actor has at most: one that it works on, one that is on its way there."""

_RESTARTS = 2  # of an actor by Ray; one that was ready is made anew when they are used up

_MOST_LOSSES = 8  # of a batch, with whole nodes counted: the cluster is being taken down

_NODE_SECONDS = 60.0  # for Ray to notice that a node is gone; by default it takes half a minute

_PROBE_SECONDS = 5.0  # for a node to start a process, before the report says why one died

_SPARE_SECONDS = 2.0  # without any actor, after which one is started beside those of another node

_WAIT_SECONDS = 0.1  # between looks at actors, and at whether the run stops

_DIED = "its process died, as it does when memory runs out"

_NO_MEMORY = "Ray ended the process, since memory ran out"


# -- losses --------------------------------------------------------------------------------------


@dataclass(eq=False)
class LostActor:
    """A process of an actor that is gone.

    role: of its model.
    node: its name; empty where the actor had no place yet.
    reason: as far as it is known.
    probe: Ray's reference to a task on that node, which tells whether only the process is gone;
        None once that is known.
    batches: that it had, and that went to other actors.
    noted: when it was, in seconds.
    """

    role: str
    node: str
    reason: str = "it could not be reached any more"
    probe: Any = None
    batches: int = 0
    noted: float = field(default_factory=time.monotonic)

    @property
    def by_process(self) -> bool:
        """Whether its process ended, by itself or by Ray, and not with its node."""
        return self.reason in (_DIED, _NO_MEMORY)

    def look(self, until: float = 0.0) -> None:
        """Look what became of its node. Ray's error of an actor that it restarts does not say.

        until: when to stop waiting for that, in seconds after it was lost.
        """
        import ray

        probe, timeout = self.probe, max(0.0, self.noted + until - time.monotonic())
        if probe is None or not ray.wait([probe], timeout=timeout)[0]:
            return
        reason = _DIED
        try:
            ray.get(probe)
        except (ray.exceptions.TaskUnschedulableError, ray.exceptions.NodeDiedError):
            reason = "the node left the cluster"
        except ray.exceptions.RayError:
            pass  # something ran there, however far it came
        self.reason, self.probe = reason, None  # in this order: threads wait for the second


@dataclass
class LossLog:
    """What a run lost, for the report; any thread may add to it.

    actors: that are gone. remarks: what else happened to the cluster, each once.
    """

    actors: list[LostActor] = field(default_factory=list)
    remarks: dict[str, None] = field(default_factory=dict)

    def lines(self) -> list[str]:
        """A sentence for what was lost on each node for each reason."""
        kinds: dict[tuple[str, str], list[LostActor]] = {}
        for lost in self.actors:
            kinds.setdefault((lost.node, lost.reason), []).append(lost)
        return [_loss_line(*kind, actors) for kind, actors in kinds.items()] + list(self.remarks)


def _loss_line(node: str, reason: str, actors: Sequence[LostActor]) -> str:
    roles = Counter(lost.role for lost in actors)
    by_role = ", ".join(f"{count} {role}" for role, count in roles.items())
    lost = f"{len(actors)} actor{'s' * (len(actors) > 1)} ({by_role})"
    start = f"node {node} lost {lost}" if node else f"{lost} lost before they were ready"
    batches = sum(lost.batches for lost in actors)
    outcome = {0: "no batch was lost", 1: "a batch on its way was asked for again"}.get(
        batches, f"{batches} batches on their way were asked for again"
    )
    return f"{start}: {reason}; {outcome}"


def format_actor_error(error: BaseException) -> str:
    """What Ray says of an exception in an actor: the last line of its traceback."""
    lines = [line for line in mask_secrets(str(error)).splitlines() if line.strip()]
    return " ".join(lines[-1].split())[:300] if lines else type(error).__name__


# -- a pool --------------------------------------------------------------------------------------


@dataclass(eq=False)
class PoolActor:
    """An actor, until its process dies; another one is its next process.

    handle: Ray's, of all processes of the actor.
    ready: Ray's reference to what the actor says when it has loaded its model.
    place: number of its place in the placement group; None for one beside others.
    initial: whether it is one of those that the pool began with.
    proven: whether a process of this handle was ready before.
    node_id, node: id and name of its node.
    busy: batches that it has.
    loss: as noted when it is gone; of one that is started again, the loss before.
    """

    handle: Any
    ready: Any
    place: int | None
    initial: bool = False
    proven: bool = False
    node_id: str = ""
    node: str = ""
    busy: int = 0
    loss: LostActor | None = None


@dataclass(eq=False)
class ActorPool:
    """The actors of one model, as any thread may ask them.

    Not `ray.util.ActorPool`: that is for one thread, and knows nothing of actors that die.

    cluster: named where no actor gets a place.
    bound: the model as it was bound first, which every actor has to agree with.
    setup: sent to every actor.
    allocation: the resources of the pool.
    losses: where lost actors are noted.
    group: Ray's placement group, a bundle for each actor; None lets Ray place them.
    live: actors that are ready.
    methods: of `actor.METHODS`, those that the model has.
    loads: models loaded, by all actors so far.
    seconds: in the models' code, likewise.
    """

    cluster: Cluster
    bound: BoundRole
    setup: ActorSetup
    allocation: Allocation
    losses: LossLog
    group: Any = None
    live: list[PoolActor] = field(default_factory=list)
    methods: tuple[str, ...] = ()
    loads: int = 0
    seconds: float = 0.0
    _pending: list[PoolActor] = field(default_factory=list)
    _deaths: dict[str, list[LostActor]] = field(default_factory=dict)  # by digest of the batch
    _exclusive: int = 0  # batches that wait for an actor of their own
    _empty_since: float = 0.0
    _fault: Exception | None = None
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
            if not (self.live or self._pending or self._fault):
                self._empty_since = time.monotonic()
                places = range(self.allocation.actors)
                self._pending = [self._create(place, initial=True) for place in places]
        self._give_back(self._take(stopped))

    def ask(self, method: str, args: Sequence[Any], stopped: Callable[[], bool]) -> ActorAnswer:
        """Send a batch to an actor, and to another one where it dies over it.

        method: of the role, with its arguments. stopped: whether to stop waiting. Raises the
        model's exceptions, MeasurementError for a batch that kills its actors, and what `start`
        raises.
        """
        sent = as_sent(args)
        while True:
            # A batch over which an actor died is asked alone, so that no other is lost with it.
            slots = PREFETCH if self._is_suspect(method, sent, stopped) else 1
            actor = self._take(stopped, slots)
            try:
                answer = self._wait(actor, method, sent, stopped)
            finally:
                self._give_back(actor, slots)
            if isinstance(answer, ActorFault):
                raise answer.exception()
            if answer is not None:
                self.seconds += answer.seconds
                return answer

    def close(self) -> None:
        """End all actors."""
        import ray

        with self._changed:
            self._closed = True
            actors = [*self._pending, *self.live]
            self._pending, self.live = [], []
            self._changed.notify_all()
        for actor in actors:
            ray.kill(actor.handle)

    # -- batches ---------------------------------------------------------------------------------

    def _take(self, stopped: Callable[[], bool], slots: int = 1) -> PoolActor:
        """The actor that has least to do, as soon as one has so many slots for batches."""
        exclusive = slots == PREFETCH
        with self._changed:
            self._exclusive += exclusive
            try:
                while True:
                    self._update()
                    if self._fault is not None:
                        self._changed.notify_all()
                        raise self._fault
                    self._check_stop(stopped)
                    free = [actor for actor in self.live if actor.busy + slots <= PREFETCH]
                    if free and (exclusive or not self._exclusive):
                        break
                    self._check_patience()
                    self._changed.wait(_WAIT_SECONDS)
            finally:
                self._exclusive -= exclusive
            actor = min(free, key=lambda actor: actor.busy)
            actor.busy += slots
            # To the end, so that those with equally little to do take turns.
            self.live.remove(actor)
            self.live.append(actor)
            return actor

    def _give_back(self, actor: PoolActor, slots: int = 1) -> None:
        with self._changed:
            actor.busy -= slots
            self._changed.notify_all()

    def _check_stop(self, stopped: Callable[[], bool]) -> None:
        if self._closed or stopped():
            raise StoppedError("the run stops")

    def _wait(
        self, actor: PoolActor, method: str, sent: Any, stopped: Callable[[], bool]
    ) -> ActorAnswer | ActorFault | None:
        """An actor's answer; None where it died over the batch, or has another model by now."""
        import ray

        ref = actor.handle.answer.remote(method, sent)
        while not ray.wait([ref], timeout=_WAIT_SECONDS)[0]:
            self._check_stop(stopped)
        try:
            answer: ActorAnswer | ActorFault | None = ray.get(ref)
        except ray.exceptions.RayTaskError as error:
            raise ModelError(f"{self.name}: {format_actor_error(error)}") from error
        except ray.exceptions.RayError as error:
            self._lose(actor, error, _digest_of(method, sent))
            return None
        if answer is None:  # Ray started it again since it last answered
            with self._changed:
                self._await_restart(actor)
        return answer

    def _is_suspect(self, method: str, sent: Any, stopped: Callable[[], bool]) -> bool:
        """Whether an actor was lost over the batch.

        Raises MeasurementError for a batch over which the processes of MOST_CRASHES died, or very
        many actors with their nodes.
        """
        if not self._deaths:
            return False
        losses = self._deaths.get(_digest_of(method, sent), [])
        until = time.monotonic() + _NODE_SECONDS
        while len(losses) >= MOST_CRASHES and any(lost.probe is not None for lost in losses):
            for lost in losses:
                lost.look()
            self._check_stop(stopped)
            if time.monotonic() > until:
                break
            time.sleep(_WAIT_SECONDS)
        deaths = sum(lost.by_process for lost in losses)
        if deaths >= MOST_CRASHES:
            raise MeasurementError(
                f"infrastructure: {deaths} actors of the {self.name} died while they worked on the "
                f"same batch of {len(sent[0])}: give them more memory, or smaller batches "
                "(batch_size=)"
            )
        if len(losses) >= _MOST_LOSSES:
            raise MeasurementError(
                f"infrastructure: {len(losses)} actors of the {self.name} died over one batch"
            )
        return bool(losses)

    # -- actors ----------------------------------------------------------------------------------

    def _create(self, place: int | None, *, initial: bool = False) -> PoolActor:
        allocation = self.allocation if place is not None else replace(self.allocation, cpus=0.0)
        handle = create_actor(self.setup, allocation, self.group, place)
        return PoolActor(handle, handle.ready.remote(), place, initial)

    def _update(self) -> None:
        """Look which actors are ready by now, or dead for good."""
        import ray

        if not self._pending:
            return
        by_ref = {actor.ready: actor for actor in self._pending}
        done, _ = ray.wait(list(by_ref), num_returns=len(by_ref), timeout=0)
        for actor in map(by_ref.__getitem__, done):
            try:
                reply = ray.get(actor.ready)
            except ray.exceptions.ActorUnavailableError:  # Ray is about to start it again
                actor.ready = actor.handle.ready.remote()
            except ray.exceptions.RayError as error:
                self._bury(actor, error)
            else:
                self._add_loaded(actor, reply)

    def _add_loaded(self, actor: PoolActor, reply: ActorReady | ActorFault) -> None:
        if isinstance(reply, ActorFault):
            self._reject(actor, reply.exception())
            return
        self._pending.remove(actor)
        actor.node_id, actor.node, actor.proven, actor.loss = reply.node_id, reply.node, True, None
        self.live.append(actor)
        self.methods = reply.methods
        self.loads += 1
        self.seconds += reply.seconds

    def _reject(self, actor: PoolActor, error: Exception) -> None:
        """End an actor that cannot work: an initial one ends the pool, a later one only itself."""
        import ray

        self._pending.remove(actor)
        ray.kill(actor.handle)
        no_memory = isinstance(error, DeviceMemoryError | MemoryError)
        if no_memory and (self.live or self._pending):
            self.losses.remarks[f"the {self.name} has an actor less: {error}"] = None
        elif no_memory:  # there may be room another time: the next that asks starts anew
            raise error
        elif actor.initial:
            self._fault = error
        else:
            self.losses.remarks[f"no new actor of the {self.name}: {error}"] = None

    def _bury(self, actor: PoolActor, error: BaseException) -> None:
        """Note that Ray does not start an actor's process any more, or cannot make the actor."""
        import ray

        escaped = isinstance(error, ray.exceptions.RayTaskError)
        if escaped or getattr(error, "actor_init_failed", False):
            self._reject(actor, ModelError(f"{self.name}: {format_actor_error(error)}"))
            return
        self._pending.remove(actor)
        if actor.proven:  # it is not the model that fails at its start
            self._pending.append(self._create(actor.place))
        else:
            self.losses.actors.append(LostActor(self.bound.role, "", _reason(error)))

    def _lose(self, actor: PoolActor, error: BaseException, digest: str) -> None:
        """Note that an actor is gone, once, and the batch that it had."""
        with self._changed:
            if actor.loss is None:
                reason = _reason(error)
                probe = None if reason == _NO_MEMORY else start_on_node(actor.node_id, _nothing())
                actor.loss = LostActor(self.bound.role, actor.node, reason, probe)
                self.losses.actors.append(actor.loss)
                self._await_restart(actor)
            actor.loss.batches += 1
            self._deaths.setdefault(digest, []).append(actor.loss)

    def _await_restart(self, actor: PoolActor) -> None:
        if actor in self.live:
            self.live.remove(actor)
            self._empty_since = time.monotonic()
            again = actor.handle.ready.remote()
            self._pending.append(
                PoolActor(actor.handle, again, actor.place, proven=True, loss=actor.loss)
            )

    def _check_patience(self) -> None:
        """Raise ModelError where no actor lives or loads, and none has had a place for long."""
        if self.live:
            return
        if not self._pending:
            raise ModelError(
                f"infrastructure: no actor of the {self.name} is left, and none can be started"
            )
        if self._has_place():
            self._empty_since = time.monotonic()
            return
        empty = time.monotonic() - self._empty_since
        waits = empty > _SPARE_SECONDS and all(actor.place is not None for actor in self._pending)
        if waits and not self.allocation.gpus and self.cluster.lost_nodes():
            # Its place went with a node: better crowd another node's cores than stop.
            self._pending.append(self._create(None))
        if empty > PATIENCE:
            raise ModelError(
                f"infrastructure: no actor of the {self.name} could be placed within "
                f"{PATIENCE:.0f} s (each asks for {self.allocation.gpus:g} GPUs and "
                f"{self.allocation.cpus:g} CPUs): is the cluster in use by others, or have nodes "
                f"left? {self.cluster}"
            )

    def _has_place(self) -> bool:
        """Whether an actor loads, as far as Ray tells: it says which places are reserved."""
        for actor in self._pending:
            if actor.loss is not None:
                actor.loss.look()
                if actor.loss.by_process:  # its node is still there
                    return True
        return self.group is None or is_reserved(self.group)


def create_actor(setup: ActorSetup, allocation: Allocation, group: Any, place: int | None) -> Any:
    """The handle of a new actor, which may wait for its place.

    group, place: a placement group and the number of a bundle of it; None lets Ray spread actors.
    Its methods: `ready()` gives an ActorReady or ActorFault, `answer(method, args)` as
    `ChainActor.answer`.
    """
    import ray
    from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

    strategy: Any = "SPREAD"
    if group is not None and place is not None:
        strategy = PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=place)
    kind: Any = ray.remote(actor_class(node_preparation()))
    return kind.options(
        num_cpus=allocation.cpus,
        num_gpus=allocation.gpus,
        max_restarts=_RESTARTS,
        max_task_retries=0,
        scheduling_strategy=strategy,
    ).remote(asdict(setup))


def actor_class(prepare: Callable[[], None]) -> type:
    """A class that Ray sends by value: `prepare` makes our package importable on the node."""

    class Actor:
        def __init__(self, fields: Any) -> None:
            import ray

            prepare()
            from pytest_cepbench.chains.ray.actor import ActorSetup, ChainActor

            node = ray.util.get_node_ip_address()  # type: ignore[no-untyped-call]
            node_id = ray.get_runtime_context().get_node_id()
            self.actor = ChainActor(ActorSetup(**fields), node_id, node)

        def ready(self) -> Any:
            return self.actor.ready

        def answer(self, method: str, args: Any) -> Any:
            return self.actor.answer(method, args)

    return Actor


def binding_task(fields: dict[str, Any]) -> Callable[[], Any]:
    """A function that binds a model on a node. fields: of an ActorSetup."""

    def bind_there() -> Any:
        from pytest_cepbench.chains.ray.actor import ActorSetup, bind_here

        return bind_here(ActorSetup(**fields))

    return bind_there


def is_reserved(group: Any) -> bool:
    """Whether all places of a placement group are there; not while one waits for a lost node."""
    from ray.util.placement_group import placement_group_table

    return bool(placement_group_table(group)["state"] == "CREATED")


def _nothing() -> Callable[[], None]:
    return lambda: None


def _digest_of(method: str, sent: Any) -> str:
    """Names a batch by its content; only needed where actors have died."""
    return sha256(pickle.dumps((method, sent))).hexdigest()


def _reason(error: BaseException) -> str:
    """Why an actor is lost, as far as Ray's error tells."""
    import ray

    if isinstance(error, ray.exceptions.OutOfMemoryError) or "OUT_OF_MEMORY" in str(error):
        return _NO_MEMORY
    return _DIED if isinstance(error, ray.exceptions.ActorDiedError) else LostActor.reason


# -- models behind a server ----------------------------------------------------------------------


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

        def ask(method: str, args: Sequence[Any]) -> ActorAnswer:
            with self._turn(stopped):
                return ActorAnswer(getattr(self._model, method)(*args))

        with self._turn(stopped):
            if self._model is None:
                self._model = self._load()  # what it raises is raised here
                self.loads = 1
        return RemoteModel(methods_of(self._model), ask)

    @contextmanager
    def _turn(self, stopped: Callable[[], bool]) -> Iterator[None]:
        while not self._lock.acquire(timeout=_WAIT_SECONDS):
            if stopped():
                raise StoppedError("the run stops")
        started = time.perf_counter()
        try:
            yield
        finally:
            self.seconds += time.perf_counter() - started
            self._lock.release()


# -- all models of a run -------------------------------------------------------------------------


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
    _served: dict[Place, ServedModel] = field(default_factory=dict)
    _groups: dict[Place, Any] | None = None
    _begun: bool = False
    _closed: bool = False
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
        return replace(bound, load=lambda: self._load(place, bound, stopped, force=force))

    def usage(self) -> tuple[Counter[str], float]:
        """Models loaded, by role, and seconds in their code; of all actors and servers."""
        loads: Counter[str] = Counter()
        seconds = 0.0
        for pool in list(self._pools.values()):
            loads[pool.bound.role] += pool.loads
            seconds += pool.seconds
        for (role, _), model in list(self._served.items()):
            loads[role] += model.loads
            seconds += model.seconds
        return +loads, seconds

    def messages(self) -> list[str]:
        """What was lost and made good, a sentence each."""
        if not self._closed:
            self._look()
        return self.losses.lines()

    def close(self) -> None:
        """End all actors, and leave their places."""
        from ray.util.placement_group import remove_placement_group

        with self._lock:
            self._look()
            self._closed = True
            for pool in self._pools.values():
                pool.close()
            for group in {id(group): group for group in (self._groups or {}).values()}.values():
                if group is not None:
                    remove_placement_group(group)

    def _look(self) -> None:
        """See what became of the nodes of lost actors, and of those where nothing was lost."""
        for lost in list(self.losses.actors):
            lost.look(_PROBE_SECONDS)
        told = {lost.node for lost in self.losses.actors}
        for node in self.cluster.lost_nodes():
            if node.name not in told:
                self.losses.remarks[f"node {node.name} left the cluster; no batch was lost"] = None

    # -- binding ---------------------------------------------------------------------------------

    def _bind(self, place: Place, *, force: bool) -> BoundRole:
        role, spec = place
        if SCHEMES[spec.scheme].served:  # its key lies here, and no device is needed for it
            bound = bind(spec, role, self.context, force=force)
            self._served[place] = ServedModel(bound.load)
            return bound
        ready = self._bind_on(self._node(role), self._setup(place, force=force))
        return replace(
            ready.bound,
            idle=lambda: ready.idle,
            grows=False,  # how much room there is shows in the actor alone
            lasting=True,
            # Enters notes on batch sizes: on a cluster others fit than in this process.
            build=f"{ready.bound.build} on a cluster of Ray",
            provenance={**ready.bound.provenance, "engine": "ray"},
        )

    def _bind_on(self, node: Node, setup: ActorSetup) -> ActorReady:
        import ray

        try:
            reply = ray.get(start_on_node(node.id, binding_task(asdict(setup))))
        except ray.exceptions.RayError as error:
            text = error_line(error)
            raise ModelError(
                f"{setup.role} {setup.spec} could not be bound on node {node.name}: {text}"
            ) from error
        if isinstance(reply, ActorFault):
            fault = reply.exception()
            if isinstance(fault, CepError):
                fault = type(fault)(f"{fault} (looked up on node {node.name} of the cluster)")
            raise fault
        assert isinstance(reply, ActorReady)
        return reply

    def _allocation(self, role: str) -> Allocation:
        if role not in self._allocations:  # it was not planned for
            roles = [*self._allocations, role]
            self._allocations |= allocate(roles, self.requests, self.cluster.nodes())
        return self._allocations[role]

    def _node(self, role: str) -> Node:
        """One of the kind that the role's actors will be on."""
        nodes = self.cluster.nodes()
        able = [node for node in nodes if node.gpus] if self._allocation(role).gpus else []
        return max(able or nodes, key=lambda node: node.cpus)

    def _setup(self, place: Place, *, force: bool) -> ActorSetup:
        role, spec = place
        allocation = self._allocation(role)
        return ActorSetup(role, spec.text, force, allocation.threads, allocation.gpus)

    # -- loading ---------------------------------------------------------------------------------

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
            name = bound.shares or f"{place[0]} {place[1]}"
            if name not in self._pools:
                self._pools[name] = self._pool(place, bound, force=force)
            pool = self._pools[name]
        pool.start(stopped)

        def ask(method: str, args: Sequence[Any]) -> ActorAnswer:
            return pool.ask(method, args, stopped)

        return RemoteModel(pool.methods, ask)

    def _pool(self, place: Place, bound: BoundRole, *, force: bool) -> ActorPool:
        role = place[0]
        if self._groups is None:
            self._groups = reserve(self._planned, self._allocations)
        allocation = self._allocation(role)
        if place not in self._groups:  # the plan has given everything away
            allocation = replace(allocation, actors=1, cpus=0.0, shared=False)
            self._groups |= reserve([place], {role: allocation})
        setup = replace(self._setup(place, force=force), identity=bound.identity)
        group = self._groups[place]
        return ActorPool(self.cluster, bound, setup, allocation, self.losses, group)
