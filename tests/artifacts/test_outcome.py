"""Outcomes of models: kinds of failures, masks, boxes, scores; reasoning told from the answer."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from pytest_cepbench.artifacts import Detection, Detections, Failure, Mask
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
from pytest_cepbench.artifacts.outcome import (
    CRITERIA,
    OVERALL,
    CriteriaScores,
    CriterionScore,
    read_score,
)
from pytest_cepbench.datasets.shapes.arena import CRITERIA as TRUTH_CRITERIA
from pytest_cepbench.datasets.shapes.arena import Truth

BOX = (1.0, 2.0, 3.0, 4.0)

SHAPES = hnp.array_shapes(min_dims=2, max_dims=2, min_side=1, max_side=6)


def test_an_unknown_kind_is_refused_where_it_is_made() -> None:
    """A plug-in that invents a kind hears of it at once, with the nearest known one."""
    kind: Any = "empty-txt"
    with pytest.raises(ValueError, match=r"'empty-txt'\. Did you mean 'empty-text'"):
        Failure(kind)


@given(hnp.arrays(np.bool_, SHAPES))
def test_a_mask_gives_back_its_pixels(inside: npt.NDArray[np.bool_]) -> None:
    """Runs alternate from outside the object, and none but the first is empty."""
    mask = Mask.from_array(inside)
    assert (mask.height, mask.width) == inside.shape
    assert mask.to_array().tolist() == inside.tolist()
    assert all(mask.runs[1:])
    assert (mask.runs[0] == 0) == bool(inside[0, 0])


@pytest.mark.parametrize("runs", [(), (5,), (7,), (7, -1), (-1, 7)])
def test_runs_that_do_not_fill_the_image_are_refused(runs: tuple[int, ...]) -> None:
    """Fewer or more pixels than 2 x 3, or a run of less than none."""
    with pytest.raises(ValueError, match=r"do not fit 2 x 3"):
        Mask(2, 3, runs)


def test_what_is_no_detection_is_refused() -> None:
    """0 and 1 are scores, nothing beyond them is; sides of a box have places and are in order."""
    assert [Detection("dog", limit, BOX).score for limit in (0.0, 1.0)] == [0.0, 1.0]
    for score in (-0.1, 1.0001, 2.0, float("nan"), float("inf")):
        with pytest.raises(ValueError, match=r"score lies in \[0, 1\], got"):
            Detection("dog", score, BOX)
    assert Detection("dog", 0.5, (1, 2, 1, 2)).box == (1, 2, 1, 2)  # a point
    for box in ((3, 2, 1, 4), (1, 4, 3, 2), (float("nan"), 2, 3, 4), (1, 2, float("inf"), 4)):
        with pytest.raises(ValueError, match="a box is left, top, right, bottom in pixels, got"):
            Detection("dog", 0.5, box)


@given(st.lists(st.tuples(st.sampled_from([0.0, 0.25, 0.5, 1.0]), st.text(max_size=3))))
def test_detections_come_by_confidence(scored: list[tuple[float, str]]) -> None:
    """Highest first; equally confident ones stay in the detector's order."""
    detections = [Detection(query, score, BOX) for score, query in scored]
    expected = [
        detection
        for score in (1.0, 0.5, 0.25, 0.0)
        for detection in detections
        if detection.score == score
    ]
    assert list(Detections.sort(detections).found) == expected


ALL_SEVEN: dict[str, object] = dict.fromkeys(CRITERIA, 7)

RESULTS = st.one_of(
    st.builds(
        CriterionScore,
        st.integers(0, 10),
        st.text(max_size=40),
        st.none() | st.floats(0, 10),
    ),
    st.builds(Failure, st.sampled_from(["no-score", "refused"]), st.text(max_size=20)),
)


def test_the_criteria_are_those_of_the_known_truth() -> None:
    """A judge's scores and the arena's truth have the same seven names in the same order."""
    assert CRITERIA == TRUTH_CRITERIA == tuple(field.name for field in fields(Truth))


