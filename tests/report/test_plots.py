"""The coordinates of the page's small plots."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from pytest_cepbench.gate import Judgement, Verdict
from pytest_cepbench.gate.baseline import FORMAT, Baseline
from pytest_cepbench.report import CaseResult, CurveShown
from pytest_cepbench.report.chain_pairs import sample_values
from pytest_cepbench.report.comparison_plot import draw_differences
from pytest_cepbench.report.html_page import COURSE, course_points
from pytest_cepbench.report.plots import (
    CURVES,
    INTERVAL,
    STRIP,
    IntervalPlot,
    curve_plots,
    heat_map,
    interval_plot,
    reach_of,
    strip_plot,
)
from pytest_cepbench.studies.comparison import ComparedCase, RunCase
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
        known = [plot.band[0], sum(plot.band), *(plot.line or ()), plot.point, *plot.ticks]
        assert all(0 <= x <= _WIDTH for x in known)


def test_an_interval_lies_on_a_symmetric_log_axis() -> None:
    """X grows by log(1 + tolerances) to either side: at a reach of 8, 2 tolerances are halfway."""
    plot = _plot(replace(SMALL, high=0.02), 8.0)
    half = _WIDTH / 2
    assert plot.zero == half
    assert plot.point == pytest.approx(half / 2, abs=0.1)
    assert plot.line == pytest.approx((half * (1 - 0.7325), half * 1.5), abs=0.1)
    assert plot.band == pytest.approx((half * 0.6845, half * 0.6309), abs=0.1)
    assert plot.ticks == ()


def test_decades_of_tolerances_are_marked() -> None:
    """A reach of 250 tolerances has marks at 10 and 100 of them, to either side."""
    left, right = _plot(FULL, 250.0).ticks[:2], _plot(FULL, 250.0).ticks[2:]
    assert left == pytest.approx([_WIDTH - x for x in right], abs=0.1)
    assert _WIDTH / 2 < right[0] < right[1] < _WIDTH


def test_every_point_is_in_view() -> None:
    """The farthest number of all cases is the edge of their common scale, however far it is."""
    distance = replace(FULL, tolerance=1.0, difference=-1.0, low=-600.0, high=2.0)
    assert reach_of([SMALL, distance]) == 600.0
    assert reach_of([SMALL]) == pytest.approx(4.0)
    assert reach_of([replace(SMALL, difference=None, low=None, high=None)]) == 2.0
    line = _plot(distance, 600.0).line
    assert line is not None
    assert line[0] == 0.0
    assert 0 < _plot(distance, 600.0).point < _WIDTH / 2


@pytest.mark.parametrize(
    ("low", "high", "lines"), [(-0.3, -0.1, 1), (None, -0.1, 1), (-0.3, None, 1), (None, None, 0)]
)
def test_a_comparison_draws_the_bounds_that_exclude_something(
    low: float | None, high: float | None, lines: int
) -> None:
    """Within its plot, whichever of them is open."""
    case = RunCase("toy/color/gc", "GC@2", 0.5, 0.01, primary=True, record=None)
    judgement = Judgement(Verdict.REGRESSED, 0.7, -0.2, p=0.001, low=low, high=high, method="Hall")
    drawing = draw_differences([ComparedCase(case, case, judgement)], "a comparison")
    drawn = re.findall(
        r'x1="([-\d.]+)" y1="[\d.]+" x2="([-\d.]+)" y2="[\d.]+" class="bounds"', drawing
    )
    assert len(drawn) == lines
    assert all(300 < float(x) < 800 for ends in drawn for x in ends)
    assert "p 0.001" in drawing


def test_without_bounds_there_is_a_point_alone() -> None:
    """A bound that excludes nothing goes on to the edge; without a comparison there is no plot."""
    plain = replace(SMALL, low=None, high=None)
    assert _plot(plain, 4.0).line is None
    drawn = _plot(SMALL, 4.0).line
    assert drawn is not None
    assert _plot(replace(SMALL, low=None), 4.0).line == (0.0, drawn[1])
    assert _plot(replace(SMALL, high=None), 4.0).line == (drawn[0], _WIDTH)
    assert interval_plot(replace(plain, difference=None), 4.0) is None


@given(st.floats(1e-6, 1.0))
def test_a_case_that_tolerates_nothing_fits_by_itself(size: float) -> None:
    """Its largest number is the unit, and what is tolerated has no width."""
    strict = replace(FULL, tolerance=0.0, difference=0.0, low=-size, high=size / 2)
    plot = _plot(strict, reach_of([strict]))
    assert plot.band == (_WIDTH / 2, 0.0)
    assert plot.line is not None
    assert 0 < plot.line[0] < _WIDTH / 2 < plot.line[1] < _WIDTH


# -- curves --------------------------------------------------------------------------------------

NOW = CurveShown([2, 4], [0.6, 0.45], [0.55, 0.4], [0.65, 0.5], 50)

BEFORE = CurveShown([2, 4], [0.9, 0.8], [0.88, 0.75], [0.92, 0.85], 50)

CURVED = replace(FULL, curve_now=NOW, curve_reference=BEFORE)


def test_curves_lie_on_a_zoomed_axis_with_round_numbers() -> None:
    """The axis spans both bands and no more than a step beyond; a lower value is drawn lower."""
    (plot,) = curve_plots([CURVED])
    assert plot.before is not None
    assert [tick.label for tick in plot.up] == ["0.4", "0.6", "0.8", "1.0"]
    assert [tick.label for tick in plot.across] == ["2", "4"]
    assert plot.now.points[0][1] < plot.now.points[1][1]
    assert plot.before.points[0][1] < plot.now.points[0][1]
    corners = [*plot.now.band, *plot.before.band]
    assert all(0 <= x <= CURVES[0] and 0 <= y <= CURVES[1] for x, y in corners)


def test_a_flat_curve_has_an_axis() -> None:
    """Chains that lose nothing have no spread, and still a plot."""
    flat = CurveShown([1, 2], [1.0, 1.0], [1.0, 1.0], [1.0, 1.0], 4)
    (plot,) = curve_plots([replace(FULL, curve_now=flat)])
    assert plot.before is None
    assert plot.low < 1.0 <= plot.high


def test_equal_curves_are_drawn_once_and_those_of_fewer_samples_not() -> None:
    """Metrics of the same chains share a curve, which stands for the one that regressed."""
    held = replace(CURVED, metric="s", label="s(2)", verdict="held")
    part = replace(CURVED, part="red", n=10)
    assert [plot.result for plot in curve_plots([held, part, CURVED])] == [CURVED]


def test_shares_are_named_as_such() -> None:
    """What is right or wrong has no similarity."""
    shares = Baseline(FORMAT, "a/b/c", "c", 0.5, 1, True, {}, {}, {"b": {"x": 0.5}}, shares=True)
    quantities = [
        plot.quantity
        for result in (CURVED, replace(CURVED, measured=shares))
        for plot in curve_plots([result])
    ]
    assert quantities == ["similarity to the start", "share that is right"]


# -- heat map ------------------------------------------------------------------------------------


def test_a_heat_map_counts_in_tolerances() -> None:
    """A row for each part, a column for each metric; shades grow with the change, up to four."""
    small = replace(FULL, part="shape", difference=0.005)
    other = replace(FULL, label="SIM", tolerance=0.0)
    heat = heat_map([FULL, small, other])
    assert heat is not None
    assert heat.metrics == ("GC@2", "SIM")
    (color, (first, strict)), (shape, (second, missing)) = heat.rows
    assert (color, shape) == ("color", "shape")
    assert first is not None
    assert first.change == pytest.approx(-25)
    assert first.shade == 4
    assert second is not None
    assert second.change == pytest.approx(0.5)
    assert second.shade == 1
    assert strict is not None
    assert (strict.change, strict.shade) == (None, 0)
    assert missing is None


def test_a_change_of_countless_tolerances_has_the_strongest_shade() -> None:
    """A tolerance next to nothing is no reason to lose the report."""
    heat = heat_map([FULL, replace(FULL, part="shape", difference=-0.8, tolerance=5e-324)])
    assert heat is not None
    _, (_, (cell,)) = heat.rows
    assert cell is not None
    assert cell.shade == 4


def test_one_part_makes_no_heat_map() -> None:
    """Nor does a part that could not be compared."""
    assert heat_map([FULL, replace(FULL, part="shape", difference=None)]) is None


# -- paired differences --------------------------------------------------------------------------


@given(
    st.dictionaries(st.text(min_size=1), st.floats(-1, 1), min_size=2, max_size=60),
    st.floats(0, 2),
)
def test_every_sample_has_a_dot_inside(differences: dict[str, float], tolerance: float) -> None:
    """However many there are and wherever they lie; those whose chains are shown are linked."""
    shown = list(differences)[:2]
    result = replace(FULL, differences=differences, tolerance=tolerance, measured=None)
    plot = strip_plot(result, shown)
    assert plot is not None
    assert {dot.sample for dot in plot.dots if dot.linked} == set(shown)
    assert [dot.sample for dot in plot.dots] == [row.sample for row in sample_values(result)]
    assert len(plot.dots) == len(differences) == plot.worse + plot.same + plot.better
    assert all(0 <= dot.x <= STRIP[0] and 0 <= dot.y <= STRIP[1] for dot in plot.dots)


def test_dots_lie_by_their_difference() -> None:
    """A sample that lost more lies further left; equal ones are stacked."""
    result = replace(FULL, differences={"a": -0.5, "b": -0.5, "c": 0.0, "d": 0.25}, chains=[])
    plot = strip_plot(result)
    assert plot is not None
    a, b, c, d = plot.dots
    assert a.x == b.x < c.x < d.x
    assert a.y > b.y
    assert (plot.worse, plot.same, plot.better) == (2, 1, 1)
    assert strip_plot(replace(result, differences={})) is None
