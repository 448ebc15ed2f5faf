"""A real cluster of two nodes on this machine, and a project whose models can play there."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.plugin.project import Project

_MEMORY = 80 << 20  # bytes of each node's object store; the least that Ray takes is 75 MiB

_SLOW_TO_MISS = {  # a node that died is missed within seconds, not half a minute
    "health_check_initial_delay_ms": 0,
    "health_check_period_ms": 500,
    "health_check_timeout_ms": 1000,
    "health_check_failure_threshold": 2,
}


@dataclass(frozen=True)
class TwoNodes:
    """The cluster. address: of its head. raw: Ray's own object for it."""

    address: str
    raw: Any

    def cut_off(self, node: Any) -> None:
        """Kill all processes of a node at once, as when power fails.

        Without their raylet its actors would go on for a second or two.
        """
        raylet = node.all_processes["raylet"][0].process.pid
        actors = Path(f"/proc/{raylet}/task/{raylet}/children").read_text().split()
        for pid in (raylet, *map(int, actors)):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.raw.remove_node(node, allow_graceful=False)

    def add(self) -> Any:
        """One more node, of one core."""
        return self.raw.add_node(num_cpus=1, object_store_memory=_MEMORY)


@pytest.fixture(scope="package")
def two_nodes() -> Iterator[TwoNodes]:
    """Two nodes of one core each; stopped, with all of their processes, at the end."""
    pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_AUTH_MODE", "disabled")  # a token would be written to the user's home
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.setenv("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
        cluster = Cluster(
            initialize_head=True,
            head_node_args={
                "num_cpus": 1,
                "num_gpus": 0,
                "object_store_memory": _MEMORY,
                "include_dashboard": False,
                "_system_config": _SLOW_TO_MISS,
            },
        )
        try:
            nodes = TwoNodes(cluster.address, cluster)
            nodes.add()
            yield nodes
        finally:
            cluster.shutdown()  # type: ignore[no-untyped-call]


@pytest.fixture
def photos(project: Project) -> Project:
    """Photos in four categories, and models for actors beside them."""
    colors = {
        f"{name}/{number}.png": (40 * place + 20, 30 * number + 10, 200 - 25 * number)
        for place, name in enumerate("abcd")
        for number in range(6)
    }
    project.photos(colors)
    shutil.copy(Path(__file__).with_name("cluster_models.py"), project.path)
    return project


@pytest.fixture
def on_cluster(two_nodes: TwoNodes) -> tuple[str, ...]:
    """Arguments of a run there, with a store of its own."""
    return "--cep-engine=ray", f"--cep-ray-address={two_nodes.address}", "--cep-store=far"


@pytest.fixture
def describing(on_cluster: tuple[str, ...]) -> tuple[str, ...]:
    """The same, with a describer on each node and one actor of each other role, to start fast."""
    others = (f"--cep-ray-pool={role}:actors=1" for role in ("generator", "encoder"))
    return (*on_cluster, *others, "--cep-role=describer")
