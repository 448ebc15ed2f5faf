"""Writers over the API, and describers and writers that are asked for JSON."""

from __future__ import annotations

from typing import Any

from PIL import Image

from pytest_cepbench.artifacts import Failure
from pytest_cepbench.construction.patterns import pattern_schema, summary_schema
from tests.models.api.conftest import Load
from tests.models.api.fake_server import FakeServer, chat_answer, fault
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


def test_a_question_may_have_no_image_and_no_system_prompt(server: FakeServer, load: Load) -> None:
    """Nothing is sent in their place."""
    load("writer").write([["what is red?"]], "", [0])

    (seen,) = server.seen
    assert [turn["role"] for turn in seen.body["messages"]] == ["user"]
    assert seen.text == "what is red?"


def test_each_question_has_its_own_answer_or_failure(server: FakeServer, load: Load) -> None:
    """In order, whatever the others became."""
    server.answer = lambda seen: (
        chat_answer(None, refusal="no") if "red" in seen.text else chat_answer(f"on {seen.text}")
    )

    replies = load("writer").write([["blue"], ["red"], ["green"]], "", [0, 0, 0])

    refused = Failure("refused", "no")
    assert [reply.value for reply in replies] == ["on blue", refused, "on green"]


def test_a_writers_limit_is_part_of_its_key() -> None:
    """Another default than a describer's, said in the parameters."""
    query = "openai:m?revision=1&base_url=http://127.0.0.1:1/v1"

    assert bind_text(query, "writer").params["max_tokens"] == 2048
    assert bind_text(query, "describer").params["max_tokens"] == 512


SCHEMA = pattern_schema("neutral", ["Count"])


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
    for style in ("paper", "neutral"):
        model.write_json([["?"]], "", summary_schema(style), [0])

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
