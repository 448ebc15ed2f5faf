"""Writers, VQA models and describers over the API: what is asked, and what is read."""

from __future__ import annotations

from typing import Any

import pytest
from PIL import Image

from pytest_cepbench.artifacts import Failure
from pytest_cepbench.construction.patterns import pattern_schema, summary_schema
from pytest_cepbench.errors import ModelError, SpecError
from pytest_cepbench.models.protocols import Reply, Vqa, VqaQuestion
from tests.models.api.conftest import Load
from tests.models.api.fake_server import FakeServer, chat_answer, fault, likely
from tests.models.binding import bind_text

RED, BLUE = Image.new("RGB", (4, 4), "red"), Image.new("RGB", (4, 4), "blue")


def test_a_question_keeps_the_order_of_its_parts(server: FakeServer, load: Load) -> None:
    """Several images in one message, the system prompts before it, room for a long answer."""
    model = load("writer", "system_prompt=be brief")

    (reply,) = model.write([["this", RED, "or", BLUE, "?"]], "Answer in steps.", [0])

    (seen,) = server.seen
    system, asked = seen.body["messages"]
    assert reply.value == "a red circle"
    assert system == {"role": "system", "content": "be brief\n\nAnswer in steps."}
    shown = [part.get("text", "an image") for part in asked["content"]]
    assert shown == ["this", "an image", "or", "an image", "?"]
    assert [image.getpixel((0, 0)) for image in seen.images] == [(255, 0, 0), (0, 0, 255)]
    assert seen.body["max_tokens"] == 2048


SCHEMA = pattern_schema(["Count"])


def describe_both(model: Any) -> list[Any]:
    """Ask about two images, with a prompt for each."""
    replies = model.describe_json([RED, BLUE], ["first?", "second?"], SCHEMA, [0, 1])
    return [reply.value for reply in replies]


def test_the_schema_is_sent_with_a_prompt_for_each_image(server: FakeServer, load: Load) -> None:
    """Strictly, with room for an object; descriptions are asked for as before."""
    server.answer = lambda _: chat_answer('{"image_pattern": []}')
    model = load("describer")

    assert describe_both(model) == ['{"image_pattern": []}'] * 2
    model.describe([RED], "plain", [0])
    first, second, plain = sorted(
        (seen.body for seen in server.seen), key=lambda body: str(body["messages"][0]["content"][1])
    )
    assert first["messages"][0]["content"][1]["text"] == "first?"
    form = first["response_format"]["json_schema"]
    assert (form["schema"], form["strict"]) == (SCHEMA, True)
    assert first["max_tokens"] == 2048
    assert plain["messages"][0]["content"][1]["text"] == "second?"
    assert "response_format" not in second
    assert second["max_tokens"] == 512


def test_an_open_schema_is_not_strict(server: FakeServer, load: Load) -> None:
    """Servers refuse a strict schema in which an object may have any key."""
    server.answer = lambda _: chat_answer("{}")
    model = load("writer")
    for schema in ({**summary_schema(), "additionalProperties": True}, summary_schema()):
        model.write_json([["?"]], "", schema, [0])

    strict = [seen.body["response_format"]["json_schema"]["strict"] for seen in server.seen]
    assert strict == [False, True]


def test_a_server_without_structured_output_is_asked_without(
    server: FakeServer, load: Load
) -> None:
    """The prompt says all that the schema says."""

    def answer(seen: Any) -> Any:
        if "response_format" in seen.body:
            return fault(400, "Unknown parameter: 'response_format'.", param="response_format")
        return chat_answer("{}")

    server.answer = answer

    assert describe_both(load("describer")) == ["{}"] * 2


FOUR = VqaQuestion("How many cats are in the image?", ("four", "Four", "4"))

YES = VqaQuestion("Is it red?", ("Yes", "yes"))


def _ask(load: Load, *questions: VqaQuestion, query: str = "", piece: object = RED) -> Reply:
    (reply,) = load("vqa", query).answer([piece], [list(questions)])
    assert isinstance(reply, Reply)
    return reply


def test_the_answer_is_the_mass_of_the_tokens_that_begin_it(server: FakeServer, load: Load) -> None:
    """With and without a space, in either case; a token of space before it is passed over."""
    others = {"Four": 0.5, " four": 0.2, "4": 0.1, "Five": 0.15}
    server.answer = lambda _: likely("Four", ("\n", {"\n": 1.0}), ("Four", others))

    reply = _ask(load, FOUR)

    (seen,) = server.seen
    assert reply.value == [pytest.approx(0.8)]
    assert (seen.body["logprobs"], seen.body["top_logprobs"]) == (True, 20)
    assert seen.body["temperature"] == 0
    assert seen.text == FOUR.text
    assert seen.images[0].getpixel((0, 0)) == (255, 0, 0)


