"""The tokens that begin an answer, and how likely a loaded language model holds them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from pytest_cepbench.models.judges.phrase_likelihood import ContinuationReader, Scorer, TokenRead


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


def token_scorer(model: Any, tokens: Sequence[int]) -> Scorer:
    """Probabilities of single tokens as the first behind a prompt, (prompts, tokens)."""
    reads = [TokenRead(0, 0, token) for token in tokens]
    return Scorer(ContinuationReader(model, [[]], reads), np.exp, tolerances=(1e-4, 0.05))
