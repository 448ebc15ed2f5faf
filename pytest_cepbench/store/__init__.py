"""The store: results of steps under content-addressed keys.

Processes share it, and a kill at any instant leaves it sound.
"""

from pytest_cepbench.store.rows import ImageRef, Result, StoredResult, Vector
from pytest_cepbench.store.store import Store

__all__ = ["ImageRef", "Result", "Store", "StoredResult", "Vector"]
