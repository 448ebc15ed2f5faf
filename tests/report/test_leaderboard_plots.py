"""Leaderboards as pictures: what stands where, and that any name is text."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_cepbench.report import svg
from pytest_cepbench.report.leaderboard_plots import (
    draw_arena_leaderboards,
    draw_case_leaderboards,
)
from pytest_cepbench.studies.arena import make_leaderboard
from pytest_cepbench.studies.comparison import CaseLeaderboard, RankedModel
from tests.metrics.arena.panels import simulate
from tests.test_escapes import hides_nothing

SVG = "{http://www.w3.org/2000/svg}"

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


def _groups(text: str) -> dict[str, ET.Element]:
    """Things that have a label, by it."""
    root = ET.fromstring(text)
    return {group.findtext(f"{SVG}title") or "": group for group in root.iter(f"{SVG}g")}


def _places(text: str, tag: str, name: str) -> dict[str, list[float]]:
    """An attribute of the shapes of each labelled thing."""
    return {
        label: [float(shape.attrib[name]) for shape in group.iter(f"{SVG}{tag}")]
        for label, group in _groups(text).items()
    }


def test_models_stand_below_one_another_with_their_intervals() -> None:
    """In the order of the board; dots and intervals on one scale, ranks and values beside."""
    text = draw_case_leaderboards("toy", [BOARD])
    rows = list(_groups(text))
    assert rows == [
        "step-800: rank 1-2, 0.9782",
        "step-600: rank 1-2, 0.9768",
        "step-400: rank 3, 0.8721",
    ]
    heights = [ys[0] for ys in _places(text, "circle", "cy").values()]
    assert heights == sorted(heights)
    dots = [xs[0] for xs in _places(text, "circle", "cx").values()]
    scale = (dots[0] - dots[2]) / 0.1061
    assert dots[0] - dots[1] == pytest.approx(0.0014 * scale, abs=0.05)
    best, second, third = _places(text, "line", "x1").values()
    assert best == []  # no interval of the best one to itself
    low, _, high = sorted(second)
    assert low - dots[0] == pytest.approx(-0.0209 * scale, abs=0.05)
    assert high - dots[0] == pytest.approx(0.0182 * scale, abs=0.05)
    assert max(third) < dots[0]


def test_without_intervals_there_are_dots_alone() -> None:
    """And the axis says so."""
    models = tuple(replace(model, low=None, high=None) for model in BOARD.models)
    text = draw_case_leaderboards("toy", [replace(BOARD, units=0, models=models)])
    assert "difference to the best, without intervals" in text
    assert not any(_places(text, "line", "x1").values())


def test_equal_models_have_a_scale_too() -> None:
    """Differences of exactly nothing divide by nothing."""
    models = tuple(replace(m, difference=0.0, low=None, high=None) for m in BOARD.models)
    places = _places(draw_case_leaderboards("toy", [replace(BOARD, models=models)]), "circle", "cx")
    assert len({xs[0] for xs in places.values()}) == 1


def test_ratings_and_win_rates_of_an_arena() -> None:
    """Ratings with their intervals, then every pair; a pair's two cells add up to 100 %."""
    text = draw_arena_leaderboards([ARENA])
    labels = list(_groups(text))
    assert [label.split(":")[0] for label in labels[:3]] == ["m00", "m01", "m02"]
    cells = {
        (match[1], match[2]): float(match[3])
        for label in labels
        if (match := re.fullmatch(r"(m\d\d) against (m\d\d): ([\d.]+) %", label))
    }
    assert len(cells) == 6
    assert all(cells[a, b] + cells[b, a] == pytest.approx(100, abs=0.11) for a, b in cells)
    assert cells["m00", "m02"] > cells["m00", "m01"] > 50


def test_pairs_that_never_met_are_empty_cells() -> None:
    """They are grey and have no number."""
    chain = [b for b in PANEL if {b.first, b.second} != {"m00", "m02"}]
    board = make_leaderboard("people", chain)
    assert board.pair_win_rates["ties_as_half"][0][2] is None
    group = _groups(draw_arena_leaderboards([board]))["m00 against m02: no battle"]
    assert [shape.tag for shape in group][1:] == [f"{SVG}rect"]


def test_pictures_show_in_dark_and_light_without_anything_from_outside() -> None:
    """One file: colors for both, no font, no address but that of the name space."""
    text = draw_arena_leaderboards([ARENA])
    assert "prefers-color-scheme: dark" in text
    assert re.findall(r"https?://[^\"]*", text) == ["http://www.w3.org/2000/svg"]
    assert not re.search(r"url\(|@import|@font-face|href|<script|<image|<foreignObject", text)
    used = set(re.findall(r'class="(\w+)"', text))
    light, _, dark = text.partition("@media")
    assert all(f".{kind} {{" in light and f".{kind} {{" in dark for kind in used)


def test_the_same_board_is_the_same_picture() -> None:
    """Byte by byte, so that a committed picture changes where the results do."""
    assert draw_arena_leaderboards([make_leaderboard("people", PANEL)]) == (
        draw_arena_leaderboards([ARENA])
    )


@settings(max_examples=50)
@given(st.text(max_size=60))
def test_any_name_is_text(name: str) -> None:
    """Markup, control characters, halves of characters: nothing of a name is obeyed."""
    models = (replace(BOARD.models[0], model=name), *BOARD.models[1:])
    text = draw_case_leaderboards(name, [replace(BOARD, models=models, label=name, case=name)])
    root = ET.fromstring(text)
    plain = draw_case_leaderboards("x", [BOARD])
    assert [e.tag for e in root.iter()] == [e.tag for e in ET.fromstring(plain).iter()]
    assert hides_nothing(text, "\n")


def test_a_long_name_keeps_its_end() -> None:
    """Checkpoints differ there; the whole name is its label."""
    long = f"runs/{'deep/' * 20}step-400"
    models = (*BOARD.models[:2], replace(BOARD.models[2], model=long))
    text = draw_case_leaderboards("toy", [replace(BOARD, models=models)])
    assert f"{long}: rank 3, 0.8721" in _groups(text)
    texts = [element.text or "" for element in ET.fromstring(text).iter(f"{SVG}text")]
    (shown,) = [t for t in texts if t.endswith("step-400")]
    assert shown.startswith("...")
    assert svg.text_width(shown) <= 240


def test_wide_letters_are_wide() -> None:
    """Two columns each, so that they do not run into the plot."""
    assert svg.text_width("模型") == svg.text_width("abcd")
