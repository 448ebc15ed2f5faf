"""What interleavers are told beside the question."""

from __future__ import annotations

PROMPTS = "interleaver-prompts/1"
"""Names the texts of this module; part of every key, and raised when any of them changes."""

INTERLEAVE = (
    "Answer with texts and images, in the order in which they are read. An answer may have several "
    "steps: give each its text, and then the image that belongs to it."
)
"""The system prompt of a chat model that answers with texts and images."""

SO_FAR = "The answer so far:"
"""Goes between the question and the steps that are made."""

END = "END"
"""What a model that writes step by step says where its answer is complete."""


def told_text(steps: int) -> str:
    """How a model is told the number of its steps, after the question."""
    return f"Answer in exactly {steps} step{'s'[: steps > 1]}, each a text and an image."


def step_text(number: int, told: int | None) -> str:
    """How a model is asked for the text of one step, after the question and the steps before.

    number: of the step, from 1. told: how many there are to be; None where the model decides.
    """
    of_all = "" if told is None else f" of {told}"
    ending = f" If the answer is complete, reply with {END}." if told is None and number > 1 else ""
    return (
        f"Write the text of step {number}{of_all} of the answer and nothing else. An image will be "
        f"drawn for it.{ending}"
    )


def image_text(step: str, question: str) -> str:
    """How a model is asked for the image of a step. question: the texts of the question."""
    return f"{step}\nThis image belongs to the answer to: {question}"


def is_end(line: str) -> bool:
    """True for a line that says no more than that the answer is complete."""
    return line.strip(" .!*\"'`") == END
