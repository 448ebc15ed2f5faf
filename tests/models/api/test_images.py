"""Generators and interleavers over the API: images in answers, and what stands in their place."""

from __future__ import annotations

import io
from base64 import b64encode
from typing import Any

import numpy as np
import pytest
from PIL import Image

from pytest_cepbench.artifacts import Failure
from pytest_cepbench.artifacts.answer import read_answer as read_reasoned
from pytest_cepbench.artifacts.modality import check_image
from pytest_cepbench.errors import ModelError
from pytest_cepbench.models.api.responses import read_steps
from pytest_cepbench.models.protocols import StepLimit, Usage
from tests.models.api.conftest import Load
from tests.models.api.fake_server import FakeServer, chat_answer, document, drawn, fault


def test_a_request_says_text_seed_and_settings(server: FakeServer, load: Load) -> None:
    """A preset's own names of settings go to the servers that know them."""
    query = (
        "num_inference_steps=50&guidance_scale=3.5&height=48&width=64&dtype=float16&price_image=2"
    )
    model = load("generator", query)
    server.answer = lambda _: drawn(Image.new("RGB", (64, 48), "blue"))

    (reply,) = model.generate(["a red circle"], [2**32 - 1])

    (seen,) = server.seen
    assert seen.path == "/v1/images/generations"
    assert seen.body == {
        "model": "tiny",
        "prompt": "a red circle",
        "seed": 2**32 - 1,
        "size": "64x48",
        "num_inference_steps": 50,
        "guidance_scale": 3.5,
        "response_format": "b64_json",
    }
    assert np.array_equal(reply.value, np.full((48, 64, 3), (0, 0, 255), np.uint8))
    assert reply.usage == Usage(1, images=1, cost=2.0)
    assert reply.remarks == ()


NO_IMAGES = {
    "no base64": drawn(data="%%%"),
    "a text": drawn(data=b64encode(b"I cannot draw").decode()),
    "cut off": drawn(data=b64encode(b"\x89PNG\r\n\x1a\n").decode()),
    "other base64": drawn(data="é"),
}


def test_what_is_no_image_is_a_failure(server: FakeServer, load: Load) -> None:
    """It is what the model drew: counted as a bad image and stored, not asked for again."""
    server.in_turn(*NO_IMAGES.values())

    replies = load("generator", "concurrency=1").generate(
        ["a"] * len(NO_IMAGES), [0] * len(NO_IMAGES)
    )

    assert [reply.value.kind for reply in replies] == ["bad-image"] * len(NO_IMAGES)
    assert not any(reply.passing for reply in replies)


def test_an_answer_without_an_image_is_asked_for_again(server: FakeServer, load: Load) -> None:
    """Lists of nothing, and of something else."""
    odd = [{"data": []}, {"data": [None]}, {"data": [{"b64_json": 3}]}, {"data": "x"}, []]
    server.in_turn(*map(document, odd), chat_answer(), drawn())

    (reply,) = load("generator").generate(["a"], [0])

    assert (
        reply.usage.retries,
        check_image(reply.value).size,  # type: ignore[union-attr]
    ) == (6, (8, 8))


def test_an_image_inside_an_address_is_read_and_others_are_not_fetched(
    server: FakeServer, load: Load
) -> None:
    """A server could name any address of the local network; that is refused before any request."""
    data = drawn().body.decode().split('"b64_json": "')[1].split('"')[0]
    server.in_turn(document({"data": [{"url": f"data:image/png;base64,{data}"}]}))
    model = load("generator")
    (reply,) = model.generate(["a"], [0])
    assert reply.value.shape == (8, 8, 3)
    assert reply.usage == Usage(1, images=1)  # without a price it costs nothing

    server.answer = lambda _: document({"data": [{"url": f"{server.url}/secret.png"}]})
    with pytest.raises(ModelError, match=r"gives the address of an image .* are not fetched"):
        model.generate(["a"], [0])
    assert not [seen for seen in server.seen if "secret" in seen.path]


def test_what_is_drawn_otherwise_than_asked_is_recorded(server: FakeServer, load: Load) -> None:
    """An image of another size, and a seed that was not used."""
    server.answer = lambda seen: (
        fault(400, "Unknown parameter: 'seed'.", "unknown_parameter", "seed")
        if "seed" in seen.body
        else drawn()
    )

    replies = load("generator", "size=16x16&concurrency=1").generate(["a", "b"], [7, 8])

    result = [reply.provenance["not honoured"] for reply in replies]
    assert result == ["seed, size 8x8 instead of 16x16"] * 2
    remarks = " ".join(sorted({remark for reply in replies for remark in reply.remarks}))
    assert "does not take seed" in remarks
    assert "gave size 8x8 instead of 16x16" in remarks


FREE = StepLimit()


def url_of(color: str) -> str:
    """An image of one color as a data URL."""
    stream = io.BytesIO()
    Image.new("RGB", (4, 4), color).save(stream, "PNG")
    return f"data:image/png;base64,{b64encode(stream.getvalue()).decode()}"


RED, BLUE = url_of("red"), url_of("blue")
NAMES = {(255, 0, 0): "red", (0, 0, 255): "blue"}


def part(url: str) -> dict[str, Any]:
    """A content part with an image."""
    return {"type": "image_url", "image_url": {"url": url}}


def text(words: str) -> dict[str, Any]:
    """A content part with a text."""
    return {"type": "text", "text": words}


