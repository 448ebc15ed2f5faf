"""Features gathered shard by shard: what is kept, in how much memory, and what is refused."""

from __future__ import annotations

import tracemalloc
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_cepbench.metrics.moments import FeatureSet, Moments

Array = npt.NDArray[np.float64]

BOTH_WAYS = pytest.mark.parametrize("root_up_to", [512, 0], ids=["root", "scatter"])
SEEDS = st.integers(0, 2**32 - 1)


def rows(n: int, dimension: int, seed: int = 0) -> Array:
    """Features of unlike variances and means."""
    random = np.random.default_rng(seed)
    scale = np.geomspace(1, 1e-3, dimension)
    return random.standard_normal((n, dimension)) * scale + random.standard_normal(dimension)


def gathered(*shards: Array, root_up_to: int = 512) -> FeatureSet:
    """A set of the shards, in order."""
    features = FeatureSet(shards[0].shape[1], root_up_to=root_up_to)
    for shard in shards:
        features.add(shard)
    return features


def cut(whole: Array, bounds: list[int]) -> list[Array]:
    """The rows in consecutive shards, some perhaps empty."""
    edges = [0, *sorted(bound % (len(whole) + 1) for bound in bounds), len(whole)]
    return [whole[low:high] for low, high in pairwise(edges)]


def scatter(moments: Moments) -> Array:
    """C^T C, whichever way it is kept."""
    return moments.spread if moments.squared else moments.spread.T @ moments.spread


def same_bits(left: Moments, right: Moments) -> bool:
    """Whether nothing at all differs."""
    return (
        (left.n, left.squared) == (right.n, right.squared)
        and left.mean.tobytes() == right.mean.tobytes()
        and left.spread.tobytes() == right.spread.tobytes()
    )


@BOTH_WAYS
@pytest.mark.parametrize("dimension", [1, 3, 40])
@pytest.mark.parametrize("n", [1, 2, 40, 256, 257, 700])
def test_moments_are_the_mean_and_the_scatter(n: int, dimension: int, root_up_to: int) -> None:
    """Kept as rows or folded, they are those that numpy forms of the whole array at once."""
    whole = rows(n, dimension)
    moments = gathered(whole, root_up_to=root_up_to).moments()

    centred = whole - whole.mean(axis=0)
    assert moments.n == n
    np.testing.assert_allclose(moments.mean, whole.mean(axis=0), rtol=1e-13, atol=1e-15)
    np.testing.assert_allclose(scatter(moments), centred.T @ centred, rtol=1e-10, atol=1e-11)
    assert moments.total_scatter == pytest.approx(float(np.sum(centred**2)), rel=1e-12)
    assert len(moments.spread) <= dimension


def test_wide_scatter_is_whole_and_exactly_symmetric() -> None:
    """The strips in which the matrix is updated leave no seam, and no half of it empty."""
    whole = rows(1000, 600)
    moments = gathered(whole).moments()

    assert moments.squared
    np.testing.assert_array_equal(moments.spread, moments.spread.T)
    np.testing.assert_allclose(moments.spread / 999, np.cov(whole.T), rtol=1e-9, atol=1e-13)


def test_rows_stay_themselves_while_there_are_few() -> None:
    """Up to D samples the root is the centred rows in the order given: nothing was squared."""
    whole = rows(300, 600)
    moments = gathered(whole).moments()

    assert not moments.squared
    np.testing.assert_allclose(moments.spread, whole - whole.mean(axis=0), atol=1e-15)


@BOTH_WAYS
@settings(max_examples=25)
@given(n=st.sampled_from([5, 255, 256, 257, 600]), bounds=st.lists(st.integers(0, 600), max_size=6))
def test_shard_boundaries_change_no_bit(root_up_to: int, n: int, bounds: list[int]) -> None:
    """However workers cut the samples, a set that was given the same rows is the same set."""
    whole = rows(n, 7)
    pieces = gathered(*cut(whole, bounds), root_up_to=root_up_to)
    at_once = gathered(whole, root_up_to=root_up_to)

    assert same_bits(pieces.moments(), at_once.moments())


