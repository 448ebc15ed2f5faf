"""Models on a Ray cluster: each lives in a pool of actors there, and the driver sends it batches.

`connect` finds or starts the cluster, `PoolManager` binds roles there and keeps the pools. `ray` is
imported inside functions of this folder and nowhere else.
"""

from pytest_cepbench.chains.ray.cluster import Cluster, ResourceRequest, connect
from pytest_cepbench.chains.ray.pools import PoolManager

__all__ = ["Cluster", "PoolManager", "ResourceRequest", "connect"]
