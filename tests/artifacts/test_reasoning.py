"""Reasoning in texts: what is told apart from the answer, and answers that look like it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_cepbench.artifacts import Failure
from pytest_cepbench.artifacts.answer import (
    after_reasoning,
    opened_by,
    read_answer,
    read_objects,
    reasoning_spans,
    steps_without_reasoning,
    with_reasoning,
    without_reasoning,
)

ANSWER = "A red circle."

WRAPPED = {
    "DeepSeek, Qwen": "<think>\nblue?\n</think>\n\nA red circle.",
    "opened in the prompt": "blue?\n</think>\n\nA red circle.",
    "empty": "<think>\n\n</think>\n\nA red circle.",
    "nested": "<think>a <think> b </think> c </think> A red circle.",
    "spoken of inside": "<think>I close with </think> when done.\n</think>A red circle.",
    "capitals": "<THINK>blue?</THINK>A red circle.",
    "attributes": '<think effort="high">blue?</think>A red circle.',
    "prompts": "<thinking>blue?</thinking>A red circle.",
    "Gemini": "<thought>\nblue?\n</thought>A red circle.",
    "GRPO": "<reasoning>blue?</reasoning>\nA red circle.",
    "Keye": "<analysis>easy</analysis>A red circle.",
    "Seed-OSS": "<seed:think>blue?</seed:think>A red circle.",
    "Magistral": "[THINK]blue?[/THINK]A red circle.",
    "Kimi": "\u25c1think\u25b7blue?\u25c1/think\u25b7A red circle.",
    "Sky-T1": "<|begin_of_thought|>blue?<|end_of_thought|>A red circle.",
    "Command A": "<|START_THINKING|>blue?<|END_THINKING|>A red circle.",
    "Gemma 4": "<|channel>thought\nblue?<channel|>A red circle.",
    "gpt-oss": (
        "<|channel|>analysis<|message|>blue?<|end|><|start|>assistant<|channel|>final<|message|>"
        "A red circle."
    ),
    "gpt-oss without special tokens": "analysisIs it blue?assistantfinalA red circle.",
    "behind the answer": "A red circle.\n<think>or blue?</think>",
    "cut behind the answer": "A red circle.\n<think>or bl",
    "within a line": "A red<think>blue?</think>circle.",
}

ONLY = [
    "<think>blue?</think>",
    "<think>\nblue?",
    "blue?</think>\n",
    "[THINK]blue?",
    "<|channel|>analysis<|message|>blue?",
    "analysisIs it blue?",
    "<think>blue?</thinking>A red circle.",
]

PLAIN = [
    "I think it is a red circle.",
    "A page about the tag <think> and others.",
    "Analysis: a red circle",
    "analysis of a red circle",
    "[think] is written on it",
    "  A red circle \n",
    "",
]


@pytest.mark.parametrize("text", WRAPPED.values(), ids=WRAPPED)
def test_an_answer_is_told_from_its_reasoning(text: str) -> None:
    """Whichever marker a family writes, opened by the model or by the prompt, closed or not."""
    assert read_answer(text) == ANSWER
    assert after_reasoning(text) == ANSWER


@pytest.mark.parametrize("text", ONLY)
def test_reasoning_alone_is_a_failure(text: str) -> None:
    """There is no answer, however right the thoughts are."""
    failure = read_answer(text)

    assert isinstance(failure, Failure)
    assert failure.kind == "only-reasoning"
    assert after_reasoning(text) is None


@pytest.mark.parametrize("text", PLAIN)
def test_a_text_without_reasoning_stays_as_it_is(text: str) -> None:
    """To the byte, so that what depends on it keeps its key; words of thinking are words."""
    assert read_answer(text) == text


def test_a_verdict_may_be_inside_reasoning_that_never_ends() -> None:
    """Where an opening marker stands within a line, a text has an answer and a verdict none. What
    is given apart leaks nothing, whatever markers it holds itself.
    """
    text = "Let me see: <think> A is better"

    assert read_answer(text) == text
    assert after_reasoning(text) is None
    for reasoning in ("a</think>b<think>c", "a</THINK >b", "<think>", "[/THINK]b[THINK]"):
        assert read_answer(with_reasoning(reasoning, ANSWER)) == ANSWER


def test_steps_of_an_answer_lose_reasoning_and_its_images() -> None:
    """It may reach over several steps; a step of which nothing is left is none."""
    steps = [("<think>plan", 1), ("more</think>one", 2), ("two", None), ("<think>x</think>", None)]

    assert steps_without_reasoning(steps) == [None, ("one", 2), ("two", None), None]
    assert steps_without_reasoning([("one", 1), ("", 2)]) == [("one", 1), ("", 2)]
    assert steps_without_reasoning([("", 1), ("plan</think>one", 2)]) == [None, ("one", 2)]


@pytest.mark.parametrize(
    ("prompt", "marker"),
    [
        ("user: what? assistant: <think>\n", "<think>\n"),
        ("assistant: <think>\n\n</think>\n\n", ""),
        ("assistant: <think> of", ""),
        ("assistant: [THINK]", "[THINK]"),
        ("assistant:", ""),
    ],
)
def test_a_prompt_may_open_reasoning(prompt: str, marker: str) -> None:
    """Then the text that follows begins with it, though the model has not written the marker."""
    assert opened_by(prompt) == marker


@given(st.text(st.sampled_from("<think>/[THINK]\u25c1\u25b7|channel \n"), max_size=80), st.text())
def test_any_text_is_read(text: str, answer: str) -> None:
    """Spans lie in the text, in order; what is given apart comes apart again."""
    spans = reasoning_spans(text)
    edges = [edge for span in spans for edge in span]

    assert edges == sorted(edges)
    assert all(0 <= edge <= len(text) for edge in edges)
    assert len(without_reasoning(text)) <= len(text)
    if not reasoning_spans(answer):
        assert without_reasoning(with_reasoning(text, answer)) == answer.strip()


@pytest.mark.parametrize(
    ("reply", "documents"),
    [
        ('{"a": {"b": 1}}', [{"a": {"b": 1}}]),
        ('{"a": {"b": 1}} and {"c": "}{"} {d}', [{"a": {"b": 1}}, {"c": "}{"}]),
        ('So: {"a": "\\"}"}', [{"a": '"}'}]),
        ('no end: {"a": {"b": 1}', []),
        ("[1, 2]", []),
        ("", []),
    ],
)
def test_objects_stand_in_a_reply_or_are_it(reply: str, documents: list[object]) -> None:
    """From its first character on; braces in strings open and close nothing."""
    assert list(read_objects(reply)) == documents
