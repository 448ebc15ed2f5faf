"""Vendi score and mean pairwise distance: against their definitions, invariances and blocks."""

from __future__ import annotations

import tracemalloc
from itertools import combinations

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_cepbench.errors import TooFewError
from pytest_cepbench.metrics.diversity import (
    mean_pairwise_distance,
    mean_pairwise_distances,
    vendi_score,
    vendi_scores,
)

Array = npt.NDArray[np.float64]

SEEDS = st.integers(0, 2**32 - 1)
SIZES = st.integers(2, 24)
FEW = settings(max_examples=40)

SCORES = {"vendi": vendi_score, "distance": mean_pairwise_distance}


def drawn(n: int, dimension: int, seed: int) -> Array:
    """Vectors of many lengths, not centred."""
    random = np.random.default_rng(seed)
    return (random.standard_normal((n, dimension)) + 0.3) * random.uniform(0.1, 90, (n, 1))


def cosine(a: Array, b: Array) -> float:
    """By its definition."""
    return float(a @ b / (np.linalg.norm(a) * np.linalg.norm(b)))


def vendi_by_definition(vectors: Array) -> float:
    """Exponential of the entropy of the eigenvalues of the whole kernel matrix over n."""
    kernel = np.array([[cosine(a, b) for a in vectors] for b in vectors]) / len(vectors)
    eigenvalues = [value for value in np.linalg.eigvalsh(kernel) if value > 1e-12]
    return float(np.exp(-sum(value * np.log(value) for value in eigenvalues)))


def distance_by_definition(vectors: Array) -> float:
    """Pair by pair."""
    return float(np.mean([1 - cosine(a, b) for a, b in combinations(vectors, 2)]))


@FEW
@given(seed=SEEDS, n=SIZES, dimension=st.integers(1, 30))
def test_both_scores_are_their_definitions(seed: int, n: int, dimension: int) -> None:
    """By the smaller of two matrices, and without pairs, as by all pairs."""
    vectors = drawn(n, dimension, seed)
    assert vendi_score(vectors) == pytest.approx(vendi_by_definition(vectors), rel=1e-8)
    assert mean_pairwise_distance(vectors) == pytest.approx(
        distance_by_definition(vectors), abs=1e-9
    )


@FEW
@given(seed=SEEDS, n=SIZES, dimension=st.integers(2, 12))
def test_lengths_order_and_rotation_change_nothing(seed: int, n: int, dimension: int) -> None:
    """Only the angles between the items count."""
    vectors = drawn(n, dimension, seed)
    random = np.random.default_rng(seed)
    turned = vectors @ np.linalg.qr(random.standard_normal((dimension, dimension)))[0]
    stretched = vectors * random.uniform(1e-3, 1e3, (n, 1))
    for score in SCORES.values():
        for other in (turned, stretched, vectors[::-1]):
            assert score(other) == pytest.approx(score(vectors), rel=1e-7, abs=1e-7)


@pytest.mark.parametrize("n", [2, 7, 50])
def test_equal_items_are_one_and_orthogonal_items_are_as_many_as_there_are(n: int) -> None:
    """The ends of both scales."""
    assert vendi_score(np.eye(n)) == pytest.approx(n)
    assert mean_pairwise_distance(np.eye(n)) == pytest.approx(1.0)
    same = np.ones((n, 3))
    assert vendi_score(same) == pytest.approx(1.0)
    assert mean_pairwise_distance(same) == pytest.approx(0.0, abs=1e-12)
    assert mean_pairwise_distance(np.array([[1.0, 0.0], [-1.0, 0.0]])) == pytest.approx(2.0)


@FEW
@given(seed=SEEDS, n=SIZES, times=st.integers(2, 4))
def test_repeating_every_item_leaves_the_effective_number(seed: int, n: int, times: int) -> None:
    """A copy adds nothing new: the principle of replication of effective numbers."""
    vectors = drawn(n, 5, seed)
    copied = np.repeat(vectors, times, axis=0)
    assert vendi_score(copied) == pytest.approx(vendi_score(vectors), rel=1e-8)


@FEW
@given(seed=SEEDS, n=st.integers(6, 24), dimension=st.sampled_from([3, 40]))
def test_leaving_a_block_out_is_measuring_the_rest(seed: int, n: int, dimension: int) -> None:
    """With more and with fewer vectors than dimensions."""
    vectors = drawn(n, dimension, seed)
    blocks = np.arange(n) % 3
    rests = [vectors[blocks != block] for block in range(3)]
    vendi, without = vendi_scores(vectors, blocks, 3)
    assert vendi == vendi_score(vectors)
    assert without == pytest.approx(list(map(vendi_score, rests)), rel=1e-7)
    distance, without = mean_pairwise_distances(vectors, blocks, 3)
    assert distance == mean_pairwise_distance(vectors)
    assert without == pytest.approx(list(map(mean_pairwise_distance, rests)), abs=1e-9)


@pytest.mark.parametrize("score", SCORES)
def test_too_few_vectors_and_vectors_without_direction_are_refused(score: str) -> None:
    """One item has no diversity; zeros and NaN have no angle."""
    with pytest.raises(TooFewError, match="at least 2"):
        SCORES[score](np.ones((1, 3)))
    for bad in (0.0, np.nan, np.inf):
        vectors = np.ones((3, 2))
        vectors[1] = bad
        with pytest.raises(ValueError, match="zero or not finite"):
            SCORES[score](vectors)
    with pytest.raises(ValueError, match="expected"):
        SCORES[score](np.ones(3))


def test_a_rest_of_one_vector_is_refused() -> None:
    """A block that holds all but one."""
    for scores in (vendi_scores, mean_pairwise_distances):
        with pytest.raises(TooFewError, match="1 of 3"):
            scores(np.eye(3), np.array([0, 0, 1]), 2)


def test_many_samples_need_no_array_of_all_pairs() -> None:
    """5,000 vectors of 64 dimensions: beside them a few blocks, not the 200 MB of all cosines."""
    vectors = drawn(5000, 64, 0).astype(np.float32)
    tracemalloc.start()
    for scores in (vendi_scores, mean_pairwise_distances):
        scores(vectors, np.arange(5000) % 10, 10)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 10e6