@pytest.mark.parametrize(
    "value", [11, -1, 6.5, True, None, "7", [7], float("nan"), float("inf"), 10**30]
)
def test_anything_else_is_a_failure_of_the_criterion(value: Any) -> None:
    """Nothing is clipped, rounded or read out of a text; the failure names the criterion. Whole
    numbers are scores in any type in which JSON readers and arrays give them.
    """
    for score in (0, 10, 7.0, np.int64(3)):
        assert read_score("quality", score) == CriterionScore(int(score))
    result = read_score("quality", value)
    assert isinstance(result, Failure)
    assert result.kind == "no-score"
    assert result.detail.startswith("quality: ")


def test_a_missing_criterion_is_a_failure_of_its_own() -> None:
    """The others keep their scores; a mean over all seven there is none. It is taken of expected
    scores, where there are any. A second reply fills gaps alone: a score that was given stays.
    """
    scores = CriteriaScores.of({"correctness": 8, "richness": 12})
    assert scores.value("correctness") == 8.0
    assert [scores.value(name) for name in ("richness", "quality", OVERALL)] == [None] * 3
    assert len(scores.failures) == 6
    assert list(scores.by_criterion) == list(CRITERIA)
    assert CriteriaScores.of(ALL_SEVEN | {"quality": 0}).value(OVERALL) == 6.0
    soft = CriteriaScores.of(ALL_SEVEN | {"quality": CriterionScore(0, expected=3.5)})
    assert soft.value(OVERALL) == 6.5
    first = CriteriaScores.of({"correctness": 8, "quality": 40})
    second = CriteriaScores.of({"correctness": 1, "quality": 4})
    filled = first.filled_from(second)
    assert [filled.value(name) for name in ("correctness", "quality", "richness")] == [8, 4, None]


@given(st.dictionaries(st.sampled_from(CRITERIA), RESULTS))
def test_what_is_written_is_read_again(results: Any) -> None:
    """Every score and failure, through the text that a store keeps."""
    scores = CriteriaScores(results)
    assert CriteriaScores.from_json(scores.to_json()) == scores


@pytest.mark.parametrize(
    "text", ["", "[]", "{", '{"size": {"score": 1}}', '{"quality": 7}', '{"quality": {}}',
             '{"quality": {"score": 70, "justification": ""}}',
             '{"quality": {"failure": ["odd", ""]}}', "[" * 100_000]
)  # fmt: skip
def test_other_texts_are_no_scores(text: str) -> None:
    """A store can hold anything under a key."""
    with pytest.raises(ValueError, match=r"\S"):
        CriteriaScores.from_json(text)


@given(st.text())
def test_a_justification_hides_nothing_and_is_short(text: str) -> None:
    """One line of printable characters, however long and whatever it held: without those that a
    terminal obeys, and those that turn or hide text.
    """
    justification = CriterionScore(5, text).justification
    assert len(justification) <= 300
    assert justification == " ".join(justification.split())
    assert all(char.isprintable() for char in justification)
    assert CriterionScore(5, "so\x1b[2J so\u202e\n\x00fine\u200b").justification == "so[2J so fine"
    assert CriterionScore(5, "x" * 999).justification == "x" * 300


def test_a_score_out_of_range_cannot_be_made() -> None:
    """A user's own judge that builds one meets the error where it stands."""
    scores: list[Any] = [11, -1, 2.0, True, "7"]
    for score in scores:
        with pytest.raises(ValueError, match="whole number from 0 to 10"):
            CriterionScore(score)
    for expected in (-0.1, 10.1, float("nan")):  # a mean of such numbers lies on the scale too
        with pytest.raises(ValueError, match="expected score lies in"):
            CriterionScore(5, expected=expected)
    with pytest.raises(ValueError, match="Did you mean 'richness'"):
        CriteriaScores.of({"richnes": 5})  # a typo is not a missing criterion


# -- reasoning in texts, and answers that look like it ---------------------------------------------


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