def steps_of(value: Any) -> Any:
    """An answer as texts and names of colors; a failure as it is."""
    if isinstance(value, Failure):
        return value
    return [
        (step.text, None if step.image is None else NAMES[tuple(np.asarray(step.image)[0, 0])])
        for step in value
    ]


def message(content: Any, **more: Any) -> dict[str, Any]:
    """A chat completion."""
    return {"choices": [{"message": {"content": content, **more}, "finish_reason": "stop"}]}


@pytest.mark.parametrize(
    "whole",
    [
        message([text("one"), part(RED), text("two"), part(BLUE), text("three")]),
        message([text("one"), {"type": "image", "image": RED}, text(f"two{BLUE}three")]),
        message(f"one ![first]({RED})\n\ntwo ![]( {BLUE} ) three"),
        message("one<IMG>two<IMG>three", images=[part(RED), part(BLUE)]),
        message(["one", {"b64_json": RED.partition(",")[2]}, "two", part(BLUE), "three"]),
        message([text("one"), part(RED), text("two"), part(BLUE), "three"], images=[part(RED)]),
    ],
    ids=["parts", "image parts", "markdown", "images field", "base64", "said twice"],
)
def test_steps_are_read_in_every_form(whole: dict[str, Any]) -> None:
    """In reading order, each image with the text before it."""
    assert steps_of(read_steps(whole).value) == [("one", "red"), ("two", "blue"), ("three", None)]


@pytest.mark.parametrize(
    ("whole", "steps"),
    [
        (message("one", images=[part(RED), part(BLUE)]), [("one", "red"), ("", "blue")]),
        (message(None, images=[part(RED)]), [("", "red")]),
        (message("one<IMG>two", images=[part(RED)]), [("one", "red"), ("two", None)]),
        (message("one <IMG>", images=[]), [("one <IMG>", None)]),
        (message([text(" "), part(RED), {"type": "audio"}, 7]), [("", "red")]),
        (message("one"), [("one", None)]),
    ],
)
def test_images_without_a_place_follow_the_text(whole: Any, steps: Any) -> None:
    """They are not lost, and a text alone is a step without an image."""
    assert steps_of(read_steps(whole).value) == steps


@pytest.mark.parametrize(
    ("whole", "kind"),
    [
        (message(None, refusal="no"), "refused"),
        (message("  "), "empty-text"),
        (message([]), "empty-text"),
        (message([text("one"), part("data:image/png;base64,AAAA")]), "bad-image"),
        (message([text("one"), part("data:image/png;base64,?")]), "bad-image"),
        (
            {"choices": [{"message": {"content": "one"}, "finish_reason": "content_filter"}]},
            "refused",
        ),
    ],
)
def test_what_is_no_answer_is_a_failure_of_its_kind(whole: Any, kind: str) -> None:
    """A half of an answer is none: one image that cannot be decoded fails it."""
    value = read_steps(whole).value

    assert isinstance(value, Failure)
    assert value.kind == kind


def test_the_question_is_asked_for_texts_and_images(server: FakeServer, load: Load) -> None:
    """In its order, with the number of steps where it is told and both modalities."""
    server.answer = lambda _: chat_answer([text("one"), part(RED)])
    model = load("interleaver", "price_image=2")

    first, second = model.interleave(
        [["what", Image.new("RGB", (4, 4), "blue")], ["why"]], [StepLimit(3), FREE], [1, 2]
    )

    assert steps_of(first.value) == steps_of(second.value) == [("one", "red")]
    assert (first.usage.images, first.usage.cost) == (1, 2)
    asked = {seen.text: seen for seen in server.seen}
    told = asked["what\nAnswer in exactly 3 steps, each a text and an image."]
    assert len(told.images) == 1
    assert told.body["modalities"] == ["text", "image"]
    assert not {"max_tokens", "temperature"} & set(told.body)
    assert (told.body["seed"], asked["why"].body["seed"]) == (1, 2)
    assert "texts and images" in told.body["messages"][0]["content"]
    assert asked["why"].images == []


def test_a_server_that_takes_no_modalities_is_asked_without(server: FakeServer, load: Load) -> None:
    """It is recorded with the answer, as for every parameter."""
    server.answer = lambda seen: (
        fault(400, "Unknown parameter: 'modalities'", "unknown_parameter", "modalities")
        if "modalities" in seen.body
        else chat_answer("one")
    )

    (reply,) = load("interleaver").interleave([["what"]], [FREE], [1])

    assert steps_of(reply.value) == [("one", None)]
    assert "modalities" in reply.provenance["not honoured"]


def test_secrets_are_taken_out_of_every_step(
    server: FakeServer, load: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server may repeat what it was sent."""
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret-1234567890")
    server.answer = lambda seen: chat_answer(
        [text("one"), part(RED), text(seen.headers["authorization"])]
    )

    (reply,) = load("interleaver").interleave([["what"]], [FREE], [1])
    assert (reply.usage.images, reply.usage.cost) == (1, 0)

    assert len(reply.value) == 2
    assert "sk-secret" not in str(reply.value)


def test_reasoning_goes_before_the_first_step(server: FakeServer, load: Load) -> None:
    """Beside the content or as a part of it, where the role tells it from the answer."""
    server.in_turn(
        chat_answer([text("one"), part(RED)], reasoning="why?"),
        chat_answer([{"type": "thinking", "thinking": "why?"}, text("one"), part(RED)]),
    )
    model = load("interleaver")

    for _ in range(2):
        (reply,) = model.interleave([["what"]], [FREE], [1])
        ((words, color),) = steps_of(reply.value)
        assert (read_reasoned(words), color) == ("one", "red")
        assert "why?" in words
