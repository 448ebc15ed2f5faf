"""Failures: only the kinds that the store and the reports know."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_cepbench.artifacts import Failure
from pytest_cepbench.artifacts.outcome import FAILURE_KINDS


@pytest.mark.parametrize("kind", sorted(FAILURE_KINDS))
def test_every_known_kind_can_be_told(kind: Any) -> None:
    """A failure is its kind and detail, and equal to another of the same."""
    assert Failure(kind, "why") == Failure(kind, "why") != Failure(kind)


def test_an_unknown_kind_is_refused_where_it_is_made() -> None:
    """A plug-in that invents a kind hears of it at once, with the nearest known one."""
    kind: Any = "empty-txt"
    with pytest.raises(ValueError, match=r"'empty-txt'\. Did you mean 'empty-text'"):
        Failure(kind)
