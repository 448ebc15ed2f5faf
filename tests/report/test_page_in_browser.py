"""The page in a real browser: its script under its own policy, narrow, dark, accessible."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pytest_cepbench.artifacts import ImageArtifact
from pytest_cepbench.report import (
    BaselineModel,
    CaseResult,
    ChainShown,
    LinkShown,
    ModelShown,
    StepShown,
)
from pytest_cepbench.report.chain_pairs import case_anchor, sample_anchor
from pytest_cepbench.report.pages import html_page, write_page_folder
from pytest_cepbench.report.writers import Provenance, RunFacts, suite_provenance
from tests.report.browser import JENKINS, look_at, violations
from tests.report.results import ANSWERED, FULL, INVENTED, MEASURED, replace

pytestmark = pytest.mark.slow

IMAGE = ImageArtifact(np.full((300, 600, 3), 200, np.uint8))

LINKS = [LinkShown(image="0" * 64), LinkShown(text="a cat " * 60), LinkShown(image="0" * 64)]
LONG = "a-name-without-any-place-to-break-it-" * 4
REGRESSED = replace(
    FULL,
    chains=[ChainShown(LONG, 0.1, 0.9, LINKS, failure="empty-text: nothing", remark="odd")],
    baseline_model=BaselineModel("describer", "old", "another model", "d" * 64, "it was better"),
    model={"role": "describer", "spec": "new"},
    identity={"samples": "50 abc", "data": "loader=folder path=x", "describe prompt": "tell"},
    models=[ModelShown("describer", "new", "f" * 64, "a model")],
    measured=replace(MEASURED, scores={"red": {LONG: 0.1, "b": 0.5}}),
    differences={LONG: -0.8, "b": -0.1},
    facts=INVENTED,
)
HELD = replace(FULL, part="quiet", verdict="held", value=0.9, notes=[], warnings=[], failures={})
FAILED = [
    replace(FULL, part=f"part {n}", verdict="error", value=None, reasons=["out of memory"])
    for n in range(3)
]
RESULTS = [REGRESSED, HELD, *FAILED, replace(HELD, part="told", primary=False), ANSWERED]


def _facts(results: list[CaseResult]) -> RunFacts:
    provenance = Provenance(
        started="2026-01-01T00:00:00+00:00",
        seconds=3.5,
        command=f"pytest {LONG}",
        commit="c" * 40,
        modified=True,
        ci="https://ci.example/1",
        suites=[suite_provenance("toy", results)],
    )
    return RunFacts(
        "failed", "1", [LONG], ["a worker died"], ["it ran again"], provenance=provenance
    )


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The single file of a run that regressed, with images, answers and errors."""
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(html_page(_facts(RESULTS), RESULTS, lambda _: IMAGE))
    return path


def test_small_pictures_are_as_many_nodes_as_they_are(tmp_path: Path) -> None:
    """Each is one element of the page, whatever comes after it; enlarged ones had no end once."""
    pictures = {
        f"{number:064x}": ImageArtifact(np.full((8, 8, 3), number, np.uint8))
        for number in range(40)
    }
    chains = [
        ChainShown(f"sample {n}", 0.1, 0.9, [LinkShown(image=digest)])
        for n, digest in enumerate(pictures)
    ]
    case = replace(FULL, chains=chains)
    path = tmp_path / "report.html"
    path.write_text(html_page(_facts([case]), [case], pictures.get))
    outcome = look_at(
        path,
        """
        const all = (selector) => document.querySelectorAll(selector).length;
        return [all("image"), all("image *"), all("svg.thumbnails ~ script")];
        """,
    )
    assert outcome == [40, 0, 1]


