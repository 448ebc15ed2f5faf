"""Judges over the API that give probabilities: read from the token that is the verdict."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from pytest_cepbench.artifacts import Failure
from pytest_cepbench.artifacts.outcome import VerdictProbabilities
from pytest_cepbench.chains import RoleRunner
from pytest_cepbench.chains.steps import key_of
from pytest_cepbench.errors import ModelError
from pytest_cepbench.models.protocols import Battle, Reply
from pytest_cepbench.store import Store
from tests.chains.roles import battle_inputs, verdicts_of
from tests.models.api.conftest import Load
from tests.models.api.fake_server import Answer, FakeServer, chat_answer, document, fault
from tests.models.binding import bind_text

BATTLE = Battle(["draw"], [Image.new("RGB", (4, 4), "red")], ["no"])

QUERY = "prompt=letters&logprobs=true"

Token = tuple[str, Mapping[str, float]]
"""A token, and the probabilities of those that could have stood there."""


def likely(text: str, *tokens: Token) -> Answer:
    """A chat completion with log-probabilities, as OpenAI's API words them."""
    content = [
        {
            "token": token,
            "logprob": math.log(others.get(token, 1.0)),
            "top_logprobs": [{"token": t, "logprob": math.log(p)} for t, p in others.items()],
        }
        for token, others in tokens
    ]
    message = {"role": "assistant", "content": text}
    return document(
        {
            "model": "tiny",
            "choices": [{"message": message, "finish_reason": "stop",
                         "logprobs": {"content": content}}],
        }
    )  # fmt: skip


def _judge(load: Load, query: str = QUERY) -> Reply:
    (reply,) = load("judge", query).judge([BATTLE], [0])
    assert isinstance(reply, Reply)
    return reply


def _probabilities(reply: Reply) -> Sequence[float]:
    probabilities = VerdictProbabilities.from_provenance(reply.provenance)
    assert probabilities is not None
    return probabilities.values


@pytest.mark.parametrize(
    ("letter", "winner"), [("A", "A"), ("C", "Tie(A)"), ("D", "Tie(B)"), ("B", "B")]
)
def test_the_verdict_is_a_letter_with_probabilities(
    server: FakeServer, load: Load, letter: str, winner: str
) -> None:
    """Four letters for four verdicts, so that one token says which tie it is."""
    others = {name: 0.7 if name == letter else 0.1 for name in "ABCD"}
    server.answer = lambda _: likely(letter, (letter, others), ("<|im_end|>", {"<|im_end|>": 1.0}))

    reply = _judge(load)

    (seen,) = server.seen
    assert (seen.body["logprobs"], seen.body["top_logprobs"]) == (True, 20)
    assert "Reply with one letter" in seen.body["messages"][0]["content"]
    assert reply.value == winner
    assert _probabilities(reply) == pytest.approx([others[name] for name in "ACDB"], abs=1e-6)


def test_spellings_of_a_letter_add_up(server: FakeServer, load: Load) -> None:
    """With and without a space; what is no letter is left out, and the rest sums to 1."""
    others = {" A": 0.2, "A": 0.1, "B": 0.25, "The": 0.35, "a": 0.1}
    server.answer = lambda _: likely("B", ("B", others))

    reply = _judge(load)

    assert _probabilities(reply) == pytest.approx([0.3 / 0.55, 0, 0, 0.25 / 0.55], abs=1e-6)
    assert reply.value == "A"  # the likeliest, though one token of it alone is not


def test_the_last_letter_is_the_answer(server: FakeServer, load: Load) -> None:
    """Reasoning before it may hold letters too."""
    server.answer = lambda _: likely(
        "<think>A</think>B",
        ("<think>", {"<think>": 1.0}), ("A", {"A": 0.9, "B": 0.1}), ("</think>", {"</think>": 1.0}),
        ("B", {"A": 0.2, "B": 0.8}),
    )  # fmt: skip

    assert _probabilities(_judge(load)) == pytest.approx([0.2, 0, 0, 0.8], abs=1e-6)


