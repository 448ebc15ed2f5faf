"""Verdicts and scores in words: what counts, and what is a failure."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_cepbench.artifacts import Failure
from pytest_cepbench.artifacts.outcome import CRITERIA, WINNERS, CriteriaScores
from pytest_cepbench.models.text_model.judge_prompts import (
    CRITERION_SENTENCES,
    JSON_CLOSING,
    JUDGE_PROMPTS,
    SCORE_SCHEMA,
    score_system,
)
from pytest_cepbench.models.text_model.judge_replies import (
    read_named,
    read_scores,
    read_winner,
)

VERDICTS = [
    ("A", "A"),
    ("b", "B"),
    ("**B.**", "B"),
    ("(A)", "A"),
    ("Answer: B", "B"),
    ("A is better", "A"),
    ("b is better.", "B"),
    ("**B is better**", "B"),
    ("__B is better__", "B"),
    ("Answer: B is better", "B"),
    ("<OUTPUT_A> is better", "A"),
    ("A is better than B", "A"),
    ("B is better because A is not", "B"),
    ("While A is not bad, B is better.", "B"),
    ("B is better: its tie matches the shirt", "B"),
    ("\u0410 is better", "A"),
    ("\uff22 is better", "B"),
    ("Tie (A is better)", "Tie(A)"),
    ("Tie(A is better)", "Tie(A)"),
    ("Tie(B better)", "Tie(B)"),
    ("tie(b)", "Tie(B)"),
    ("Tie: A is better", "Tie(A)"),
    ("tie (b", "Tie(B)"),
    ("tie (b ...", "Tie(B)"),
    ("Tie (A is", "Tie(A)"),
    ("My verdict: Tie (B is better).", "Tie(B)"),
    ("I call this a Tie (B is better, by a hair).", "Tie(B)"),
    ("Tie (A is better) since both draw it well", "Tie(A)"),
    ('"B is better"', "B"),
    ('I looked at all steps.\nFinal verdict: "B is better".', "B"),
    ("It's `A is better` or `B is better`, and I say: A is better", "A"),
    ("> Reply with A is better or B is better\n\nB is better", "B"),
    ("<think>B is better? No, A is better.</think>Tie (A is better)", "Tie(A)"),
    ("<think>A</think><think>B is better</think>\nA is better", "A"),
    ("[[A]]", "A"),
    ("[[A>>B]]", "A"),
    ("My final verdict is clear: [[B>A]]", "B"),
    ('{"better_response": "A"}', "A"),
    ('```json\n{"reasoning": "B has colors", "winner": "Tie (A is better)"}\n```', "Tie(A)"),
]

FAILURES = [
    "",
    " \n",
    "Tie",
    "It is a tie.",
    "Tie, A and B are equal",
    "Tie (A and B are equal)",
    "Tie (A is better or B is better)",
    "It is a tie, but A is better",
    "Both are",
    "Both are good",
    "An answer",
    "a is a better one",
    "A is better. No, B is better",
    "A is better at texts, B is better at images",
    "Tie (A is better) or A is better",
    "I cannot compare these",
    "I'm sorry, but I can't assist with that.",
    "I do not think that A is better",
    "I can't say whether B is better",
    "Either A is better or B is better",
    'The rubric has "B is better" for the case that the second answer wins.',
    "You asked me to say 'A is better' where the first wins; I cannot.",
    "The tie bar is silver",
    "<think>A is better",
    "A is better<think>or is it?",
    "<think>A is better</think>",
    "[[A=B]]",
    "[[C]]",
    "[[A]] and [[B]]",
    '{"better_response": "both"}',
    '{"better_response": "A", "winner": "B"}',
    '{"better_response": ["A"]}',
    '{"score": 5}',
    '{"better_response": "A"',
    "[" * 100_000,
    '{"a":' * 100_000,
]


UNCLEAR = [
    # denied
    "It is hard to say A is better",
    "It's hard for me to say that B is better.",
    "It would be wrong to say A is better",
    "It is false that B is better",
    "It is a mistake to claim A is better",
    "To say A is better would be unfair",
    "I doubt A is better",
    "I am not sure B is better",
    "I am unable to say A is better",
    "I fail to see that B is better",
    "I disagree that A is better",
    "I hesitate to say B is better",
    "Nothing suggests that A is better",
    "Few would agree that B is better",
    "It is far from clear that A is better",
    "Rather than saying A is better I abstain",
    "I would not call this a Tie (A is better)",
    "Not a tie (B is better)",
    'I cannot give the verdict "A is better"',
    "A is better is false",
    "B is better would be an exaggeration",
    # doubted
    "Maybe A is better",
    "Perhaps B is better.",
    "It may be that A is better",
    "It is possible that B is better",
    "It is unclear that A is better",
    "At first glance B is better",
    "I thought A is better",
    "It is tempting to say B is better",
    # conditions
    "If only the text counts, A is better",
    "A is better if you prefer color",
    "B is better, unless the steps count",
    "A is better only when the images load",
    "Assuming the task is a story, B is better",
    "Should the style matter most, A is better",
    "Depending on taste, B is better",
    "Suppose A is better",
    'If the first answer wins, the reply is "A is better"',
    # the question, and what others say
    "Which one? A is better?",
    "A?",
    "Is it a Tie (B is better)?",
    "A is better, right?",
    "You asked me to say A is better for the first answer",
    "The phrase A is better stands for the first answer",
    "A is better means that the first answer wins",
    "A verdict, e.g. A is better, is asked for",
    "\u2018A is better\u2019 is one of the four replies",
    "\u201eA is better\u201c is one of the four replies",
    "Some would say B is better",
    "One could argue that A is better",
    "The author claims B is better",
    # both letters, and something else than the other answer
    "A or B is better",
    "Which of A and B is better is a matter of taste",
    "A/B is better",
    "A is better or at least equal",
    "B is better in some respects",
    "A is better than nothing",
]

CLEAR = [
    ("It is hard to say, but A is better", "A"),
    ("I think B is better", "B"),
    ("We can say A is better", "A"),
    ("Since B does not answer the question, A is better.", "A"),
    ("Given that it's hard to compare, A is better.", "A"),
    ("It is difficult to decide, so Tie (B is better)", "Tie(B)"),
    ("B's images could be better; A is better.", "A"),
    ("I'd say that A is better.", "A"),
    ("I have to say B is better", "B"),
    ("If I had to choose, A is better", "A"),
    ("Even if the text of A is longer, B is better", "B"),
    ("A is better, if you ask me", "A"),
    ("B is better if only slightly", "B"),
    ("B is better when considering all seven criteria", "B"),
    ("Unlike A, B is better", "B"),
    ("A uses a wrong color. B is better than the other answer", "B"),
    ("All of this shows that A is better", "A"),
    ("Which one is better? B is better.", "B"),
    ("A is better is my verdict", "A"),
    ("A is better. If you look at the images, they fit the text", "A"),
]


def problem_of(scores: CriteriaScores | Failure) -> str:
    """Why a reply does not have all seven scores; empty where it has."""
    if isinstance(scores, Failure):
        return scores.detail
    return "; ".join(dict.fromkeys(failure.detail for failure in scores.failures))


@pytest.mark.parametrize("text", UNCLEAR)
def test_what_is_unclear_is_no_verdict(text: str) -> None:
    """Denied, doubted, conditional, asked, quoted or of both: none of them is a verdict."""
    assert isinstance(read_winner(text), Failure)
    assert isinstance(read_winner(json.dumps({"verdict": text})), Failure)


@pytest.mark.parametrize(("text", "winner"), VERDICTS + CLEAR)
def test_one_verdict_counts(text: str, winner: str) -> None:
    """However it is wrapped, the verdict that is named is read."""
    assert read_winner(text) == winner


@pytest.mark.parametrize("text", FAILURES, ids=lambda text: text[:40])
def test_no_verdict_or_several_are_a_failure(text: str) -> None:
    """No coin is tossed, no stray letter, quotation or denial is a verdict."""
    result = read_winner(text)

    assert isinstance(result, Failure)
    assert result.kind == "no-verdict"


def test_a_failure_says_what_was_named() -> None:
    """How many of the verdicts, and a tie of no side beside them."""
    tie, both = read_winner("It is a tie, but A is better"), read_winner("A is better. B is better")
    assert isinstance(tie, Failure)
    assert isinstance(both, Failure)
    words = "named 1 of the four verdicts and a tie that leans to neither side: "
    assert tie.detail.startswith(words)
    assert both.detail.startswith("named 2 of the four verdicts: ")


@pytest.mark.parametrize("name", JUDGE_PROMPTS)
def test_the_phrases_that_are_asked_for_are_read(name: str) -> None:
    """What a prompt asks a judge to say, also with full stop, in bold and after reasoning."""
    for winner in WINNERS:
        phrase = JUDGE_PROMPTS[name].phrases[winner]
        for answer in (phrase, f"{phrase}.", f"**{phrase}**", f"<think>B</think>\n\n{phrase}"):
            assert read_named(JUDGE_PROMPTS[name], answer) == winner


@pytest.mark.parametrize(
    "answer", ["E", "AB", "a", "A is better", "A or C", "", "<think>C", "it is C", "C?"]
)
def test_a_letter_is_read_alone(answer: str) -> None:
    """In a sentence it may be the name of an answer; a small one may be a word."""
    result = read_named(JUDGE_PROMPTS["letters"], answer)
    assert isinstance(result, Failure)
    assert result.kind == "no-verdict"


@pytest.mark.parametrize(
    "answer", ["C", " C.", "**C**", "Answer: C", "Final answer: (C)", "Verdict: C"]
)
def test_a_letter_may_have_a_label(answer: str) -> None:
    """And what emphasis and punctuation models put around it."""
    assert read_named(JUDGE_PROMPTS["letters"], answer) == "Tie(A)"


@given(st.text(st.sampled_from('AB ab().:"*`[]>{}tie<think/>\n isbetter'), max_size=60))
def test_any_text_is_a_verdict_or_a_failure(text: str) -> None:
    """Whatever a model writes is a verdict or a failure, never an exception."""
    result = read_winner(text)

    assert result in WINNERS or isinstance(result, Failure)


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
def test_any_text_is_scores_or_a_failure(text: str) -> None:
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