@BOTH_WAYS
def test_a_set_goes_on_growing_after_it_was_read(root_up_to: int) -> None:
    """Moments are a copy of the moment: reading them changes nothing, and they stay."""
    whole = rows(900, 5)
    features = gathered(whole[:400], root_up_to=root_up_to)
    early = features.moments()
    features.add(whole[400:])

    assert same_bits(early, gathered(whole[:400], root_up_to=root_up_to).moments())
    assert same_bits(features.moments(), gathered(whole, root_up_to=root_up_to).moments())


def test_the_callers_array_may_be_used_again() -> None:
    """Encoders write the next batch into the same buffer."""
    buffer = rows(3, 4)
    features = gathered(buffer)
    before = features.moments()
    buffer[:] = 0

    assert same_bits(features.moments(), before)


@BOTH_WAYS
@given(seed=SEEDS, constant=st.floats(-1e6, 1e6))
@settings(max_examples=25)
def test_a_constant_column_has_no_spread(root_up_to: int, seed: int, constant: float) -> None:
    """A dead feature is exactly dead, also at a value whose sums round."""
    whole = rows(600, 3, seed)
    whole[:, 1] = constant
    moments = gathered(whole[:123], whole[123:], root_up_to=root_up_to).moments()

    assert moments.mean[1] == constant
    assert not scatter(moments)[1].any()
    assert not scatter(moments)[:, 1].any()


@BOTH_WAYS
def test_a_large_mean_costs_no_spread(root_up_to: int) -> None:
    """Features far from zero keep their spread: nothing is the difference of two large sums."""
    near = np.round(rows(900, 4) * 2**20) / 2**20  # exact beside the offset
    far = gathered(near + 2.0**30, root_up_to=root_up_to).moments()

    expected = scatter(gathered(near, root_up_to=root_up_to).moments())
    # The mean itself is rounded to 1e-7 there; sums of squares would be off by 1e5.
    np.testing.assert_allclose(scatter(far), expected, atol=1e-5)


@BOTH_WAYS
def test_many_samples_need_no_feature_matrix(root_up_to: int) -> None:
    """Memory stays at a few D x D matrices while twenty times D samples come."""
    dimension, shards = 384, 60
    tracemalloc.start()
    try:
        features = FeatureSet(dimension, root_up_to=root_up_to)
        for shard in range(shards):
            features.add(rows(128, dimension, seed=shard))
        features.moments()
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

    assert features.n == shards * 128
    assert peak < 8 * dimension**2 * 8 < features.n * dimension * 8 / 2


@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64])
def test_any_float_is_taken_as_it_is(kind: type[np.floating[Any]]) -> None:
    """Narrow floats are widened before anything is summed."""
    whole = rows(500, 3).astype(kind)
    wide = gathered(whole.astype(np.float64))

    assert same_bits(gathered(whole).moments(), wide.moments())


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 1e200, -1e200])
def test_values_that_spoil_every_sum_are_refused(bad: float) -> None:
    """One such value is refused by name, and its shard leaves no trace in the set."""
    features = gathered(rows(4, 3))
    before = features.moments()
    shard = rows(5, 3)
    shard[2, 1] = bad
    with pytest.raises(ValueError, match="count them as failed"):
        features.add(shard)

    assert same_bits(features.moments(), before)


@pytest.mark.parametrize(
    "shard",
    [np.zeros((2, 4)), np.zeros(3), np.zeros((1, 2, 3)), np.zeros((2, 3), dtype=np.complex128)],
    ids=["width", "one row", "batch", "complex"],
)
def test_other_shapes_and_kinds_are_refused(shard: npt.NDArray[Any]) -> None:
    """Nothing is broadcast or cut: what came and what was expected is said."""
    with pytest.raises(ValueError, match=r"expected real features \(n, 3\), got .*one encoder"):
        FeatureSet(3).add(shard)


def test_nothing_has_no_moments() -> None:
    """An empty set has no mean, a shard of no rows adds none, and no encoder has 0 dimensions."""
    features = gathered(np.empty((0, 3)))
    assert features.n == 0
    with pytest.raises(ValueError, match="add at least one sample"):
        features.moments()
    with pytest.raises(ValueError, match="at least 1 dimension, got 0"):
        FeatureSet(0)
