"""The BCa bootstrap of a mean: against SciPy's, and what must hold whatever is drawn."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_cepbench.gate.statistics import bounds
from pytest_cepbench.gate.statistics.bounds import bca_steps
from tests.gate.statistics.build import Array, sample


@pytest.mark.parametrize("alpha", [0.05, 0.005])
@pytest.mark.parametrize("shape", ["normal", "skewed"])
def test_bounds_are_those_of_scipy(shape: str, alpha: float) -> None:
    """Of the same values, within the noise of two sets of resamples."""
    from scipy import stats

    rng = np.random.default_rng(2)
    values = rng.normal(size=50) if shape == "normal" else rng.exponential(size=50) ** 1.5
    d = sample(values)
    bounds = d.mean - bca_steps(d.residuals, alpha)[0], d.mean + bca_steps(d.residuals, alpha)[1]
    ends = [
        stats.bootstrap(
            (d.centred(),),
            np.mean,
            confidence_level=1 - alpha,
            alternative=side,
            n_resamples=20_000,
            rng=np.random.default_rng(3),
        ).confidence_interval
        for side in ("greater", "less")
    ]
    noise = 0.03 / np.sqrt(alpha) * d.sd / np.sqrt(len(values))
    assert bounds == pytest.approx((ends[0].low, ends[1].high), abs=noise)


def test_skewness_makes_the_bounds_uneven() -> None:
    """The correction is at work: few values far below move the lower bound, not the upper one."""
    below, above = bca_steps(sample(-(np.arange(40.0) ** 3)).residuals, 0.01)
    assert below > 1.2 * above


@given(st.lists(st.integers(-9, 9).map(float), min_size=1, max_size=8), st.permutations(range(9)))
def test_the_same_values_have_the_same_bounds(values: list[float], order: list[int]) -> None:
    """In any order, to the last bit: the generator has a seed and the values are sorted."""
    residuals = sample([*values, max(values) + 1]).residuals
    shuffled = residuals[[i for i in order if i < len(residuals)]]
    assert bca_steps(shuffled, 0.1) == bca_steps(residuals, 0.1)
    assert min(bca_steps(residuals, 0.1)) >= 0


def test_another_seed_draws_other_samples() -> None:
    """The seed is used, and little depends on it."""
    residuals = sample(np.random.default_rng(1).normal(size=30)).residuals
    first, second = bca_steps(residuals, 0.05), bca_steps(residuals, 0.05, seed=1)
    assert first != second
    assert first == pytest.approx(second, rel=0.05)


def test_memory_is_bounded_and_the_draws_are_not_changed_by_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Drawn a few at a time, the resamples are the same."""
    residuals: Array = sample(np.random.default_rng(1).normal(size=30)).residuals
    whole = bca_steps(residuals, 0.05)
    monkeypatch.setattr(bounds, "_AT_ONCE", 1000)
    assert bca_steps(residuals, 0.05) == whole


@pytest.mark.parametrize(
    ("seed", "count", "alpha", "below", "above"),
    [
        (0, 8, 0.05, 0.25911800859312706, 0.3122731375139037),
        (1, 40, 0.05, 0.3101138669969861, 0.5595544157995116),
        (2, 40, 0.001, 0.3055674192838556, 0.47358618259965163),
        (3, 200, 0.5, 0.0, 0.0007174626073985711),
        (4, 25, 0.01, 0.48621618224549995, 0.7395307356796962),
    ],
)
def test_bounds_have_not_moved(
    seed: int, count: int, alpha: float, below: float, above: float
) -> None:
    """The same resamples and percentiles as before SciPy made the normal quantiles."""
    values = np.random.default_rng(seed).exponential(size=count)
    steps = bca_steps(values - values.mean(), alpha)
    assert steps == pytest.approx((below, above), rel=1e-9)
