"""The coordinates of the page's small plots."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from pytest_cepbench.report import CaseResult
from pytest_cepbench.report.html_page import (
    COURSE,
    INTERVAL,
    IntervalPlot,
    course_points,
    interval_plot,
    reach_of,
)
from tests.report.results import FULL, RESULTS

_WIDTH = INTERVAL[0]

SMALL = replace(FULL, difference=-0.02, low=-0.04, high=0.01)


def _plot(result: CaseResult, reach: float) -> IntervalPlot:
    plot = interval_plot(result, reach)
    assert plot is not None
    return plot


@given(RESULTS)
def test_nothing_is_drawn_outside(result: CaseResult) -> None:
    """Whatever the numbers are, points lie inside the frame."""
    assert all(0 <= x <= COURSE[0] and 0 <= y <= COURSE[1] for x, y in course_points(result))
    plot = interval_plot(result, reach_of([result]))
    if plot is not None:
        known = [plot.band[0], sum(plot.band), *(plot.line or ()), plot.point or 0.0]
        assert all(0 <= x <= _WIDTH for x in known)


def test_an_interval_lies_where_its_numbers_are() -> None:
    """At a reach of 4 tolerances the middle is zero and an eighth of the width is one of them."""
    tolerance = _WIDTH / 8
    plot = _plot(SMALL, 4.0)
    assert plot.zero == _WIDTH / 2
    assert plot.band == pytest.approx((3 * tolerance, 2 * tolerance), abs=0.1)
    assert plot.point == pytest.approx(2 * tolerance, abs=0.1)
    assert plot.line == pytest.approx((0.0, 5 * tolerance), abs=0.1)
    assert (plot.beyond_left, plot.beyond_right) == (False, False)


def test_a_difference_at_the_edge_is_inside() -> None:
    """It has a point there, and no arrow."""
    plot = _plot(replace(FULL, tolerance=0.5, difference=-1.0, low=None, high=None), 2.0)
    assert (plot.point, plot.beyond_left) == (0.0, False)


def test_cases_shown_together_share_a_scale() -> None:
    """The farthest number of all decides, up to 8 tolerances; a metric of another size as well."""
    distance = replace(FULL, tolerance=1.0, difference=-1.0, low=-6.0, high=2.0)
    assert reach_of([SMALL, distance]) == 6.0
    assert reach_of([SMALL]) == pytest.approx(4.0)
    assert reach_of([FULL, SMALL]) == 8.0
    assert reach_of([replace(SMALL, difference=None, low=None, high=None)]) == 2.0


def test_what_lies_beyond_is_pointed_to() -> None:
    """A change far off has no point and an arrow to its side."""
    plot = _plot(FULL, 8.0)
    assert (plot.point, plot.beyond_left, plot.beyond_right) == (None, True, False)
    gain = _plot(replace(FULL, difference=0.25, low=0.2, high=0.3), 8.0)
    assert (gain.point, gain.beyond_left, gain.beyond_right) == (None, False, True)
    near = _plot(replace(FULL, difference=-0.07, low=-0.09, high=0.0), 8.0)
    assert (near.point is None, near.beyond_left, near.beyond_right) == (False, True, False)
    wide = _plot(replace(FULL, difference=0.0, low=-0.25, high=0.25), 8.0)
    assert (wide.point, wide.line) == (_WIDTH / 2, (0.0, float(_WIDTH)))
    assert (wide.beyond_left, wide.beyond_right) == (True, True)


def test_without_bounds_there_is_a_point_alone() -> None:
    """As by the threshold gate; without a comparison there is no plot."""
    plain = replace(SMALL, low=None, high=None)
    assert _plot(plain, 4.0).line is None
    assert interval_plot(replace(plain, difference=None), 4.0) is None


@given(st.floats(1e-6, 1.0))
def test_a_case_that_tolerates_nothing_fits_by_itself(size: float) -> None:
    """Its largest number is the unit, and what is tolerated has no width."""
    strict = replace(FULL, tolerance=0.0, difference=0.0, low=-size, high=size / 2)
    plot = _plot(strict, reach_of([strict]))
    assert plot.band == (_WIDTH / 2, 0.0)
    assert plot.line == pytest.approx((_WIDTH / 4, _WIDTH * 5 / 8), abs=0.1)
