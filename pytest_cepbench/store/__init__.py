"""The store: results of steps under content-addressed keys, shared by processes, safe against kills."""

from pytest_cepbench.store.rows import ImageRef, Result, StoredResult, Vector
from pytest_cepbench.store.store import Store

__all__ = ["ImageRef", "Result", "Store", "StoredResult", "Vector"]
