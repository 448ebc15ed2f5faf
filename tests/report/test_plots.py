"""Where things stand in plots, and that no interval is cut without a sign."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_cepbench.gate.measurement import FORMAT, Measurement
from pytest_cepbench.report import CaseResult, CurveShown
from pytest_cepbench.report.chain_pairs import sample_values
from pytest_cepbench.report.number_format import number
from pytest_cepbench.report.plots import (
    COURSE,
    CURVES,
    STRIP,
    Change,
    Scale,
    change_plot,
    course_plot,
    interval_plot,
    reach_of,
    strip_plot,
)
from pytest_cepbench.report.view import change_of_case, curve_views, heat_map
from tests.report.results import FULL, RESULTS, replace

SMALL = Change(-0.02, -0.04, 0.01, 0.01)


def _change(result: CaseResult) -> Change:
    change = change_of_case(result)
    assert change is not None
    return change


def _shapes(plot: str, kind: str) -> list[dict[str, str]]:
    """Attributes of the shapes of a class, or of a name."""
    return [
        dict(shape.attrib)
        for shape in ET.fromstring(plot).iter()
        if kind in (shape.tag, *shape.attrib.get("class", "").split())
    ]


def _across(plot: str, kind: str, *names: str) -> list[float]:
    """Places across of shapes, in percent."""
    return [float(shape[name].rstrip("%")) for shape in _shapes(plot, kind) for name in names]


# -- axes ----------------------------------------------------------------------------------------


@given(st.lists(st.floats(-1e9, 1e9), min_size=1), st.integers(3, 9))
def test_an_axis_holds_its_values_with_round_ticks(values: list[float], most: int) -> None:
    """There is one way to make ticks: of 1, 2 or 5, at most so many, inside of the axis."""
    scale = Scale.over(values, 0.0, 100.0, most)
    assert all(0 <= scale.place(value) <= 100 for value in values)
    assert 0 < len(scale.ticks) <= most + 1
    assert all(-1e-6 <= scale.place(tick) <= 100 + 1e-6 for tick in scale.ticks)
    assert re.fullmatch(r"[125]e[+-]\d+", f"{scale.step:.0e}")


# -- changes between their bounds ----------------------------------------------------------------


@given(RESULTS)
def test_nothing_is_drawn_outside(result: CaseResult) -> None:
    """Whatever the numbers are, points lie inside the frame."""
    course = course_plot(result.shown.curve, higher_is_better=result.higher_is_better)
    for circle in _shapes(course, "circle"):
        assert 0 <= float(circle["cx"]) <= COURSE[0]
        assert 0 <= float(circle["cy"]) <= COURSE[1]
    change = change_of_case(result)
    if change is not None:
        plot = change_plot(change, reach_of([change]), "a change")
        known = [*_across(plot, "bounds", "x1", "x2"), *_across(plot, "circle", "cx")]
        known += [*_across(plot, "band", "x", "width"), *_across(plot, "axis", "x1", "x2")]
        assert all(0 <= x <= 100 for x in known)


def test_an_interval_lies_on_a_symmetric_log_axis() -> None:
    """X grows by log(1 + tolerances) to either side: at a reach of 8, 2 tolerances are halfway."""
    plot = change_plot(Change(-0.02, -0.04, 0.02, 0.01), 8.0, "a change")
    assert _across(plot, "zero", "x1") == [50]
    assert _across(plot, "circle", "cx") == pytest.approx([25], abs=0.1)
    assert _across(plot, "bounds", "x1", "x2") == pytest.approx([13.4, 75], abs=0.1)
    assert _across(plot, "band", "x", "width") == pytest.approx([34.2, 31.5], abs=0.1)
    assert len(_shapes(plot, "axis")) == 1


def test_decades_of_tolerances_are_marked() -> None:
    """A reach of 250 tolerances has marks at 10 and 100 of them, to either side."""
    marks = _across(change_plot(_change(FULL), 250.0, "a change"), "axis", "x1")[1:]
    left, right = marks[:2], marks[2:]
    assert left == pytest.approx([100 - x for x in right], abs=0.1)
    assert 50 < right[0] < right[1] < 100


def test_every_bound_is_in_view() -> None:
    """The farthest number of all cases is the edge of their common scale, however far it is."""
    distance = Change(-1.0, -600.0, 2.0, 1.0)
    assert reach_of([SMALL, distance]) == 600.0
    assert reach_of([SMALL]) == pytest.approx(4.0)
    assert reach_of([]) == 2.0
    plot = change_plot(distance, 600.0, "a change")
    assert _across(plot, "bounds", "x1") == [0.0]
    assert not _shapes(plot, "beyond")
    assert 0 < _across(plot, "circle", "cx")[0] < 50


def test_a_bound_beyond_the_axis_has_an_arrow_with_its_number() -> None:
    """No interval is cut without a sign: there is an end to what an axis can show."""
    plot = change_plot(Change(0.0, -5e-9, 0.5, 1e-12), 1e9, "a change")
    (arrow,) = [e for e in ET.fromstring(plot).iter("svg") if "x" in e.attrib]
    assert arrow.attrib["x"] == "100%"
    assert arrow.findtext("text") == "+0.5"
    assert _across(plot, "bounds", "x2") == [100.0]


@pytest.mark.parametrize(
    ("low", "high", "arrows"), [(None, 0.01, ["0%"]), (-0.04, None, ["100%"]), (None, None, [])]
)
def test_a_bound_that_excludes_nothing_is_an_arrow(
    low: float | None, high: float | None, arrows: list[str]
) -> None:
    """At the edge, without a number; without any bound there is a point alone."""
    plot = change_plot(Change(-0.02, low, high, 0.01), 4.0, "a change")
    found = [e for e in ET.fromstring(plot).iter("svg") if "x" in e.attrib]
    assert [arrow.attrib["x"] for arrow in found] == arrows
    assert not any(arrow.findtext("text") for arrow in found)
    assert len(_shapes(plot, "bounds")) == (1 if arrows else 0)
    assert len(_shapes(plot, "circle")) == 1


@given(st.floats(1e-6, 1.0))
def test_a_case_that_tolerates_nothing_fits_by_itself(size: float) -> None:
    """Its largest number is the unit, and what is tolerated has no width."""
    strict = Change(0.0, -size, size / 2, 0.0)
    plot = change_plot(strict, reach_of([strict]), "a change")
    assert _across(plot, "band", "x", "width") == [50, 0]
    left, right = _across(plot, "bounds", "x1", "x2")
    assert 0 < left < 50 < right < 100


def test_numbers_lie_on_an_axis_of_their_own() -> None:
    """Values of leaderboards are linear: equal differences have equal widths."""
    scale = Scale.over([0.0, -0.1329], 0.0, 100.0)
    plots = [interval_plot(v, (v - 0.02, v + 0.02), scale, "x") for v in (-0.1, -0.05, 0.0)]
    first, second, third = (_across(plot, "circle", "cx")[0] for plot in plots)
    assert second - first == pytest.approx(third - second, abs=0.02)
    assert _across(plots[1], "bounds", "x1", "x2") == pytest.approx(
        [scale.place(-0.07), scale.place(-0.03)], abs=0.01
    )


# -- curves --------------------------------------------------------------------------------------

NOW = CurveShown([2, 4], [0.6, 0.45], [0.55, 0.4], [0.65, 0.5], 50)

BEFORE = CurveShown([2, 4], [0.9, 0.8], [0.88, 0.75], [0.92, 0.85], 50)

CURVED = replace(FULL, curve_now=NOW, curve_reference=BEFORE)


def _corners(plot: str, kind: str) -> list[tuple[float, float]]:
    shapes = ET.fromstring(plot).iter()
    (shape,) = (e for e in shapes if e.get("class", "").split()[:2] == kind.split())
    points = [point.split(",") for point in shape.attrib["points"].split()]
    return [(float(x), float(y)) for x, y in points]


def test_curves_lie_on_a_zoomed_axis_with_round_numbers() -> None:
    """The axis holds both bands; a lower value is drawn lower, and the reference's beside it."""
    (view,) = curve_views([CURVED])
    assert view.known
    texts = [text.text for text in ET.fromstring(view.plot).iter("text")]
    assert texts == ["0.4", "0.6", "0.8", "2", "4", "generation"]
    now, before = _corners(view.plot, "trace now"), _corners(view.plot, "trace before")
    assert now[0][1] < now[1][1]
    assert before[0][1] < now[0][1]
    corners = [*_corners(view.plot, "area now"), *_corners(view.plot, "area before")]
    assert all(0 <= x <= CURVES[0] and 0 <= y <= CURVES[1] for x, y in corners)


