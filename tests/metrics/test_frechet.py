"""Frechet distance and GC_FID: what holds of every pair of sets, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_cepbench.metrics.gc import gc_at_t
from pytest_cepbench.metrics.set_distances import frechet_distance, gc_fid_at_t
from tests.metrics.feature_sets import pair

SEEDS = st.integers(0, 2**32 - 1)
FEW = settings(max_examples=40)


@FEW
@given(seed=SEEDS, n_x=st.sampled_from([2, 5, 9, 300]), n_y=st.sampled_from([2, 5, 9, 300]))
def test_the_order_of_the_pair_changes_nothing(seed: int, n_x: int, n_y: int) -> None:
    """The distance of y to x is the distance of x to y, within the rounding of the variances."""
    x, y = pair(n_x, n_y, 8, seed)
    size = float(x.var(axis=0, ddof=1).sum() + y.var(axis=0, ddof=1).sum())
    assert frechet_distance(y, x) == pytest.approx(frechet_distance(x, y), abs=1e-14 * size)


@FEW
@given(seed=SEEDS, n=st.sampled_from([2, 5, 8, 9, 300]))
def test_a_set_has_no_distance_to_itself_in_any_order(seed: int, n: int) -> None:
    """Zero within the rounding of the variances, never below; the order of samples is no matter."""
    x, _ = pair(n, n, 8, seed)
    shuffled = np.random.default_rng(seed).permutation(x)
    size = float(x.var(axis=0, ddof=1).sum())

    for other in (x, shuffled):
        scaled = frechet_distance(x, other)
        assert 0 <= scaled <= 1e-12 * size


@FEW
@given(seed=SEEDS, n=st.sampled_from([2, 5, 9, 300]), noise=st.floats(0, 10))
def test_paired_sets_are_no_further_apart_than_their_pairs(seed: int, n: int, noise: float) -> None:
    """FID <= n / (n - 1) * mean |x - y|^2: the best matching is no worse than the given one."""
    x, other = pair(n, n, 8, seed)
    y = x + noise * other
    bound = n / (n - 1) * float(((x - y) ** 2).sum(axis=1).mean())

    scaled = frechet_distance(x, y)
    assert 0 <= scaled <= bound * (1 + 1e-12) + 1e-12 * float((x**2).sum())


@FEW
@given(seed=SEEDS, n=st.sampled_from([3, 9, 300]), far=st.floats(-1e3, 1e3))
def test_moving_one_set_adds_the_means_only(seed: int, n: int, far: float) -> None:
    """Translation of y by v changes |mu_x - mu_y|^2 and leaves the part of the covariances."""
    x, y = pair(n, n, 8, seed)
    before = frechet_distance(x, y)
    after = frechet_distance(x, y + far)
    apart = x.mean(axis=0) - y.mean(axis=0)

    change = float(((apart - far) ** 2).sum() - (apart**2).sum())
    assert after - before == pytest.approx(change, rel=1e-9, abs=1e-8)


@pytest.mark.parametrize("scale", [2.0**-400, 2.0**-100, 2.0**100, 2.0**400])
@pytest.mark.parametrize("n", [4, 300])
def test_the_scale_of_features_costs_no_digit(n: int, scale: float) -> None:
    """Features times s are s^2 as far apart, near both ends of float64."""
    x, y = pair(n, n, 8)
    plain = frechet_distance(x, y)
    scaled = frechet_distance(x * scale, y * scale)

    assert scaled / scale / scale == pytest.approx(plain, rel=1e-13)


def test_sets_of_unlike_scale_have_a_distance() -> None:
    """Beside a set 2^300 times as large the smaller one is a point."""
    x, y = pair(300, 300, 8)
    scaled = frechet_distance(x * 2.0**300, y)
    alone = frechet_distance(x, np.zeros_like(x))

    assert scaled / 2.0**600 == pytest.approx(alone, rel=1e-12)


@pytest.mark.parametrize("n", [3, 300])
def test_sets_without_any_spread_are_two_points(n: int) -> None:
    """A generator that always draws the same image still has a distance."""
    x, y = np.full((n, 4), 1.1), np.full((n, 4), 3.1)
    assert frechet_distance(x, y) == pytest.approx(16)
    assert frechet_distance(x, x) == 0


def test_one_law_looks_further_apart_with_fewer_samples() -> None:
    """The bias that the docstring warns of is there and large: N must stand beside the number."""
    random = np.random.default_rng(0)
    few, many = (
        frechet_distance(*random.standard_normal((2, n, 64)) / np.sqrt(64)) for n in (10, 1000)
    )
    assert few > 10 * many > 0


@pytest.mark.parametrize("n", [0, 1])
def test_less_than_two_samples_have_no_covariance(n: int) -> None:
    """Not NaN: the number of samples that came and that are needed is said."""
    x, y = pair(5, 5, 3)
    for sides in ((x[:n], y), (x, y[:n])):
        with pytest.raises(ValueError, match=rf"at least 2 samples in each, got sets of .*\b{n}\b"):
            frechet_distance(*sides)


def test_features_of_two_encoders_have_no_distance() -> None:
    """Other dimensions, and arrays that are no features, are refused by their shapes."""
    with pytest.raises(ValueError, match="dimension 3 and of dimension 4 have no distance"):
        frechet_distance(np.ones((5, 3)), np.ones((5, 4)))
    with pytest.raises(ValueError, match=r"expected features \(n, D\).*twice, got \(5,\)"):
        frechet_distance(np.ones(5), np.ones((5, 1)))


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=12))
def test_gc_fid_weighs_iterations_as_gc_does(distances: list[float]) -> None:
    """Eq. 4 is Eq. 3 with distances in the place of similarities."""
    scaled = gc_fid_at_t(np.array(distances))
    expected = sum(t * d for t, d in enumerate(distances, 1)) / sum(range(1, len(distances) + 1))

    assert scaled == pytest.approx(expected, rel=1e-12)
    assert scaled == pytest.approx(gc_at_t(np.array([distances]))[0], rel=1e-12)


@pytest.mark.parametrize("distances", [[], [[1.0, 2.0]], 1.0, [1.0, np.nan], [np.inf]])
def test_gc_fid_of_no_finite_distances_is_refused(distances: Any) -> None:
    """An iteration that could not be measured is never averaged away."""
    with pytest.raises(ValueError, match=r"expected finite distances \(T,\)"):
        gc_fid_at_t(np.array(distances))
