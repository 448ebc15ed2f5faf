"""Errors of annotators without the truth: found again where the votes are simulated."""

from __future__ import annotations

import numpy as np
import pytest

from pytest_cepbench.metrics.dawid_skene import fit_dawid_skene

CROWD_KIT = [
    [[0.8956, 0.0, 0.1044], [0.0457, 0.7799, 0.1744], [0.0, 0.0688, 0.9312]],
    [[0.7647, 0.1983, 0.0369], [0.0822, 0.7271, 0.1907], [0.193, 0.1401, 0.6669]],
    [[0.5966, 0.2112, 0.1922], [0.2075, 0.6864, 0.1061], [0.2366, 0.152, 0.6114]],
    [[0.6968, 0.1538, 0.1494], [0.0847, 0.9153, 0.0], [0.0549, 0.0, 0.9451]],
]
"""Confusions by crowd-kit 1.4.2, `DawidSkene(n_iter=2000, tol=1e-12)`, on the votes of the test
below; rows are true values. It needs libraries that nothing else here does, so they are frozen."""


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


def test_confusions_are_those_of_crowd_kit() -> None:
    """But for the hundredth of a vote in each cell, which crowd-kit does not add."""
    _, votes = simulate([0.9, 0.75, 0.6, 0.8], 200, seed=3)
    gaps = np.random.default_rng(4).random(votes.shape) < 0.2
    fit = fit_dawid_skene(np.where(gaps, -1, votes), 3)

    assert fit.confusions == pytest.approx(np.array(CROWD_KIT), abs=2e-3)
    assert fit.shares == pytest.approx([0.3869, 0.3079, 0.3052], abs=1e-3)


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
