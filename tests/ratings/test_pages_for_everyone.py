"""The pages of every task: their keys, what they give away, who can use them.

A real server process, and real key presses in Chromium.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from pytest_cepbench.ratings.folder import read_ratings, read_votes
from pytest_cepbench.ratings.records import TASKS, Task
from tests.ratings.serving import Server, press, records, request, see, served
from tests.ratings.studies import BLUE, RED, SAMPLE, make_study
from tests.report.browser import axe_core

pytest.importorskip("starlette")

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("task", TASKS)
def test_nothing_that_is_fetched_names_a_model(task: Task, tmp_path: Path, open_page: Any) -> None:
    """Addresses, headers, pages, images: of a whole session, byte for byte."""
    folder = tmp_path / "study"
    ratings = make_study(folder, task, count=4, practice=1, attention=0.3, repeats=0.3)
    fetched: list[bytes] = []

    def keep(response: Any) -> None:
        parts = [response.url, json.dumps(response.all_headers()), response.request.post_data or ""]
        fetched.append("\n".join(parts).encode() + response.body())

    with served(folder) as server:
        page = open_page(server.addresses["a1"])
        page.on("requestfinished", lambda finished: keep(finished.response()))
        page.reload()
        page.wait_for_selector("[data-slot]")
        page.wait_for_load_state("networkidle")
        for image in page.locator("img.picture").all():
            name = image.get_attribute("src")
            fetched.append(request(server.addresses["a1"], name).body)
    content = b"\n".join(fetched)
    assert len(fetched) >= 5
    secrets = {RED, BLUE, SAMPLE, "sources.jsonl", "toy", str(folder), *ratings.items}
    secrets |= {source.option for source in ratings.sources} - {""}
    secrets |= {path.stem for path in (folder / "images").iterdir()}
    assert [name for name in secrets if name.encode() in content] == []
    assert b"EXIF" not in content
    assert b"XMP" not in content


ANSWERS: dict[Task, list[str]] = {
    "pair": ["3"],
    "caption": ["2"],
    "grades": ["g", "1", "m", "2", "p", "2", "Enter"],
    "describe": ["h", "i", "Control+Enter"],
    "verify": ["1", "3", "1", "Enter"],
}


@pytest.mark.parametrize("task", TASKS)
def test_every_task_has_keys(task: Task, tmp_path: Path, open_page: Any) -> None:
    """An item of each task is judged, and one is skipped with a reason and a note."""
    folder = tmp_path / "study"
    ratings = make_study(folder, task, count=4)
    with served(folder) as server:
        page = open_page(server.addresses["a1"])
        press(page, *ANSWERS[task])
        if task != "describe":
            page.keyboard.press("n")
            page.keyboard.type("both images are black")
            page.keyboard.press("Escape")
        else:
            page.get_by_role("button", name="Note").click()
            page.locator("#note-text").fill("both images are black")
            page.keyboard.press("Escape")
        page.get_by_role("button", name="Skip").click()
        press(page, "1")
    answer, skipped = records(folder)
    expected: dict[Task, dict[str, Any]] = {
        "pair": {"verdict": "Tie(B)", "tie": True},
        "caption": {"verdict": "B", "winner": "comparable"},
        "describe": {"text": "hi", "words": 1, "pasted": False},
        "verify": {"ticked": ['<b onclick="window.hacked = 3">Motion</b>'], "added": []},
        "grades": {},
    }
    assert answer.items() >= expected[task].items()
    if task == "grades":
        first, *others = answer["shown"]
        assert answer["grades"][str(first)] == "good"
        assert answer["ranking"] == [first, sorted(others)]
    assert (skipped["skip"], skipped["note"]) == ("broken image", "both images are black")
    assert len(read_votes(read_ratings(folder)).counted) == 2
    assert ratings.study.kind == task


def test_practice_tells_what_is_right(tmp_path: Path, open_page: Any) -> None:
    """Before the study's items; the dialog closes by keyboard, and practice is no item."""
    folder = tmp_path / "study"
    make_study(folder, "pair", practice=2)
    with served(folder) as server:
        page = open_page(server.addresses["a1"])
        for _ in range(2):
            assert page.get_by_text("practice", exact=True).is_visible()
            see(page)
            page.keyboard.press("1")
            page.get_by_role("dialog").wait_for()
            told = page.get_by_role("dialog").inner_text()
            assert re.search(r"[AB] is better\.", told)
            assert "In what was asked for" in told
            page.keyboard.press("Enter")
            page.wait_for_selector("[data-slot]")
        page.locator(".badge").wait_for(state="detached")
        press(page, "1")
    assert [vote["kind"] for vote in records(folder)] == ["practice", "practice", "item"]


