"""Comparisons, leaderboards and the first screen of a run in a real browser."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pytest_cepbench.artifacts import ImageArtifact
from pytest_cepbench.report import ChainShown, LinkShown
from pytest_cepbench.report.comparison_page import (
    arena_leaderboard_page,
    case_leaderboard_page,
    comparison_page,
)
from pytest_cepbench.report.pages import html_page
from pytest_cepbench.report.writers import RunFacts
from pytest_cepbench.studies.arena import make_leaderboard
from tests.metrics.arena.panels import simulate
from tests.report.browser import violations
from tests.report.results import FULL, replace
from tests.report.test_comparison_page import BOARD, COMPARISON

pytestmark = pytest.mark.slow

ARENA = make_leaderboard(
    "people", simulate(np.array([1.5, 0.0, -1.5]), 300, np.random.default_rng(0), per_question=3)
)


def _chain(sample: str) -> ChainShown:
    """A sample whose two drawings differ from the baseline's."""
    start = LinkShown(image="0" * 64)
    before, now = (
        [start, LinkShown(text=f"a {word} " * 8), LinkShown(image=digit * 64, similarity=0.5)]
        for word, digit in (("red cat", "1"), ("dog", "2"))
    )
    return ChainShown(sample, 0.25, 0.75, now, baseline_links=before, first_difference=1)


CASE = replace(FULL, chains=[_chain("a.png"), _chain("b.png"), _chain("c.png")])

RUN = [replace(CASE, part=f"part {n}", difference=-0.1 - n / 100) for n in range(12)]


def _picture(digest: str) -> ImageArtifact:
    return ImageArtifact(np.full((64, 64, 3), 40 * int(digest[0]) + 20, np.uint8))


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("name", ["comparison", "cases", "arena"])
def test_they_violate_no_rule_of_accessibility(tmp_path: Path, name: str, dark: bool) -> None:
    """Two comparisons on one page have landmarks of their own."""
    third = dataclasses.replace(COMPARISON.second, name="third")
    twice = [COMPARISON, dataclasses.replace(COMPARISON, second=third)]
    chains = [[CASE], [replace(CASE, reference="first")]]
    pages = {
        "comparison": lambda: comparison_page(twice, [BOARD], tmp_path, chains, _picture),
        "cases": lambda: case_leaderboard_page("toy", [BOARD]),
        "arena": lambda: arena_leaderboard_page([ARENA]),
    }
    page = tmp_path / "page.html"
    page.write_text(pages[name]())
    assert violations(page, dark=dark, width=390 if dark else 1400) == []


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The address of the page of a run of twelve cases that regressed."""
    path: Path = tmp_path_factory.mktemp("page") / "report.html"
    facts = RunFacts("failed", "1", [], [], headline="Do not ship: 12 of 12 gating cases regressed")
    path.write_text(html_page(facts, RUN, _picture), encoding="utf-8")
    return path.as_uri()


@pytest.mark.parametrize(("width", "height"), [(1440, 900), (1280, 800), (390, 844)])
def test_the_first_screen_has_the_answer(
    browser: Any, address: str, width: int, height: int
) -> None:
    """Verdict, the worst cases and the worst sample, at any width; nothing is wider than it."""
    tab = browser.new_page(viewport={"width": width, "height": height})
    tab.goto(address)
    bottoms = [
        tab.locator(part).bounding_box()["y"] + tab.locator(part).bounding_box()["height"]
        for part in ("h1", ".forest li >> nth=7", ".card >> nth=0")
    ]
    rows = tab.locator(".forest li:visible").count()
    wide = tab.evaluate("() => document.documentElement.scrollWidth")
    tab.close()
    assert max(bottoms) < height
    assert rows == (8 if width == 390 else 12)
    assert wide == width


def test_arrows_go_from_sample_to_sample_and_from_case_to_case(browser: Any, address: str) -> None:
    """Each has its address, and its details are open."""
    tab = browser.new_page(viewport={"width": 1440, "height": 900})
    tab.goto(address)
    seen = []
    for key in ("ArrowRight", "ArrowRight", "ArrowLeft", "Shift+ArrowRight", "Shift+ArrowRight"):
        tab.keyboard.press(key)
        tab.wait_for_timeout(50)
        seen.append(tab.evaluate("() => location.hash.slice(1)"))
    samples = tab.evaluate("() => [...document.querySelectorAll('.sample[id]')].map(e => e.id)")
    cases = tab.evaluate("() => [...document.querySelectorAll('main details[id]')].map(e => e.id)")
    opened = tab.evaluate("() => document.querySelector(':target').open")
    assert seen[:3] == [samples[0], samples[1], samples[0]]
    assert seen[3] in cases
    assert cases.index(seen[4]) == cases.index(seen[3]) + 1
    assert opened
    tab.locator("#search").focus()
    tab.keyboard.press("ArrowRight")
    assert tab.evaluate("() => location.hash.slice(1)") == seen[4]
    tab.close()


def test_on_a_phone_two_generations_fit_beside_the_names_of_the_rows(
    browser: Any, address: str
) -> None:
    """The names stay where they are when the chain scrolls, and no column is cut at the start."""
    tab = browser.new_page(viewport={"width": 390, "height": 844})
    tab.goto(address)
    pairs = tab.locator("details[open] .pairs").first
    edge = pairs.bounding_box()
    names = pairs.locator("tr.now th")
    cells = pairs.locator("tr.now td")
    assert cells.count() == 3
    second = cells.nth(1).bounding_box()
    assert second["x"] + second["width"] <= edge["x"] + edge["width"] + 1
    before = names.bounding_box()["x"]
    pairs.evaluate("(e) => { e.scrollLeft = 10000; }")
    assert names.bounding_box()["x"] == before
    last = cells.nth(2).bounding_box()
    tab.close()
    assert last["x"] + last["width"] <= edge["x"] + edge["width"] + 1
