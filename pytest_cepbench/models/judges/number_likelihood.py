"""How likely a loaded language model holds each whole number after a lead such as "Correctness: ".

Numbers share tokens: where digits are tokens, 10 begins with the token of 1. What follows is
counted, so that 1 has the probability of a 1 without a 0 behind it, whatever the tokenizer does.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pytest_cepbench.models.judges.phrase_likelihood import ContinuationReader, Scorer, TokenRead
from pytest_cepbench.models.protocols import FloatArray

Tokens = tuple[int, ...]


@dataclass(frozen=True)
class _NumberTokens:
    """The tokens of the numbers behind one lead.

    shared: with which all of them begin, the lead's own among them.
    endings: the rest of each number's, 0 first.
    """

    shared: Tokens
    endings: tuple[Tokens, ...]

    @classmethod
    def of(cls, tokenizer: Any, lead: str, numbers: int) -> _NumberTokens:
        """Raises ValueError where two numbers are the same tokens."""
        texts = [f"{lead}{number}" for number in range(numbers)]
        tokens = [tuple(tokenizer(t, add_special_tokens=False)["input_ids"]) for t in texts]
        shared = _shared_start(tokens)
        endings = tuple(number[len(shared) :] for number in tokens)
        if len(set(endings)) < numbers or not all(endings):
            raise ValueError(f"the same tokens for several of the numbers 0 to {numbers - 1}")
        return cls(shared, endings)

    @property
    def leaves(self) -> list[Tokens]:
        """The longest tokens from which a number goes on: shorter ones are read on the way."""
        nodes = {ending[:length] for ending in self.endings for length in range(len(ending))}
        return [node for node in sorted(nodes) if not any(_begins(node, n) for n in nodes)]

    def longer(self, number: int) -> list[int]:
        """The numbers whose tokens go on from those of a number: 10 from 1, mostly."""
        own = self.endings[number]
        return [n for n, other in enumerate(self.endings) if _begins(own, other)]


def number_scorer(model: Any, tokenizer: Any, leads: Sequence[str], numbers: int) -> Scorer:
    """Distributions over whole numbers that could follow a prompt, (prompts, leads, numbers).

    leads: what stands before the number in the reply.
    numbers: how many there are, 0 the first.
    Raises ValueError for a tokenizer in which two numbers are the same tokens.
    """
    tokens_of = [_NumberTokens.of(tokenizer, lead, numbers) for lead in leads]
    rows: list[Tokens] = []
    reads: list[TokenRead] = []
    reads_of: list[list[list[int]]] = []  # by lead and number, places in `reads`
    for lead in tokens_of:
        leaves, first_row = lead.leaves, len(rows)
        rows += [lead.shared + leaf for leaf in leaves]
        own: list[list[int]] = []
        for ending in lead.endings:
            own.append(list(range(len(reads), len(reads) + len(ending))))
            for length, token in enumerate(ending):
                on_the_way = (leaf[:length] == ending[:length] for leaf in leaves)
                row = first_row + list(on_the_way).index(True)
                reads.append(TokenRead(row, len(lead.shared) + length, token))
        reads_of.append(own)

    def distributions(logarithms: FloatArray) -> FloatArray:
        by_lead = [
            _distribution(lead, [logarithms[:, own].sum(axis=1) for own in places])
            for lead, places in zip(tokens_of, reads_of, strict=True)
        ]
        stacked: FloatArray = np.stack(by_lead, axis=1)
        return stacked

    return Scorer(ContinuationReader(model, rows, reads), distributions, tolerances=(1e-3, 0.1))


def _distribution(lead: _NumberTokens, begun: Sequence[FloatArray]) -> FloatArray:
    """(prompts, numbers) probabilities that sum to 1.

    begun: of each number, (prompts,) log-probabilities that the reply begins with its tokens.
    """
    started = np.stack(begun, axis=1)
    ended = started.copy()
    for number in range(len(begun)):
        for other in lead.longer(number):
            going_on = np.minimum(np.exp(started[:, other] - started[:, number]), 1.0)
            with np.errstate(divide="ignore"):  # a certain 0 behind the 1: never a 1
                ended[:, number] += np.log1p(-going_on)
    shares: FloatArray = np.exp(ended - np.logaddexp.reduce(ended, axis=1, keepdims=True))
    return shares


def _shared_start(texts: Sequence[Tokens]) -> Tokens:
    """The tokens with which all texts begin."""
    columns = itertools.takewhile(lambda column: len(set(column)) == 1, zip(*texts, strict=False))
    return tuple(column[0] for column in columns)


def _begins(tokens: Tokens, other: Tokens) -> bool:
    """Whether the other begins with these tokens and goes on."""
    return len(tokens) < len(other) and other[: len(tokens)] == tokens
