"""Instructions: every one has one sentence, which reads back to it, in a closed vocabulary."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_cepbench.datasets.shapes.arena import (
    TASKS,
    VOCABULARY,
    ArenaQuestion,
    load_shapes_arena,
)
from pytest_cepbench.datasets.shapes.arena.solver import (
    Instruction,
    Request,
    parse_instruction,
    phrase_instruction,
)
from pytest_cepbench.errors import DatasetError
from tests.datasets.shapes.arena.strategies import QUESTIONS

RED, BLUE = "small red cross top left", "small blue cross top left"

OUTSIDE = st.lists(
    st.sampled_from(["please", "answer", "in", "3", "steps :", "two", "red", "circle", "."])
).map(" ".join)
"""Words around an instruction that are none."""


@given(QUESTIONS)
def test_a_sentence_reads_back_to_its_instruction(question: ArenaQuestion) -> None:
    """Nothing that a question asks is lost in its sentence."""
    assert parse_instruction(phrase_instruction(question.instruction)) == question.instruction


@given(QUESTIONS, OUTSIDE, OUTSIDE)
def test_case_spacing_and_words_around_a_sentence_do_not_matter(
    question: ArenaQuestion, before: str, after: str
) -> None:
    """A prompt that wraps the question, or a shouting one, asks the same."""
    sentence = phrase_instruction(question.instruction).upper().replace(" ", " \n ")
    assert parse_instruction(f"{before} {sentence} {after}") == question.instruction


def test_the_vocabulary_is_closed_and_has_no_idle_word() -> None:
    """Questions and captions use all words of it and no other: a tokenizer needs no more."""
    samples = load_shapes_arena(60).samples
    texts = [piece for sample in samples for piece in sample.question if isinstance(piece, str)]
    texts += [step.text for sample in samples for step in sample.gold]
    assert {word for text in texts for word in text.split()} == set(VOCABULARY)
    assert len(VOCABULARY) == len(set(VOCABULARY)) == 66


@pytest.mark.parametrize(
    ("sentence", "expected"),
    [
        ("draw three shapes of your choice , then remove the one that comes last",
         Request(3)),
        ("draw two small shapes of your choice , then remove the one that comes last",
         Request(2, "small")),
        ("draw four cyan shapes of your choice , then remove the one that comes last",
         Request(4, None, "cyan")),
        ("draw two large red shapes of your choice , then remove the one that comes last",
         Request(2, "large", "red")),
    ],
)  # fmt: skip
def test_a_request_says_what_the_choice_has_to_meet(sentence: str, expected: Request) -> None:
    """Size and color are named or left free, each by itself."""
    assert parse_instruction(sentence) == Instruction("own", request=expected, end="last")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "describe the image",
        "add one shape per step :",
        "draw five shapes of your choice , then remove the one that comes first",
        "make the small red circle top left pink",
        "swap the small red circle top left",
        "move the small red circle to top left",
    ],
)
def test_what_is_no_question_is_refused(text: str) -> None:
    """The message quotes the text and says where the grammar is."""
    with pytest.raises(DatasetError, match="is no question of the arena of shapes: see docs/"):
        parse_instruction(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "add one shape per step : small red circle top left , large red cross top left",
            "names two objects in one place: small red circle top left , large red cross top left",
        ),
        (
            f"draw this step by step , one shape per step : one shape : {RED} ; order : {BLUE}",
            f"orders other objects than it describes: one shape : {RED} ; {BLUE}",
        ),
    ],
)
def test_a_question_that_contradicts_itself_is_refused(text: str, message: str) -> None:
    """The message quotes both sides."""
    with pytest.raises(DatasetError, match=message):
        parse_instruction(text)


def test_every_task_is_phrased_in_its_own_way() -> None:
    """No sentence could be taken for one of another task."""
    for sample in load_shapes_arena(10).samples:
        (text,) = (piece for piece in sample.question if isinstance(piece, str))
        assert (parse_instruction(text).task,) == sample.categories
    assert len(TASKS) == 10
