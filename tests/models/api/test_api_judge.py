"""Judges over the API: what they are shown, and that a verdict is judged once."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from PIL import Image

from pytest_cepbench.artifacts import Failure
from pytest_cepbench.chains import RoleRunner
from pytest_cepbench.errors import ModelError, SpecError
from pytest_cepbench.models.binding import BoundRole
from pytest_cepbench.models.protocols import Battle, Judge
from pytest_cepbench.store import Store
from tests.chains.roles import verdicts_of
from tests.models.api.conftest import Load
from tests.models.api.fake_server import FakeServer, chat_answer
from tests.models.binding import bind_text

RED, BLUE = Image.new("RGB", (4, 4), "red"), Image.new("RGB", (4, 4), "blue")

BATTLE = Battle(["draw a circle"], ["here:", RED], [BLUE, "done"])


def test_a_judge_sees_question_and_answers_in_order(server: FakeServer, load: Load) -> None:
    """Every text and image, in the order of reading, under its heading; first is A, second B."""
    server.answer = lambda _: chat_answer("B is better")

    (reply,) = load("judge").judge([BATTLE], [0])

    (seen,) = server.seen
    shown = [part.get("text", "an image") for part in seen.body["messages"][1]["content"]]
    assert reply.value == "B"
    assert shown[:8] == [
        "Question:", "draw a circle", "Answer A:", "here:", "an image", "Answer B:", "an image",
        "done",
    ]  # fmt: skip
    assert [image.getpixel((0, 0)) for image in seen.images] == [(255, 0, 0), (0, 0, 255)]
    assert seen.body["messages"][0]["role"] == "system"


@pytest.mark.parametrize(
    ("prompt", "closing"),
    [
        ("opening-gpt", "\nPlease only output which model is better: "),
        (
            "opening-intjudge",
            (
                '\nPlease directly output "A is better" or "B is better" or "Tie(A is better)" or '
                '"Tie(B is better)": \n'
            ),
        ),
    ],
)
def test_a_preset_asks_as_the_released_scripts_do(
    server: FakeServer, load: Load, prompt: str, closing: str
) -> None:
    """Markers, numbers of images and the closing phrase are those of OpenING's judges."""
    server.answer = lambda _: chat_answer("Tie(B is better)")
    question = Battle(["draw a circle", RED], ["here:", RED, "then", BLUE], [BLUE, "done"])

    (reply,) = load("judge", f"prompt={prompt}").judge([question], [0])

    shown = [part.get("text") for part in server.seen[0].body["messages"][1]["content"]]
    assert reply.value == "Tie(B)"
    assert shown == [
        "<INPUT>: draw a circle <IMG_0></IMG_0>", None,
        "<OUTPUT_A>: here: <IMG_1></IMG_1>", None,
        "then <IMG_2></IMG_2>", None,
        "\n<OUTPUT_B>:  <IMG_3></IMG_3>", None,
        "done",
        closing,
    ]  # fmt: skip


def test_images_are_sent_no_larger_than_asked_for(server: FakeServer, load: Load) -> None:
    """One number bounds what a battle costs; shapes stay, small images are sent as they are."""
    server.answer = lambda _: chat_answer("B is better")
    battle = Battle([Image.new("RGB", (100, 50))], [RED], [Image.new("RGB", (30, 30))])

    load("judge", "max_pixels=800").judge([battle], [0])

    assert [image.size for image in server.seen[0].images] == [(40, 20), (4, 4), (28, 28)]


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("prompt=opening-gpt4", "Did you mean 'opening-gpt'"),
        ("max_pixels=0", "max_pixels must be at least 1, got 0"),
        ("max_pixel=9", "Did you mean 'max_pixels'"),
        ("logprobs=true", "several verdicts of prompt=criteria begin.*: add prompt=letters"),
        ("prompt=letters&top_logprobs=9", "top_logprobs needs logprobs=true"),
        ("prompt=letters&logprobs=true&top_logprobs=3", "at least 4, one token for each"),
    ],
)
def test_a_wrong_parameter_is_refused(server: FakeServer, query: str, message: str) -> None:
    """At binding, before anything is sent."""
    with pytest.raises(SpecError, match=message):
        bind_text(server.spec(query), "judge")


def test_a_verdict_is_stored_under_everything_it_depends_on(
    server: FakeServer, tmp_path: Path
) -> None:
    """Equal battles are judged once; other pieces, another order, another judge are asked anew."""
    server.answer = lambda _: chat_answer("Tie (A is better)")
    swapped = Battle(BATTLE.question, BATTLE.second, BATTLE.first)
    moved = Battle(["draw a circle", "here:"], [RED], BATTLE.second)

    def judged(query: str, *battles: Battle) -> list[object]:
        bound = bind_text(server.spec(query), "judge")
        return list(verdicts_of(RoleRunner(bound, store), battles, [0] * len(battles)))

    with Store(tmp_path / "store") as store:
        assert judged("", BATTLE, BATTLE, swapped, moved) == ["Tie(A)"] * 4
        assert len(server.seen) == 3
        assert judged("max_retry_wait=1", BATTLE, swapped, moved) == ["Tie(A)"] * 3
        assert len(server.seen) == 3
        judged("system_prompt=be strict", BATTLE)
        judged("revision=2", BATTLE)
        assert len(server.seen) == 5
        judged("prompt=opening-gpt", BATTLE)
        judged("max_pixels=9", BATTLE)
        assert len(server.seen) == 7


def test_an_answer_without_a_verdict_is_stored_as_what_it_is(
    server: FakeServer, tmp_path: Path
) -> None:
    """It would be given again; a battle without an answer is asked again."""
    server.answer = lambda _: chat_answer("I like both")

    with Store(tmp_path / "store") as store:
        for _ in range(2):
            (result,) = verdicts_of(
                RoleRunner(bind_text(server.spec(), "judge"), store), [BATTLE], [0]
            )
            assert isinstance(result, Failure)
            assert result.kind == "no-verdict"
    assert len(server.seen) == 1


class Longest:
    """A judge of the user's own: the answer with more pieces."""

    def judge(self, battles: Sequence[Battle], seeds: Sequence[int]) -> list[str]:
        """One verdict for each battle."""
        return ["A" if len(verdict.first) > len(verdict.second) else "draw" for verdict in battles]


def test_a_judge_of_ones_own_is_held_to_the_four_verdicts(tmp_path: Path) -> None:
    """A word that no policy of ties knows would be counted as a win of neither."""
    assert isinstance(Longest(), Judge)
    bound = BoundRole("judge", "own", "own", "own/1", "own/1", Longest)  # type: ignore[arg-type]

    with Store(tmp_path / "store") as store:
        longer = Battle([], ["a", "b"], ["c"])
        assert verdicts_of(RoleRunner(bound, store), [longer], [0]) == ["A"]
        with pytest.raises(ModelError, match=r"one of 'A', 'Tie\(A\)', 'Tie\(B\)', 'B' .*'draw'"):
            verdicts_of(RoleRunner(bound, store), [BATTLE], [0])
