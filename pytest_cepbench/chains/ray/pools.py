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
from functools import partial
from hashlib import sha256
from threading import Condition, Lock, RLock
from typing import Any

from pytest_cepbench.chains.batching import MOST_CRASHES
from pytest_cepbench.chains.ray.actor import (
    ActorAnswer,
    ActorReady,
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

Stopped = Callable[[], bool]
"""Whether the thread that asks is to stop waiting; the call raises StoppedError then."""


_NOWHERE = ActorReady((), "", "", 0.0, "")


@dataclass(eq=False)
class PoolActor:
    """An actor.

    handle: Ray's, of all processes of the actor.
    place: number of its place in the placement group; None for one beside others.
    state: Ray's reference to what the actor says when it has loaded its model; None while it is
        ready.
    ready: what it said when it was ready last.
    initial: whether it is one of those that the pool began with, and was not ready yet.
    busy: whether it has a batch.
    """

    handle: Any
    place: int | None
    state: Any
    initial: bool = True
    ready: ActorReady = _NOWHERE
    busy: bool = False


@dataclass(eq=False)
class ActorPool:
    """The actors of one model, as any thread may ask them, a batch at a time each.

    cluster: named where no actor gets a place.
    setup: sent to every actor.
    allocation: the resources of the pool.
    group: Ray's placement group, a bundle for each actor; None where they need nothing.
    methods: of `actor.ASKED`, those that the model has.
    loads: models loaded, by all actors so far.
    seconds: in the models' code, likewise.
    lost: batches lost with an actor, by the name of its node and Ray's words.
    remarks: what else happened to the actors, each once.
    """

    cluster: Cluster
    setup: ActorSetup
    allocation: Allocation
    group: Any = None
    actors: list[PoolActor] = field(default_factory=list)
    methods: tuple[str, ...] = ()
    loads: int = 0
    seconds: float = 0.0
    lost: Counter[tuple[str, str]] = field(default_factory=Counter)
    remarks: dict[str, None] = field(default_factory=dict)
    _deaths: Counter[str] = field(default_factory=Counter)  # by digest of the batch
    _waiting_since: float = 0.0
    _fault: Exception | None = None
    _spare: bool = False
    _closed: bool = False
    _changed: Condition = field(default_factory=Condition)

    @property
    def name(self) -> str:
        """Of the model, for people."""
        return f"{self.setup.role} {self.setup.spec}"

    def start(self, stopped: Stopped) -> None:
        """Start the actors, where there are none, and wait for the first that is ready.

        Raises what loading raises, ModelError where an actor's model is another one or where no
        actor can be placed, StoppedError.
        """
        with self._changed:
            if not (self.actors or self._fault):
                self._waiting_since = time.monotonic()
                self.actors = [self._create(place) for place in range(self.allocation.actors)]
            self._await(lambda actor: actor.state is None, stopped)

    def ask(self, method: str, args: Sequence[Any], stopped: Stopped) -> ActorAnswer:
        """Send a batch to an actor, and once more to another one where it dies over it.

        method: of the role, with its arguments. Raises the model's exceptions, MeasurementError for
        a batch that kills its actors, and what `start` raises.
        """
        import ray

        sent = as_sent(args)

        def digest() -> str:
            """Names the batch by its content; only needed where actors have died."""
            return sha256(pickle.dumps((method, sent))).hexdigest()

        while not (self._deaths and self._deaths[digest()] >= MOST_CRASHES):
            with self._changed:
                actor = self._await(lambda own: own.state is None and not own.busy, stopped)
                actor.busy = True
            gone: str | None = None  # Ray's words for it, or "" where Ray started it again
            try:
                ref = actor.handle.answer.remote(method, sent)
                while not ray.wait([ref], timeout=_WAIT_SECONDS)[0]:
                    if self._closed or stopped():
                        raise StoppedError(_STOPS)
                answer: ActorAnswer | Exception | None = ray.get(ref)
                gone = "" if answer is None else None
            except ray.exceptions.RayTaskError as error:
                raise ModelError(f"{self.name}: {last_line(error)}") from error
            except ray.exceptions.RayError as error:  # it died, or its node did, or memory ran out
                gone = _death_words(error)
            finally:
                with self._changed:
                    actor.busy = False
                    if gone:
                        self._deaths[digest()] += 1
                        self.lost[actor.ready.node, gone] += 1
                    # Those beside one that died may be gone with their node, and would lose the
                    # batch again.
                    for own in self.actors if gone is not None else ():
                        if own is actor or (gone and own.ready.node_id == actor.ready.node_id):
                            own.state = own.handle.state.remote()
                    self._changed.notify_all()
            if gone is None and isinstance(answer, ActorAnswer):
                self.seconds += answer.seconds
                return answer
            if gone is None and isinstance(answer, Exception):
                raise answer
        raise MeasurementError(
            f"infrastructure: {MOST_CRASHES} actors of the {self.name} died while they worked on "
            f"the same batch of {len(sent[0])}: give them more memory, or smaller batches "
            "(batch_size=)"
        )

    def messages(self) -> list[str]:
        """What was lost and made good, a sentence for each node and reason."""
        lost = [
            f"node {node} lost {count} {self.setup.role} actor{'s' * (count > 1)} in the middle of "
            f"a batch, which was asked for again: {words}"
            for (node, words), count in list(self.lost.items())
        ]
        return [*lost, *self.remarks]

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
        import ray

        kind: Any = ray.remote(ChainActor)
        options = self.allocation.actor_options(self.group, place)
        actor = kind.options(**options, max_restarts=_RESTARTS, max_task_retries=0)
        handle = actor.remote(self.setup)
        return PoolActor(handle, place, handle.state.remote(), initial)

    def _await(self, wanted: Callable[[PoolActor], bool], stopped: Stopped) -> PoolActor:
        """Look at the actors until there is one as it is wanted. Raises as `start`."""
        while True:
            self._update()
            if self._fault is not None:
                raise self._fault
            if self._closed or stopped():
                raise StoppedError(_STOPS)
            found = next(filter(wanted, self.actors), None)
            if found is not None:
                return found
            if not self.actors:
                raise ModelError(
                    f"infrastructure: no actor of the {self.name} is left, and none can be started"
                )
            waiting = time.monotonic() - self._waiting_since
            crowds = not (self.allocation.gpus or self._spare) and waiting > _SPARE_SECONDS
            if any(actor.state is None for actor in self.actors) or is_reserved(self.group):
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
        """Look which actors are ready by now, refuse to work, or are dead for good."""
        import ray

        unknown = {actor.state: actor for actor in self.actors if actor.state is not None}
        said = ray.wait(list(unknown), num_returns=len(unknown), timeout=0)[0] if unknown else []
        for actor in map(unknown.__getitem__, said):
            less = f"the {self.name} has an actor less"
            try:
                reply: ActorReady | Exception = ray.get(actor.state)
            except ray.exceptions.ActorUnavailableError:  # Ray is about to start it again
                actor.state = actor.handle.state.remote()
                continue
            except ray.exceptions.RayError as error:
                escaped = isinstance(error, ray.exceptions.RayTaskError)
                if not (escaped or getattr(error, "actor_init_failed", False)):
                    self.actors.remove(actor)  # Ray does not start its process any more
                    if actor.ready is _NOWHERE:
                        self.remarks[f"{less}: {_death_words(error)}"] = None
                    else:  # it is not the model that fails at its start
                        self.actors.append(self._create(actor.place, initial=False))
                    continue
                reply = ModelError(f"{self.name}: {last_line(error)}")
            if isinstance(reply, ActorReady):
                if actor.ready.process != reply.process:  # else it is still the one that it was
                    self.loads += 1
                    self.seconds += reply.seconds
                actor.state, actor.initial, actor.ready = None, False, reply
                self.methods = reply.methods
                continue
            self.actors.remove(actor)
            ray.kill(actor.handle)
            if isinstance(reply, DeviceMemoryError | MemoryError):
                if not self.actors:  # there may be room another time: the next start tries it
                    raise reply
                self.remarks[f"{less}: {reply}"] = None
            elif actor.initial:  # what the first process cannot do is no accident
                self._fault = reply
            else:
                self.remarks[f"no new actor of the {self.name}: {reply}"] = None


def _death_words(error: BaseException) -> str:
    """Ray's name of an actor's loss and the beginning of what it says, without ids."""
    words = re.sub(r"\b[0-9a-f]{16,}\b ?", "", error_line(error))
    return f"{type(error).__name__}: {words[:200]}"


def last_line(error: BaseException) -> str:
    """What Ray says of an exception in an actor: the last line of its traceback."""
    lines = [line for line in mask_secrets(str(error)).splitlines() if line.strip()]
    return " ".join(lines[-1].split())[:300] if lines else type(error).__name__


class ServedModel:
    """A model of the driver that is loaded once, and called by one thread at a time.

    So a server has as many requests at once, and as many a minute, as in a run in one process. It
    is asked as an `ActorPool` is; others end the servers of a run.
    """

    def __init__(self, load: Callable[[], Any]) -> None:
        self._load = load
        self._model: Any = None
        self._lock = Lock()
        self.loads = 0
        self.seconds = 0.0

    @property
    def methods(self) -> tuple[str, ...]:
        """Of `actor.ASKED`, those that the model has."""
        return methods_of(self._model)

    def start(self, stopped: Stopped) -> None:
        """Load the model where it is not loaded. Raises what loading raises, and StoppedError."""
        with self._turn(stopped):
            if self._model is None:
                self._model = self._load()
                self.loads = 1

    def ask(self, method: str, args: Sequence[Any], stopped: Stopped) -> ActorAnswer:
        """Call the model. Raises what it raises, and StoppedError."""
        with self._turn(stopped):
            return ActorAnswer(getattr(self._model, method)(*args))

    @contextmanager
    def _turn(self, stopped: Stopped) -> Iterator[None]:
        while not self._lock.acquire(timeout=_WAIT_SECONDS):
            if stopped():
                raise StoppedError(_STOPS)
        started = time.perf_counter()
        try:
            yield
        finally:
            self.seconds += time.perf_counter() - started
            self._lock.release()


def for_thread(model: ActorPool | ServedModel, stopped: Stopped) -> Any:
    """The model for one thread; started where no thread did before. Raises as `start`."""
    model.start(stopped)
    return RemoteModel(model.methods, partial(model.ask, stopped=stopped))


Place = tuple[RoleName, ModelSpec]
"""A role, and the spec of its model."""


@dataclass(eq=False)
class PoolManager:
    """The pools of one run; any thread may ask for a role.

    cluster: closed by the caller that connected.
    requests: for the role's pools, as the user gave them: actors, gpus, cpus.
    context: binds models of servers in this process.
    begin: called once, before the first model is loaded.
    """

    cluster: Cluster
    requests: Mapping[str, Mapping[str, float]]
    context: BindContext
    begin: Callable[[], None] = lambda: None
    _roles: list[str] = field(default_factory=list)
    _allocations: dict[str, Allocation] = field(default_factory=dict)
    _bound: dict[Place, tuple[BoundRole, ActorSetup | ServedModel] | CepError] = field(
        default_factory=dict
    )
    _models: dict[str, tuple[str, ActorPool | ServedModel]] = field(default_factory=dict)
    _groups: dict[str, Any] = field(default_factory=dict)  # of pools; "": of those that share
    _gone: dict[str, None] = field(default_factory=dict)  # remarks on nodes
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
        self, role: RoleName, spec: ModelSpec, stopped: Stopped, *, force: bool = False
    ) -> BoundRole:
        """A role bound on the cluster; its model is that of a pool there. Raises as binding."""
        place = (role, spec)
        with self._lock:
            if place not in self._bound:
                try:
                    if SCHEMES[spec.scheme].served:  # its key lies here, and it needs no device
                        own = bind(spec, role, self.context, force=force)
                        self._bound[place] = own, ServedModel(own.load)
                    else:
                        pool = self._allocation(role)
                        setup = ActorSetup(role, spec.text, force, pool.threads, pool.gpus)
                        there = self._bind_on_node(setup)
                        self._bound[place] = there, replace(setup, identity=there.identity)
                except CepError as error:
                    self._bound[place] = error.with_traceback(None)
            found = self._bound[place]
        if isinstance(found, CepError):
            raise found
        return replace(found[0], load=partial(self._load, *found, stopped))

    def usage(self) -> tuple[Counter[str], float]:
        """Models loaded, by role, and seconds in their code; of all actors and servers."""
        models, loads = list(self._models.values()), Counter[str]()
        for role, model in models:
            loads[role] += model.loads
        return +loads, sum(model.seconds for _, model in models)

    def messages(self) -> list[str]:
        """What was lost and made good, a sentence each."""
        if not self._closed:
            lost = self.cluster.lost_nodes()
            self._gone |= {f"node {node.name} left the cluster": None for node in lost}
        return [*(line for pool in self._pools for line in pool.messages()), *self._gone]

    def close(self) -> None:
        """End all actors, and leave their places."""
        from ray.util.placement_group import remove_placement_group

        with self._lock:
            self.messages()
            self._closed = True
            for pool in self._pools:
                pool.close()
            for group in filter(None, self._groups.values()):
                remove_placement_group(group)

    @property
    def _pools(self) -> list[ActorPool]:
        return [own for _, own in list(self._models.values()) if isinstance(own, ActorPool)]

    def _allocation(self, role: RoleName) -> Allocation:
        if role not in self._allocations:  # it was not planned for
            alone = allocate([role], self.requests, self.cluster.nodes())[role]
            self._allocations[role] = replace(alone, actors=1, cpus=0.0, shared=False)
        return self._allocations[role]

    def _bind_on_node(self, setup: ActorSetup) -> BoundRole:
        """Bind on one node of the kind that the role's actors will be on."""
        import ray
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        nodes = self.cluster.nodes()
        able = [node for node in nodes if node.gpus] if setup.gpus else []
        node = max(able or nodes, key=lambda node: node.cpus)
        task: Any = ray.remote(bind_here)
        there = NodeAffinitySchedulingStrategy(node.id, soft=False)
        options = {"scheduling_strategy": there, "runtime_env": same_imports()}
        try:  # beside its actors, so without cores of its own
            bound: BoundRole | Exception = ray.get(
                task.options(num_cpus=0, **options).remote(setup)
            )
        except ray.exceptions.RayError as error:
            raise ModelError(
                f"{setup.role} {setup.spec} could not be bound on node {node.name}: "
                f"{error_line(error)}"
            ) from error
        if isinstance(bound, CepError):
            raise type(bound)(f"{bound} (looked up on node {node.name} of the cluster)")
        if isinstance(bound, Exception):
            raise bound
        # How much room there is shows in the actor alone. `build` enters notes on batch sizes: on a
        # cluster others fit than in this process.
        build = f"{bound.resources.build} on a cluster of Ray"
        resources = replace(bound.resources, grows=False, lasting=True, build=build)
        return replace(bound, resources=resources, provenance={**bound.provenance, "engine": "ray"})

    def _load(self, bound: BoundRole, source: ActorSetup | ServedModel, stopped: Stopped) -> Any:
        with self._lock:
            begin, self.begin = self.begin, lambda: None
        begin()  # outside the lock, since its threads ask for models at once
        name = bound.resources.shares or f"{bound.role} {bound.spec}"
        with self._lock:
            if name not in self._models:
                model = source if isinstance(source, ServedModel) else self._pool(name, source)
                self._models[name] = bound.role, model
            model = self._models[name][1]
        return for_thread(model, stopped)

    def _pool(self, name: str, setup: ActorSetup) -> ActorPool:
        allocation = self._allocations[setup.role]
        key = "" if allocation.shared else name
        if key not in self._groups:
            planned = [self._allocations[role] for role in self._roles]
            sharing = [own for own in planned if own.shared]
            self._groups[key] = reserve(sharing if allocation.shared else [allocation])
        return ActorPool(self.cluster, setup, allocation, self._groups[key])