@pytest.mark.parametrize(
    ("answer", "expected"),
    [("Yes", 1.0), (" yes.", 1.0), ("Yes, it is", 1.0), ("No", 0.0), ("yesterday", 0.0)],
)
def test_without_probabilities_the_first_word_decides(
    server: FakeServer, load: Load, answer: str, expected: float
) -> None:
    """Right or wrong; nothing is asked of tokens."""
    server.answer = lambda _: chat_answer(answer)
    assert _ask(load, YES, query="logprobs=false").value == [expected]
    assert "logprobs" not in server.seen[0].body


def test_all_questions_about_one_piece_are_one_reply(server: FakeServer, load: Load) -> None:
    """In their order, with the usage of all."""
    server.answer = lambda seen: chat_answer("yes" if "red" in seen.text else "four")
    model = load("vqa", "logprobs=false")
    first, second = model.answer([RED, "a cat"], [[YES, FOUR], [FOUR]])
    assert (first.value, second.value) == ([1.0, 1.0], [1.0])
    assert (first.usage.requests, second.usage.requests) == (2, 1)
    assert isinstance(model, Vqa)


@pytest.mark.parametrize(
    ("reply", "right"), [("!", 1.0), ("a cat", 0.0), ("?", 0.0), ("star", 1.0), ("a star", 0.0)]
)
def test_an_answer_without_a_word_is_not_right_whatever_is_said(
    server: FakeServer, load: Load, reply: str, right: float
) -> None:
    """A sign is compared as it is; no words would be the beginning of every reply."""
    server.answer = lambda _: chat_answer(reply)
    question = VqaQuestion("Which sign?", ("!", " ", "star"))
    assert _ask(load, question, query="logprobs=false").value == [right]


def test_a_server_without_probabilities_says_what_to_do(server: FakeServer, load: Load) -> None:
    """Its answers in words are another measurement, which the spec has to ask for."""
    server.answer = lambda _: chat_answer("Yes")
    with pytest.raises(ModelError, match=r"gives no probabilities of tokens.*logprobs=false"):
        _ask(load, YES)


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("temperature=1", "temperature of a VQA model must be 0"),
        ("max_pixels=0", "max_pixels must be at least 1, got 0"),
        ("prompt=letters", "unknown parameter for the vqa over the API 'prompt'"),
    ],
)
def test_wrong_parameters_are_refused(server: FakeServer, query: str, message: str) -> None:
    """At binding, with what is expected."""
    with pytest.raises(SpecError, match=message):
        bind_text(server.spec(query), "vqa")


def test_reasoning_is_no_answer(server: FakeServer, load: Load) -> None:
    """Neither in words nor by the tokens of it, of which a server lists all."""
    words = "<think>Yes? No</think>Yes"
    server.answer = lambda _: chat_answer(words)
    assert _ask(load, YES, query="logprobs=false").value == [1.0]
    server.answer = lambda _: chat_answer("<think>Yes?")
    failure = _ask(load, YES, query="logprobs=false").value
    assert isinstance(failure, Failure)
    assert failure.kind == "only-reasoning"

    sure = {"Yes": 0.75, "No": 0.25}
    tokens = [("<think>", {}), ("No", {"No": 1.0}), ("</think>", {}), ("\n", {}), ("Yes", sure)]
    for text in ("Yes", "<think>No</think>\nYes"):  # given apart, and left in the text
        server.in_turn(likely(text, *tokens))
        assert _ask(load, YES).value == [pytest.approx(0.75)]


def test_tokens_that_are_not_those_of_the_answer_are_no_answer(
    server: FakeServer, load: Load
) -> None:
    """Where the answer is not found among them, its first word has to be the first token."""
    sure = {"Yes": 0.75, "No": 0.25}
    marked = {"\u0120Yes": 0.75, "\u0120No": 0.25}
    server.in_turn(likely("Yes, it is", ("\u0120Yes", marked), (",", {}), ("\u0120it\u0120is", {})))
    assert _ask(load, YES).value == [pytest.approx(0.75)]
    server.in_turn(likely("Yes: it's", ("Yes", sure), (":", {}), ("it\u00e2\u0122s", {})))
    assert _ask(load, YES).value == [pytest.approx(0.75)]
    server.in_turn(likely("Yes: it's", ("No", {"No": 1.0}), ("Yes", sure), ("\u00e2", {})))
    failure = _ask(load, YES).value
    assert isinstance(failure, Failure)
    assert failure.kind == "bad-answer"
