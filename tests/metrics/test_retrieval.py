"""Nearest-start retrieval: against plain loops, ties, duplicates, chance, memory."""

from __future__ import annotations

import tracemalloc

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_cepbench.metrics.diversity import Gallery

Array = npt.NDArray[np.float64]

SEEDS = st.integers(0, 2**32 - 1)
FEW = settings(max_examples=40)


def drawn(n: int, dimension: int, seed: int) -> Array:
    """Vectors of many lengths."""
    random = np.random.default_rng(seed)
    return random.standard_normal((n, dimension)) * random.uniform(0.1, 90, (n, 1))


def by_definition(starts: Array, outputs: Array) -> list[float]:
    """Whether the largest cosine of each output is that with its own start."""

    def cosines(output: Array) -> list[float]:
        return [
            float(output @ start / (np.linalg.norm(output) * np.linalg.norm(start)))
            for start in starts
        ]

    return [float(np.argmax(cosines(output)) == own) for own, output in enumerate(outputs)]


@FEW
@given(seed=SEEDS, n=st.integers(2, 40), dimension=st.integers(2, 9))
def test_it_is_the_nearest_neighbour_by_cosine(seed: int, n: int, dimension: int) -> None:
    """Whatever the lengths; no ties in vectors from a continuous law."""
    starts, outputs = drawn(n, dimension, seed), drawn(n, dimension, seed + 1)
    names = [f"s{i}" for i in range(n)]
    assert Gallery.of(starts, names).top_1(outputs, names).tolist() == by_definition(
        starts, outputs
    )


@FEW
@given(seed=SEEDS, n=st.integers(2, 30))
def test_rotation_lengths_and_the_gallery_s_order_change_nothing(seed: int, n: int) -> None:
    """Only angles count, and the samples' own pairs of start and output."""
    starts, outputs = drawn(n, 5, seed), drawn(n, 5, seed + 1)
    names = list(range(n))
    scores = Gallery.of(starts, names).top_1(outputs, names)
    random = np.random.default_rng(seed)
    turn = np.linalg.qr(random.standard_normal((5, 5)))[0]
    lengths = random.uniform(1e-3, 1e3, (n, 1))
    assert (Gallery.of(starts @ turn, names).top_1(outputs @ turn * lengths, names) == scores).all()
    order = random.permutation(n)
    mixed = Gallery.of(starts[order], [names[i] for i in order])
    assert (mixed.top_1(outputs, names) == scores).all()


@FEW
@given(seed=SEEDS, n=st.integers(2, 30))
def test_outputs_that_are_all_alike_score_chance(seed: int, n: int) -> None:
    """Collapse to one point: exactly one start is found, whichever it is."""
    gallery = Gallery.of(drawn(n, 4, seed), list(range(n)))
    outputs = np.repeat(drawn(1, 4, seed + 1), n, axis=0)
    assert gallery.top_1(outputs, list(range(n))).mean() == pytest.approx(gallery.chance)


@FEW
@given(seed=SEEDS, n=st.integers(2, 30))
def test_an_encoder_of_one_vector_scores_chance_never_perfect(seed: int, n: int) -> None:
    """All starts are tied, so each has its fair share of a draw among them."""
    vectors = np.repeat(drawn(1, 4, seed), n, axis=0) * np.linspace(1, 2, n)[:, None]
    gallery = Gallery.of(vectors, list(range(n)))
    assert gallery.top_1(vectors, list(range(n))).tolist() == pytest.approx([1 / n] * n)
    assert gallery.ceiling().tolist() == pytest.approx([1 / n] * n)


def test_equal_starts_are_one_and_different_starts_of_one_vector_share() -> None:
    """Equal content is no competitor; content that the encoder cannot tell apart is."""
    a, b = [1.0, 0.0], [0.0, 1.0]
    vectors = np.array([a, a, b])
    duplicate = Gallery.of(vectors, ["x", "x", "y"])
    assert duplicate.top_1(vectors, ["x", "x", "y"]).tolist() == [1.0, 1.0, 1.0]
    assert duplicate.chance == 0.5
    tied = Gallery.of(vectors, ["x", "z", "y"])
    assert tied.top_1(vectors, ["x", "z", "y"]).tolist() == [0.5, 0.5, 1.0]
    assert tied.ceiling().tolist() == [0.5, 0.5, 1.0]


def test_ties_are_those_within_the_decimals_of_a_score() -> None:
    """A cosine that is larger by the rounding of float32 decides nothing."""
    starts = np.array([[1.0, 0.0], [1.0, 1e-9]], dtype=np.float64)
    gallery = Gallery.of(starts, ["x", "y"])
    assert gallery.top_1(starts, ["x", "y"]).tolist() == [0.5, 0.5]
    apart = Gallery.of(np.array([[1.0, 0.0], [1.0, 0.01]]), ["x", "y"])
    assert apart.top_1(np.array([[1.0, 0.0], [1.0, 0.01]]), ["x", "y"]).tolist() == [1.0, 1.0]


def test_bad_input_is_refused() -> None:
    """One start, other shapes, unknown starts, vectors without direction."""
    with pytest.raises(ValueError, match="at least 2 different starts, got 1"):
        Gallery.of(np.eye(2), ["x", "x"])
    with pytest.raises(ValueError, match="expected"):
        Gallery.of(np.eye(2), ["x"])
    with pytest.raises(ValueError, match="zero or not finite"):
        Gallery.of(np.array([[1.0, 0.0], [0.0, 0.0]]), ["x", "y"])
    gallery = Gallery.of(np.eye(2), ["x", "y"])
    with pytest.raises(ValueError, match="1 starts are not in the gallery, such as 'z'"):
        gallery.top_1(np.eye(2), ["x", "z"])
    with pytest.raises(ValueError, match="zero or not finite"):
        gallery.top_1(np.array([[np.nan, 1.0]]), ["x"])
    with pytest.raises(ValueError, match="expected"):
        gallery.top_1(np.eye(2), ["x"])
    assert gallery.top_1(np.empty((0, 2)), []).tolist() == []


def test_many_starts_need_no_array_of_all_pairs() -> None:
    """5,000 outputs among 5,000 starts: 256 rows of cosines at a time, not 200 MB."""
    random = np.random.default_rng(0)
    starts = random.standard_normal((5000, 32)).astype(np.float32)
    names = list(range(5000))
    gallery = Gallery.of(starts, names)
    tracemalloc.start()
    scores = gallery.top_1(starts, names)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert scores.mean() == 1.0
    assert peak < 40e6
