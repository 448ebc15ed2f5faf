"""The pages of the history in a real browser, those of runs that have not ended among them."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_cepbench.report.history.file import append_run
from pytest_cepbench.report.history.running import RunningCase, RunningWork, write_running
from pytest_cepbench.report.history.site import Site
from tests.report.browser import look_at, violations
from tests.report.history.runs import judged, recorded
from tests.report.history.test_running import RUN, running

pytestmark = pytest.mark.slow

LONG = "a-name-without-any-place-to-break-it-" * 4


@pytest.fixture
def site(tmp_path: Path) -> Site:
    """A history of four runs, and a run that goes on."""
    folder = tmp_path / "history"
    for number in range(4):
        append_run(folder, recorded(number, judged(0.7 + number / 50, part=LONG), host=LONG), {})
    case = RunningCase("toy/part", "regressed", 0.5, -0.1, passes=False, reason="lost")
    work = RunningWork("toy: describe", "gw0", 3, 8, "images", rate=0.4, left=12.0)
    write_running(folder, running(failing=[case], cases=[case], work=[work], checkpoint=LONG))
    return Site(folder)


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("name", ["index", "run"])
def test_they_violate_no_rule_of_accessibility(
    site: Site, tmp_path: Path, name: str, dark: bool
) -> None:
    """Neither the first page nor the page of a run that goes on."""
    assert violations(written(site, tmp_path, name), dark=dark) == []


@pytest.mark.parametrize("name", ["index", "run"])
def test_they_are_as_wide_as_a_telephone(site: Site, tmp_path: Path, name: str) -> None:
    """At 320 px nothing is wider than the window but what scrolls by itself."""
    width = look_at(
        written(site, tmp_path, name),
        "return document.documentElement.scrollWidth;",
        width=320,
    )
    assert width <= 320


def written(site: Site, folder: Path, name: str) -> Path:
    """A page of the site as a file."""
    text = site.index() if name == "index" else site.running_page(f"{RUN}.html")
    assert text is not None
    page = folder / f"{name}.html"
    page.write_text(text)
    return page
