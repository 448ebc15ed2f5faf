"""The page as a reviewer uses it: pointer, keyboard, print, a narrow screen, links from elsewhere.

Real key presses and clicks, which scripts of a page cannot make: Playwright drives Chromium.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pytest_cepbench.artifacts import ImageArtifact
from pytest_cepbench.report import ChainShown, LinkShown
from pytest_cepbench.report.chain_pairs import sample_anchor
from pytest_cepbench.report.pages import html_page
from pytest_cepbench.report.writers import Provenance, RunFacts
from tests.report.results import FULL, MEASURED, replace

pytestmark = pytest.mark.slow

WORST, MEDIAN, OTHER = "red/0001.png", "red/0002.png", "it's 3.png"

START = LinkShown(image="0" * 64)


def _chain(sample: str) -> ChainShown:
    """A sample whose two drawings differ from the baseline's."""

    def links(text: str, images: str) -> list[LinkShown]:
        first, second = (LinkShown(image=digit * 64, similarity=0.5) for digit in images)
        return [START, LinkShown(text=text), first, LinkShown(text="end"), second]

    before, now = links("a red cat", "12"), links("a dog", "34")
    return ChainShown(sample, 0.25, 0.75, now, baseline_links=before, first_difference=1)


REGRESSED = replace(
    FULL,
    chains=[_chain(WORST)],
    median=_chain(MEDIAN),
    measured=replace(MEASURED, scores={"red": {WORST: 0.25, MEDIAN: 0.5, OTHER: 0.75}}),
    differences={WORST: -0.5, MEDIAN: -0.25, OTHER: 0.0},
)

HELD = replace(REGRESSED, part="shape", verdict="held", difference=0.0, notes=[], failures={})

QUIET = replace(HELD, part="quiet", difference=0.25, warnings=[])

OPEN_ALL = "() => document.querySelectorAll('details').forEach((e) => { e.open = true; })"

COMMAND = "pytest suites/toy --model=checkpoints/step-8000"

FACTS = RunFacts(
    "failed",
    "1",
    [],
    ["a worker died"],
    ["it ran again"],
    provenance=Provenance("2026-01-01T00:00:00+00:00", 3.5, COMMAND, "c" * 40, False, "", []),
)


