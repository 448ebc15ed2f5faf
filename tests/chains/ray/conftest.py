"""Actors that play in the process of the tests set its environment, as they do in their own."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def environment_as_before() -> Iterator[None]:
    """Devices that an actor hides, and its threads, are those of the process again afterwards."""
    before = dict(os.environ)
    yield
    os.environ.clear()
    os.environ.update(before)
