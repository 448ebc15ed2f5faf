"""Votes on labels: the majority, and people where it is a tie."""

from __future__ import annotations

from math import comb

import numpy as np
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


@given(LABELS, st.lists(LABELS, max_size=5), st.randoms(use_true_random=False))
def test_people_are_equal(
    model: frozenset[str], people: list[frozenset[str]], random: object
) -> None:
    """Their order does not matter."""
    before = vote_labels(NAMES, model, people)
    random.shuffle(people)  # type: ignore[attr-defined] # of random.Random

    assert vote_labels(NAMES, model, people) == before


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


def test_wrong_labels_are_as_rare_as_votes_make_them() -> None:
    """Two people of 5 % error and a model of 10 %: most of three, computed and simulated."""
    rng = np.random.default_rng(7)
    number, names = 4000, tuple("ABCDEF")
    truth = {str(i): {n for n in names if rng.random() < 0.5} for i in range(number)}

    def mistaken(labels: set[str], error: float) -> set[str]:
        return {name for name in names if (name in labels) != (rng.random() < error)}

    final = {
        image: set(
            vote_labels(
                names, mistaken(labels, 0.1), [mistaken(labels, 0.05) for _ in range(2)]
            ).patterns
        )
        for image, labels in truth.items()
    }
    expected = 0.05**2 * 0.9 + comb(2, 1) * 0.05 * 0.95 * 0.1 + 0.05**2 * 0.1
    wrong = sum((name in final[i]) != (name in truth[i]) for i in truth for name in names)
    assert wrong / (number * len(names)) == pytest.approx(expected, abs=0.003)