def _picture(digest: str) -> ImageArtifact:
    return ImageArtifact(np.full((64, 64, 3), 40 * int(digest[0]) + 20, np.uint8))


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The address of the single file of a run with paired chains and differences."""
    path: Path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(html_page(FACTS, [REGRESSED, HELD, QUIET], _picture), encoding="utf-8")
    return path.as_uri()


@pytest.fixture
def page(browser: Any, address: str) -> Iterator[Any]:
    """A tab of the page, in which no script fails."""
    tab = browser.new_page(viewport={"width": 1400, "height": 900})
    errors: list[str] = []
    tab.on("pageerror", lambda error: errors.append(str(error)))
    tab.goto(address)
    yield tab
    tab.close()
    assert errors == []


def _focused(page: Any, expression: str) -> Any:
    """What an expression of the focused element `e` is."""
    return page.evaluate(f"(() => {{ const e = document.activeElement; return {expression}; }})()")


# -- the viewer of pairs -------------------------------------------------------------------------


def _stage(page: Any) -> dict[str, Any]:
    """What the viewer shows."""
    state: dict[str, Any] = page.evaluate(
        """() => {
          const viewer = document.querySelector("dialog");
          const upper = viewer.querySelector(".stage > :last-child");
          const pictures = [...viewer.querySelectorAll("figure > :first-child")];
          return {
            open: viewer.open,
            title: viewer.querySelector("b").textContent,
            pressed: [...viewer.querySelectorAll("[aria-pressed=true]")].map((b) => b.textContent),
            slider: !viewer.querySelector("input").hidden,
            opacity: upper?.style.opacity,
            clip: upper?.style.clipPath,
            aside: pictures.length === 2 &&
              pictures[0].getBoundingClientRect().right <= pictures[1].getBoundingClientRect().left,
          };
        }"""
    )
    return state


def test_pairs_are_compared_by_pointer(page: Any) -> None:
    """Side by side, swiped, or faded into each other; next goes on to the next generation."""
    page.locator(".enlarge").first.click()
    first = _stage(page)
    assert (first["open"], first["aside"], first["slider"]) == (True, True, False)
    assert first["title"] == f"{WORST}, generation 2"
    page.get_by_role("button", name="swipe").click()
    page.locator("dialog input").fill("25")
    swiped = _stage(page)
    assert (swiped["pressed"], swiped["slider"]) == (["swipe"], True)
    assert swiped["clip"].endswith("25%)")
    page.get_by_role("button", name="onion skin").click()
    page.locator("dialog input").fill("75")
    assert float(_stage(page)["opacity"]) == 0.75
    page.get_by_role("button", name="next").click()
    assert _stage(page)["title"] == f"{WORST}, generation 4"
    page.get_by_role("button", name="close").click()
    assert not _stage(page)["open"]


def test_a_click_on_a_picture_opens_its_pair(page: Any) -> None:
    """Either of the two; Escape closes it."""
    for row in ("before", "now"):
        page.locator(f".pair tr.{row} .enlargeable").nth(1).click()
        assert _stage(page)["title"] == f"{WORST}, generation 4"
        page.keyboard.press("Escape")
        assert not _stage(page)["open"]


@pytest.mark.parametrize("key", ["Enter", "Space"])
def test_pairs_are_compared_by_keyboard(page: Any, key: str) -> None:
    """Digits choose how, arrows the generation, Escape goes back to where the focus was."""
    page.locator(".enlarge").first.focus()
    page.keyboard.press(key)
    assert _stage(page)["open"]
    for digit, name in (("2", "swipe"), ("3", "onion skin"), ("1", "side by side")):
        page.keyboard.press(digit)
        assert _stage(page)["pressed"] == [name]
    page.keyboard.press("ArrowRight")
    assert _stage(page)["title"] == f"{WORST}, generation 4"
    page.keyboard.press("ArrowLeft")
    assert _stage(page)["title"] == f"{WORST}, generation 2"
    for _ in range(20):  # the focus stays inside of an open viewer, or leaves to the browser's own
        page.keyboard.press("Tab")
        assert _focused(page, "e === document.body || Boolean(e.closest('dialog'))")
    page.keyboard.press("Escape")
    assert not _stage(page)["open"]
    assert _focused(page, "e.matches('.enlarge') && e === document.querySelector('.enlarge')")


# -- the keyboard --------------------------------------------------------------------------------


def test_tab_reaches_every_control_in_the_order_of_the_page(page: Any) -> None:
    """Each once, and leaves the page at its end."""
    expected = page.evaluate(
        """() => {
          document.getElementById("toggle").click();
          const controls = "a[href], button, input, select, summary, [tabindex='0']";
          const seen = [...document.querySelectorAll(controls)]
            .filter((e) => e.checkVisibility({ contentVisibilityAuto: true }));
          seen.forEach((e, at) => { e.dataset.place = at; });
          return seen.length;
        }"""
    )
    reached = []
    for _ in range(expected + 5):
        page.keyboard.press("Tab")
        place = _focused(page, "e.dataset.place")
        if place is None:
            break
        reached.append(int(place))
    assert reached == list(range(expected))
    assert expected > 30


@pytest.mark.parametrize("key", ["Enter", "Space"])
def test_every_control_obeys_the_keyboard(page: Any, key: str) -> None:
    """Buttons and summaries do on Enter and on Space what they do on a click."""
    states = """e => [e.ariaPressed, e.closest("th")?.ariaSort, e.parentElement.open,
        document.querySelector("dialog").open]"""
    controls = page.locator("main button:visible, main summary:visible").element_handles()
    assert len(controls) > 12
    for control in controls:
        page.evaluate(OPEN_ALL)
        before = control.evaluate(states)
        control.focus()
        page.keyboard.press(key)
        assert control.evaluate(states) != before, control.evaluate("e => e.outerHTML")
        page.keyboard.press("Escape")


# -- paired differences --------------------------------------------------------------------------


def test_every_dot_leads_to_its_sample(page: Any) -> None:
    """A dot whose chain is shown leads to it; others name their sample, scores and the command."""
    figure = page.locator("details[open] .differences")
    svg = figure.locator("svg")
    box = svg.bounding_box()
    path = svg.locator(".dots").get_attribute("d")
    places = [tuple(map(float, place)) for place in re.findall(r"M(\S+) (\S+?)h0", path)]
    scale = box["width"] / 420
    chosen = []
    for x, y in reversed(places):
        svg.scroll_into_view_if_needed()
        box = svg.bounding_box()
        page.mouse.click(box["x"] + x * scale, box["y"] + y * scale)
        chosen.append(figure.locator(".chosen").inner_text())
    assert chosen[0].startswith(f"{OTHER} baseline 0.7500, now 0.7500, change +0.0000.")
    assert chosen[0].endswith(f"{COMMAND} --cep-show='it'\"'\"'s 3.png'")
    assert chosen[1].startswith(f"{MEDIAN} baseline 0.7500, now 0.5000, change -0.2500.")
    assert chosen[2].startswith(WORST)
    assert page.url.endswith(f"#{sample_anchor(REGRESSED, WORST)}")


def test_dots_are_chosen_with_the_keyboard(page: Any) -> None:
    """Arrows on the slider go through the samples by their differences."""
    figure = page.locator("details[open] .differences")
    figure.locator("input").focus()
    page.keyboard.press("End")
    assert figure.locator(".chosen b").inner_text() == OTHER
    page.keyboard.press("ArrowLeft")
    assert figure.locator(".chosen b").inner_text() == MEDIAN
    assert figure.locator("input").get_attribute("aria-valuetext") == f"{MEDIAN}, -0.2500"
    figure.locator(".chosen a").click()
    assert page.url.endswith(f"#{sample_anchor(REGRESSED, MEDIAN)}")


# -- the page as a whole ---------------------------------------------------------------------------


@pytest.mark.parametrize("result", [REGRESSED, HELD], ids=["failing", "passing"])
def test_a_link_to_a_sample_opens_at_its_pictures(browser: Any, address: str, result: Any) -> None:
    """The terminal's: details that were closed are open, and the pictures are in view."""
    tab = browser.new_page(viewport={"width": 1400, "height": 900})
    anchor = sample_anchor(result, WORST)
    tab.goto(f"{address}#{anchor}")
    picture = tab.locator(f"#{anchor} + .pairs .image").nth(1)
    assert picture.is_visible()
    box = picture.bounding_box()
    tab.close()
    assert box["width"] > 100
    assert 0 <= box["y"] < 900 - box["height"]


