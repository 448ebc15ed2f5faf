"""The pages in a real browser: the script under its policy, narrow, dark, accessible, printed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pytest_cepbench.artifacts import ImageArtifact
from pytest_cepbench.report.history import History, timelines_of
from pytest_cepbench.report.history_page import history_page
from pytest_cepbench.report.pages import html_page
from pytest_cepbench.report.result import BaselineModel, ChainShown, LinkShown, ModelShown
from pytest_cepbench.report.view import case_anchor, sample_anchor
from pytest_cepbench.report.writers import Provenance, RunOutcome, suite_provenance
from tests.report.pages import violations
from tests.report.results import ANSWERED, FULL, INVENTED, MEASURED, judged, recorded, replace

pytestmark = pytest.mark.slow

LONG = "a-name-without-any-place-to-break-it-" * 4


def _chain(sample: str) -> ChainShown:
    """A sample whose drawings differ from the baseline's."""
    start = LinkShown(image="0" * 64)
    before, now = (
        [start, LinkShown(text=f"a {word} " * 8), LinkShown(image=digit * 64, similarity=0.5)]
        for word, digit in (("red cat", "1"), ("dog", "2"))
    )
    return ChainShown(sample, 0.25, 0.75, now, baseline_links=before, first_difference=1)


REGRESSED = replace(
    FULL,
    chains=[_chain(LONG)],
    median=_chain("median"),
    baseline_model=BaselineModel("describer", "old", "another model", "d" * 64, "it was better"),
    model={"role": "describer", "spec": "new"},
    identity={"samples": "50 abc", "data": "loader=folder path=x", "describe prompt": "tell"},
    models=[ModelShown("describer", "new", "f" * 64, "a model")],
    measured=replace(MEASURED, scores={"red": {LONG: 0.1, "b": 0.5}}),
    differences={LONG: -0.8, "b": -0.1},
    facts=INVENTED,
)
HELD = replace(REGRESSED, part="quiet", verdict="held", value=0.9, notes=[], warnings=[],
               failures={}, facts=None, difference=0.0)  # fmt: skip
