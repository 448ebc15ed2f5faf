"""Judges over the API: what they are shown, their verdicts, and the probabilities of these."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from pytest_cepbench.artifacts import Failure
from pytest_cepbench.artifacts.outcome import CRITERIA, CriteriaScores
from pytest_cepbench.chains import RoleRunner
from pytest_cepbench.errors import ModelError, SpecError
from pytest_cepbench.models.binding import BoundRole
from pytest_cepbench.models.protocols import AnsweredQuestion, AnswerScorer, Battle, Judge, Reply
from pytest_cepbench.models.text_model.judge_prompts import SCORE_SCHEMA
from pytest_cepbench.store import Store
from tests.chains.roles import verdicts_of
from tests.models.api.conftest import Load
from tests.models.api.fake_server import (
    Answer,
    FakeServer,
    chat_answer,
    document,
    fault,
    likely,
)
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
    ("query", "message"),
    [
        ("prompt=opening-gpt4", "Did you mean 'opening-gpt'"),
        ("max_pixels=0", "max_pixels must be at least 1, got 0"),
        ("max_pixel=9", "Did you mean 'max_pixels'"),
        ("logprobs=true", "several verdicts of prompt=criteria begin.*: add prompt=letters"),
    ],
)
def test_a_wrong_parameter_is_refused(server: FakeServer, query: str, message: str) -> None:
    """At binding, before anything is sent."""
    with pytest.raises(SpecError, match=message):
        bind_text(server.spec(query), "judge")


@pytest.mark.parametrize("query", ["prompt=criteria", "prompt=letters"])
@pytest.mark.parametrize("text", ["A", "I weigh both.\nTie (A", "Both are good.\nA", "A is better"])
def test_a_verdict_that_was_cut_is_none(
    server: FakeServer, load: Load, query: str, text: str
) -> None:
    """What was to follow can turn it; but for a letter that was asked for."""
    server.answer = lambda _: chat_answer(text, ended="length")
    (reply,) = load("judge", query).judge([BATTLE], [0])
    if (query, text) == ("prompt=letters", "A"):
        assert reply.value == "A"
    else:
        assert isinstance(reply.value, Failure)
        assert reply.value.kind == "no-verdict"


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


LETTERS_BATTLE = Battle(["draw"], [Image.new("RGB", (4, 4), "red")], ["no"])

QUERY = "prompt=letters&logprobs=true"


def _judge(load: Load, query: str = QUERY) -> Reply:
    (reply,) = load("judge", query).judge([LETTERS_BATTLE], [0])
    assert isinstance(reply, Reply)
    return reply


@pytest.mark.parametrize(
    ("letter", "winner"), [("A", "A"), ("C", "Tie(A)"), ("D", "Tie(B)"), ("B", "B")]
)
def test_the_verdict_is_the_likeliest_letter(
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


def test_spellings_of_a_letter_add_up(server: FakeServer, load: Load) -> None:
    """With and without a space; what is no letter is left out."""
    others = {" A": 0.2, "A": 0.1, "B": 0.25, "The": 0.35, "a": 0.1}
    server.answer = lambda _: likely("B", ("B", others))

    reply = _judge(load)

    assert reply.value == "A"  # the likeliest, though one token of it alone is not


def test_the_last_letter_is_the_answer(server: FakeServer, load: Load) -> None:
    """Reasoning before it may hold letters too."""
    server.answer = lambda _: likely(
        "<think>A</think>B",
        ("<think>", {"<think>": 1.0}), ("A", {"A": 0.9, "B": 0.1}), ("</think>", {"</think>": 1.0}),
        ("B", {"A": 0.2, "B": 0.8}),
    )  # fmt: skip

    assert _judge(load).value == "B"


@pytest.mark.parametrize(
    "answer",
    [
        likely("I like both", ("I", {"I": 1.0})),
        likely("A", ("It", {"It": 1.0})),
        likely("E", ("E", {"E": 0.9, "A": 0.1})),
    ],
)
def test_what_is_no_letter_is_a_failure(server: FakeServer, load: Load, answer: Answer) -> None:
    """Of this verdict alone."""
    server.answer = lambda _: answer

    reply = _judge(load)

    assert isinstance(reply.value, Failure)
    assert reply.value.kind == "no-verdict"


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
    with pytest.raises(ModelError, match=r"gives no probabilities of tokens \(.*logprobs=false"):
        _judge(load)
    assert len(server.seen) == 1


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


ANSWERED = AnsweredQuestion(["draw a circle", RED], ["here:", BLUE, "done"])

SCORES = {name: {"score": 7, "justification": f"for {name}"} for name in CRITERIA}


def scores_text(**changes: Any) -> str:
    """A reply with all seven scores, some of them changed; None leaves a criterion out."""
    scores = {name: value for name, value in (SCORES | changes).items() if value is not None}
    return json.dumps(scores)


def values(reply: Reply) -> list[float | None]:
    """The seven scores of a reply."""
    assert isinstance(reply.value, CriteriaScores), reply.value
    return [reply.value.value(name) for name in CRITERIA]


def test_structured_output_is_asked_for(server: FakeServer, load: Load) -> None:
    """With the schema of all seven criteria; question and answer stand under their headings."""
    server.answer = lambda _: chat_answer(scores_text())

    judge = load("judge")
    (reply,) = judge.score_answers([ANSWERED], [0])

    (seen,) = server.seen
    form = seen.body["response_format"]
    assert (form["type"], form["json_schema"]["strict"]) == ("json_schema", True)
    assert form["json_schema"]["schema"] == SCORE_SCHEMA
    shown = [part.get("text", "an image") for part in seen.body["messages"][1]["content"]]
    assert shown[:-1] == [
        "Question:", "draw a circle", "an image", "Answer:", "here:", "an image", "done",
    ]  # fmt: skip
    assert values(reply) == [7.0] * 7
    assert reply.value.by_criterion["quality"].justification == "for quality"
    assert isinstance(judge, AnswerScorer)


@pytest.mark.parametrize(
    "refusal",
    [
        fault(400, "Unsupported parameter: 'response_format'", param="response_format"),
        fault(400, "'response_format.type' : must be 'json_object' or 'text'"),
        fault(400, "This response_format type is unavailable now"),
        fault(400, "Invalid schema: 'enum' is not permitted", param="response_format"),
        fault(422, "guided_json is not allowed with this model"),
    ],
)
def test_a_server_without_structured_output_is_asked_by_the_prompt(
    server: FakeServer, load: Load, refusal: Any
) -> None:
    """Once refused it is not sent again; nothing is remarked, since the prompt says the form."""
    server.in_turn(refusal, chat_answer(f"Here you are: {scores_text()}"))

    judge = load("judge")
    replies = [judge.score_answers([ANSWERED], [0])[0] for _ in range(2)]

    assert [values(reply) for reply in replies] == [[7.0] * 7] * 2
    assert ["response_format" in seen.body for seen in server.seen] == [True, False, False]
    assert replies[1].remarks == ()


def test_there_is_room_for_seven_scores(server: FakeServer, load: Load) -> None:
    """A limit that suits a verdict would cut them; a larger one is kept, as is none."""
    server.answer = lambda _: chat_answer(scores_text())
    for query, expected in (("max_tokens=8", 1024), ("max_tokens=4000", 4000)):
        load("judge", query).score_answers([ANSWERED], [0])
        assert server.seen[-1].body["max_tokens"] == expected
    load("judge", "max_tokens=none").score_answers([ANSWERED], [0])
    assert "max_tokens" not in server.seen[-1].body