def test_a_flat_curve_has_an_axis() -> None:
    """Chains that lose nothing have no spread, and still a plot; others' curves are not drawn."""
    flat = CurveShown([1, 2], [1.0, 1.0], [1.0, 1.0], [1.0, 1.0], 4)
    for reference in (None, BEFORE):
        (view,) = curve_views([replace(FULL, curve_now=flat, curve_reference=reference)])
        assert not view.known
        assert _corners(view.plot, "trace now")
        assert "before" not in view.plot


def test_equal_curves_are_drawn_once_and_those_of_fewer_samples_not() -> None:
    """Metrics of the same chains share a curve, which stands for the one that regressed."""
    held = replace(CURVED, metric="s", label="s(2)", verdict="held")
    part = replace(CURVED, part="red", n=10)
    assert [view.result for view in curve_views([held, part, CURVED])] == [CURVED]


def test_shares_are_named_as_such() -> None:
    """What is right or wrong has no similarity."""
    shares = Measurement(FORMAT, "a/b/c", "c", 0.5, 1, True, {}, {}, {"b": {"x": 0.5}}, shares=True)
    quantities = [
        view.quantity
        for result in (CURVED, replace(CURVED, measured=shares))
        for view in curve_views([result])
    ]
    assert quantities == ["similarity to the start", "share that is right"]


