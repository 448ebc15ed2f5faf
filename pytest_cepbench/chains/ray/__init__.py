"""Models on a Ray cluster: they live in actors there, and roles are played through them from here.

`ray` is imported inside functions of this folder and nowhere else.
"""

from pytest_cepbench.chains.ray.cluster import Cluster, Node
from pytest_cepbench.chains.ray.connection import connect
from pytest_cepbench.chains.ray.pool_manager import PoolManager
from pytest_cepbench.chains.ray.resources import (
    Allocation,
    ResourceRequest,
    check_wishes,
    share_out,
)

__all__ = [
    "Allocation",
    "Cluster",
    "Node",
    "PoolManager",
    "ResourceRequest",
    "check_wishes",
    "connect",
    "share_out",
]
