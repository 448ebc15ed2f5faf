"""The pages as annotators use them: keys, reloads, a lost connection.

A real server process, and real key presses in Chromium.
"""

from __future__ import annotations

import re
import signal
from pathlib import Path
from typing import Any

import pytest

from pytest_cepbench.artifacts import ImageArtifact
from pytest_cepbench.ratings.folder import read_ratings, read_votes
from pytest_cepbench.ratings.items import make_item, write_study
from pytest_cepbench.ratings.records import Part, Study
from tests.ratings.serving import Server, press, records, see, served, slot, slots
from tests.ratings.studies import HOSTILE, make_study, picture

pytest.importorskip("starlette")

pytestmark = pytest.mark.slow


def red_side(page: Any) -> str:
    """The side of the red answer, whatever it is called."""
    texts = [page.locator(f"[data-side={side}] .words").inner_text() for side in "AB"]
    return "A" if texts[0].startswith("It is red") else "B"


def test_a_study_is_rated_by_keyboard_alone(pair: tuple[Path, Server], open_page: Any) -> None:
    """Each key is a verdict; all is done after the last item, and nothing was clicked."""
    folder, server = pair
    page = open_page(server.addresses["a1"])
    for number in range(11):
        press(page, "1234"[number % 4])
    see(page)
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
                see(page)
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
    see(page)
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
    see(page)
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


def test_a_double_click_is_one_answer(pair: tuple[Path, Server], open_page: Any) -> None:
    """The second click would be an answer to an item that nobody has seen."""
    folder, server = pair
    page = open_page(server.addresses["a1"])
    page.get_by_role("button", name="A is better").dblclick(delay=20)
    page.get_by_text("saved", exact=True).wait_for()
    see(page)
    page.get_by_role("button", name="Skip").click()
    page.get_by_role("button", name="Cannot be decided").dblclick()
    page.wait_for_timeout(500)
    assert [vote.get("verdict", vote.get("skip")) for vote in records(folder)] == [
        "A",
        "cannot be decided",
    ]


def test_an_answer_needs_a_look(pair: tuple[Path, Server], open_page: Any) -> None:
    """Six quick presses are one answer; a press every 0.3 s is one each, and is told when not."""
    folder, server = pair
    page = open_page(server.addresses["a1"])
    # The page's own clock, which stands still while a busy machine takes its time.
    page.evaluate(
        "() => { let now = performance.now(); performance.now = () => now; "
        "window.pass = (time) => { now += time; }; }"
    )
    with page.expect_response(re.compile("/vote$")):
        for _ in range(6):
            page.keyboard.press("2")
    page.wait_for_timeout(400)
    assert len(records(folder)) == 1
    page.evaluate("pass(400)")
    press(page, "1")
    page.keyboard.press("1")
    assert page.locator("#status").inner_text() == "not counted: this item has only just come"
    for _ in range(5):
        page.evaluate("pass(300)")
        press(page, "4")
    assert [vote["verdict"] for vote in records(folder)] == ["Tie(A)", "A", *"BBBBB"]


def test_quick_clicks_of_a_fast_person_count(pair: tuple[Path, Server], open_page: Any) -> None:
    """One every 0.6 s at the same place: slower than a double click."""
    folder, server = pair
    page = open_page(server.addresses["a1"])
    box = page.get_by_role("button", name="A is better").bounding_box()
    for _ in range(5):
        page.wait_for_timeout(600)
        page.mouse.click(box["x"] + 20, box["y"] + 20)
    page.wait_for_timeout(500)
    assert [vote["verdict"] for vote in records(folder)] == ["A"] * 5


