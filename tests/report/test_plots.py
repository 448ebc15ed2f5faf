"""Where things stand in plots, and that no interval is cut without a sign."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_cepbench.report.plots import (
    CURVES,
    Scale,
    change_plot,
    curve_plot,
)
from pytest_cepbench.report.result import CurveShown
from tests.report.results import FULL, replace


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


def test_an_interval_lies_on_a_symmetric_log_axis() -> None:
    """X grows by log(1 + tolerances) to either side: at a reach of 8, 2 tolerances are halfway."""
    plot = change_plot(replace(FULL, difference=-0.02, low=-0.04, high=0.02), 8.0)
    assert _across(plot, "zero", "x1") == [50]
    assert _across(plot, "circle", "cx") == pytest.approx([25], abs=0.1)
    assert _across(plot, "bounds", "x1", "x2") == pytest.approx([13.4, 75], abs=0.1)
    assert _across(plot, "band", "x", "width") == pytest.approx([34.2, 31.5], abs=0.1)
    assert len(_shapes(plot, "axis")) == 1


@pytest.mark.parametrize(
    ("low", "high", "arrows"), [(None, 0.01, ["0%"]), (-0.04, None, ["100%"]), (None, None, [])]
)
def test_a_bound_that_excludes_nothing_is_an_arrow(
    low: float | None, high: float | None, arrows: list[str]
) -> None:
    """At the edge, without a number; without any bound there is a point alone."""
    plot = change_plot(replace(FULL, difference=-0.02, low=low, high=high), 4.0)
    found = [e for e in ET.fromstring(plot).iter("svg") if "x" in e.attrib]
    assert [arrow.attrib["x"] for arrow in found] == arrows
    assert not any(arrow.findtext("text") for arrow in found)
    assert len(_shapes(plot, "bounds")) == (1 if arrows else 0)
    assert len(_shapes(plot, "circle")) == 1


# -- curves --------------------------------------------------------------------------------------

NOW = CurveShown([2, 4], [0.6, 0.45], [0.55, 0.4], [0.65, 0.5], 50)

BEFORE = CurveShown([2, 4], [0.9, 0.8], [0.88, 0.75], [0.92, 0.85], 50)


def _corners(plot: str, kind: str) -> list[tuple[float, float]]:
    shapes = ET.fromstring(plot).iter()
    (shape,) = (e for e in shapes if e.get("class", "").split()[:2] == kind.split())
    points = [point.split(",") for point in shape.attrib["points"].split()]
    return [(float(x), float(y)) for x, y in points]


def test_curves_lie_on_a_zoomed_axis_with_round_numbers() -> None:
    """The axis holds both bands; a lower value is drawn lower, and the reference's beside it."""
    plot = curve_plot(NOW, BEFORE, "baseline", "similarity")
    texts = [text.text for text in ET.fromstring(plot).iter("text")]
    assert texts == ["0.4", "0.6", "0.8", "2", "4", "generation"]
    now, before = _corners(plot, "trace now"), _corners(plot, "trace before")
    assert now[0][1] < now[1][1]
    assert before[0][1] < now[0][1]
    corners = [*_corners(plot, "area now"), *_corners(plot, "area before")]
    assert all(0 <= x <= CURVES[0] and 0 <= y <= CURVES[1] for x, y in corners)
    flat = CurveShown([1, 2], [1.0, 1.0], [1.0, 1.0], [1.0, 1.0], 4)
    assert _corners(curve_plot(flat, None, "baseline", "similarity"), "trace now")
