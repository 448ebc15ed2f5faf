"""Generators behind a server: what is asked, and what comes back in the place of an image."""

from __future__ import annotations

from base64 import b64encode

import numpy as np
import pytest
from PIL import Image

from pytest_cepbench.artifacts import Failure
from pytest_cepbench.errors import ModelError
from pytest_cepbench.models.protocols import Usage
from pytest_cepbench.models.roles import check_image
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
    assert model.generate(["a"], [0])[0].value.shape == (8, 8, 3)

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


def test_a_server_that_always_answers_with_data_wants_no_format(
    server: FakeServer, load: Load
) -> None:
    """That it does not know response_format changes no image, so nothing is told."""
    server.answer = lambda seen: (
        fault(400, "Unknown parameter: 'response_format'.", param="response_format")
        if "response_format" in seen.body
        else drawn()
    )

    (reply,) = load("generator").generate(["a"], [0])

    assert "not honoured" not in reply.provenance
    assert reply.remarks == ()


def test_a_refused_prompt_is_a_failure_of_its_own_kind(server: FakeServer, load: Load) -> None:
    """Refusals are counted apart from images that went wrong."""
    server.answer = lambda _: fault(400, "rejected by the safety system", "moderation_blocked")

    (reply,) = load("generator").generate(["a"], [0])

    assert reply.value == Failure("refused", "rejected by the safety system")
