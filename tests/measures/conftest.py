"""Fixtures of the measures' tests."""

from tests.chains.conftest import store

__all__ = ["store"]
