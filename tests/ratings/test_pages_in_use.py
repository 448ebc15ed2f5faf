"""The pages as annotators use them: keys, reloads, a lost connection, a narrow screen, a reader.

A real server process, and real key presses in Chromium.
"""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pytest_cepbench.ratings.folder import read_ratings, read_votes
from pytest_cepbench.ratings.records import TASKS, Task
from tests.ratings.serving import Server, records, request, served, slots
from tests.ratings.studies import BLUE, HOSTILE, RED, SAMPLE, make_study
from tests.report.browser import axe_core

pytest.importorskip("starlette")

pytestmark = pytest.mark.slow


def slot(page: Any) -> str:
    """The opaque name of what is shown; waits for it."""
    name: str = page.locator("main").get_attribute("data-slot", timeout=10_000)
    return name


def press(page: Any, *keys: str) -> None:
    """Press keys, the last of which answers; waits until the answer is saved and the next shown."""
    before = slot(page)
    with page.expect_response(re.compile("/vote$")) as sent:
        for key in keys:
            page.keyboard.press(key)
    assert sent.value.status == 200
    page.wait_for_selector(f"main[data-slot]:not([data-slot='{before}'])")
    page.get_by_text("saved", exact=True).wait_for()


def red_side(page: Any) -> str:
    """The side of the red answer, whatever it is called."""
    texts = [page.locator(f"[data-side={side}] .words").inner_text() for side in "AB"]
    return "A" if texts[0].startswith("It is red") else "B"


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[tuple[Path, Server]]:
    """A study of pairs for two people, who judge every item, and its server."""
    make_study(tmp_path / "study", "pair", overlap=2, share=1.0)
    with served(tmp_path / "study") as server:
        yield tmp_path / "study", server


def test_a_study_is_rated_by_keyboard_alone(pair: tuple[Path, Server], open_page: Any) -> None:
    """Each key is a verdict; all is done after the last item, and nothing was clicked."""
    folder, server = pair
    page = open_page(server.addresses["a1"])
    for number in range(11):
        press(page, "1234"[number % 4])
    page.keyboard.press("4")
    page.get_by_text("All done. Thank you!").wait_for()
    votes = records(folder)
    assert [vote["verdict"] for vote in votes] == ["A", "Tie(A)", "Tie(B)", "B"] * 3
    assert len({vote["item"] for vote in votes}) == 12
    assert all(vote["browser"] == [1280, 800] and vote["seconds"] >= 0 for vote in votes)


def test_the_red_answer_wins_wherever_it_is(pair: tuple[Path, Server], open_page: Any) -> None:
    """Two people see each item with other sides, and the record says which answer won."""
    folder, server = pair
    seen: dict[str, list[str]] = {"a1": [], "a2": []}
    for name, sides in seen.items():
        page = open_page(server.addresses[name])
        for number in range(12):
            side = red_side(page)
            sides.append(side)
            if number < 11:
                press(page, "1" if side == "A" else "4")
            else:
                page.keyboard.press("1" if side == "A" else "4")
                page.get_by_text("All done").wait_for()
        assert sides.count("A") == 6
    by_item = [{vote["item"]: vote for vote in records(folder, name)} for name in seen]
    for item, vote in by_item[0].items():
        other = by_item[1][item]
        assert vote["winner"] == other["winner"] == "first"
        assert vote["shown"] == other["shown"][::-1]
        assert {vote["verdict"], other["verdict"]} == {"A", "B"}
    assert list(by_item[0]) != list(by_item[1])  # an order of one's own


def test_a_reload_goes_on_at_the_same_item(pair: tuple[Path, Server], open_page: Any) -> None:
    """Also in another browser."""
    folder, server = pair
    page = open_page(server.addresses["a1"])
    press(page, "1")
    press(page, "4")
    before = slot(page)
    page.reload()
    page.wait_for_selector("[data-slot]")
    assert slot(page) == before
    assert slot(open_page(server.addresses["a1"])) == before
    assert len(records(folder)) == 2


def test_a_killed_server_keeps_what_was_saved(tmp_path: Path, open_page: Any) -> None:
    """SIGKILL after "saved": the vote is there, and the next server goes on at the same item.

    An answer that was given while there was no server is sent to the next one, once.
    """
    folder = tmp_path / "study"
    make_study(folder, "pair")
    with served(folder) as server:
        page = open_page(server.addresses["a1"])
        press(page, "1")
        shown = slot(page)
        server.process.send_signal(signal.SIGKILL)
        server.process.wait()
        port = server.port
    assert [vote["verdict"] for vote in records(folder)] == ["A"]
    page.keyboard.press("4")
    page.get_by_text("1 answer is kept in this browser").wait_for()
    with served(folder, f"--port={port}") as server:
        page.get_by_text("saved", exact=True).wait_for()
        assert shown not in slots(server.addresses["a1"])
        page.wait_for_selector("[data-slot]")
        assert slot(page) == slots(server.addresses["a1"])[0]
    assert [vote["verdict"] for vote in records(folder)] == ["A", "B"]


