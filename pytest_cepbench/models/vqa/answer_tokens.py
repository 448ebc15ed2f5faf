"""The tokens that begin an answer, and how likely a loaded language model holds them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from pytest_cepbench.models.judges.phrase_likelihood import ContinuationReader, TokenRead
from pytest_cepbench.models.protocols import FloatArray


def first_tokens(tokenizer: Any, answers: Iterable[str]) -> frozenset[int]:
    """The first token of each spelling of an answer, with a space before it and without.

    Left out are tokens that are nothing but space, with which every other answer could begin as
    well, and the one for unknown words. An answer of several tokens has the probability of its
    first: "ten" and "tennis" may share it.
    Source: the released code of GenEval 2, which counts a token twice where two spellings begin
    with it, and tokens of space.
    """
    tokens = set()
    for answer in answers:
        for text in (answer, f" {answer}"):
            ids = tokenizer(text, add_special_tokens=False)["input_ids"]
            if ids and tokenizer.decode(ids[:1]).strip():
                tokens.add(int(ids[0]))
    return frozenset(tokens - {tokenizer.unk_token_id})


class TokenScorer:
    """Probabilities of single tokens as the first behind a prompt; see `judges.Scorer`.

    tokens: those that are wanted.
    """

    tolerances = (1e-4, 0.05)
    """How far two ways to the same probability may differ, in single and in half precision."""

    def __init__(self, model: Any, tokens: Sequence[int]) -> None:
        self._reader = ContinuationReader(model, [[]], [TokenRead(0, 0, token) for token in tokens])

    @property
    def longest(self) -> int:
        """Tokens that a prompt needs room for behind it."""
        return self._reader.longest

    def score(self, inputs: Mapping[str, Any]) -> FloatArray:
        """(prompts, tokens) probabilities."""
        probabilities: FloatArray = np.exp(self._reader.read(inputs))
        return probabilities

    def score_whole(self, inputs: Mapping[str, Any]) -> FloatArray:
        """The same without keeping what was read."""
        probabilities: FloatArray = np.exp(self._reader.read_whole(inputs))
        return probabilities
