"""Libraries, and values, that tests need and that may be absent."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TypeVar

import pytest


def needs(*libraries: str, reason: str = "") -> None:
    """Skip the rest of a test module where one of these is not installed.

    `importorskip` imports it, in every worker of xdist and for tests that are not even selected.
    """
    for name in libraries:
        if find_spec(name) is None:
            pytest.skip(reason or f"could not import '{name}'", allow_module_level=True)


T = TypeVar("T")


def known(value: T | None) -> T:
    """A value that must be there."""
    assert value is not None
    return value
