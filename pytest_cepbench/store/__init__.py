"""The store: results of steps under content-addressed keys.

Processes share it, and a kill at any instant leaves it sound.
"""

from pytest_cepbench.store.rows import ArtifactRef, Result, StoredResult, Vector
from pytest_cepbench.store.store import Store

__all__ = ["ArtifactRef", "Result", "Store", "StoredResult", "Vector"]