# -- heat map ------------------------------------------------------------------------------------


def test_a_heat_map_counts_in_tolerances() -> None:
    """A row for each part, a column for each metric; shades grow with the change, up to four."""
    small = replace(FULL, part="shape", difference=0.005)
    other = replace(FULL, label="SIM", tolerance=0.0)
    heat = heat_map([FULL, small, other])
    assert heat is not None
    assert heat.columns == ["GC@2", "SIM"]
    (color, (first, strict)), (shape, (second, missing)) = heat.rows
    assert (color, shape) == ("color", "shape")
    assert first is not None
    assert (first.shown, first.kind) == ("-25.0", "regressed shade4 worse")
    assert second is not None
    assert (second.shown, second.kind) == ("+0.5", "regressed shade1 gained")
    assert strict is not None
    assert (strict.shown, strict.kind) == ("-0.2500", "regressed shade0 gained")
    assert missing is None


def test_a_change_of_countless_tolerances_has_the_strongest_shade() -> None:
    """A tolerance next to nothing is no reason to lose the report."""
    heat = heat_map([FULL, replace(FULL, part="shape", difference=-0.8, tolerance=5e-324)])
    assert heat is not None
    _, (_, (cell,)) = heat.rows
    assert cell is not None
    assert "shade4" in cell.kind


def test_one_part_makes_no_heat_map() -> None:
    """Nor does a part that could not be compared."""
    assert heat_map([FULL, replace(FULL, part="shape", difference=None)]) is None


# -- paired differences --------------------------------------------------------------------------


def _dots(plot: str) -> list[tuple[float, float]]:
    (dots,) = _shapes(plot, "dots")
    return [(float(x), float(y)) for x, y in re.findall(r"M(\S+) (\S+?)h0", dots["d"])]


def _strip(differences: dict[str, float], tolerance: float, linked: list[str]) -> str:
    mean = sum(differences.values()) / len(differences)
    links = {sample: f"#{place}" for place, sample in enumerate(linked)}
    return strip_plot(differences, Change(mean, None, None, tolerance), links, "differences")


@given(
    st.dictionaries(st.text(min_size=1), st.floats(-1, 1), min_size=2, max_size=60),
    st.floats(0, 2),
)
def test_every_sample_has_a_dot_inside(differences: dict[str, float], tolerance: float) -> None:
    """However many there are and wherever they lie; those whose chains are shown are linked."""
    plot = _strip(differences, tolerance, list(differences)[:2])
    assert [a["href"] for a in _shapes(plot, "a")] == ["#0", "#1"]
    titles = [title.text for title in ET.fromstring(plot).iter("title")]
    assert len(titles) == 2
    assert all(
        (title or "").endswith(number(differences[sample], signed=True))
        for title, sample in zip(titles, differences, strict=False)
    )
    dots = _dots(plot)
    assert len(dots) == len(differences)
    assert all(0 <= x <= STRIP[0] and 0 <= y <= STRIP[1] for x, y in dots)


def test_dots_lie_by_their_difference() -> None:
    """A sample that lost more lies further left; equal ones are stacked."""
    differences = {"a": -0.5, "b": -0.5, "c": 0.0, "d": 0.25}
    a, b, c, d = _dots(_strip(differences, 0.01, []))
    assert a[0] == b[0] < c[0] < d[0]
    assert a[1] > b[1]
    result = replace(FULL, differences=differences, measured=None)
    assert [row.sample for row in sample_values(result)] == list(differences)
