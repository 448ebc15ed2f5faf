"""What builders of tiny checkpoints share: a vocabulary, a tokenizer, a chat template, pictures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from PIL import Image, ImageDraw

# fmt: off
WORDS = [
    "describe", "the", "image", "what", "is", "shown", "?", "user", "assistant", "system", ":",
    "be", "brief", "a", "an", "and", "on", "of", "two", "small", "large", "red", "green", "blue",
    "yellow", "circle", "square", "left", "right", "top", "bottom",
]
# fmt: on

SPECIAL = ("<pad>", "<bos>", "<eos>", "<unk>")

# Content parts as the published templates walk them; IMAGE stands for a model's own image token.
CHAT_TEMPLATE = (
    "<bos> {% for message in messages %}{{ message['role'] }} : "
    "{% for part in message['content'] %}"
    "{% if part['type'] == 'image' %}IMAGE {% else %}{{ part['text'] }} {% endif %}"
    "{% endfor %}{% endfor %}{% if add_generation_prompt %}assistant : {% endif %}"
)


JUDGE_WORDS = (
    *WORDS, "A", "B", "Tie", "(A", "(B", "Tie(A", "Tie(B", "better", "better)", "before", "between",
    "after", "Question:", "Answer", "A:", "B:", "Answer:", "Correctness:", "Image-Text",
    "Coherency:", "Multi-step", "Consistency:", "Content", "Quality:", "Human", "Preference",
    "Alignment:", "Completeness:", "Richness:", *map(str, range(11)),
)  # fmt: skip
"""The words of a judge: with those of verdicts, however they are written, and of scores."""


def word_tokenizer(
    special: Sequence[str] = SPECIAL, words: Sequence[str] = WORDS, **named: str
) -> Any:
    """A word-level tokenizer: written by hand, since trained vocabularies differ from
    process to process.

    special: first tokens of the vocabulary, starting with those of SPECIAL. words: those after
    them. named: special tokens by the names that processors ask for (image_token="<image>").
    """
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    vocabulary = {word: index for index, word in enumerate([*special, *words])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.add_special_tokens(list(special))
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="<pad>",
        bos_token="<bos>",
        eos_token="<eos>",
        unk_token="<unk>",
        extra_special_tokens=named,
    )


def pictures(
    sizes: Sequence[tuple[int, int]] = ((64, 64), (48, 80), (96, 40)),
) -> list[Image.Image]:
    """One RGB picture per (width, height): a disc on a ground, both of other colors each time."""
    made = []
    for index, (width, height) in enumerate(sizes):
        image = Image.new("RGB", (width, height), (20 + 70 * index % 200, 30, 90))
        fill = ((255, 0, 0), (0, 255, 0), (255, 255, 0))[index % 3]
        ImageDraw.Draw(image).ellipse((4 + 6 * index, 6, 30 + 6 * index, 34), fill=fill)
        made.append(image)
    return made