FAILED = [
    replace(FULL, part=f"part {n}", verdict="error", value=None, difference=None, reasons=["oh"])
    for n in range(3)
]
RESULTS = [REGRESSED, HELD, *FAILED, replace(HELD, part="told", primary=False), ANSWERED]


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The pages of a run with everything and of a history."""
    folder = tmp_path_factory.mktemp("pages")
    provenance = Provenance(
        "2026-01-01T00:00:00+00:00", 3.5, f"pytest {LONG}", "c" * 40, True, "https://ci.example/1",
        [suite_provenance("toy", RESULTS)],
    )  # fmt: skip
    run = RunOutcome(
        "failed", "1", [LONG], ["a worker died"], ["it ran again"], provenance=provenance,
        results=RESULTS,
    )  # fmt: skip
    runs = [recorded(n, judged(0.7 + n / 50, part=LONG), host=LONG) for n in range(4)]
    timelines = timelines_of(runs)

    def picture(digest: str) -> ImageArtifact:
        shade = 40 * int(digest[0], 16) % 200 + 20
        return ImageArtifact(np.full((300, 600, 3), shade, np.uint8))

    texts = {
        "run": html_page(run, picture),
        "history": history_page(History(folder, tuple(runs)), runs, timelines, folder),
    }
    for name, text in texts.items():
        (folder / f"{name}.html").write_text(text, encoding="utf-8")
    return {name: folder / f"{name}.html" for name in texts}


@pytest.mark.parametrize("name", ["run", "history"])
@pytest.mark.parametrize(("dark", "width"), [(False, 1400), (True, 320)], ids=["light", "dark"])
def test_no_rule_of_accessibility_is_violated(
    browser: Any, pages: dict[str, Path], name: str, dark: bool, width: int
) -> None:
    """WCAG 2.2 AA and the best practices of axe-core, with all details open; at 320 pixels nothing
    is wider than the window but what scrolls by itself.
    """
    assert violations(browser, pages[name], dark=dark, width=width) == []


def test_addresses_open_what_they_lead_to_and_cases_are_searched(
    browser: Any, pages: dict[str, Path]
) -> None:
    """Only the details of the worst case are open; a link to others opens them, folded or not.

    Cases are filtered and sorted by the page's own script, which its policy lets run and which does
    not fail; the count is announced.
    """
    tab = browser.new_page(viewport={"width": 1400, "height": 900})
    errors: list[str] = []
    tab.on("pageerror", lambda error: errors.append(str(error)))
    tab.goto(pages["run"].as_uri())
    opened = "elements => elements.map(e => e.id)"
    details = tab.locator("main details[id][open]")
    assert details.evaluate_all(opened) == [f"details-{case_anchor(REGRESSED)}"]
    tab.evaluate("() => { location.hash = '100%'; }")  # leads nowhere, and is no error
    anchor = sample_anchor(HELD, LONG)
    tab.evaluate(f"() => {{ location.hash = '{anchor}'; }}")
    picture = tab.locator(f"#{anchor} + .pairs .image").nth(1)
    picture.wait_for(state="visible")
    box = picture.bounding_box()
    assert box["width"] > 100
    assert 0 <= box["y"] < 900 - box["height"]

    def shown() -> list[str]:
        rows = tab.locator(".cases tbody tr:visible")
        texts: list[str] = rows.evaluate_all("rows => rows.map(row => row.cells[1].textContent)")
        return texts

    parts = [result.part for result in RESULTS]
    assert shown() == parts
    assert tab.locator("#count").inner_text() == f"{len(parts)} of {len(parts)} cases shown"
    tab.fill("#search", "QUIET")
    assert shown() == ["quiet"]
    tab.fill("#search", "")
    tab.select_option("[name=verdict]", "error")
    assert shown() == ["part 0", "part 1", "part 2"]
    tab.select_option("[name=verdict]", "")
    tab.locator(".cases th button").nth(3).click()
    assert shown()[0] == "overall"
    assert tab.locator(".cases th").nth(3).get_attribute("aria-sort") == "ascending"
    tab.close()
    assert errors == []


@pytest.mark.parametrize(("width", "height"), [(1440, 900), (390, 844)])
def test_the_first_screen_has_the_answer(
    browser: Any, pages: dict[str, Path], width: int, height: int
) -> None:
    """Verdict, the worst cases and the beginning of the worst sample, at any width."""
    tab = browser.new_page(viewport={"width": width, "height": height})
    tab.goto(pages["run"].as_uri())
    tops = [tab.locator(part).first.bounding_box()["y"] for part in ("h1", ".forest li", ".card")]
    tab.close()
    assert max(tops) < height


def test_print_is_light_and_complete(browser: Any, pages: dict[str, Path]) -> None:
    """Also of a dark screen: no control is printed, details are, and no scroller cuts them."""
    tab = browser.new_page(viewport={"width": 1000, "height": 900}, color_scheme="dark")
    tab.goto(pages["run"].as_uri())
    tab.emulate_media(media="print", color_scheme="dark")
    tab.evaluate("() => dispatchEvent(new Event('beforeprint'))")
    seen = tab.evaluate(
        """() => {
          const visible = (selector) => [...document.querySelectorAll(selector)]
            .filter((e) => e.checkVisibility());
          return {
            ink: getComputedStyle(document.body).color,
            controls: visible("button:not(th button), input, select").length,
            chains: visible(".pair").length,
            all: document.querySelectorAll(".pair").length,
            cut: visible(".scroll, .text")
              .filter((e) => getComputedStyle(e).overflowX !== "visible").length,
          };
        }"""
    )
    tab.close()
    assert seen["ink"] == "rgb(28, 32, 36)"
    assert (seen["controls"], seen["cut"]) == (0, 0)
    assert seen["chains"] == seen["all"] > 2
