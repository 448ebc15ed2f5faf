"""Models on a Ray cluster: each lives in a pool of actors there, and the driver sends it batches.

`cluster.connect` finds or starts the cluster, `pools.PoolManager` binds roles there and keeps the
pools. `ray` is imported inside functions of this folder and nowhere else.
"""
