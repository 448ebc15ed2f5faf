"""Tokenizers for the captions of the world, built by hand.

The trainers of tokenizers give another vocabulary in each process; these are the same everywhere,
so that a checkpoint trained again speaks the same tokens.
"""

from __future__ import annotations

from collections.abc import Sequence

from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import CLIPTokenizer, PreTrainedTokenizerFast
from world import PROMPT

from pytest_cepbench.artifacts.answer import STEP_END
from pytest_cepbench.datasets.shapes.arena import VOCABULARY
from pytest_cepbench.datasets.shapes.scene import COLORS, COLUMNS, ROWS, SHAPES, SIZES

NUMBERS = ("one", "two", "three", "four")

CAPTION_WORDS = (
    *(":", ",", "no", "shape", "shapes"), *NUMBERS, *SIZES, *COLORS, *SHAPES, *ROWS, *COLUMNS,
)  # fmt: skip
"""Every word of the captions' grammar, for scenes of up to four objects."""

PAD, BEGIN, END, UNKNOWN, IMAGE = "<pad>", "<bos>", "<eos>", "<unk>", "<image>"

CHAT_TEMPLATE = (
    "<bos> {% for message in messages %}{{ message['role'] }} : "
    "{% if message['content'] is string %}{{ message['content'] }}"
    "{% else %}{% for part in message['content'] %}"
    "{% if part['type'] == 'image' %}<image>{% else %} {{ part['text'] }}{% endif %}"
    "{% endfor %}{% endif %} {% endfor %}"
    "{% if add_generation_prompt %}assistant : {% endif %}"
)

CLIP_LENGTH = 32
"""Tokens of a text for the CLIP and for the generator; the longest caption has 28."""


DESCRIBER_WORDS = (*CAPTION_WORDS, "user", "assistant", *PROMPT.split())
"""Every word that the describer reads or says."""

PLANNER_WORDS = (*VOCABULARY, STEP_END, "user", "assistant")
"""Every word that the planner reads or says."""


def word_tokenizer(words: Sequence[str], length: int) -> PreTrainedTokenizerFast:
    """One token for each of the words, and special ones; for texts of so many tokens."""
    known = dict.fromkeys((PAD, BEGIN, END, UNKNOWN, *words))
    vocabulary = {word: number for number, word in enumerate(known)}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token=UNKNOWN))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=PAD,
        bos_token=BEGIN,
        eos_token=END,
        unk_token=UNKNOWN,
        padding_side="left",
        model_max_length=length,
        extra_special_tokens={"image_token": IMAGE},
    )


def clip_tokenizer() -> CLIPTokenizer:
    """CLIP's byte-pair encoding with merges that make one token of each word of the captions.

    Other words fall apart into the bytes that they consist of, as they do in CLIP's own vocabulary.
    """
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokens = [*letters, *(f"{letter}</w>" for letter in letters)]
    merges: list[tuple[str, str]] = []
    for word in CAPTION_WORDS:
        pieces = _merged([*word[:-1], f"{word[-1]}</w>"], merges)
        # A merge that is added last is tried last, so it takes no earlier word apart.
        while len(pieces) > 1:
            merges.append((pieces[0], pieces[1]))
            pieces[:2] = [pieces[0] + pieces[1]]
            tokens.append(pieces[0])
    special = ("<|startoftext|>", "<|endoftext|>")
    vocabulary = {token: number for number, token in enumerate((*tokens, *special))}
    return CLIPTokenizer(vocab=vocabulary, merges=merges, model_max_length=CLIP_LENGTH)


def _merged(pieces: list[str], merges: Sequence[tuple[str, str]]) -> list[str]:
    """The pieces after every merge, in the order of the merges."""
    for left, right in merges:
        place = 0
        while place + 1 < len(pieces):
            if (pieces[place], pieces[place + 1]) == (left, right):
                pieces[place : place + 2] = [left + right]
            place += 1
    return pieces
