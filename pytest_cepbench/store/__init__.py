"""The store: results of steps under content-addressed keys, shared by processes, safe against kills."""

from pytest_cepbench.store.store import Store
from pytest_cepbench.store.stored_result import ImageRef, Result, StoredResult, Vector

__all__ = ["ImageRef", "Result", "Store", "StoredResult", "Vector"]