def test_nothing_scrolls_sideways_at_320_pixels(browser: Any, address: str) -> None:
    """With all details open, a sample chosen and the viewer open."""
    tab = browser.new_page(viewport={"width": 320, "height": 600})
    tab.goto(address)
    tab.evaluate(OPEN_ALL)
    tab.locator(".differences input").first.press("End")
    beyond = "() => document.documentElement.scrollWidth - document.documentElement.clientWidth"
    assert tab.evaluate(beyond) == 0
    tab.locator(".enlarge").first.click()
    dialog = tab.locator("dialog").bounding_box()
    assert dialog["x"] >= 0
    assert dialog["x"] + dialog["width"] <= 320
    tab.close()


def test_print_is_light_and_complete(browser: Any, address: str) -> None:
    """Also of a dark screen: no control is printed, details are, and no scroller cuts them."""
    tab = browser.new_page(viewport={"width": 1000, "height": 900}, color_scheme="dark")
    tab.goto(address)
    background = "() => getComputedStyle(document.body).backgroundColor"
    assert tab.evaluate(background) == "rgb(17, 17, 19)"
    tab.emulate_media(media="print", color_scheme="dark")
    tab.evaluate("() => dispatchEvent(new Event('beforeprint'))")
    seen = tab.evaluate(
        """() => {
          const visible = (selector) => [...document.querySelectorAll(selector)]
            .filter((e) => e.checkVisibility()).length;
          const style = getComputedStyle(document.body);
          return {
            background: style.backgroundColor,
            ink: style.color,
            controls: visible("button:not(th button), input, select, dialog"),
            chains: visible(".pair"),
            all: document.querySelectorAll(".pair").length,
            cut: [...document.querySelectorAll(".scroll, .text")]
              .filter((e) => e.checkVisibility() && getComputedStyle(e).overflowX !== "visible")
              .map((e) => e.className),
          };
        }"""
    )
    tab.close()
    assert seen["background"] in ("rgb(255, 255, 255)", "rgba(0, 0, 0, 0)")
    assert seen["ink"] == "rgb(28, 32, 36)"
    assert seen["controls"] == 0
    assert seen["chains"] == seen["all"] == 4
    assert seen["cut"] == []
