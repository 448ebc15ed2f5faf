"""Judges over the API that score single answers: structured output, repair, refusals."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from pytest_cepbench.artifacts import Failure
from pytest_cepbench.artifacts.outcome import CRITERIA, CriteriaScores
from pytest_cepbench.chains import RoleRunner
from pytest_cepbench.chains.answers.answer_plan import refer_to_question
from pytest_cepbench.chains.answers.battles import StoredAnswer, score_answers
from pytest_cepbench.errors import ModelError
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


@pytest.mark.parametrize(
    ("reply", "problem"),
    [
        ("I would say seven.", "no JSON object with a criterion"),
        (scores_text(quality={"score": 11}), "quality: 11 is not from 0 to 10"),
        (scores_text(richness=None), "richness: no score was given"),
        (scores_text()[:100], "no JSON object with a criterion"),
    ],
)
def test_what_cannot_be_read_is_repaired_once(
    server: FakeServer, load: Load, reply: str, problem: str
) -> None:
    """The judge sees its own reply and what was wrong with it; both replies are paid for."""
    server.in_turn(chat_answer(reply), chat_answer(scores_text()))

    (repaired,) = load("judge", "price_in=1").score_answers([ANSWERED], [0])

    first, second = (seen.body["messages"] for seen in server.seen)
    assert second[: len(first)] == first
    assert second[-2] == {"role": "assistant", "content": reply}
    assert problem in second[-1]["content"][0]["text"]
    assert values(repaired) == [7.0] * 7
    assert repaired.usage.requests == 2
    assert repaired.usage.input_tokens == 200


def test_a_repair_fills_gaps_and_changes_no_score(server: FakeServer, load: Load) -> None:
    """What was given at first counts, or a judge that is asked again could be argued with."""
    changed = scores_text(correctness={"score": 1}, quality={"score": 2})
    server.in_turn(chat_answer(scores_text(quality={"score": 2.5})), chat_answer(changed))

    (reply,) = load("judge").score_answers([ANSWERED], [0])

    assert values(reply) == [7.0, 7.0, 7.0, 2.0, 7.0, 7.0, 7.0]


def test_after_one_repair_it_is_a_failure(server: FakeServer, load: Load) -> None:
    """Of the criterion, or of all of them; neighbours in the batch keep their scores."""
    server.answer = lambda seen: chat_answer(
        {"mute": "no", "partly": scores_text(quality={"score": -3})}.get(
            next((w for w in ("mute", "partly") if w in str(seen.body["messages"][1])), ""),
            scores_text(),
        )
    )
    answers = [AnsweredQuestion(["q"], [text]) for text in ("mute", "partly", "fine")]

    mute, partly, fine = load("judge").score_answers(answers, [0, 0, 0])

    assert isinstance(mute.value, Failure)
    assert mute.value.kind == "no-score"
    assert values(partly) == [7.0, 7.0, 7.0, None, 7.0, 7.0, 7.0]
    assert values(fine) == [7.0] * 7
    assert len(server.seen) == 3 + 2


def test_a_refusal_is_not_repaired(server: FakeServer, load: Load) -> None:
    """The provider's policy would say the same again."""
    server.answer = lambda _: chat_answer(None, refusal="I cannot score this")

    (reply,) = load("judge").score_answers([ANSWERED], [0])

    assert isinstance(reply.value, Failure)
    assert (reply.value.kind, len(server.seen)) == ("refused", 1)


def test_a_server_that_is_gone_before_the_repair_loses_no_other_score(
    server: FakeServer, load: Load
) -> None:
    """The unread reply is asked for again by another run; the read ones are kept."""
    bad = scores_text(quality=None)
    server.answer = lambda seen: (
        fault(500, "gone")
        if len(seen.body["messages"]) > 2
        else chat_answer(bad if "unclear" in str(seen.body["messages"][1]) else scores_text())
    )
    answers = [AnsweredQuestion(["q"], [text]) for text in ("unclear", "fine")]

    unclear, fine = load("judge", "retries=0").score_answers(answers, [0, 0])

    assert isinstance(unclear.value, Failure)
    assert (unclear.value.kind, unclear.passing) == ("unanswered", True)
    assert values(fine) == [7.0] * 7


