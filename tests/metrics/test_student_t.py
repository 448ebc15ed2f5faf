"""Student's t: quantiles against SciPy's and closed forms."""

from __future__ import annotations

from math import isclose, pi, sqrt, tan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_cepbench.metrics.student_t import t_quantile, t_tail, t_upper_quantile


@given(st.floats(0.01, 0.9999), st.integers(1, 200))
def test_quantiles_are_those_of_scipy(confidence: float, degrees: int) -> None:
    """For odd and even degrees of freedom, which have sums of their own."""
    stats = pytest.importorskip("scipy.stats", reason="the reference is SciPy's")
    expected = stats.t.ppf((1 + confidence) / 2, degrees)
    assert isclose(t_quantile(confidence, degrees), expected, rel_tol=1e-8)


@pytest.mark.parametrize("degrees", [1, 2, 5, 19, 1283, 20000])
@pytest.mark.parametrize("alpha", [1e-12, 1e-5, 0.05 / 40, 0.05, 0.25, 0.49])
def test_one_sided_quantiles_are_those_of_scipy(alpha: float, degrees: int) -> None:
    """To nine digits however small the error, and the tail at the quantile is the error again."""
    stats = pytest.importorskip("scipy.stats", reason="the reference is SciPy's")
    found = t_upper_quantile(alpha, degrees)
    assert isclose(found, stats.t.isf(alpha, degrees), rel_tol=1e-9)
    assert isclose(t_tail(found, degrees), alpha, rel_tol=1e-9)


def test_half_of_the_error_on_either_side() -> None:
    """Zero is exceeded half of the time, exactly, and a two-sided quantile is a one-sided one."""
    assert t_upper_quantile(0.5, 7) == 0.0
    assert t_tail(0.0, 7) == 0.5
    assert t_quantile(0.95, 7) == t_upper_quantile((1 - 0.95) / 2, 7)


@given(st.floats(0.01, 0.9999))
def test_one_and_two_degrees_have_closed_forms(confidence: float) -> None:
    """The Cauchy distribution, and the one degree more that is algebraic."""
    assert isclose(t_quantile(confidence, 1), tan(confidence * pi / 2), rel_tol=1e-8)
    two = sqrt(2 * confidence**2 / (1 - confidence**2))
    assert isclose(t_quantile(confidence, 2), two, rel_tol=1e-8)


@pytest.mark.parametrize(("confidence", "degrees"), [(0.0, 3), (1.0, 3), (95.0, 3), (0.95, 0)])
def test_other_numbers_are_refused(confidence: float, degrees: int) -> None:
    """A percentage for a probability, or no degree of freedom."""
    with pytest.raises(ValueError, match="expected a confidence in"):
        t_quantile(confidence, degrees)


@pytest.mark.parametrize(("alpha", "degrees"), [(0.0, 3), (0.6, 3), (float("nan"), 3), (0.05, 0)])
def test_other_errors_are_refused(alpha: float, degrees: int) -> None:
    """The error of one side is at most half."""
    with pytest.raises(ValueError, match="expected alpha in"):
        t_upper_quantile(alpha, degrees)
