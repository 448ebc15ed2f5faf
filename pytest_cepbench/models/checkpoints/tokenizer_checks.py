"""Tokenizers: checked against their weights, and texts longer than a model reads are reported."""

from __future__ import annotations

import re
import warnings
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from pytest_cepbench.errors import CheckpointError, few_of

_VOCABULARIES = (
    "tokenizer.json", "vocab.json", "vocab.txt", "*.model", "*.spm", "*.bpe", "*.vocab",
    "*.tiktoken",
)  # fmt: skip
_MEDIA_TOKEN = re.compile(r"(image|vision|video|audio).*_token_(id|index)")
_WITHOUT_VOCABULARY = ("ByT5", "Canine", "Perceiver")  # these read bytes or code points


def check_vocabulary(folder: Path, tokenizer: str) -> None:
    """Raise CheckpointError when a folder holds no vocabulary for a tokenizer of this class.

    transformers 5 makes do with an empty one and maps every text to unknown tokens.
    """
    if tokenizer.startswith(_WITHOUT_VOCABULARY):
        return
    if not any(any(folder.glob(pattern)) for pattern in _VOCABULARIES):
        raise CheckpointError(
            f"{folder}: no vocabulary for {tokenizer} (expected one of "
            f"{', '.join(_VOCABULARIES)}). Save the tokenizer again beside the model"
        )


def check_tokens(folder: Path, tokenizer: Any, model: Any, apart: Collection[int] = ()) -> None:
    """Raise CheckpointError when a tokenizer has no tokens beside those that were added to it, or
    tokens that the model's weights do not know.

    Without its files, several tokenizers make nothing of any text. Looked up, a token that is not
    known is an IndexError on a CPU, and on an accelerator the end of the process's CUDA context.
    The other way round nothing is wrong: tables of embeddings are often padded.

    apart: ids of tokens that are never looked up, as several models keep their image token. A model
    that does not say how many tokens it knows is not judged.
    """
    vocabulary = tokenizer.get_vocab()
    if vocabulary and tokenizer.added_tokens_decoder.keys() >= set(vocabulary.values()):
        raise CheckpointError(
            f"{folder}: {type(tokenizer).__name__} knows {few_of(sorted(vocabulary))} and no other "
            "tokens: the files of its vocabulary are missing, or those of another tokenizer. Save "
            "it again beside the model"
        )
    rows = embedded_tokens(model)
    if rows is None:
        return
    beyond = {i: token for token, i in vocabulary.items() if i >= rows and i not in apart}
    if beyond:
        first = min(beyond)
        more = f" and {len(beyond) - 1} more" if len(beyond) > 1 else ""
        raise CheckpointError(
            f"{folder}: the tokenizer has the token {beyond[first]!r} at {first}{more}, and the "
            f"weights know {rows} tokens, from 0: the tokenizer is not the one of these weights. "
            "Save the one that the model was trained with, or give new tokens a row "
            "(resize_token_embeddings)"
        )


def check_image_token(folder: Path, processor: Any, config: Any) -> None:
    """Raise CheckpointError when the processor marks an image's place with another token than the
    model.

    Such a model finds no place to put the image, or puts it in the place of a word.
    """
    written = getattr(processor, "image_token_id", None)
    read = image_token(config)
    if written is not None and read is not None and written != read:
        raise CheckpointError(
            f"{folder}: the tokenizer marks an image's place with token {written}, and the model's "
            f"config.json says {read}: the tokenizer is not the one of these weights. Save the one "
            "that the model was trained with"
        )


def embedded_tokens(model: Any) -> int | None:
    """How many tokens the weights know, None where the model does not say."""
    try:
        table = model.get_input_embeddings()
    # transformers raises NotImplementedError for models without a table, such as vision backbones;
    # networks of other libraries have no such method.
    except (NotImplementedError, AttributeError):
        return None
    rows = getattr(table, "num_embeddings", None)
    # Idefics keeps the tokens that were added to its language model in a table of their own.
    return None if rows is None else rows + getattr(table, "num_additional_embeddings", 0)


def image_token(config: Any) -> int | None:
    """The id that stands for the image, None where there is none."""
    for name in ("image_token_id", "image_token_index"):
        value = getattr(config, name, None)
        if value is not None:
            return int(value)
    return None


def media_tokens(config: Any) -> set[int]:
    """The ids that a model's configuration gives to what is no word: images, videos, sounds."""
    return {
        value
        for name, value in config.to_dict().items()
        if _MEDIA_TOKEN.fullmatch(name) and isinstance(value, int)
    }


class TruncationNotice:
    """Warns once per loaded model that texts were cut: captions that grow longer show here."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._given = False

    def check(self, lengths: Sequence[int], longest: int) -> None:
        """Warn where a text has more tokens than are read; lengths, longest: of `text_lengths`."""
        count = sum(length > longest for length in lengths)
        if count and not self._given:
            self._given = True
            msg = (
                f"{self._what} reads {longest} tokens: {count} longer text(s) of this batch were "
                "cut for it (said once)"
            )
            warnings.warn(msg, stacklevel=3)