def test_a_description_is_counted_and_pasting_is_kept(tmp_path: Path, open_page: Any) -> None:
    """500 words cannot be saved; a pasted text can, and the record says so."""
    folder = tmp_path / "study"
    make_study(folder, "describe", count=3)
    with served(folder) as server:
        page = open_page(server.addresses["a1"])
        page.locator("textarea#description").fill("word " * 500)
        assert page.locator("#words").inner_text() == "500 of at most 499 words"
        assert page.get_by_role("button", name="Save").is_disabled()
        page.locator("textarea#description").fill("")
        page.evaluate(
            """() => {
              const data = new DataTransfer();
              data.setData("text/plain", "a red square");
              const event = new ClipboardEvent("paste", { clipboardData: data, bubbles: true });
              document.getElementById("description").dispatchEvent(event);
            }"""
        )
        page.locator("textarea#description").type("a red square")
        press(page, "Control+Enter")
    (vote,) = records(folder)
    assert (vote["text"], vote["words"], vote["pasted"]) == ("a red square", 3, True)


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_pages_are_accessible(task: Task, dark: bool, tmp_path: Path, open_page: Any) -> None:
    """No violation that axe-core finds, at 1280 and at 320 pixels, where nothing is cut off."""
    axe = axe_core()
    folder = tmp_path / "study"
    make_study(folder, task, count=4)
    scheme = {"color_scheme": "dark" if dark else "light", "bypass_csp": True}
    with served(folder) as server:
        page = open_page(server.addresses["a1"], **scheme)
        for width in (1280, 320):
            page.set_viewport_size({"width": width, "height": 740})
            page.evaluate(axe)
            found = page.evaluate(
                "axe.run(document, { runOnly: ['wcag2a', 'wcag2aa', 'best-practice'] })"
            )
            problems = [
                (problem["id"], problem["nodes"][0]["html"]) for problem in found["violations"]
            ]
            assert problems == []
            assert page.evaluate("document.documentElement.scrollWidth") <= width
        page.goto(server.addresses["operator"])
        page.evaluate(axe)
        found = page.evaluate("axe.run(document)")
        assert [problem["id"] for problem in found["violations"]] == []


def test_a_screen_reader_hears_all_of_it(pair: tuple[Path, Server], open_page: Any) -> None:
    """Headings, the parts of both answers, buttons by name; the state is announced."""
    _, server = pair
    page = open_page(server.addresses["a1"])
    tree = page.locator("body").aria_snapshot()
    for expected in (
        'heading "Which answer is better?" [level=1]',
        'region "Question"',
        'group "A, step 1"',
        'group "B, step 1"',
        'img "answer A, image of step 1"',
        'group "Your answer"',
        'button "A is better 1"',
        'navigation "Tools"',
    ):
        assert expected in tree, tree
    assert page.get_by_role("status").count() == 1
    stops = []
    for _ in range(5):
        page.keyboard.press("Tab")
        stops.append(page.evaluate("document.activeElement.textContent.trim()"))
    assert stops == [
        "Errors of the answers",
        "A is better 1",
        "Tie, A slightly 2",
        "Tie, B slightly 3",
        "B is better 4",
    ]


def test_the_operator_sees_progress_and_no_verdicts(
    pair: tuple[Path, Server], open_page: Any
) -> None:
    """Who did how much, and agreement, never for whom."""
    _, server = pair
    page = open_page(server.addresses["a1"])
    for _ in range(3):
        press(page, "1")
    operator = page.context.new_page()
    operator.goto(server.addresses["operator"])
    text = operator.locator("main").inner_text()
    assert "Verdicts so far" not in text
    row = operator.locator("tbody tr").first.inner_text().split()
    assert row[:2] == ["a1", "3"]
