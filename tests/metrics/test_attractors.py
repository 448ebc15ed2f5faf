"""Attractors: clusters of outputs of different starts, by a radius that the starts give."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_cepbench.metrics.attractors import (
    attractor_radius,
    clusters,
    find_attractors,
    share_in,
)
from pytest_cepbench.metrics.diversity import unit_rows
from pytest_cepbench.metrics.retrieval import Gallery

Array = npt.NDArray[np.float64]

SEEDS = st.integers(0, 2**32 - 1)
FEW = settings(max_examples=30)


def drawn(n: int, dimension: int, seed: int) -> Array:
    """Directions of no law."""
    return np.random.default_rng(seed).standard_normal((n, dimension))


def radius_of(starts: Array) -> float:
    """By the starts."""
    return attractor_radius(Gallery.of(starts, list(range(len(starts)))))


@FEW
@given(seed=SEEDS, n=st.integers(1, 60), radius=st.floats(0.01, 1.0))
def test_no_two_of_a_cluster_are_farther_apart_than_the_radius(
    seed: int, n: int, radius: float
) -> None:
    """Complete linkage, also across the parts that are looked at one by one."""
    unit = unit_rows(drawn(n, 3, seed))
    labels = clusters(unit, radius)
    for label in np.unique(labels):
        own = unit[labels == label]
        assert (1 - own @ own.T).max() <= radius + 1e-9
    assert set(labels) == set(range(int(labels.max()) + 1))


@FEW
@given(seed=SEEDS, n=st.integers(3, 40))
def test_it_is_scipy_s_linkage_of_all_pairs(seed: int, n: int) -> None:
    """Splitting into connected parts first changes no cluster."""
    from scipy.cluster.hierarchy import fcluster, linkage
    from scipy.spatial.distance import pdist

    unit = unit_rows(drawn(n, 3, seed))
    whole = fcluster(linkage(pdist(unit, "cosine"), "complete"), t=0.2, criterion="distance")
    labels = clusters(unit, 0.2)
    assert len(np.unique(np.column_stack([whole, labels]), axis=0)) == len(np.unique(whole))
    assert len(np.unique(labels)) == len(np.unique(whole))


def test_ends_that_meet_are_an_attractor_and_ends_that_stay_are_none() -> None:
    """Half of forty chains end at one point: one attractor of twenty, from twenty clusters."""
    starts = drawn(40, 32, 0)
    assert find_attractors(starts, starts, radius_of(starts)) == []
    ends = starts.copy()
    ends[::2] = drawn(1, 32, 1) + 0.01 * drawn(20, 32, 2)
    (attractor,) = find_attractors(starts, ends, radius_of(starts))
    assert attractor.members == tuple(range(0, 40, 2))
    assert attractor.origins == 20
    assert attractor.center in attractor.members
    assert share_in([attractor], 40) == 0.5
    assert share_in([], 0) == 0.0


def test_starts_that_were_alike_are_no_attractor() -> None:
    """Ends are allowed to be as alike as their starts; two that meet are too few."""
    starts = np.repeat(drawn(4, 8, 0), 5, axis=0) + 1e-4 * drawn(20, 8, 1)
    assert find_attractors(starts, starts, 0.05) == []
    met = starts.copy()
    met[5:10] = met[:5]
    assert find_attractors(starts, met, 0.05) == []
    met[10:15] = met[:5]
    (attractor,) = find_attractors(starts, met, 0.05)
    assert (len(attractor.members), attractor.origins) == (15, 3)


def test_lengths_and_repetition_change_nothing() -> None:
    """Directions alone count; the same rows give the same attractors."""
    starts, ends = drawn(30, 6, 0), drawn(30, 6, 1)
    ends[:9] = ends[0]
    lengths = np.linspace(0.1, 50, 30)[:, None]
    found = find_attractors(starts, ends, 0.1)
    assert found == find_attractors(starts * lengths, ends * lengths, 0.1)
    assert len(found[0].members) >= 9


def test_the_radius_is_half_of_what_parts_a_start_from_the_nearest() -> None:
    """Tied starts have no say; where all are tied nothing can be alike by more than chance."""
    angles = np.array([0.0, 0.0, 0.4, 1.2])
    starts = np.column_stack([np.cos(angles), np.sin(angles)])
    distances = [1 - np.cos(0.4), 1 - np.cos(0.8)]
    assert radius_of(starts) == pytest.approx(np.median(distances) / 2)
    assert radius_of(np.ones((3, 2))) == 0.0


def test_shapes_that_do_not_fit_are_refused() -> None:
    """A start for each end."""
    with pytest.raises(ValueError, match="expected starts and outputs"):
        find_attractors(np.eye(3), np.eye(2), 0.1)
    assert find_attractors(np.empty((0, 2)), np.empty((0, 2)), 0.1) == []
