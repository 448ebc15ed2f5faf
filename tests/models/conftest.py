"""Fixtures of the model tests: a context to bind in, trained checkpoints where there are any."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_cepbench.models.binding import BindContext
from tests.models.binding import CONTEXT

REPOSITORY = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def context() -> BindContext:
    """A context that hashes every file anew and keeps torch to one thread."""
    return CONTEXT


@pytest.fixture(scope="session")
def lab() -> Path:
    """The folder of small trained checkpoints, where a checkout has it beside it."""
    folder = REPOSITORY.parent / "shared" / "lab" / "checkpoints"
    if not folder.is_dir():
        pytest.skip(f"no trained checkpoints at {folder}")
    return folder
