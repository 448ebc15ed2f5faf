"""Fixtures of the tests of servers that a run starts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pytest_cepbench.models.binding import BoundRole, bind
from pytest_cepbench.models.protocols import RoleName
from pytest_cepbench.models.serving.run_servers import RunServers
from pytest_cepbench.models.spec import parse_spec
from tests.models.binding import context_with
from tests.models.serving.stand_ins import StandIn, make_stand_in

Bind = Callable[..., BoundRole]
"""(spec, role="describer") -> the role, bound in the run of the test."""


@pytest.fixture
def stand_in(tmp_path: Path) -> StandIn:
    """A checkpoint, and an interpreter whose engines are stand-ins."""
    return make_stand_in(tmp_path)


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[RunServers]:
    """The servers of a run that is this process alone."""
    servers = RunServers(tmp_path / "run", tmp_path / "logs")
    yield servers
    servers.close()


@pytest.fixture
def bind_served(servers: RunServers) -> Bind:
    """Bind what a user would type, in that run."""

    def bound(text: str, role: RoleName = "describer", **options: Any) -> BoundRole:
        return bind(parse_spec(text), role, context_with(servers), **options)

    return bound
