"""Scores in words: which object of a reply counts, and which of its numbers."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_cepbench.artifacts import Failure
from pytest_cepbench.artifacts.outcome import CRITERIA, CriteriaScores
from pytest_cepbench.models.text_model.judge_prompts import (
    CRITERION_SENTENCES,
    JSON_CLOSING,
    SCORE_SCHEMA,
    score_system,
)
from pytest_cepbench.models.text_model.judge_replies import problem_of, read_scores

FULL = {name: {"score": k + 1, "justification": f"why {name}"} for k, name in enumerate(CRITERIA)}
TEXT = json.dumps(FULL)
OTHER = json.dumps(FULL | {"quality": {"score": 0, "justification": "no"}})
NUMBERS = list(map(float, range(1, 8)))


def values(result: Any) -> list[float | None]:
    """The seven scores of a reply that could be read."""
    assert isinstance(result, CriteriaScores)
    return [result.value(name) for name in CRITERIA]


@pytest.mark.parametrize(
    "reply",
    [
        TEXT,
        f"\n{TEXT}\n",
        f"```json\n{TEXT}\n```",
        f"Here are my scores:\n{TEXT}\nI hope that helps.",
        f"Scores in {{braces}}: {TEXT}",
        f"A stray }} first. {TEXT} }}",
        f"<think>{OTHER}</think>{TEXT}",
        f"{OTHER}</think>\n{TEXT}",
        f"{TEXT}\nTo repeat it: {TEXT}",
        f"[{TEXT}]",
        json.dumps({name: k + 1 for k, name in enumerate(CRITERIA)}),
        json.dumps({name: float(k + 1) for k, name in enumerate(CRITERIA)}),
        json.dumps(FULL | {"overall": {"score": 99}, "remark": "fine"}),
        json.dumps({name.upper(): value for name, value in FULL.items()}),
        json.dumps(
            {
                CRITERION_SENTENCES[name][0]: {"Score": k + 1, "Justification": "as the paper has"}
                for k, name in enumerate(CRITERIA)
            }
        ),
        json.dumps({n: {"score": k + 1, "justification": ["x"]} for k, n in enumerate(CRITERIA)}),
        TEXT.replace("why quality", 'a brace } and a quote \\" and {'),
    ],
)
def test_all_seven_are_read(reply: str) -> None:
    """However the object is wrapped, and in the names of the prompt or of the paper."""
    assert values(read_scores(reply)) == NUMBERS
    assert problem_of(read_scores(reply)) == ""


@pytest.mark.parametrize(
    "reply",
    [
        "",
        "I'm sorry, but I can't assist with that.",
        "Correctness: 7, quality: 8",
        TEXT[:-1],
        TEXT[:60],
        f"A brace {{ that stays open. {TEXT}",
        "{}",
        '{"overall": 7}',
        '{"scores": ' + TEXT + "}",
        "7",
        "null",
        f"<think>{TEXT}",
        f"{TEXT}<think>or is it?",
        f"<think>{TEXT}</think>",
        f"{TEXT}\nNo, rather: {OTHER}",
        "{" * 100_000,
        '{"a":' * 100_000,
        '{"quality": ' + "9" * 5000 + "}",
    ],
    ids=lambda text: text[:40],
)
def test_a_reply_without_one_set_of_scores_is_a_failure(reply: str) -> None:
    """Of all criteria: none is guessed, and of two sets neither is taken."""
    result = read_scores(reply)
    assert isinstance(result, Failure)
    assert result.kind == "no-score"
    assert problem_of(result)


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ({"score": 11, "justification": ""}, "not from 0 to 10"),
        ({"score": -1, "justification": ""}, "not from 0 to 10"),
        ({"score": 7.5, "justification": ""}, "no whole number"),
        ({"score": "7", "justification": ""}, "no whole number"),
        ({"score": True, "justification": ""}, "no whole number"),
        ({"score": None, "justification": ""}, "no whole number"),
        ({"score": float("nan")}, "no whole number"),
        ({"justification": "good"}, "has no score"),
        ({"score": 7, "Score": 8}, "or two"),
        ([7], "no whole number"),
    ],
)
def test_a_wrong_number_fails_its_criterion_alone(value: Any, reason: str) -> None:
    """It is not clipped, rounded, read out of a text or taken for 0; the others stand."""
    result = read_scores(json.dumps(FULL | {"quality": value}))
    assert values(result) == [*NUMBERS[:3], None, *NUMBERS[4:]]
    assert reason in problem_of(result)


def test_a_missing_criterion_fails_alone() -> None:
    """And the problem names it, for the question that asks for it."""
    result = read_scores(json.dumps({n: v for n, v in FULL.items() if n != "preference"}))
    assert values(result) == [*NUMBERS[:4], None, *NUMBERS[5:]]
    assert problem_of(result) == "preference: no score was given"


@pytest.mark.parametrize("key", ["quality", "QUALITY", "Content Quality"])
def test_a_criterion_that_is_given_twice_has_no_score(key: str) -> None:
    """JSON readers keep the last of two equal keys, and say nothing."""
    reply = TEXT[:-1] + f', "{key}": {{"score": 0, "justification": "no"}}}}'
    result = read_scores(reply)
    assert values(result) == [*NUMBERS[:3], None, *NUMBERS[4:]]
    assert "given twice" in problem_of(result)


@pytest.mark.parametrize("piece", ["{", '{"', '\\"', '"{', '{"quality": {"score": 1', "}{"])
def test_a_long_reply_takes_no_long_time(piece: str) -> None:
    """A model can repeat itself up to its limit; time grows no faster than the text."""
    started = time.process_time()
    assert isinstance(read_scores(piece * 20_000), Failure)
    assert time.process_time() - started < 2


@given(st.text(st.sampled_from('{}"\\:,0123456789 qualitycorens[]<think/>\n'), max_size=80))
def test_any_text_is_read(text: str) -> None:
    """Whatever a model writes is scores or a failure, never an exception."""
    assert isinstance(read_scores(text), CriteriaScores | Failure)


@pytest.mark.parametrize("numbered", [True, False])
def test_the_words_and_the_schema_ask_for_the_same(numbered: bool) -> None:
    """Every criterion by title in the system prompt, by key in the closing and in the schema."""
    system = score_system(numbered=numbered)
    assert ("<IMG_i>" in system) == numbered
    for name in CRITERIA:
        assert CRITERION_SENTENCES[name][0] in system
        assert name in JSON_CLOSING
        score = SCORE_SCHEMA["properties"][name]["properties"]["score"]
        assert score["enum"] == list(range(11))
    assert SCORE_SCHEMA["required"] == list(CRITERIA)
