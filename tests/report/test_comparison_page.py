"""Comparisons and leaderboards as pages: what stands where, and that any name is text."""

from __future__ import annotations

import dataclasses
import re
import xml.etree.ElementTree as ET
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_cepbench.gate import Judgement, Verdict
from pytest_cepbench.report.comparison_page import (
    arena_leaderboard_page,
    case_leaderboard_page,
    comparison_page,
)
from pytest_cepbench.studies.arena import make_leaderboard
from pytest_cepbench.studies.comparison import (
    CaseLeaderboard,
    ComparedCase,
    MeasuredRun,
    RankedModel,
    RunCase,
    RunComparison,
)
from tests.metrics.arena.panels import simulate
from tests.report.pages import read_page
from tests.test_escapes import hides_nothing

BOARD = CaseLeaderboard(
    case="toy/overall/gc",
    label="GC@3",
    higher_is_better=True,
    blocks=False,
    units=192,
    models=(
        RankedModel("step-800", 0.9782, 0.0, None, None, 1, 2),
        RankedModel("step-600", 0.9768, -0.0014, -0.0209, 0.0182, 1, 2),
        RankedModel("step-400", 0.8721, -0.1061, -0.1329, -0.0793, 3, 3),
    ),
)

PANEL = simulate(np.array([1.5, 0.0, -1.5]), 300, np.random.default_rng(0), per_question=3)

ARENA = make_leaderboard("people", PANEL)

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


# -- comparisons ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("low", "high", "lines"), [(-0.3, -0.1, 1), (None, -0.1, 1), (-0.3, None, 1), (None, None, 0)]
)
def test_a_comparison_draws_the_bounds_that_exclude_something(
    low: float | None, high: float | None, lines: int
) -> None:
    """Within its plot, whichever of them is open; an open one is an arrow."""
    judged = dataclasses.replace(LOST, low=low, high=high)
    html = comparison_page([compared(ComparedCase(CASE, CASE, judged))], [], Path("/somewhere"))
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
    html = comparison_page([compared(*cases)], [], Path("/somewhere"))
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


# -- leaderboards --------------------------------------------------------------------------------


def test_models_stand_below_one_another_with_their_intervals() -> None:
    """In the order of the board; dots and intervals on one scale, ranks and values beside."""
    html = case_leaderboard_page("toy", [BOARD])
    assert_self_contained_page(html)
    plots = _plots(html, "rank")
    assert [plot.get("aria-label") for plot in plots] == [
        "step-800: rank 1-2, 0.9782",
        "step-600: rank 1-2, 0.9768",
        "step-400: rank 3, 0.8721",
    ]
    dots = [_across(plot, "circle", "", "cx")[0] for plot in plots]
    scale = (dots[0] - dots[2]) / 0.1061
    assert dots[0] - dots[1] == pytest.approx(0.0014 * scale, abs=0.05)
    best, second, third = ([_across(p, "line", "bounds", n) for n in ("x1", "x2")] for p in plots)
    assert best == [[], []]  # no interval of the best one to itself
    assert second[0][0] - dots[0] == pytest.approx(-0.0209 * scale, abs=0.05)
    assert second[1][0] - dots[0] == pytest.approx(0.0182 * scale, abs=0.05)
    assert third[1][0] < dots[0]
    assert "1-2 step-800 0.9782" in " ".join(read_page(html).text.split())


def test_without_intervals_there_are_dots_alone() -> None:
    """And the axis says so; differences of exactly nothing have an axis too."""
    models = tuple(
        dataclasses.replace(model, difference=0.0, low=None, high=None) for model in BOARD.models
    )
    html = case_leaderboard_page("toy", [dataclasses.replace(BOARD, units=0, models=models)])
    assert "difference to the best, without intervals" in html
    plots = _plots(html, "rank")
    assert not any(_across(plot, "line", "bounds", "x1") for plot in plots)
    assert len({_across(plot, "circle", "", "cx")[0] for plot in plots}) == 1


