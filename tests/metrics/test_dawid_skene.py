"""Errors of annotators without the truth: found again where the votes are simulated."""

from __future__ import annotations

import numpy as np
import pytest

from pytest_cepbench.metrics.dawid_skene import fit_dawid_skene


def simulate(accuracies: list[float], items: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """True values of three, and the votes of annotators who are right so often."""
    source = np.random.default_rng(seed)
    truth = source.integers(0, 3, items)
    votes = []
    for accuracy in accuracies:
        wrong = (truth + source.integers(1, 3, items)) % 3
        votes.append(np.where(source.random(items) < accuracy, truth, wrong))
    return truth, np.array(votes)


def test_accuracies_are_found_again() -> None:
    """Within three points at 2,000 items, and the truth of most items with them."""
    truth, votes = simulate([0.95, 0.8, 0.6], 2000)
    fit = fit_dawid_skene(votes, 3)

    assert fit.accuracies == pytest.approx([0.95, 0.8, 0.6], abs=0.03)
    assert (fit.truth.argmax(axis=1) == truth).mean() > 0.93
    assert fit.shares == pytest.approx([1 / 3] * 3, abs=0.03)


def test_missing_votes_and_a_bad_annotator() -> None:
    """Half of the votes missing; one who votes at random is known by it."""
    _, votes = simulate([0.9, 0.9, 0.9, 1 / 3], 1500, seed=1)
    gaps = np.random.default_rng(2).random(votes.shape) < 0.5
    fit = fit_dawid_skene(np.where(gaps, -1, votes), 3)

    assert fit.accuracies[3] < 0.45
    assert fit.accuracies[:3].min() > 0.85
    rows = fit.confusions.sum(axis=2)
    assert rows == pytest.approx(np.ones_like(rows))


def test_an_item_without_a_vote_is_any() -> None:
    """Its truth has the shares of all."""
    fit = fit_dawid_skene(np.array([[0, 0, 1, -1], [0, 0, 1, -1]]), 2)
    assert fit.truth[3] == pytest.approx(fit.shares)


@pytest.mark.parametrize("votes", [[[-1, -1]], [[0, 2]], [[0, -2]], [0, 1]])
def test_what_is_no_vote(votes: list[object]) -> None:
    """Numbers out of range, another shape, and no vote at all."""
    with pytest.raises(ValueError, match="expected"):
        fit_dawid_skene(np.array(votes), 2)