def test_a_repair_that_the_server_rejects_leaves_the_first_scores(
    server: FakeServer, load: Load
) -> None:
    """Where the longer conversation does not fit, say: the next run need not try it again."""
    server.answer = lambda seen: (
        fault(400, "this is longer than the context")
        if len(seen.body["messages"]) > 2
        else chat_answer(scores_text(quality=None) if "odd" in str(seen.body) else "")
    )
    answers = [AnsweredQuestion(["q"], [text]) for text in ("odd", "empty")]

    odd, empty = load("judge").score_answers(answers, [0, 0])

    assert values(odd) == [7.0, 7.0, 7.0, None, 7.0, 7.0, 7.0]
    assert (empty.value.kind, empty.passing, odd.passing) == ("no-score", False, False)


def test_a_server_without_answers_is_an_error(server: FakeServer, load: Load) -> None:
    """As for verdicts: one line, and no case waits in vain."""
    server.answer = lambda _: fault(500, "down")
    with pytest.raises(ModelError, match="answered none of 1 requests"):
        load("judge", "retries=0").score_answers([ANSWERED], [0])


def test_there_is_room_for_seven_scores(server: FakeServer, load: Load) -> None:
    """A limit that suits a verdict would cut them; a larger one is kept, as is none."""
    server.answer = lambda _: chat_answer(scores_text())
    for query, expected in (("max_tokens=8", 1024), ("max_tokens=4000", 4000)):
        load("judge", query).score_answers([ANSWERED], [0])
        assert server.seen[-1].body["max_tokens"] == expected
    load("judge", "max_tokens=none").score_answers([ANSWERED], [0])
    assert "max_tokens" not in server.seen[-1].body


@pytest.mark.parametrize("prompt", ["opening-gpt", "opening-intjudge"])
def test_images_are_numbered_where_the_prompt_numbers_them(
    server: FakeServer, load: Load, prompt: str
) -> None:
    """In the layout of the prompt, as large as it lets them be; its words for verdicts stay out."""
    server.answer = lambda _: chat_answer(scores_text())

    load("judge", f"prompt={prompt}&max_pixels=16&system_prompt=be brief").score_answers(
        [ANSWERED], [0]
    )

    (seen,) = server.seen
    system, user = seen.body["messages"]
    shown = [part.get("text") for part in user["content"]]
    assert shown[:5] == [
        "<INPUT>: draw a circle <IMG_0></IMG_0>", None,
        "\n<OUTPUT>: here: <IMG_1></IMG_1>", None, "done",
    ]  # fmt: skip
    assert "<IMG_i>" in system["content"]
    assert "A is better" not in system["content"]
    assert [image.size for image in seen.images] == [(4, 4), (4, 4)]


def test_a_key_in_a_justification_is_not_kept(
    server: FakeServer, load: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server may say what it was sent."""
    monkeypatch.setenv("OPENAI_API_KEY", "sk-a-secret-key")
    echoed = scores_text(quality={"score": 3, "justification": "you sent sk-a-secret-key"})
    server.answer = lambda _: chat_answer(echoed)

    (reply,) = load("judge").score_answers([ANSWERED], [0])

    assert "sk-a-secret-key" not in reply.value.to_json()
    assert reply.value.value("quality") == 3.0


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
        assert len(server.seen) == 2
        assert scored() == first
        assert len(server.seen) == 2
        scored("max_pixels=4")
        scored("revision=2")
        assert len(server.seen) == 6


def test_a_sampled_judge_is_asked_with_another_seed(server: FakeServer, tmp_path: Path) -> None:
    """After reply and repair: the second question is one of its own, and fills the gaps."""
    seeds = []

    def answer(seen: Any) -> Any:
        seeds.append(seen.body["seed"])
        good = len(set(seeds)) > 1
        return chat_answer(scores_text(quality={"score": 5 if good else 99}, richness={"score": 4}))

    server.answer = answer
    with Store(tmp_path / "store") as store:
        runner = RoleRunner(bind_text(server.spec("temperature=1"), "judge"), store)
        refs = refer_to_question(question(0), store)
        (scores,) = score_answers([StoredAnswer("q00", refs, stored_answer(store, "x"))], 0, runner)

    assert scores.failures == []
    assert scores.value("quality") == 5.0
    assert (len(seeds), len(set(seeds))) == (3, 2)