def test_two_people_never_have_the_same_item(tmp_path: Path, open_page: Any) -> None:
    """Without overlap: neither what is shown nor what is loaded behind it."""
    folder = tmp_path / "study"
    make_study(folder, "pair", count=10)
    with served(folder) as server:
        pages = [open_page(server.addresses[name]) for name in ("a1", "a2")]
        for _ in range(3):
            for page in pages:
                press(page, "2")
        for page in pages:
            assert page.locator("main").get_attribute("data-slot")
    items = [{vote["item"] for vote in records(folder, name)} for name in ("a1", "a2")]
    assert [len(own) for own in items] == [3, 3]
    assert not items[0] & items[1]


def test_markup_of_models_stays_text(pair: tuple[Path, Server], open_page: Any) -> None:
    """Neither scripts nor attributes of answers do anything, and all of it can be read."""
    _, server = pair
    page = open_page(server.addresses["a1"])
    shown = ""
    for number in range(12):
        shown += page.locator("main").inner_text()
        if number < 11:
            press(page, "1")
    assert HOSTILE[0] in shown
    assert HOSTILE[1] in shown
    assert "\\u202e" in shown
    assert page.evaluate("window.hacked") is None
    assert page.locator("main script, main img[src=x]").count() == 0


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


def test_an_answer_is_taken_back(pair: tuple[Path, Server], open_page: Any) -> None:
    """The key u shows the item again; the new answer counts, and every record is kept."""
    folder, server = pair
    page = open_page(server.addresses["a1"])
    first = slot(page)
    press(page, "1")
    page.keyboard.press("u")
    page.get_by_text("taken back").wait_for()
    assert slot(page) == first
    press(page, "4")
    lines = records(folder)
    assert [line.get("undo", False) for line in lines] == [False, True, False]
    (answer,) = read_votes(read_ratings(folder)).answers()
    assert answer.verdict == "B"


def test_answers_wait_for_the_connection(pair: tuple[Path, Server], open_page: Any) -> None:
    """Offline the page says so and keeps answers, over a reload too; online each is saved once."""
    folder, server = pair
    page = open_page(server.addresses["a1"])
    page.wait_for_load_state("networkidle")
    page.context.set_offline(True)
    page.keyboard.press("1")
    page.get_by_text("1 answer is kept in this browser").wait_for()
    page.keyboard.press("4")
    page.get_by_text("2 answers are kept in this browser").wait_for()
    page.get_by_text("No connection to the server. This page").wait_for()
    page.keyboard.press("1")  # nothing is shown that it could answer
    assert not (folder / "votes" / "a1.jsonl").read_text()
    page.context.set_offline(False)
    page.get_by_text("saved", exact=True).wait_for()
    page.wait_for_selector("[data-slot]")
    assert [vote["verdict"] for vote in records(folder)] == ["A", "B"]
    assert not page.locator("#warning").is_visible()


def test_an_answer_whose_reply_was_lost_is_kept_once(
    pair: tuple[Path, Server], open_page: Any
) -> None:
    """The server has it, the page does not know: sent again, it is not written again."""
    folder, server = pair
    page = open_page(server.addresses["a1"])
    lost: list[Any] = []

    def lose(route: Any) -> Any:
        if lost:
            return route.continue_()
        lost.append(route.fetch())
        return route.abort()

    page.route("**/vote", lose)
    page.keyboard.press("1")
    page.get_by_text("1 answer is kept in this browser").wait_for()
    assert len(records(folder)) == 1
    page.reload()
    page.wait_for_selector("[data-slot]")
    page.get_by_text("saved", exact=True).wait_for()
    assert len(records(folder)) == 1
    assert page.evaluate("localStorage.length") == 0


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
    for _ in range(4):
        page.keyboard.press("Tab")
        stops.append(page.evaluate("document.activeElement.textContent.trim()"))
    assert stops == [
        "A is better 1",
        "Tie, A slightly 2",
        "Tie, B slightly 3",
        "B is better 4",
    ]


def test_the_next_item_is_there_at_once(pair: tuple[Path, Server], open_page: Any) -> None:
    """With a server that takes a second for each answer, the next item is shown before it."""
    _, server = pair
    page = open_page(server.addresses["a1"])
    page.wait_for_load_state("networkidle")
    before = slot(page)
    held: list[Any] = []
    page.route("**/vote", lambda route: held.append(route))  # noqa: PLW0108 - marks its function
    page.keyboard.press("1")
    page.wait_for_timeout(100)
    assert slot(page) != before
    assert page.locator("#status").inner_text() == "saving …"
    assert all(
        page.evaluate("[...document.querySelectorAll('img.picture')].map((i) => i.complete)")
    )
    held[0].continue_()
    page.get_by_text("saved", exact=True).wait_for()


def test_the_operator_sees_progress_and_no_verdicts(
    pair: tuple[Path, Server], open_page: Any
) -> None:
    """Who did how much, agreement, and whether bets are decided, never for whom."""
    _, server = pair
    page = open_page(server.addresses["a1"])
    for _ in range(3):
        press(page, "1")
    operator = page.context.new_page()
    operator.goto(server.addresses["operator"])
    text = operator.locator("main").inner_text()
    assert "undecided (3 items)" in text
    assert "Verdicts so far" not in text
    row = operator.locator("tbody tr").first.inner_text().split()
    assert row[:2] == ["a1", "3"]
