"""Verdicts in words: what counts as one of the four, and what is a failure."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_cepbench.artifacts import Failure
from pytest_cepbench.artifacts.outcome import WINNERS
from pytest_cepbench.models.text_model.judge_prompts import JUDGE_PROMPTS
from pytest_cepbench.models.text_model.judge_replies import read_named, read_winner

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


@pytest.mark.parametrize(("text", "winner"), VERDICTS)
def test_one_verdict_counts(text: str, winner: str) -> None:
    """However it is wrapped, the verdict that is named is read."""
    assert read_winner(text) == winner


@pytest.mark.parametrize("text", FAILURES, ids=lambda text: text[:40])
def test_no_verdict_or_several_are_a_failure(text: str) -> None:
    """No coin is tossed, no stray letter, quotation or denial is a verdict."""
    result = read_winner(text)

    assert isinstance(result, Failure)
    assert result.kind == "no-verdict"


@pytest.mark.parametrize("name", JUDGE_PROMPTS)
def test_the_phrases_that_are_asked_for_are_read(name: str) -> None:
    """What a prompt asks a judge to say, also with full stop, in bold and after reasoning."""
    for winner in WINNERS:
        phrase = JUDGE_PROMPTS[name].phrases[winner]
        for answer in (phrase, f"{phrase}.", f"**{phrase}**", f"<think>B</think>\n\n{phrase}"):
            assert read_named(JUDGE_PROMPTS[name], answer) == winner


@pytest.mark.parametrize(
    "answer", ["E", "AB", "a", "A is better", "A or C", "", "<think>C", "it is C"]
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
def test_any_text_is_read(text: str) -> None:
    """Whatever a model writes is a verdict or a failure, never an exception."""
    result = read_winner(text)

    assert result in WINNERS or isinstance(result, Failure)
