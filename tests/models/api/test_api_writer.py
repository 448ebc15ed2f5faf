"""Writers behind a server: what they are asked, and what their answers become."""

from __future__ import annotations

from PIL import Image

from pytest_cepbench.artifacts import Failure
from tests.models.api.conftest import Load
from tests.models.api.fake_server import FakeServer, chat_answer
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