@pytest.mark.parametrize(
    "answer",
    [
        likely("I like both", ("I", {"I": 1.0})),
        likely("A", ("It", {"It": 1.0})),
        likely("E", ("E", {"E": 0.9, "A": 0.1})),
    ],
)
def test_what_is_no_letter_is_a_failure(server: FakeServer, load: Load, answer: Answer) -> None:
    """Of this verdict alone, and without probabilities."""
    server.answer = lambda _: answer

    reply = _judge(load)

    assert isinstance(reply.value, Failure)
    assert (reply.value.kind, "probabilities" in reply.provenance) == ("no-verdict", False)


@pytest.mark.parametrize(
    "answer",
    [
        fault(400, "logprobs is not supported by this model", param="logprobs"),
        fault(400, "Unrecognized request argument: top_logprobs"),
        chat_answer("A"),
        chat_answer("A", logprobs=None),
    ],
)
def test_a_server_without_probabilities_is_one_line(
    server: FakeServer, load: Load, answer: Answer
) -> None:
    """Whether it refuses the parameter or ignores it, at the first answer."""
    server.answer = lambda _: answer
    with pytest.raises(ModelError, match=r"gives no probabilities of tokens \(.*Remove logprobs"):
        _judge(load)
    assert len(server.seen) == 1


def test_letters_need_no_probabilities(server: FakeServer, load: Load) -> None:
    """Without `logprobs` nothing is asked for, and the letter is the verdict."""
    server.answer = lambda _: chat_answer("D")

    reply = _judge(load, "prompt=letters")

    assert reply.value == "Tie(B)"
    assert "logprobs" not in server.seen[0].body


def _with_tokens(tokens: Any) -> Answer:
    message = {"role": "assistant", "content": "A"}
    choice = {"message": message, "finish_reason": "stop", "logprobs": {"content": tokens}}
    return document({"model": "tiny", "choices": [choice]})


@pytest.mark.parametrize("tokens", [None, "x", [None], [{"token": 3}], [{"token": "A"}]])
def test_what_holds_no_probabilities_has_none(server: FakeServer, load: Load, tokens: Any) -> None:
    """A server may write anything where they should be."""
    server.answer = lambda _: _with_tokens(tokens)
    with pytest.raises(ModelError, match="gives no probabilities of tokens"):
        _judge(load)


@pytest.mark.parametrize(
    "token",
    [{"token": "A"}, {"token": "A", "logprob": "high"}, {"token": "A", "logprob": 3.0}],
)
def test_impossible_probabilities_are_a_failure(server: FakeServer, load: Load, token: Any) -> None:
    """Missing, no numbers, above 1."""
    server.answer = lambda _: _with_tokens([token | {"top_logprobs": [token, 4]}])
    value = _judge(load).value
    assert isinstance(value, Failure)
    assert (value.kind, value.detail) == ("no-verdict", "the letter A has no probability")


def test_probabilities_are_stored_with_the_verdict(server: FakeServer, tmp_path: Path) -> None:
    """And the judge says before it is asked whether it gives them."""
    server.answer = lambda _: likely("A", ("A", {"A": 0.6, "B": 0.4}))
    bound = bind_text(server.spec(QUERY), "judge")
    assert (bound.probabilities, bind_text(server.spec(), "judge").probabilities) == (True, False)

    with Store(tmp_path / "store") as store:
        runner = RoleRunner(bound, store)
        assert verdicts_of(runner, [BATTLE], [0]) == ["A"]
        key = key_of(bound, "", 0, battle_inputs(BATTLE))
        stored = VerdictProbabilities.from_provenance(runner.provenance([key])[key])
    assert stored == VerdictProbabilities((0.6, 0.0, 0.0, 0.4))


def test_keys_differ_by_what_is_asked_for(server: FakeServer) -> None:
    """With probabilities a verdict is another result, since the likeliest letter is taken."""
    plain, letters, soft, fewer = (
        bind_text(server.spec(query), "judge").params
        for query in ("", "prompt=letters", QUERY, f"{QUERY}&top_logprobs=5")
    )
    assert "logprobs" not in plain
    assert "logprobs" not in letters
    assert soft["logprobs"] is True
    assert fewer == {**soft, "top_logprobs": 5}
