"""All models of a run on the cluster: bound there once, a pool of actors for each that is needed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from threading import RLock
from typing import Any

from pytest_cepbench.chains.ray.actor_factory import bind_there
from pytest_cepbench.chains.ray.api_proxy import ApiProxy, SerializedModel
from pytest_cepbench.chains.ray.cluster import Cluster, Node
from pytest_cepbench.chains.ray.messages import ActorFault, ActorReady, ActorSetup, exception_of
from pytest_cepbench.chains.ray.node_loss import NodeLosses
from pytest_cepbench.chains.ray.placement import Place, reserve
from pytest_cepbench.chains.ray.pool import ActorPool
from pytest_cepbench.chains.ray.remote_model import CountingModel, RemoteModel
from pytest_cepbench.chains.ray.resources import (
    Allocation,
    ResourceRequest,
    check_wishes,
    share_out,
)
from pytest_cepbench.chains.ray.supervisor import Supervisor
from pytest_cepbench.errors import CepError, ModelError
from pytest_cepbench.models.protocols import BindContext, BoundRole, Model, RoleName
from pytest_cepbench.models.registry import SCHEMES, bind
from pytest_cepbench.models.spec import ModelSpec

_ENGINE = "a cluster of Ray"  # what batches wait for there is not what they wait for in process


@dataclass(eq=False)
class PoolManager:
    """The pools of one run; any thread may ask for a role.

    cluster: closed by whoever connected. wishes: what the user said, by role. hash_file: SHA-256 of
    a file of this machine. begin: called before the first model is loaded.
    """

    cluster: Cluster
    wishes: Mapping[str, ResourceRequest]
    context: BindContext
    begin: Callable[[], None] = lambda: None
    losses: NodeLosses = field(default_factory=NodeLosses)
    _planned: list[Place] = field(default_factory=list)
    _shares: dict[str, Allocation] = field(default_factory=dict)
    _places: dict[Place, BoundRole] = field(default_factory=dict)
    _faults: dict[Place, CepError] = field(default_factory=dict)
    _pools: dict[str, ActorPool] = field(default_factory=dict)
    _turns: dict[Place, SerializedModel] = field(default_factory=dict)
    _seats: dict[Place, list[Any]] | None = None
    _digests: dict[str, str] = field(default_factory=dict)
    _begun: bool = False
    _lock: RLock = field(default_factory=RLock)

    def __post_init__(self) -> None:
        check_wishes(self.wishes, self.cluster.nodes())

    def plan(self, places: Sequence[Place]) -> Mapping[str, Allocation]:
        """Divide the cluster among the models that will play; by role.

        Raises SpecError where it does not do.
        """
        with self._lock:
            self._planned = [place for place in places if not SCHEMES[place[1].scheme].served]
            roles = [role for role, _ in self._planned]
            self._shares = share_out(roles, self.wishes, self.cluster.nodes())
            return dict(self._shares)

    @property
    def helpers(self) -> int:
        """How many threads keep the actors busy: while one batch is made, the next is prepared."""
        return 2 * max((share.actors for share in self._shares.values()), default=1)

    def bound(
        self, role: RoleName, spec: ModelSpec, stopped: Callable[[], bool], *, force: bool = False
    ) -> BoundRole:
        """A role bound on the cluster; its model is played by a pool there.

        stopped: whether the thread that asks is to wait for nothing any more. Raises what binding
        raises.
        """
        place = (role, spec)
        with self._lock:
            if place in self._faults:
                raise self._faults[place]
            try:
                known = self._places.get(place) or self._bind(place, force=force)
            except CepError as error:
                self._faults[place] = error.with_traceback(None)
                raise
            self._places[place] = known
        if place in self._turns:
            return replace(known, load=lambda: self._served(place, stopped))
        return replace(known, load=lambda: self._load(place, stopped, force=force))

    def spent(self) -> tuple[Counter[str], float]:
        """Models loaded, by role, and seconds in their code; of all actors."""
        loads: Counter[str] = Counter()
        staffs = [pool.staff for pool in list(self._pools.values())]
        for staff in staffs:
            loads[staff.bound.role] += staff.spent.loads
        turns = list(self._turns.items())
        for (role, _), one in turns:
            loads[role] += one.loads
        seconds = sum(staff.spent.seconds for staff in staffs)
        return +loads, seconds + sum(one.seconds for _, one in turns)

    def close(self) -> None:
        """Let all actors end."""
        with self._lock:
            for pool in self._pools.values():
                pool.close()

    # -- binding ---------------------------------------------------------------------------------

    def _bind(self, place: Place, *, force: bool) -> BoundRole:
        role, spec = place
        if SCHEMES[spec.scheme].served:  # its key lies here, and no device is needed for it
            bound = bind(spec, role, self.context, force=force)
            self._turns[place] = SerializedModel(bound.load)
            return bound
        node, order = self._node(role), self._order(place, force=force)
        found = self._asked(node, order)
        self._digests |= found.digests
        return replace(
            found.bound,
            grows=False,  # how much room there is shows in the actor alone
            lasting=True,
            build=f"{found.bound.build} on {_ENGINE}",
            provenance={**found.bound.provenance, "engine": "ray"},
        )

    def _asked(self, node: Node, order: ActorSetup) -> ActorReady:
        import ray

        try:
            found = bind_there(order, node.id)
        except ray.exceptions.RayError as error:
            words = " ".join(str(error).split())[:300]
            msg = f"{order.role} {order.spec} could not be bound on node {node.name}: {words}"
            raise ModelError(msg) from error
        if isinstance(found, ActorFault):
            raised = exception_of(found)
            if isinstance(raised, CepError):
                raised = type(raised)(f"{raised} (looked up on node {node.name} of the cluster)")
            raise raised
        return found

    def _node(self, role: str) -> Node:
        """One of the kind that the role's actors will be on."""
        nodes = self.cluster.nodes()
        wish = self.wishes.get(role, ResourceRequest())
        able = [node for node in nodes if node.gpus] if wish.gpus != 0 else []
        return max(able or nodes, key=lambda node: node.cpus)

    def _order(self, place: Place, *, force: bool) -> ActorSetup:
        role, spec = place
        share = self._shares.get(role)
        devices = sum(node.gpus for node in self.cluster.nodes())
        wished = self.wishes.get(role, ResourceRequest()).gpus
        gpus = share.gpus if share else (devices and 1.0 if wished is None else wished)
        threads = share.threads if share else None
        return ActorSetup(role, spec, force, threads, gpus, dict(self._digests))

    # -- playing ---------------------------------------------------------------------------------

    def _load(self, place: Place, stopped: Callable[[], bool], *, force: bool) -> Model:
        self._begin()
        with self._lock:
            bound = self._places[place]
            name = bound.shares or f"{place[0]} {place[1]}"
            if name not in self._pools:
                self._pools[name] = self._pool(place, bound, force=force)
            pool = self._pools[name]
        pool.start(stopped)
        return (CountingModel if pool.staff.counts else RemoteModel)(pool, stopped)

    def _served(self, place: Place, stopped: Callable[[], bool]) -> Model:
        self._begin()
        with self._turns[place].turn(stopped):  # what loading raises is raised here
            return ApiProxy(self._turns[place], stopped)

    def _begin(self) -> None:
        """Tell once that there is work: before the lock, since others will ask at once."""
        with self._lock:
            begun, self._begun = self._begun, True
        if not begun:
            self.begin()

    def _pool(self, place: Place, bound: BoundRole, *, force: bool) -> ActorPool:
        role = place[0]
        # Nobody planned for it: it has what one of its kind would have.
        if role not in self._shares:
            self._shares |= share_out([*self._shares, role], self.wishes, self.cluster.nodes())
        if self._seats is None:
            self._seats = reserve(self._planned, self._shares)
        seats = self._seats.get(place)
        share = self._shares[role]
        if seats is None:  # the plan has given everything away
            share = replace(share, actors=1, cpus=0.0)
        order = self._order(place, force=force)
        return ActorPool(Supervisor(self.cluster, bound, order, share, self.losses, seats))
