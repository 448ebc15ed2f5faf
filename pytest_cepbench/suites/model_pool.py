"""The models of one process: each spec bound once and loaded once, on one store."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pytest_cepbench.chains import CallCounts, RoleRunner
from pytest_cepbench.chains.role_runner import DeviceSwap, ModelHandle
from pytest_cepbench.chains.steps import Progress
from pytest_cepbench.files import sha256_of
from pytest_cepbench.models.binding import BindContext, BoundRole, bind
from pytest_cepbench.models.devices import DeviceAssignment
from pytest_cepbench.models.protocols import RoleName
from pytest_cepbench.models.spec import ModelSpec
from pytest_cepbench.store import Store
from pytest_cepbench.suites.role_assignment import RoleAssignment


class ModelPool:
    """The models of one process.

    runners: those bound so far, by role and spec.
    threads: CPU threads that a model may use.
    residency: whether they take turns on a device; None: they stay there together.
    progress: counts every result.
    place: binds a role elsewhere than in this process.
    devices: which of several devices each model of this process gets.
    agree: called with every model that is bound; raises where it must not be used.
    servers: as of `BindContext`.
    """

    def __init__(
        self,
        store: Store,
        threads: int | None = None,
        *,
        residency: DeviceSwap | None = None,
        progress: Progress | None = None,
        place: Callable[[RoleAssignment], BoundRole] | None = None,
        agree: Callable[[BoundRole], None] = lambda _: None,
        servers: Callable[[], Any] | None = None,
        devices: DeviceAssignment | None = None,
    ) -> None:
        self.store = store
        self.residency = residency or DeviceSwap()
        self._progress = progress
        self.runners: dict[tuple[RoleName, ModelSpec], RoleRunner] = {}
        self._handles: dict[str, ModelHandle] = {}
        self._place = place or (lambda own: bind(own.spec, own.role, self.context, force=own.force))
        self._agree = agree
        assigned = {} if devices is None else devices.devices
        self.context = BindContext(
            lambda path: store.file_digest(path, "bytes", sha256_of),
            threads,
            servers=servers,
            devices=assigned,
        )

    def runner(self, assignment: RoleAssignment) -> RoleRunner:
        """The runner of a role; raises what binding raises."""
        place = (assignment.role, assignment.spec)
        if place not in self.runners:
            bound = self._place(assignment)
            self._agree(bound)
            handle = self._handles.get(bound.resources.shares) or ModelHandle(bound, self.residency)
            if bound.resources.shares:
                self._handles[bound.resources.shares] = handle
            self.runners[place] = RoleRunner(bound, self.store, handle, self._progress)
        return self.runners[place]

    def dismiss(self, place: tuple[RoleName, ModelSpec]) -> CallCounts:
        """Forget a runner; its model goes with the last that shares it. Returns what it did."""
        gone = self.runners.pop(place)
        shares = gone.bound.resources.shares
        if not any(runner.bound.resources.shares == shares for runner in self.runners.values()):
            self._handles.pop(shares, None)
        return gone.tally


def describe_role(bound: BoundRole, *, fixed: bool = False) -> str:
    """A role's identity in one line: what it is, which weights, which parameters.

    fixed: whether for the identity in baselines of a model that is held fixed.
    """
    named = bound.named_in_baselines if fixed else ""
    params = [
        f"{name}={value}" for name, value in sorted(bound.params.items()) if value is not None
    ]
    parts = [bound.what, bound.adapter, named or bound.short_fingerprint]
    return " ".join([*parts, ",".join(params)] if params else parts)
