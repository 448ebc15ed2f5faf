"""Comparisons as pages: what stands where, and that any name is text."""

from __future__ import annotations

import dataclasses
import re
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_cepbench.gate import Judgement, Verdict
from pytest_cepbench.report.comparison_page import comparison_page
from pytest_cepbench.studies.comparison import (
    ComparedCase,
    MeasuredRun,
    RunCase,
    RunComparison,
)
from tests.report.pages import read_page
from tests.test_escapes import hides_nothing

CASE = RunCase("toy/color/gc", "GC@2", 0.5, 0.01, primary=True, record=None)

LOST = Judgement(Verdict.REGRESSED, 0.7, -0.2, p=0.001, low=-0.3, high=-0.1, method="Hall")


def compared(*cases: ComparedCase) -> RunComparison:
    """A comparison of runs with these cases."""
    runs = [MeasuredRun(name, f"runs/{name}", f"{name}.json", {}) for name in ("first", "second")]
    return RunComparison(runs[0], runs[1], cases, (), (), 0.05)


COMPARISON = compared(ComparedCase(CASE, CASE, LOST))


def _plots(html: str, kind: str) -> list[ET.Element]:
    drawn = re.findall(rf'<svg class="interval {kind}.*?</svg>(?=</span>|</td>)', html, re.DOTALL)
    return [ET.fromstring(plot) for plot in drawn]


def _across(plot: ET.Element, tag: str, kind: str, name: str) -> list[float]:
    return [
        float(shape.attrib[name].rstrip("%"))
        for shape in plot.iter(tag)
        if shape.get("class", "") == kind
    ]


@pytest.mark.parametrize(
    ("low", "high", "lines"), [(-0.3, -0.1, 1), (None, -0.1, 1), (-0.3, None, 1), (None, None, 0)]
)
def test_a_comparison_draws_the_bounds_that_exclude_something(
    low: float | None, high: float | None, lines: int
) -> None:
    """Within its plot, whichever of them is open; an open one is an arrow."""
    judged = dataclasses.replace(LOST, low=low, high=high)
    html = comparison_page([compared(ComparedCase(CASE, CASE, judged))], Path("/somewhere"))
    (plot,) = _plots(html, "red")
    ends = [x for name in ("x1", "x2") for x in _across(plot, "line", "bounds", name)]
    assert len(ends) == 2 * lines
    assert all(0 <= x <= 100 for x in ends)
    assert html.count('class="beyond"') == (low is None or high is None) * lines
    assert "p 0.001" in html


def test_cases_that_regressed_come_first() -> None:
    """In the plot, then those that are undecided; the table has the order of the run."""
    unclear = dataclasses.replace(LOST, verdict=Verdict.INCONCLUSIVE, difference=-0.5)
    cases = [
        ComparedCase(case, case, judged)
        for case, judged in (
            (dataclasses.replace(CASE, case="toy/unclear/gc"), unclear),
            (dataclasses.replace(CASE, case="toy/lost/gc"), LOST),
            (dataclasses.replace(CASE, case="toy/alone/gc"), None),
        )
    ]
    html = comparison_page([compared(*cases)], Path("/somewhere"))
    assert_self_contained_page(html)
    forest = html[html.index('<ol class="forest') : html.index("</ol>")]
    assert re.findall(r">toy (\w+) gc<", forest) == ["lost", "unclear"]
    assert re.findall(r'<td class="name">toy/<wbr>(\w+)/', html) == ["unclear", "lost", "alone"]


def assert_self_contained_page(html: str) -> None:
    """No script, no address but of the reports and of the page itself."""
    page = read_page(html)
    assert not page.tags & {"script", "link", "iframe", "img", "form", "base"}
    inside = {link[1:] for link in page.values("href") if link.startswith("#")}
    assert inside <= set(page.values("id"))


@settings(max_examples=30)
@given(st.text(max_size=60))
def test_any_name_is_text(name: str) -> None:
    """Markup, control characters, halves of characters: nothing of a name is obeyed."""
    case = dataclasses.replace(CASE, case=f"toy/{name}/gc", label=name)
    html = comparison_page([compared(ComparedCase(case, case, LOST))], Path("/somewhere"))
    assert_self_contained_page(html)
    assert hides_nothing(html, "\n\t")
