"""Calls on inputs of one kind at a time: every result in its place."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from pytest_cepbench.models.torch_runtime import by_kind


@given(st.lists(st.sampled_from(["a", "b", None, 3])))
def test_results_keep_their_places_and_kinds_their_calls(kinds: list[str | int | None]) -> None:
    """One call for each kind, with all of it in order."""
    calls: list[list[int]] = []

    def answer(indices: Sequence[int]) -> list[int]:
        calls.append(list(indices))
        return [10 * index for index in indices]

    results = by_kind(kinds, answer)

    assert results == [10 * index for index in range(len(kinds))]
    assert len(calls) == len(set(kinds))
    for indices in calls:
        assert indices == [i for i, kind in enumerate(kinds) if kind == kinds[indices[0]]]