def test_keys_work_at_the_end(tmp_path: Path, open_page: Any) -> None:
    """The last answer can be taken back, and help be read; also after a reload."""
    folder = tmp_path / "study"
    make_study(folder, "pair", count=2)
    with served(folder) as server:
        page = open_page(server.addresses["a1"])
        press(page, "1")
        last = slot(page)
        for reload in (False, True):
            see(page)
            page.keyboard.press("4")
            page.get_by_text("All done. Thank you!").wait_for()
            if reload:
                page.reload()
                page.get_by_text("All done. Thank you!").wait_for()
            assert page.locator("#progress").inner_text() == "2 done"
            assert not page.get_by_role("button", name="Skip").is_visible()
            page.keyboard.press("?")
            page.get_by_role("dialog", name="Help").wait_for()
            page.keyboard.press("Escape")
            page.keyboard.press("u")
            assert slot(page) == last
            assert page.get_by_role("button", name="Skip").is_visible()


@pytest.mark.parametrize("size", [(1280, 800), (390, 844)])
def test_the_answers_are_enlarged_and_stay_in_view(
    size: tuple[int, int], tmp_path: Path, open_page: Any
) -> None:
    """Space enlarges their images; that of the question grows where it is clicked alone."""
    folder = tmp_path / "study"
    images = [picture(number, 0) for number in range(3)]
    tall = [ImageArtifact(image.pixels.repeat(20, axis=0).repeat(14, axis=1)) for image in images]
    parts = [Part(image=image.digest) for image in tall]
    item = make_item("pair", [Part(text="Which?"), parts[0]], [[parts[1]], [parts[2]]])
    study = Study(kind="pair", annotators=("a1",), practice=0, attention=0, repeats=0)
    write_study(folder, study, [item], {image.digest: image for image in tall})
    with served(folder) as server:
        page = open_page(server.addresses["a1"], viewport={"width": size[0], "height": size[1]})

        def height(selector: str) -> float:
            return float(page.locator(selector).first.bounding_box()["height"])

        question, answer = height(".question .picture"), height(".step .picture")
        page.keyboard.press(" ")
        assert height(".question .picture") == question
        assert height(".step .picture") > answer
        assert page.locator(".step .picture").first.bounding_box()["y"] < size[1] * 0.6
        page.locator(".question .picture").click()
        assert height(".question .picture") > 1.3 * question
        page.locator(".question .picture").click()
        assert height(".question .picture") == question


def test_both_answers_are_seen_before_a_vote_counts_on_a_phone(
    pair: tuple[Path, Server], open_page: Any
) -> None:
    """In a column the second answer lies below the fold: a vote before it was in view is none."""
    folder, server = pair
    page = open_page(server.addresses["a1"], viewport={"width": 390, "height": 500})
    before = slot(page)
    verdicts = page.locator("[data-verdict][aria-disabled=true]")
    assert verdicts.count() == 4
    for side in "AB":
        page.keyboard.press("1")
        page.get_by_text(f"not counted: see {side}, step 1 first").wait_for()
        see(page)  # it was scrolled into view
    page.wait_for_selector("[data-verdict][aria-disabled=false]")
    assert slot(page) == before
    assert not (folder / "votes" / "a1.jsonl").read_text()
    press(page, "1")
    assert [vote["verdict"] for vote in records(folder)] == ["A"]


def test_errors_of_answers_are_ticked_and_come_back_with_undo(
    pair: tuple[Path, Server], open_page: Any
) -> None:
    """They are kept with the vote, and beside it until then, as a reload shows."""
    folder, server = pair
    page = open_page(server.addresses["a1"])
    side = red_side(page)
    page.get_by_text("Errors of the answers").click()
    page.locator(f"input.error[data-of={side}][value=factual]").check()
    page.reload()
    slot(page)
    assert page.locator(f"input.error[data-of={side}][value=factual]").is_checked()
    press(page, "1")
    assert page.locator("input.error:checked").count() == 0
    assert records(folder)[0]["errors"] == {"first": ["factual"]}
    page.keyboard.press("u")
    page.get_by_text("taken back").wait_for()
    assert page.locator("input.error:checked").get_attribute("value") == "factual"
