"""Student's t with Hall's transformation: its formula, and what it errs where plain t fails."""

from __future__ import annotations

from math import sqrt

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_cepbench.gate.statistics.bounds import hall_step, hall_steps
from pytest_cepbench.metrics.uncertainty import t_upper_quantile
from tests.gate.statistics.build import Array, sample

VALUES = st.lists(st.integers(-64, 64).map(float), min_size=3, max_size=40)


@given(VALUES.filter(lambda values: len(set(values)) > 1))
def test_skewness_is_that_of_scipy(values: list[float]) -> None:
    """Corrected for bias, of the centred values as of the plain ones."""
    from scipy import stats

    expected = stats.skew(values, bias=False)
    assert sample(values).skewness == pytest.approx(expected, abs=1e-9)


@given(
    st.lists(st.floats(-1, 1), min_size=2, max_size=60).filter(lambda v: np.ptp(v) > 1e-3),
    st.floats(1e-5, 0.5),
)
def test_no_bound_is_nearer_than_that_of_plain_t(values: list[float], alpha: float) -> None:
    """Skewness is never taken for a help, and steps turn around with the values."""
    below, above = hall_steps(sample(values), alpha)
    assert min(below, above) >= t_upper_quantile(alpha, len(values) - 1)
    assert hall_steps(sample([-x for x in values]), alpha) == pytest.approx((above, below))


def test_the_steps_undo_halls_transformation() -> None:
    """T + c T^2 / 3 + c^2 T^3 / 27 + c / 6 is t, c the moved skewness over the root of K."""
    d = sample(np.random.default_rng(5).exponential(size=50))
    below, above = hall_steps(d, 0.01)
    assert d.skewness > 0
    for step, skewness in [(below, 0.0), (above, -d.skewness)]:
        c = (skewness - sqrt(6 / 50)) / sqrt(50)
        back = step + c * step**2 / 3 + c**2 * step**3 / 27 + c / 6
        assert back == pytest.approx(t_upper_quantile(0.01, 49))


def test_hardly_any_skewness_changes_nothing() -> None:
    """As sums of a symmetric sample leave it: the cube root of 1 and a bit is 1 and a third."""
    for skewness in (0.0, -5e-324, -1e-15, -1e-9):
        assert hall_step(2.0, skewness) == pytest.approx(2.0, rel=1e-8)


@pytest.mark.parametrize("t", [0.5, 1.7, 5.0, 400.0])
def test_beyond_the_turning_point_the_bound_stays_where_it_was_farthest(t: float) -> None:
    """There c t + c^2 / 6 is 9 / 8, whose cube root less 1 is 1.5: 4.5 / c, four t of a large t."""
    c = 3 * (sqrt(t * t + 3 / 4) - t)
    assert c * t + c * c / 6 == pytest.approx(9 / 8)
    assert hall_step(t, -c) == pytest.approx(4.5 / c)
    assert hall_step(t, -0.99 * c) < hall_step(t, -c) == hall_step(t, -50 * c)
    assert hall_step(400.0, -1.0) == pytest.approx(1600, rel=1e-4)


@given(st.floats(0, 400), st.floats(0, 20), st.floats(0, 20))
def test_more_skewness_never_brings_a_bound_nearer(t: float, less: float, more: float) -> None:
    """Hall's transformation turns back where few units are very lopsided; the bound does not."""
    less, more = sorted((less, more))
    near, far = hall_step(t, -less), hall_step(t, -more)
    assert t <= near <= far * (1 + 1e-9)
    assert far <= 4 * t + 2


def samples(shape: str, runs: int, n: int) -> Array:
    """(runs, n) values of mean 0; the skewed ones have few that lie far below."""
    rng = np.random.default_rng(11)
    drawn = {
        "normal": lambda: rng.normal(size=(runs, n)),
        "exponential": lambda: 1 - rng.exponential(size=(runs, n)),
        "gamma": lambda: 0.5 - rng.gamma(0.5, size=(runs, n)),
        "t3": lambda: rng.standard_t(3, size=(runs, n)),
    }
    return np.asarray(drawn[shape]())


@pytest.mark.parametrize("n", [8, 20, 60])
@pytest.mark.parametrize("shape", ["normal", "exponential", "gamma", "t3"])
@pytest.mark.parametrize("alpha", [0.05, 0.05 / 14])
def test_the_error_is_what_was_promised(shape: str, n: int, alpha: float) -> None:
    """False lower bounds come as seldom as alpha; those of plain t up to twenty times as often."""
    runs = 1500
    false = plain = 0
    for row in samples(shape, runs, n):
        d = sample(row)
        error = d.sd / sqrt(n)
        false += d.mean > hall_steps(d, alpha)[0] * error
        plain += d.mean > t_upper_quantile(alpha, n - 1) * error
    allowed = alpha + 3 * sqrt(alpha / runs)
    assert false / runs <= allowed
    if shape in {"exponential", "gamma"} and (n < 60 or alpha < 0.05):
        assert plain / runs > allowed  # plain t fails where it fails most
