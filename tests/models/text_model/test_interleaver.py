"""Answers in two stages, by checkpoints, and by an interleaver of the user's own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from PIL import Image

from pytest_cepbench.artifacts import Failure
from pytest_cepbench.models.protocols import (
    CUT,
    Interleaver,
    Question,
    Reply,
    StepLimit,
)
from pytest_cepbench.models.text_model.interleaver import interleave, step_text
from tests.models.binding import load_once, plain
from tests.models.text_model.conftest import Build, spec
from tests.tiny.common import pictures

FREE = StepLimit()
RED = Image.new("RGB", (4, 4), "red")
ONE, OTHER, _ = pictures()

QUESTIONS: tuple[Question, ...] = (
    ["describe the red circle"],
    ["what is shown ?", ONE],
    ["a small square"],
    [ONE, "and", OTHER, "what is left ?"],
)

both = pytest.mark.parametrize("family", ["janus", "emu3"])


def answers_of(
    model: Interleaver, questions: Sequence[Question], limit: StepLimit, first_seed: int = 7
) -> list[list[tuple[str, bytes]]]:
    """Texts and pixels of the answers' steps, with seeds that count up."""
    seeds = list(range(first_seed, first_seed + len(questions)))
    answers: Any = plain(model.interleave(questions, [limit] * len(questions), seeds))
    return [[(step.text, step.image.tobytes()) for step in answer] for answer in answers]


class Writer:
    """Says what it is to say to a question, step by step, and remembers what it was asked."""

    def __init__(self, **texts: list[str | Failure]) -> None:
        self.texts = texts
        self.asked: list[Question] = []

    def write(
        self, questions: Sequence[Question], prompt: str, seeds: Sequence[int]
    ) -> list[str | Failure]:
        """The next text for each question."""
        self.asked += questions
        return [self.texts[str(question[0])].pop(0) for question in questions]


class Painter:
    """Draws a red image of any text but those that hold "nothing"."""

    def __init__(self) -> None:
        self.drawn: list[tuple[str, int]] = []

    def generate(self, texts: Sequence[str], seeds: Sequence[int]) -> list[Image.Image | Failure]:
        """One image for each text."""
        self.drawn += zip(texts, seeds, strict=True)
        return [Failure("nan-image", "no") if "nothing" in text else RED for text in texts]


def answer(limit: StepLimit, **texts: list[str | Failure]) -> list[list[str] | Failure]:
    """The texts of each answer of a writer."""
    count = len(texts)
    questions = [[name] for name in texts]
    answers = interleave(Writer(**texts), Painter(), questions, [limit] * count, [1] * count)
    return [a if isinstance(a, Failure) else [step.text for step in a] for a in plain(answers)]


def test_the_model_ends_where_it_decides() -> None:
    """By an empty text, by its word alone or after a last text; the others of the call go on. A
    told number is made whatever the model says, and never more than the most. A step that fails
    fails its answer, with its number where an image failed.
    """
    no_step = Failure("empty-text", "the answer has no step")
    assert answer(
        FREE,
        a=["one", "", "three"],
        b=["one", "two", "END."],
        c=["one", "two\nEND", "three"],
        d=["", "two"],
    ) == [["one"], ["one", "two"], ["one", "two"], no_step]

    assert answer(StepLimit(2), a=["END", "two"], b=["one", ""]) == [["END", "two"], ["one", ""]]
    assert answer(StepLimit(5, most=1), a=["one", "two"]) == [["one"]]
    assert answer(StepLimit(most=2), a=["one", "two", "three"]) == [["one", "two"]]

    refused = Failure("refused", "no")
    assert answer(FREE, a=["one", refused], b=["one", "nothing"], c=["one", ""]) == [
        refused,
        Failure("nan-image", "image of step 2: no"),
        ["one"],
    ]


def test_a_step_is_asked_with_all_that_came_before() -> None:
    """Question, texts and images in order; the image with the texts of the question. An answer with
    a cut text says so, whichever of its steps it is.
    """
    texts: list[Any] = ["one", Reply("two", provenance=CUT), "END"]
    writer, painter = Writer(a=texts), Painter()

    (reply,) = interleave(writer, painter, [["a", RED, "b"]], [FREE], [5])

    assert isinstance(reply, Reply)
    assert ([step.text for step in reply.value], reply.provenance) == (["one", "two"], CUT)
    first, second, third = writer.asked
    assert first == ["a", RED, "b", step_text(1, None)]
    assert second == ["a", RED, "b", "The answer so far:", "one", RED, step_text(2, None)]
    assert third[4:8] == ["one", RED, "two", RED]
    assert [text for text, _ in painter.drawn] == [
        f"{step}\nThis image belongs to the answer to: a b" for step in ("one", "two")
    ]
    assert len({seed for _, seed in painter.drawn}) == 2


def test_reasoning_is_neither_drawn_nor_read_again() -> None:
    """It is kept with its step; alone it fails the answer."""
    thoughts = ["<think>a red one?</think>one", "two\nEND"]
    writer, painter = Writer(a=list(thoughts), b=["<think>hm"]), Painter()

    steps, failure = interleave(writer, painter, [["a"], ["b"]], [FREE, FREE], [5, 5])

    assert isinstance(steps, list)
    assert [step.text for step in steps] == [thoughts[0], "two"]
    assert not [text for text, _ in painter.drawn if "think" in text]
    assert writer.asked[-1][2] == "one"
    assert isinstance(failure, Failure)
    assert failure.kind == "only-reasoning"

    kept = Painter()
    writer = Writer(a=list(thoughts))
    interleave(writer, kept, [["a"]], [FREE], [5], keeps_reasoning=True)
    assert kept.drawn[0][0].startswith("<think>")


@pytest.mark.models
@pytest.mark.slow
@both
def test_a_checkpoint_answers_each_question_for_itself(tiny_describer: Build, family: str) -> None:
    """Alone and together the same texts, and images that differ by the rounding of a batch."""
    model = load_once(spec(tiny_describer(family)), "interleaver")

    together = answers_of(model, QUESTIONS, StepLimit(2))

    alone = [answers_of(model, [q], StepLimit(2), 7 + i)[0] for i, q in enumerate(QUESTIONS)]
    assert [len(steps) for steps in together] == [2] * 4
    for steps, own in zip(together, alone, strict=True):
        assert steps[0][0] == own[0][0]
        for (_, image), (_, own_image) in zip(steps[:1], own[:1], strict=True):
            apart = max(abs(a - b) for a, b in zip(image, own_image, strict=True))
            assert apart <= 1
    assert len({image for steps in together for _, image in steps}) == 8
