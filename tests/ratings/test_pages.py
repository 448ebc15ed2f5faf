"""The pages as annotators use them: keys, reloads, a lost connection, what they give away.

A real server process, and real key presses in Chromium.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pytest_cepbench.cli import main
from pytest_cepbench.ratings.folder import Ratings, read_ratings, read_votes
from pytest_cepbench.ratings.items import begin_study, make_item
from pytest_cepbench.ratings.records import TASKS, Part, Study, Task
from tests.construction.scenes import write_scenes
from tests.optional import needs
from tests.ratings.serving import (
    Server,
    press,
    records,
    request,
    see,
    served,
    slot,
)
from tests.ratings.studies import BLUE, HOSTILE, NAMES, RED, SAMPLE, make_study
from tests.report.pages import axe_core

needs("starlette")

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


def kept(page: Any) -> list[str]:
    """Names of the answers that a page keeps in its browser."""
    return [name for name in page.evaluate("Object.keys(localStorage)") if " answer " in str(name)]


def test_markup_of_models_stays_text(pair: tuple[Path, Server], open_page: Any) -> None:
    """Neither scripts nor attributes of answers do anything, and all of it can be read. Errors of
    answers are kept with the vote, and the next item has none.
    """
    folder, server = pair
    page = open_page(server.addresses["a1"])
    first = page.locator("[data-side=A] .words").inner_text()
    side = "A" if first.startswith("It is red") else "B"
    page.get_by_text("Errors of the answers").click()
    page.locator(f"input.error[data-of={side}][value=factual]").check()
    shown = ""
    for number in range(12):
        shown += page.locator("main").inner_text()
        if number < 11:
            press(page, "1")
            assert page.locator("input.error:checked").count() == 0
    assert records(folder)[0]["errors"] == {"first": ["factual"]}
    assert HOSTILE[0] in shown
    assert HOSTILE[1] in shown
    assert "\\u202e" in shown
    assert page.evaluate("window.hacked") is None
    assert page.locator("main script, main img[src=x]").count() == 0


def test_answers_wait_for_the_connection(pair: tuple[Path, Server], open_page: Any) -> None:
    """Offline the page says so and keeps answers, over a reload too; online each is saved once.

    Only what the server itself calls wrong is dropped, whatever lies between answers.
    """
    folder, server = pair
    page = open_page(server.addresses["a2"])
    page.wait_for_load_state("networkidle")
    page.context.set_offline(True)
    page.keyboard.press("1")
    page.get_by_text("1 answer is kept in this browser").wait_for()
    see(page)
    page.keyboard.press("4")
    page.get_by_text("2 answers are kept in this browser").wait_for()
    page.get_by_text("No connection to the server. This page").wait_for()
    page.keyboard.press("1")  # nothing is shown that it could answer
    assert not (folder / "votes" / "a2.jsonl").read_text()
    page.context.set_offline(False)
    page.get_by_text("saved", exact=True).wait_for()
    page.wait_for_selector("[data-slot]")
    assert [vote["verdict"] for vote in records(folder, "a2")] == ["A", "B"]
    assert not page.locator("#warning").is_visible()
    page.route("**/vote", lambda route: route.fulfill(status=400, body="Invalid host header"))
    answer_alone(page, "1", 1)
    page.unroute("**/vote")
    page.get_by_text("saved", exact=True).wait_for()
    assert [vote["verdict"] for vote in records(folder, "a2")] == ["A", "B", "A"]


def test_an_answer_whose_reply_was_lost_is_kept_once(
    pair: tuple[Path, Server], open_page: Any
) -> None:
    """The server has it, the page does not know: sent again, it is not written again. Nor is more
    taken back where the reply to that was lost.
    """
    folder, server = pair
    page = open_page(server.addresses["a3"])
    lost: list[Any] = []

    def lose(route: Any) -> Any:
        if lost:
            return route.continue_()
        lost.append(route.fetch())
        return route.abort()

    page.route("**/vote", lose)
    page.keyboard.press("1")
    page.get_by_text("1 answer is kept in this browser").wait_for()
    assert len(records(folder, "a3")) == 1
    page.reload()
    page.wait_for_selector("[data-slot]")
    page.get_by_text("saved", exact=True).wait_for()
    assert len(records(folder, "a3")) == 1
    assert page.evaluate("localStorage.length") == 0
    page.unroute("**/vote")
    lost.clear()
    press(page, "4")
    page.route("**/undo", lose)
    for said in ("No connection: try again to take it back.", "taken back"):
        page.keyboard.press("u")
        page.get_by_text(said).wait_for()
    assert [vote.get("undo", False) for vote in records(folder, "a3")] == [False, False, True]


def test_an_answer_needs_a_look(pair: tuple[Path, Server], open_page: Any) -> None:
    """Six quick presses are one answer; a press every 0.3 s is one each, and is told when not."""
    folder, server = pair
    page = open_page(server.addresses["a4"])
    # The page's own clock, which stands still while a busy machine takes its time.
    page.evaluate(
        "() => { let now = performance.now(); performance.now = () => now; "
        "window.pass = (time) => { now += time; }; }"
    )
    with page.expect_response(re.compile("/vote$")):
        for _ in range(6):
            page.keyboard.press("2")
    page.wait_for_timeout(400)
    assert len(records(folder, "a4")) == 1
    page.evaluate("pass(400)")
    press(page, "1")
    page.keyboard.press("1")
    assert page.locator("#status").inner_text() == "not counted: this item has only just come"
    for _ in range(5):
        page.evaluate("pass(300)")
        press(page, "4")
    assert [vote["verdict"] for vote in records(folder, "a4")] == ["Tie(A)", "A", *"BBBBB"]


DENIED = """for (const name of ["localStorage", "sessionStorage"]) {
  Object.defineProperty(window, name, { get() { throw new DOMException("", "SecurityError"); } });
}"""


def test_keys_work_at_the_end(tmp_path: Path, open_page: Any) -> None:
    """The last answer can be taken back, and help be read; also after a reload, and where the
    browser keeps nothing of any page.
    """
    folder = tmp_path / "study"
    make_study(folder, "pair", count=2)
    with served(folder) as server:
        page = open_page(server.addresses["a1"])
        press(page, "1")
        last = slot(page)
        page.add_init_script(DENIED)
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
            page.keyboard.press("U")  # as with Caps Lock
            assert slot(page) == last
            assert page.get_by_role("button", name="Skip").is_visible()


def test_answers_outlast_an_address_that_is_not_known(tmp_path: Path, open_page: Any) -> None:
    """Such as of another study on this port: the page says so, and sends them when it is back."""
    folder = tmp_path / "study"
    page, port = left_alone(folder, open_page)
    answer_alone(page, "1", 1)
    item = make_item("pair", [Part(text="?")], [[Part(text="a")], [Part(text="b")]])
    begin_study(tmp_path / "other", Study(kind="pair", annotators=("zed",)), [item], {})
    with served(tmp_path / "other", f"--port={port}"):
        page.get_by_text("The server does not know this address").wait_for()
        assert "1 answer is kept" in page.locator("#warning").inner_text()
    assert records(folder) == []
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
    assert len(kept(second)) == 2
    third = first.context.new_page()
    first.close()
    second.close()
    with served(folder, f"--port={port}"):
        third.goto(address)
        third.wait_for_selector("[data-slot]")
        third.get_by_text("saved", exact=True).wait_for()
    assert [vote["verdict"] for vote in records(folder)] == ["Tie(A)", "A", "B"]
    assert kept(third) == []


def test_what_is_wrong_in_itself_is_dropped_and_told(tmp_path: Path, open_page: Any) -> None:
    """It would be refused for ever: the person is told, and the answer behind it is saved."""
    folder = tmp_path / "study"
    page, port = left_alone(folder, open_page)
    answer_alone(page, "1", 1)
    (name,) = kept(page)
    wrong = json.loads(page.evaluate("(name) => localStorage.getItem(name)", name))
    wrong["slot"] = "0" * 32
    page.evaluate("([name, text]) => localStorage.setItem(name, text)", [name, json.dumps(wrong)])
    page.close()
    with served(folder, f"--port={port}") as server:
        page = page.context.new_page()
        page.goto(server.addresses["a1"])
        page.get_by_text("An answer was refused, and is not saved: an answer to").wait_for()
        page.wait_for_selector("#help-dialog[open]")  # a new tab shows what to look at
        page.keyboard.press("Escape")
        assert kept(page) == []
        press(page, "4")
        assert page.locator("#warning").is_visible()  # it cannot be missed
    assert [vote["verdict"] for vote in records(folder)] == ["B"]


ANSWERS: dict[Task, list[str]] = {
    "pair": ["3"],
    "caption": ["2"],
    "grades": ["g", "1", "m", "2", "p", "2", "Enter"],
    "describe": ["h", "i", "Control+Enter"],
    "verify": ["1", "3", "1", "Enter"],
}


@pytest.fixture(scope="module", params=TASKS)
def asked(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Task, Path, Ratings, Server]]:
    """A small study of each task with its server: what `a1` answers does not concern `a2`."""
    folder = tmp_path_factory.mktemp(request.param) / "study"
    ratings = make_study(folder, request.param, count=4, overlap=2, attention=0.3, repeats=0.3)
    with served(folder) as server:
        yield request.param, folder, ratings, server


def test_every_task_has_keys(asked: tuple[Task, Path, Ratings, Server], open_page: Any) -> None:
    """An item of each task is judged, and one is skipped with a reason and a note. Nothing that is
    fetched meanwhile names a model: addresses, headers, pages, images, byte for byte.
    """
    task, folder, ratings, server = asked
    fetched: list[bytes] = []

    def keep(response: Any) -> None:
        parts = [response.url, json.dumps(response.all_headers()), response.request.post_data or ""]
        fetched.append("\n".join(parts).encode() + response.body())

    page = open_page(server.addresses["a1"])
    page.on("requestfinished", lambda finished: keep(finished.response()))
    page.reload()
    page.wait_for_selector("[data-slot]")
    page.wait_for_load_state("networkidle")
    pictures = [own.get_attribute("src") for own in page.locator("img.picture").all()]
    fetched += [request(server.addresses["a1"], name).body for name in pictures]
    if task == "verify":
        page.locator("summary").click()
        page.locator("input.other").check()
    if task == "grades":
        rank = page.locator("select").first
        for key, chosen in (("ArrowDown", "1"), ("ArrowUp", "")):
            rank.press(key)
            assert rank.input_value() == chosen
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
    press(page, "Control+1", "2")  # the first one is the browser's
    answer, skipped = records(folder)
    expected: dict[Task, dict[str, Any]] = {
        "pair": {"verdict": "Tie(B)", "tie": True},
        "caption": {"verdict": "B", "winner": "comparable"},
        "describe": {"text": "hi", "words": 1, "pasted": False},
        "verify": {"ticked": ['<b onclick="window.hacked = 3">Motion</b>'], "added": [NAMES[3]]},
        "grades": {},
    }
    assert answer.items() >= expected[task].items()
    if task == "grades":
        first, *others = answer["shown"]
        assert answer["grades"][str(first)] == "good"
        assert answer["ranking"] == [first, sorted(others)]
    assert [skipped[name] for name in ("skip", "note")] == [
        "offensive or disturbing",
        "both images are black",
    ]
    assert len(read_votes(read_ratings(folder)).counted) == 2
    content = b"\n".join(fetched)
    assert len(fetched) >= 5
    secrets = {RED, BLUE, SAMPLE, "sources.jsonl", "toy", str(folder), *ratings.items}
    secrets |= {source.option for source in ratings.sources} - {""}
    secrets |= {path.stem for path in (folder / "images").iterdir()}
    assert [name for name in secrets if name.encode() in content] == []
    assert b"EXIF" not in content
    assert b"XMP" not in content


def test_a_description_is_counted_and_can_be_changed(tmp_path: Path, open_page: Any) -> None:
    """500 words cannot be saved; a pasted text can, and the record says so. Taken back it is there
    again, and what it becomes is a record of its own.
    """
    folder = tmp_path / "study"
    make_study(folder, "describe", count=3)
    with served(folder) as server:
        page = open_page(server.addresses["a1"])
        first, description = slot(page), page.locator("textarea#description")
        description.fill("word " * 500)
        assert page.locator("#words").inner_text() == "500 of at most 499 words"
        assert page.get_by_role("button", name="Save").is_disabled()
        description.fill("")
        page.evaluate(
            """() => {
              const data = new DataTransfer();
              data.setData("text/plain", "a red square");
              const event = new ClipboardEvent("paste", { clipboardData: data, bubbles: true });
              document.getElementById("description").dispatchEvent(event);
            }"""
        )
        description.type("a red square")
        press(page, "Control+Enter")
        assert page.input_value("#description") == ""
        page.get_by_role("button", name="Undo").click()
        page.get_by_text("taken back").wait_for()
        assert (slot(page), page.input_value("#description")) == (first, "a red square")
        assert page.locator(".count").inner_text() == "3"
        description.press("End")
        page.keyboard.type(" in a frame")
        press(page, "Control+Enter")
    before, undone, after = records(folder)
    assert undone["undo"]
    assert (before["text"], before["words"], before["pasted"]) == ("a red square", 3, True)
    assert (after["text"], after["pasted"]) == ("a red square in a frame", True)


def test_what_is_filled_in_is_kept_while_others_answer(tmp_path: Path, open_page: Any) -> None:
    """It stays when somebody else was first, and a reload asks before it is gone."""
    folder = tmp_path / "study"
    make_study(folder, "describe", count=3, overlap=1)
    with served(folder) as server:
        page = open_page(server.addresses["a1"])
        item = slot(page)
        page.keyboard.type("A red frame")
        shown = request(server.addresses["a1"], "upcoming").content["items"][0]["images"]
        other, same = server.addresses["a2"], False
        while not same:
            given = request(other, "upcoming").content["items"][0]
            same = given["images"] == shown
            own = {"text": "Red"} if same else {"skip": "broken image"}
            request(other, "vote", {"key": given["slot"], "slot": given["slot"], **own})
        with page.expect_response(re.compile("/upcoming$")):
            page.evaluate("dispatchEvent(new Event('online'))")
        see(page)
        assert (slot(page), page.input_value("#description")) == (item, "A red frame")
        asked: list[str] = []

        def dismiss(dialog: Any) -> None:
            asked.append(dialog.type)
            dialog.dismiss()

        page.on("dialog", dismiss)
        page.evaluate("location.reload()")
        see(page)
        assert asked == ["beforeunload"]


def test_pages_are_accessible(asked: tuple[Task, Path, Ratings, Server], open_page: Any) -> None:
    """No violation that axe-core finds, light and dark, at 1280 and at 320 pixels, where nothing is
    cut off.
    """
    axe = axe_core()
    *_, server = asked
    page = open_page(server.addresses["a2"], bypass_csp=True)
    page.evaluate(axe)
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        for width in (1280, 320):
            page.set_viewport_size({"width": width, "height": 740})
            found = page.evaluate(
                "axe.run(document, { runOnly: ['wcag2a', 'wcag2aa', 'best-practice'] })"
            )
            problems = [
                (problem["id"], problem["nodes"][0]["html"]) for problem in found["violations"]
            ]
            assert problems == [], (scheme, width)
            assert page.evaluate("document.documentElement.scrollWidth") <= width


NAMED = "<b onclick='window.hacked = 1'>Count</b><script>window.hacked = 2</script>"


def test_labels_are_ticked_and_counted(
    tmp_path: Path, open_page: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Markup in a pattern's name is text; what is ticked is the label of the frozen set."""
    monkeypatch.chdir(tmp_path)
    write_scenes(tmp_path / "photos", 16)
    (tmp_path / "names.toml").write_text(
        f'[[pattern]]\nname = "{NAMED}"\nsentence = "{NAMED}"\n[[pattern]]\nname = "Count"\n'
    )
    words = ["--describer=shapes:", "--patterns=names.toml", "--per-pattern=2", "--out=bench"]
    assert main(["dataset", "patterns", "photos", *words]) == 0
    with served(tmp_path / "bench", "--annotators=ada", words=("dataset", "verify")) as server:
        page = open_page(server.addresses["ada"])
        assert page.get_by_text(NAMED).first.is_visible()
        assert page.locator("input:checked").count() == 0  # what the model said is not shown
        press(page, "2", "1", "Enter")
        assert page.evaluate("window.hacked") is None

    (vote, *_) = [v for v in records(tmp_path / "bench/ratings", "ada") if v["kind"] == "item"]
    assert (sorted(vote["ticked"]), vote["unticked"]) == ([NAMED, "Count"], [])
    assert main(["dataset", "freeze", "bench", "--unverified"]) == 0
    frozen = (tmp_path / "bench/frozen/bench-images.jsonl").read_text()
    assert frozen.count("hacked = 1") == 1
