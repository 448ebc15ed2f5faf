"""Student's t: quantiles: closed forms, and what is refused."""

from __future__ import annotations

from math import isclose, pi, sqrt, tan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_cepbench.metrics.uncertainty import t_quantile, t_upper_quantile


def test_half_of_the_error_on_either_side() -> None:
    """Zero is exceeded half of the time, exactly, and a two-sided quantile is a one-sided one."""
    assert t_upper_quantile(0.5, 7) == 0.0
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
