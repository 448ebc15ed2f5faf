"""Votes on labels: the majority, and people where it is a tie."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_cepbench.construction.verification import vote_labels

NAMES = ("A", "B", "C")

LABELS = st.frozensets(st.sampled_from(NAMES))


@given(LABELS, st.lists(LABELS, max_size=6))
def test_labels_are_those_of_the_majority(
    model: frozenset[str], people: list[frozenset[str]]
) -> None:
    """Counted by hand; a tie is decided by the people alone, of whom there is an odd number."""
    final = vote_labels(NAMES, model, people)

    for name in NAMES:
        votes = [name in labels for labels in (model, *people)]
        for_it, against = sum(votes), len(votes) - sum(votes)
        if for_it != against:
            assert (name in final.patterns) == (for_it > against)
        else:
            own = votes[1:]
            assert len(own) % 2 == 1
            assert (name in final.patterns) == (2 * sum(own) > len(own))
        assert (name in final.disputed) == (0 < for_it < len(votes))
    assert final.annotators == len(people)
    assert final.changed == (set(final.patterns) != set(model))


@pytest.mark.parametrize(
    ("people", "expected"),
    [
        ([], ("A",)),
        ([{"B"}], ("B",)),
        ([{"B"}, {"A"}], ("A",)),
        ([{"B"}, {"B"}], ("B",)),
        ([{"B"}, {"A", "B"}, {"C"}], ("B",)),
    ],
)
def test_examples(people: list[set[str]], expected: tuple[str, ...]) -> None:
    """A model that says A: without people, against one, beside two who differ, and three."""
    assert vote_labels(NAMES, {"A"}, people).patterns == expected
