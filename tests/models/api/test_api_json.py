"""Describers and writers over the API that are asked for JSON, with structured output or not."""

from __future__ import annotations

from typing import Any

from PIL import Image

from pytest_cepbench.construction.patterns import pattern_schema, summary_schema
from tests.models.api.conftest import Load
from tests.models.api.fake_server import FakeServer, chat_answer, fault

RED, BLUE = Image.new("RGB", (4, 4), "red"), Image.new("RGB", (8, 8), "blue")

SCHEMA = pattern_schema("neutral", ["Count"])


def describe(model: Any) -> list[Any]:
    """Ask about two images, with a prompt for each."""
    replies = model.describe_json([RED, BLUE], ["first?", "second?"], SCHEMA, [0, 1])
    return [reply.value for reply in replies]


def test_the_schema_is_sent_with_a_prompt_for_each_image(server: FakeServer, load: Load) -> None:
    """Strictly, with room for an object; descriptions are asked for as before."""
    server.answer = lambda _: chat_answer('{"image_pattern": []}')
    model = load("describer")

    assert describe(model) == ['{"image_pattern": []}'] * 2
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

    assert describe(load("describer")) == ["{}"] * 2
