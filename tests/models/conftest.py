"""Fixtures of the model tests: a context to bind in."""

from __future__ import annotations

import pytest

from pytest_cepbench.models.binding import BindContext
from tests.models.binding import CONTEXT


@pytest.fixture(scope="session")
def context() -> BindContext:
    """A context that hashes every file anew and keeps torch to one thread."""
    return CONTEXT
