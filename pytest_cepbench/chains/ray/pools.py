"""The models of a run on the cluster: a pool of actors for each, which any thread may ask.

Ray starts an actor's process again where it dies (`max_restarts`), and the process compares what it
loads with the run's model before it answers, so that no restart plays another one. Ray repeats no
batch by itself (`max_task_retries=0`): one that kills its process would kill one after the other
before it could be given up. Ray's own ActorPool serves one thread and knows of no deaths.
"""

from __future__ import annotations

import pickle
import re
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from hashlib import sha256
from threading import RLock
from typing import Any

from pytest_cepbench.chains.batching import MOST_CRASHES
from pytest_cepbench.chains.ray.actor import (
    ActorAnswer,
    ActorReady,
    ActorSetup,
    ChainActor,
    RemoteModel,
    bind_here,
    methods_of,
    with_images,
)
from pytest_cepbench.chains.ray.cluster import (
    Allocation,
    Cluster,
    Node,
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

_RESTARTS = 5  # of an actor by Ray: each of five batches may kill it

_SPARE_SECONDS = 2.0  # without any actor, after which one is started beside those of another node

_WAIT_SECONDS = 0.1  # between looks at actors, and at whether the run stops

Stopped = Callable[[], bool]
"""Whether the thread that asks is to stop waiting; the call raises StoppedError then."""


@dataclass(eq=False)
class PoolActor:
    """An actor.

    handle: Ray's, of all processes of the actor.
    state: Ray's reference to what the process says when it has loaded its model.
    node_id, node: of the process that was ready last.
    busy: whether it has a batch.
    """

    handle: Any
    state: Any
    node_id: str = ""
    node: str = ""
    busy: bool = False


@dataclass(eq=False)
class ActorPool:
    """The actors of one model, as any thread may ask them, a batch at a time each.

    cluster: named where no actor gets a place.
    setup: sent to every actor.
    allocation: the resources of the pool.
    group: Ray's placement group, a bundle for each actor; None where they need nothing.
    methods: of `actor.ASKED`, those that the model has.
    loads: seconds of loading, by process.
    seconds: in the model's code.
    lost: batches lost with an actor, by the name of its node and Ray's words.
    remarks: actors that the pool does without, each once.
    """

    cluster: Cluster
    setup: ActorSetup
    allocation: Allocation
    group: Any = None
    actors: list[PoolActor] = field(default_factory=list)
    methods: tuple[str, ...] = ()
    loads: dict[str, float] = field(default_factory=dict)
    seconds: float = 0.0
    lost: Counter[tuple[str, str]] = field(default_factory=Counter)
    remarks: dict[str, None] = field(default_factory=dict)
    _deaths: Counter[str] = field(default_factory=Counter)  # by digest of the batch
    _waiting_since: float = 0.0
    _fault: Exception | None = None
    _spare: bool = False
    _lock: RLock = field(default_factory=RLock)

    @property
    def name(self) -> str:
        """Of the model, for people."""
        return f"{self.setup.role} {self.setup.spec}"

    @property
    def used(self) -> tuple[int, float]:
        """Models loaded by all actors so far, and seconds in their code."""
        return len(self.loads), self.seconds + sum(self.loads.values())

    def start(self, stopped: Stopped) -> None:
        """Start the actors, where there are none, and wait for the first that is ready.

        Raises what loading raises where no actor has the run's model, ModelError where no actor can
        be placed, StoppedError. An actor less than asked for is a remark.
        """
        with self._lock:
            if not (self.actors or self._fault):
                self._waiting_since = time.monotonic()
                self.actors = [self._create(place) for place in range(self.allocation.actors)]
        self._take(stopped, idle=False)

    def ask(self, method: str, args: Sequence[Any], stopped: Stopped) -> ActorAnswer:
        """Send a batch to an actor, and once more to another one where it dies over it.

        method: of the role, with its arguments. Raises the model's exceptions, MeasurementError for
        a batch that kills its actors, and what `start` raises.
        """
        import ray

        sent = with_images(args)

        def digest() -> str:
            """Names the batch by its content; only needed where actors have died."""
            return sha256(pickle.dumps((method, sent))).hexdigest()

        while not (self._deaths and self._deaths[digest()] >= MOST_CRASHES):
            actor = self._take(stopped, idle=True)
            try:
                ref = actor.handle.answer.remote(method, sent)
                while not ray.wait([ref], timeout=_WAIT_SECONDS)[0]:
                    if stopped():
                        raise StoppedError("the run stops")
                answer: ActorAnswer | Exception | None = ray.get(ref)
                if answer is None:  # Ray started the process again, and it has no model
                    actor.state = actor.handle.state.remote()
            except ray.exceptions.RayTaskError as error:
                raise ModelError(f"{self.name}: {_last_line(error)}") from error
            except ray.exceptions.RayError as error:  # it died, or its node did, or memory ran out
                answer = None
                words = re.sub(r"\b[0-9a-f]{16,}\b ?", "", error_line(error))  # without ids
                with self._lock:
                    self._deaths[digest()] += 1
                    self.lost[actor.node, f"{type(error).__name__}: {words[:200]}"] += 1
                    # Those beside it may be gone with their node, and would lose the batch again.
                    for own in self.actors:
                        if own.node_id in ("", actor.node_id):
                            own.state = own.handle.state.remote()
            finally:
                actor.busy = False
            if isinstance(answer, ActorAnswer):
                with self._lock:
                    self.seconds += answer.seconds
                return answer
            if answer is not None:
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

        with self._lock:
            self._fault = StoppedError("the run stops")
            actors, self.actors = self.actors, []
        for actor in actors:
            ray.kill(actor.handle)

    def _create(self, place: int | None) -> PoolActor:
        import ray
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

        strategy: Any = "SPREAD"
        if self.group is not None and place is not None:
            strategy = PlacementGroupSchedulingStrategy(
                self.group, placement_group_bundle_index=place
            )
        kind: Any = ray.remote(ChainActor)
        handle = kind.options(
            num_cpus=0.0 if place is None else self.allocation.cpus,
            num_gpus=self.allocation.gpus,
            scheduling_strategy=strategy,
            runtime_env=same_imports(),
            max_restarts=_RESTARTS,
            max_task_retries=0,
        ).remote(self.setup)
        return PoolActor(handle, handle.state.remote())

    def _take(self, stopped: Stopped, *, idle: bool) -> PoolActor:
        """An actor that is ready; idle: one without a batch, which has one now. Raises as `start`.

        Without the lock while it waits, so that those that are done can be asked.
        """
        import ray

        while True:
            with self._lock:
                if self._fault is not None:
                    raise self._fault
                if stopped():
                    raise StoppedError("the run stops")
                free = {own.state: own for own in self.actors if not (idle and own.busy)}
                for ref in ray.wait(list(free), num_returns=1, timeout=0)[0] if free else []:
                    if self._is_ready(free[ref]):
                        free[ref].busy |= idle
                        return free[ref]
                if not self.actors:  # also where another thread was told that there is no room
                    self._fault = ModelError(
                        f"infrastructure: no actor of the {self.name} is left, and none can be "
                        f"started ({'; '.join(self.remarks)})"
                    )
                    continue
                waited = time.monotonic() - self._waiting_since
                crowds = not (self.allocation.gpus or self._spare) and waited > _SPARE_SECONDS
                if any(own.busy for own in self.actors) or is_reserved(self.group):
                    self._waiting_since = time.monotonic()
                elif crowds and self.cluster.lost_nodes():
                    # Other models' places may fill the nodes that are left: better crowd one.
                    self._spare = True
                    self.actors.append(self._create(None))
                elif waited > PATIENCE:
                    raise ModelError(
                        f"infrastructure: no actor of the {self.name} could be placed within "
                        f"{PATIENCE:.0f} s (each asks for {self.allocation.gpus:g} GPUs and "
                        f"{self.allocation.cpus:g} CPUs): is the cluster in use by others, or have "
                        f"nodes left? {self.cluster}"
                    )
            time.sleep(_WAIT_SECONDS / 2)

    def _is_ready(self, actor: PoolActor) -> bool:
        """Whether an actor that has said something is ready; one that never will be is removed."""
        import ray

        try:
            reply: ActorReady | Exception = ray.get(actor.state)
        except ray.exceptions.ActorUnavailableError:  # Ray is about to start it again
            actor.state = actor.handle.state.remote()
            return False
        except ray.exceptions.RayError as error:  # Ray does not start its process any more
            reply = ModelError(f"infrastructure: {self.name}: {_last_line(error)}")
        if isinstance(reply, ActorReady):
            self.loads.setdefault(reply.process, reply.seconds)
            actor.node_id, actor.node, self.methods = reply.node_id, reply.node, reply.methods
            return True
        self.actors.remove(actor)
        ray.kill(actor.handle)
        if not (self.actors or self.loads):  # nobody could load it
            if not isinstance(reply, DeviceMemoryError | MemoryError):
                self._fault = reply  # else there may be room another time
            raise reply
        self.remarks[f"the {self.name} has an actor less: {reply}"] = None
        return False


def _last_line(error: BaseException) -> str:
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
        self._lock = RLock()
        self.methods: tuple[str, ...] = ()
        self.used = 0, 0.0

    def start(self, _: Stopped) -> None:
        """Load the model where it is not loaded. Raises what loading raises."""
        with self._lock:
            if self._model is None:
                started = time.perf_counter()
                self._model = self._load()
                self.methods = methods_of(self._model)
                self.used = 1, time.perf_counter() - started

    def ask(self, method: str, args: Sequence[Any], stopped: Stopped) -> ActorAnswer:
        """Call the loaded model. Raises what it raises, and StoppedError."""
        with self._lock:
            if stopped():
                raise StoppedError("the run stops")
            started = time.perf_counter()
            value = getattr(self._model, method)(*args)
            self.used = 1, self.used[1] + time.perf_counter() - started
            return ActorAnswer(value)


Place = tuple[RoleName, ModelSpec]
"""A role, and the spec of its model."""


@dataclass(eq=False)
class PoolManager:
    """The pools of one run; any thread may ask for a role.

    cluster: closed by the caller that connected.
    requests: for the role's pools, as the user gave them: actors, gpus.
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
    _lost: list[Node] = field(default_factory=list)
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
                        if role not in self._allocations:  # it was not planned for
                            alone = allocate([role], self.requests, self.cluster.nodes())[role]
                            self._allocations[role] = replace(
                                alone, actors=1, cpus=0.0, shared=False
                            )
                        pool = self._allocations[role]
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
        loads, seconds = Counter[str](), 0.0
        for role, model in list(self._models.values()):
            loads[role] += model.used[0]
            seconds += model.used[1]
        return +loads, seconds

    def messages(self) -> list[str]:
        """What was lost and made good, a sentence each."""
        if not self._closed:
            self._lost = self.cluster.lost_nodes()
        gone = [f"node {node.name} left the cluster" for node in self._lost]
        return [*(line for pool in self._pools for line in pool.messages()), *gone]

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
                if isinstance(source, ActorSetup):
                    own = self._allocations[source.role]
                    planned = [self._allocations[role] for role in self._roles]
                    key = "" if own.shared else name
                    if key not in self._groups:
                        sharing = [each for each in planned if each.shared]
                        self._groups[key] = reserve(sharing if own.shared else [own])
                    pool = ActorPool(self.cluster, source, own, self._groups[key])
                self._models[name] = bound.role, pool if isinstance(source, ActorSetup) else source
            model = self._models[name][1]
        model.start(stopped)
        return RemoteModel(model.methods, partial(model.ask, stopped=stopped))
