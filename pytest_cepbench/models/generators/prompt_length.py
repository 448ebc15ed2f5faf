"""How much of a prompt a diffusers pipeline reads."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Mapping, Sequence
from typing import Any

_TOKENIZERS = ("tokenizer", "tokenizer_2", "tokenizer_3", "tokenizer_4")

_BOUNDED = 1_000_000  # tokenizers that state no length have a huge one


def prompt_lengths(
    pipeline: Any, call: Mapping[str, Any], texts: Sequence[str]
) -> tuple[list[int], int]:
    """Tokens of each text, and the most that are read, by the text encoder that reads most.

    Where a pipeline has several (CLIP and T5), a text counts as whole when one of them reads all of
    it. call: parameters of the pipeline's call; its `max_sequence_length` bounds those that state no
    length themselves. Nothing is bounded where no tokenizer is.
    """
    bounded = [
        (limit, tokenizer)
        for name in _TOKENIZERS
        if (tokenizer := getattr(pipeline, name, None)) is not None
        if (limit := _limit(pipeline, call, tokenizer)) is not None
    ]
    if not bounded:
        return [0] * len(texts), sys.maxsize
    most, tokenizer = max(bounded, key=lambda pair: pair[0])
    return [len(ids) for ids in tokenizer(list(texts))["input_ids"]], most


def _limit(pipeline: Any, call: Mapping[str, Any], tokenizer: Any) -> int | None:
    stated = getattr(tokenizer, "model_max_length", None)
    own = stated if isinstance(stated, int) and stated < _BOUNDED else None
    if own is not None and "CLIP" in type(tokenizer).__name__:
        return own
    parameter = inspect.signature(pipeline.__call__).parameters.get("max_sequence_length")
    asked = call.get("max_sequence_length", parameter.default if parameter else None)
    return asked if isinstance(asked, int) else own
