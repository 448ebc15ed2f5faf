"""Probabilities of verdicts: from likelihoods, to a score, beside a stored verdict and back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_cepbench.artifacts.outcome import PROBABILITIES, WINNERS, VerdictProbabilities

LIKELIHOODS = st.lists(st.floats(-50, 0), min_size=4, max_size=4)


@given(LIKELIHOODS)
def test_the_likeliest_verdict_wins(likelihoods: list[float]) -> None:
    """Probabilities sum to 1, keep the order of the likelihoods, and give a score in [0, 1]."""
    probabilities = VerdictProbabilities.from_likelihoods(likelihoods)

    assert sum(probabilities.values) == pytest.approx(1)
    chosen = likelihoods[WINNERS.index(probabilities.winner)]
    assert chosen == pytest.approx(max(likelihoods), abs=1e-12)


@given(LIKELIHOODS)
def test_what_is_stored_is_read_again(likelihoods: list[float]) -> None:
    """To six digits."""
    probabilities = VerdictProbabilities.from_likelihoods(likelihoods)
    stored = VerdictProbabilities.from_provenance({PROBABILITIES: probabilities.to_text()})

    assert stored is not None
    assert stored.values == pytest.approx(probabilities.values, abs=1e-6)


@pytest.mark.parametrize(
    "text", ["", "1 0 0", "a b c d", "0.5 0.5 0.5 0.5", "nan 0 0 1", "2 -1 0 0"]
)
def test_what_is_none_is_read_as_none(text: str) -> None:
    """A store can hold anything; no probabilities are none."""
    assert VerdictProbabilities.from_provenance({PROBABILITIES: text}) is None
    assert VerdictProbabilities.from_provenance({}) is None


def test_the_likeliest_verdict_is_allowed_but_for_the_digits_that_are_stored() -> None:
    """Of two verdicts alike to six digits either may be the one that was given."""
    alike = VerdictProbabilities((0.4999990, 0.5000005, 0.0, 0.0000005))

    assert [winner for winner in WINNERS if alike.allow(winner)] == ["A", "Tie(A)"]
    apart = VerdictProbabilities((0.499997, 0.500000, 0.0, 0.000003))
    assert [winner for winner in WINNERS if apart.allow(winner)] == ["Tie(A)"]