def test_it_is_searched_filtered_and_sorted(page: Path) -> None:
    """By the page's own script, which its policy lets run; the count is announced."""
    outcome = look_at(
        page,
        """
        const shown = () => [...document.querySelectorAll(".cases tbody tr")]
          .filter((row) => !row.hidden).map((row) => row.cells[1].textContent);
        const set = (id, value, event) => {
          const element = document.querySelector(id);
          element.value = value;
          element.dispatchEvent(new window.Event(event));
        };
        const outcome = { all: shown(), count: document.getElementById("count").textContent };
        set("#search", "QUIET", "input");
        outcome.searched = shown();
        outcome.details = [...document.querySelectorAll("details[data-verdict]")]
          .filter((element) => !element.hidden).length;
        set("#search", "", "input");
        set("[name=verdict]", "error", "change");
        outcome.filtered = shown();
        set("[name=verdict]", "", "change");
        document.querySelectorAll(".cases th button")[3].click();
        outcome.sorted = shown();
        outcome.direction = document.querySelectorAll(".cases th")[3].getAttribute("aria-sort");
        return outcome;
        """,
    )
    parts = [result.part for result in RESULTS]
    assert outcome["all"] == parts
    assert outcome["count"] == f"{len(parts)} of {len(parts)} cases shown"
    assert (outcome["searched"], outcome["details"]) == (["quiet"], 1)
    assert outcome["filtered"] == ["part 0", "part 1", "part 2"]
    assert outcome["sorted"] == [
        "overall", "color", "quiet", "told", "part 0", "part 1", "part 2",
    ]  # fmt: skip
    assert outcome["direction"] == "ascending"


def test_addresses_open_what_they_lead_to(page: Path) -> None:
    """Only the details of the worst case are open; a link to others opens them, folded or not."""
    outcome = look_at(
        page,
        f"""
        const open = () =>
          [...document.querySelectorAll("main details[id][open]")].map((e) => e.id);
        const outcome = {{ before: open() }};
        window.location.hash = "details-{case_anchor(RESULTS[5])}";
        await new Promise((resolve) => setTimeout(resolve, 200));
        outcome.after = open();
        outcome.sample = Boolean(document.getElementById("{sample_anchor(REGRESSED, LONG)}"));
        return outcome;
        """,
    )
    assert outcome["before"] == [f"details-{case_anchor(REGRESSED)}"]
    assert f"details-{case_anchor(RESULTS[5])}" in outcome["after"]
    assert outcome["sample"]


def test_it_fits_a_narrow_screen(page: Path) -> None:
    """Nothing is cut off or scrolls sideways as a whole at 320 pixels, with all details open."""
    beyond = look_at(
        page,
        """
        for (const element of document.querySelectorAll("details")) element.open = true;
        const root = document.documentElement;
        return root.scrollWidth - root.clientWidth;
        """,
        width=320,
    )
    assert beyond == 0


def test_a_folder_is_whole_under_the_policy_of_jenkins(tmp_path: Path) -> None:
    """Style and images load, no script runs, and everything can be read."""
    page = write_page_folder(tmp_path, _facts(RESULTS), RESULTS, lambda _: IMAGE)
    outcome = look_at(
        page,
        """
        for (const image of document.images) { image.loading = "eager"; await image.decode(); }
        return {
          images: [...document.images].map((image) => image.naturalWidth),
          width: window.getComputedStyle(document.body).maxWidth,
          controls: document.getElementById("controls").hidden,
          rows: document.querySelectorAll(".cases tbody tr").length,
        };
        """,
        policy=JENKINS,
    )
    assert outcome["images"]
    assert set(outcome["images"]) == {256}
    assert outcome["width"] == "1240px"
    assert outcome["controls"]
    assert outcome["rows"] == len(RESULTS)


@pytest.mark.parametrize(
    ("dark", "width"), [(False, 1400), (True, 1400), (False, 320)], ids=["light", "dark", "narrow"]
)
def test_it_violates_no_rule_of_accessibility(page: Path, dark: bool, width: int) -> None:
    """WCAG 2.2 AA and the best practices of axe-core, with all details open; also where tables
    scroll.
    """
    assert violations(page, dark=dark, width=width) == []


def test_steps_of_answers_are_shown(page: Path) -> None:
    """The pictures of questions and answers are drawn, not only named."""
    assert isinstance(ANSWERED.shown.answers[0].question[1], StepShown)
    drawn = look_at(
        page,
        """
        const images = [...document.querySelectorAll(".step svg.image use")];
        for (const element of document.querySelectorAll("details")) element.open = true;
        return images.map((use) => Math.round(use.getBBox().width));
        """,
    )
    assert drawn == [256, 256, 256]
