"""Student's t: quantiles against SciPy's and closed forms."""

from __future__ import annotations

from math import isclose, pi, sqrt, tan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_cepbench.metrics.student_t import t_quantile


@given(st.floats(0.01, 0.9999), st.integers(1, 200))
def test_quantiles_are_those_of_scipy(confidence: float, degrees: int) -> None:
    """For odd and even degrees of freedom, which have sums of their own."""
    stats = pytest.importorskip("scipy.stats", reason="the reference is SciPy's")
    expected = stats.t.ppf((1 + confidence) / 2, degrees)
    assert isclose(t_quantile(confidence, degrees), expected, rel_tol=1e-8)


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
