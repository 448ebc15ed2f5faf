"""Judges over the API that score single answers: structured output and what is stored."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from pytest_cepbench.artifacts.outcome import CRITERIA, CriteriaScores
from pytest_cepbench.chains import RoleRunner
from pytest_cepbench.chains.answers.answer_plan import refer_to_question
from pytest_cepbench.chains.answers.battles import StoredAnswer, score_answers
from pytest_cepbench.models.protocols import AnsweredQuestion, AnswerScorer, Reply
from pytest_cepbench.models.text_model.judge_prompts import SCORE_SCHEMA
from pytest_cepbench.store import Store
from tests.chains.answers.roles import question, stored_answer
from tests.models.api.conftest import Load
from tests.models.api.fake_server import FakeServer, chat_answer, fault
from tests.models.binding import bind_text

RED, BLUE = Image.new("RGB", (4, 4), "red"), Image.new("RGB", (8, 8), "blue")

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


def test_stored_scores_cost_no_call(server: FakeServer, tmp_path: Path) -> None:
    """Failures that a greedy judge would give again are stored too; other settings ask anew."""
    server.answer = lambda _: chat_answer(scores_text(quality={"score": 99}))

    def scored(query: str = "") -> list[CriteriaScores]:
        runner = RoleRunner(bind_text(server.spec(query), "judge"), store)
        refs = refer_to_question(question(0), store)
        return score_answers([StoredAnswer("q00", refs, stored_answer(store, "x"))], 0, runner)

    with Store(tmp_path / "store") as store:
        first = scored()
        assert first[0].value("quality") is None
        assert len(server.seen) == 1
        assert scored() == first
        assert len(server.seen) == 1
        scored("max_pixels=4")
        scored("revision=2")
        assert len(server.seen) == 3