def test_ratings_and_win_rates_of_an_arena() -> None:
    """Ratings with their intervals, then every pair; a pair's two cells add up to 100 %."""
    html = arena_leaderboard_page([ARENA])
    assert_self_contained_page(html)
    labels = [str(plot.get("aria-label")) for plot in _plots(html, "rank")]
    assert [label.split(":")[0] for label in labels] == ["m00", "m01", "m02"]
    cells = {
        match.groups()[:3]: float(match[4])
        for title in read_page(html).values("title")
        if (match := re.fullmatch(r"(m\d\d) against (m\d\d), ([^:]+): ([\d.]+) %", title))
    }
    assert len(cells) == 24
    for policy in ("ties forced", "no ties", "ties 1/2"):
        own = {(a, b): rate for (a, b, of), rate in cells.items() if of == policy}
        assert all(own[a, b] + own[b, a] == pytest.approx(100, abs=0.11) for a, b in own)
        assert own["m00", "m02"] > own["m00", "m01"] > 50
    assert all(cells[a, b, "ties 0"] <= cells[a, b, "ties 1/2"] for a, b, _ in cells)


def test_win_rates_by_number_of_battles_of_an_arena() -> None:
    """A curve for each model with its interval, which gets narrower, and all of it as a table."""
    html = arena_leaderboard_page([ARENA])
    labels = re.findall(r'<svg class="curves"[^>]* aria-label="([^"]*)"', html)
    assert [label.partition(":")[0] for label in labels] == [
        f"win rate of m0{n} by battles" for n in range(3)
    ]
    text = " ".join(read_page(html).text.split())
    for standing, points in zip(ARENA.standings, ARENA.curves, strict=True):
        assert all(low - 1e-9 <= rate <= high + 1e-9 for _, rate, low, high in points)
        assert points[-1][3] - points[-1][2] < points[4][3] - points[4][2]
        assert points[-1][0] == standing.battles
        assert points[-1][1] == pytest.approx(standing.win_rates["fdt"])
        for size, *rates in points:
            shown = " ".join(f"{rate:.4f}" for rate in rates)
            assert f"{standing.model} {size} {shown}" in text


def test_win_rates_of_several_files_stand_side_by_side() -> None:
    """Of models that two files have, each with the interval of its own; one file alone has none."""
    only = make_leaderboard("text", [b for b in PANEL if "m02" not in (b.first, b.second)])
    html = arena_leaderboard_page([ARENA, only])
    assert_self_contained_page(html)
    labels = [str(plot.get("aria-label")) for plot in _plots(html, "rank")]
    beside = [label for label in labels if " by " in label]
    assert [label.partition(":")[0] for label in beside] == [
        "m00 by people", "m00 by text", "m01 by people", "m01 by text",
    ]  # fmt: skip
    for name, board in (("people", ARENA), ("text", only)):
        for standing in board.standings:
            rate = standing.win_rates["fdt"]
            assert rate is not None
            shown = f"{standing.model} by {name}: {100 * rate:.1f} %"
            assert (shown in beside) == (standing.model != "m02")
    assert "side by side" not in arena_leaderboard_page([ARENA])


def test_pairs_that_never_met_are_empty_cells() -> None:
    """They have no number and no shade."""
    chain = [b for b in PANEL if {b.first, b.second} != {"m00", "m02"}]
    html = arena_leaderboard_page([make_leaderboard("people", chain)])
    assert (
        '<td class=""><span title="m00 against m02, ties forced: no battle">-</span></td>' in html
    )


@settings(max_examples=30)
@given(st.text(max_size=60))
def test_any_name_is_text(name: str) -> None:
    """Markup, control characters, halves of characters: nothing of a name is obeyed."""
    models = (dataclasses.replace(BOARD.models[0], model=name), *BOARD.models[1:])
    board = dataclasses.replace(BOARD, models=models, label=name, case=name)
    html = case_leaderboard_page(name, [board])
    assert_self_contained_page(html)
    assert hides_nothing(html, "\n\t")
