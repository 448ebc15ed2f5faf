"""Requests that API models send in every role: what a server is asked is part of a result."""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from PIL import Image

from pytest_cepbench.artifacts import decode_image
from pytest_cepbench.artifacts.outcome import CRITERIA
from pytest_cepbench.models.protocols import (
    AnsweredQuestion,
    Battle,
    Piece,
    RoleName,
    VqaQuestion,
)
from tests.golden.frozen import assert_frozen
from tests.models.api.fake_server import (
    Answer,
    FakeServer,
    Seen,
    chat_answer,
    drawn,
    likely,
    serving,
)
from tests.models.binding import bind_text

RED, BLUE = Image.new("RGB", (4, 4), "red"), Image.new("RGB", (40, 20), "blue")

QUESTION: list[Piece] = ["Which is \N{SNOWMAN}?", RED, "or", BLUE]

BATTLE = Battle(QUESTION, ["here:", RED], [BLUE, "no"])

ANSWERED = AnsweredQuestion(QUESTION, ["here:", BLUE, "done"])

SCHEMA = {"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": False}

SCORES = {name: {"score": 7, "justification": "good"} for name in CRITERIA}

Call = Callable[[Any], object]

DESCRIBE: Call = lambda m: m.describe([BLUE], "what is shown?", [7])  # noqa: E731
GENERATE: Call = lambda m: m.generate(["a red circle"], [7])  # noqa: E731
WRITE: Call = lambda m: m.write([QUESTION], "Answer in steps.", [7])  # noqa: E731
JUDGE: Call = lambda m: m.judge([BATTLE], [7])  # noqa: E731
SCORE: Call = lambda m: m.score_answers([ANSWERED], [7])  # noqa: E731
ASK: Call = lambda m: m.answer(  # noqa: E731
    [RED, "a red cat"], [[VqaQuestion("Is it red?", ("Yes",))], [VqaQuestion("How many?", ("1",))]]
)

SAMPLED = "temperature=0.5&top_p=0.9&max_tokens=9&system_prompt=be brief"

CALLS: tuple[tuple[str, RoleName, str, Call], ...] = (
    ("describe", "describer", "", DESCRIBE),
    ("describe without a prompt", "describer", "", lambda m: m.describe([RED], "", [7])),
    ("describe sampled", "describer", SAMPLED, DESCRIBE),
    ("describe small", "describer", "max_pixels=200", DESCRIBE),
    ("describe json", "describer", "",
     lambda m: m.describe_json([RED], ["which?"], SCHEMA, [7])),
    ("generate", "generator", "", GENERATE),
    ("generate with all", "generator",
     "width=64&height=32&quality=high&num_inference_steps=4&guidance_scale=2.5&negative_prompt=blur",
     GENERATE),
    ("write", "writer", "", WRITE),
    ("write sampled", "writer", SAMPLED, WRITE),
    ("write json", "writer", "", lambda m: m.write_json([["?"]], "", {"type": "object"}, [7])),
    ("judge criteria", "judge", "", JUDGE),
    ("judge letters", "judge", "prompt=letters", JUDGE),
    ("judge opening-gpt", "judge", "prompt=opening-gpt", JUDGE),
    ("judge opening-intjudge", "judge", f"prompt=opening-intjudge&{SAMPLED}", JUDGE),
    ("score criteria", "judge", "", SCORE),
    ("score opening-gpt", "judge", "prompt=opening-gpt&max_tokens=9", SCORE),
    ("vqa", "vqa", "", ASK),
    ("vqa in words", "vqa", "logprobs=false&system_prompt=be brief", ASK),
)  # fmt: skip


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeServer]:
    """A server that answers every request; no key is around."""
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    with serving() as fake:
        yield fake


def test_bodies_of_every_role(server: FakeServer) -> None:
    """Word for word, with the digest of its pixels in the place of each image."""
    server.answer = _answer
    requests = {}
    for name, role, query, call in CALLS:
        server.seen.clear()
        call(bind_text(server.spec(query), role).load())
        sent = [[seen.path, _plain(seen.body)] for seen in server.seen]
        requests[name] = sorted(sent, key=json.dumps)  # they may overtake each other
    assert_frozen("api_requests.json", requests)


def _answer(seen: Seen) -> Answer:
    """What the role needs, so that nothing is asked twice."""
    if seen.path.endswith("/images/generations"):
        return drawn()
    if "logprobs" in seen.body:
        return likely("A", ("A", {"A": 0.5, "B": 0.2, "C": 0.2, "D": 0.1}))
    return chat_answer(json.dumps(SCORES))


def _plain(value: Any) -> Any:
    """A body without the bytes of its images, which depend on the version of a library."""
    if isinstance(value, dict):
        return {name: _plain(own) for name, own in value.items()}
    if isinstance(value, list):
        return [_plain(own) for own in value]
    if isinstance(value, str) and value.startswith("data:image/"):
        kind, _, data = value.partition(",")
        return f"{kind} {decode_image(b64decode(data)).digest}"
    return value
