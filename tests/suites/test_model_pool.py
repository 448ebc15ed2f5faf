"""The models of a process: each bound once, and shared by the roles that say so."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pytest_cepbench.models.binding import BoundRole, bind
from pytest_cepbench.models.protocols import RoleName
from pytest_cepbench.models.spec import parse_spec
from pytest_cepbench.store import Store
from pytest_cepbench.suites import ModelPool
from pytest_cepbench.suites.model_pool import describe_role
from pytest_cepbench.suites.role_assignment import RoleAssignment


def _assign(role: RoleName, spec: str = "shapes:") -> RoleAssignment:
    return RoleAssignment(role, parse_spec(spec), "a test")


def _sharing(store: Store, shares: str) -> ModelPool:
    """A pool that binds every role as one that shares its model under this name."""

    def place(assignment: RoleAssignment) -> BoundRole:
        bound = bind(assignment.spec, assignment.role, pool.context)
        return replace(bound, resources=replace(bound.resources, shares=shares))

    pool = ModelPool(store, place=place)
    return pool


def test_a_role_is_bound_once(store: Store) -> None:
    """The same role and spec have one runner, which every agreement is asked about once."""
    bound: list[BoundRole] = []
    pool = ModelPool(store, agree=bound.append)
    runner = pool.runner(_assign("describer"))
    assert pool.runner(_assign("describer")) is runner
    assert pool.runner(_assign("describer", "shapes:?miss=0.5")) is not runner
    assert [str(role.spec) for role in bound] == ["shapes:", "shapes:?miss=0.5"]


def test_a_model_that_may_not_be_used_has_no_runner(store: Store) -> None:
    """Where the processes of a run do not agree on it, its error comes each time."""

    def refuse(bound: BoundRole) -> None:
        raise RuntimeError(f"other weights of {bound.role}")

    pool = ModelPool(store, agree=refuse)
    for _ in range(2):
        with pytest.raises(RuntimeError, match="other weights of describer"):
            pool.runner(_assign("describer"))
    assert not pool.runners


def test_roles_of_one_model_share_its_handle(store: Store) -> None:
    """Until the last of them is dismissed; then the model is loaded anew."""
    pool = _sharing(store, "one model")
    describer, generator = (pool.runner(_assign(role)) for role in ("describer", "generator"))
    assert describer.handle is generator.handle
    pool.dismiss(("describer", parse_spec("shapes:")))
    assert pool.runner(_assign("describer")).handle is generator.handle
    for role in ("describer", "generator"):
        assert pool.dismiss((role, parse_spec("shapes:"))).inputs == 0
    assert pool.runner(_assign("describer")).handle is not generator.handle


def test_an_identity_names_what_decides_the_results(store: Store) -> None:
    """What it is, its adapter and weights, then its parameters by name; unset ones are left out."""
    bound = ModelPool(store).runner(_assign("describer", "shapes:?miss=0.5")).bound
    plain = f"{bound.what} {bound.adapter} {bound.short_fingerprint}"
    assert describe_role(replace(bound, params={"b": 2, "a": 1, "c": None})) == f"{plain} a=1,b=2"
    assert describe_role(replace(bound, params={"c": None})) == plain
