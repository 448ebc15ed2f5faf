"""Answers and drafts that a page keeps in its browser until the server has them.

A real server process, and real key presses in Chromium.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pytest_cepbench.ratings.records import Task
from tests.ratings.serving import Server, press, records, request, see, served, slot
from tests.ratings.studies import make_study

pytest.importorskip("starlette")

pytestmark = pytest.mark.slow


def end(server: Server) -> int:
    """Kill a server as a crash does. Returns its port."""
    server.process.kill()
    server.process.wait()
    return server.port


def left_alone(folder: Path, open_page: Any) -> tuple[Any, int]:
    """A page of a new study of pairs whose server was killed, and the port that it had."""
    make_study(folder, "pair")
    with served(folder) as server:
        page = open_page(server.addresses["a1"])
        page.wait_for_load_state("networkidle")
        return page, end(server)


def answer_alone(page: Any, key: str, kept: int) -> None:
    """Answer without a server, and wait until the page says how many answers it keeps."""
    see(page)
    page.keyboard.press(key)
    page.get_by_text(f"{kept} answer{'s are' if kept > 1 else ' is'} kept").wait_for()


def kept(page: Any, kind: str) -> list[str]:
    """Names of what a page keeps in its browser. kind: answer or draft."""
    return [name for name in page.evaluate("Object.keys(localStorage)") if f" {kind} " in str(name)]


def test_answers_outlast_a_change_of_the_consent(tmp_path: Path, open_page: Any) -> None:
    """The new text is shown without a reload; both answers are sent when it is agreed to."""
    folder = tmp_path / "study"
    page, port = left_alone(folder, open_page)
    answer_alone(page, "1", 1)
    answer_alone(page, "4", 2)
    with (folder / "consent.md").open("a") as stream:
        stream.write("\n- One more point.\n")
    with served(folder, f"--port={port}"):
        page.get_by_text("One more point.").wait_for()
        assert "has changed: read it and agree" in page.locator("#warning").inner_text()
        assert "2 answers are kept" in page.locator("#warning").inner_text()
        assert len(kept(page, "answer")) == 2
        page.keyboard.press("u")  # nothing is done before it is agreed to
        page.reload()
        page.click("#agree")
        page.get_by_text("saved", exact=True).wait_for()
        page.wait_for_selector("[data-slot]")
        assert not page.locator("#warning").is_visible()
    assert [vote["verdict"] for vote in records(folder)] == ["A", "B"]
    assert kept(page, "answer") == []


def test_answers_outlast_an_address_that_is_not_known(tmp_path: Path, open_page: Any) -> None:
    """Such as of another study on this port: the page says so, and sends them when it is back."""
    folder = tmp_path / "study"
    page, port = left_alone(folder, open_page)
    answer_alone(page, "1", 1)
    session = (folder / "session.json").read_bytes()
    (folder / "session.json").unlink()
    with served(folder, f"--port={port}"):
        page.get_by_text(
            "The server does not know this address. Reload this page, or ask"
        ).wait_for()
        assert "1 answer is kept" in page.locator("#warning").inner_text()
    assert records(folder) == []
    (folder / "session.json").write_bytes(session)
    with served(folder, f"--port={port}"):
        page.get_by_text("saved", exact=True).wait_for()
    assert [vote["verdict"] for vote in records(folder)] == ["A"]


def test_two_pages_of_one_person_keep_an_answer_each(tmp_path: Path, open_page: Any) -> None:
    """Both are closed before the server is back; the next page sends both."""
    folder = tmp_path / "study"
    make_study(folder, "pair")
    with served(folder) as server:
        address = server.addresses["a1"]
        first = open_page(address)
        press(first, "2")
        second = first.context.new_page()
        second.goto(address)
        second.wait_for_selector("[data-slot]")
        assert slot(first) == slot(second)
        port = end(server)
    answer_alone(first, "1", 1)
    answer_alone(second, "4", 2)  # it takes over that of the first one
    assert len(kept(second, "answer")) == 2
    third = first.context.new_page()
    first.close()
    second.close()
    with served(folder, f"--port={port}"):
        third.goto(address)
        third.wait_for_selector("[data-slot]")
        third.get_by_text("saved", exact=True).wait_for()
    assert [vote["verdict"] for vote in records(folder)] == ["Tie(A)", "A", "B"]
    assert kept(third, "answer") == []


def test_what_is_wrong_in_itself_is_dropped_and_told(tmp_path: Path, open_page: Any) -> None:
    """It would be refused for ever: the person is told, and the answer behind it is saved."""
    folder = tmp_path / "study"
    page, port = left_alone(folder, open_page)
    answer_alone(page, "1", 1)
    (name,) = kept(page, "answer")
    wrong = json.loads(page.evaluate("(name) => localStorage.getItem(name)", name))
    wrong["slot"] = "0" * 32
    page.evaluate("([name, text]) => localStorage.setItem(name, text)", [name, json.dumps(wrong)])
    page.close()
    with served(folder, f"--port={port}") as server:
        page = page.context.new_page()
        page.goto(server.addresses["a1"])
        page.get_by_text("An answer was refused, and is not saved: an answer to").wait_for()
        assert kept(page, "answer") == []
        page.wait_for_selector("[data-slot]")
        press(page, "4")
        assert page.locator("#warning").is_visible()  # it cannot be missed
    assert [vote["verdict"] for vote in records(folder)] == ["B"]


def test_what_a_proxy_refuses_is_no_fault_of_an_answer(
    pair: tuple[Path, Server], open_page: Any
) -> None:
    """Only what the server itself calls wrong is dropped, whatever lies between answers."""
    folder, server = pair
    page = open_page(server.addresses["a1"])
    page.wait_for_load_state("networkidle")
    page.route("**/vote", lambda route: route.fulfill(status=400, body="Invalid host header"))
    answer_alone(page, "1", 1)
    page.unroute("**/vote")
    page.get_by_text("saved", exact=True).wait_for()
    assert [vote["verdict"] for vote in records(folder)] == ["A"]


def test_a_description_outlasts_a_reload(tmp_path: Path, open_page: Any) -> None:
    """So does a note; what is saved is kept no longer, and the next item is empty."""
    folder = tmp_path / "study"
    make_study(folder, "describe", count=3)
    with served(folder) as server:
        page = open_page(server.addresses["a1"])
        page.keyboard.type("A red frame around")
        page.get_by_role("button", name="Note").click()
        page.keyboard.type("dark")
        page.keyboard.press("Escape")
        page.reload()
        page.wait_for_selector("[data-slot]")
        assert page.input_value("#description") == "A red frame around"
        assert page.locator(".count").inner_text() == "4"
        assert page.input_value("#note-text") == "dark"
        assert len(kept(page, "draft")) == 1
        page.locator("#description").press("End")
        page.keyboard.type(" a dark area")
        press(page, "Control+Enter")
        assert (page.input_value("#description"), page.input_value("#note-text")) == ("", "")
        assert kept(page, "draft") == []
    (vote,) = records(folder)
    assert (vote["text"], vote["note"]) == ("A red frame around a dark area", "dark")


FILLED: dict[Task, list[str]] = {
    "pair": ["3"],
    "caption": ["2"],
    "grades": ["g", "1", "m", "3", "p", "2", "Enter"],
    "describe": ["h", "i", "Control+Enter"],
    "verify": ["1", "3", "Enter"],
}


@pytest.mark.parametrize("task", FILLED)
@pytest.mark.parametrize("reload", [False, True], ids=["at once", "after a reload"])
def test_an_answer_that_is_taken_back_is_filled_in_again(
    task: Task, reload: bool, tmp_path: Path, open_page: Any
) -> None:
    """Saved once more as it is, it is the same answer; a draft keeps it over another reload."""
    folder = tmp_path / "study"
    make_study(folder, task, count=4)
    with served(folder) as server:
        page = open_page(server.addresses["a1"])
        if task == "verify":
            page.get_by_text("Other names (").click()
            page.locator("input.other").first.check()
            page.locator("main h1").focus()
        first = slot(page)
        press(page, *FILLED[task])
        if reload:
            page.reload()
            slot(page)
        page.get_by_role("button", name="Undo").click()
        page.get_by_text("taken back").wait_for()
        assert slot(page) == first
        if task in ("pair", "caption"):
            words = {"pair": "Tie, B slightly", "caption": "Comparable"}[task]
            assert page.locator("#status").inner_text() == f"taken back: {words}"
            return
        if reload:
            page.reload()
            slot(page)
        press(page, FILLED[task][-1])
    before, undone, after = records(folder)
    own = ("text", "pasted", "grades", "ranking", "ticked", "unticked", "added")
    assert undone["undo"]
    assert {name: before.get(name) for name in own} == {name: after.get(name) for name in own}


def test_a_draft_holds_nothing_but_what_a_person_did(tmp_path: Path, open_page: Any) -> None:
    """Its name is the opaque one of the item; neither texts nor images of models are in it."""
    folder = tmp_path / "study"
    ratings = make_study(folder, "grades", count=4)
    with served(folder) as server:
        page = open_page(server.addresses["a1"])
        page.keyboard.press("g")
        ((name, text),) = page.evaluate("Object.entries(localStorage)")
        assert name == f"cepbench /a/{server.addresses['a1'].split('/a/')[1]} draft {slot(page)}"
        form = json.loads(text)
        assert form.pop("grades") == ["good", "", ""]
        assert form == {
            "note": "", "text": "", "pasted": False, "ranks": [0, 0, 0], "ticked": [], "added": [],
            "errors": {},
        }  # fmt: skip
        shown = request(server.addresses["a1"], "upcoming").content["items"]
        assert slot(page) == shown[0]["slot"]
        assert slot(page) not in ratings.items
