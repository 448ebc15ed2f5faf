"""How likely a loaded language model holds each whole number after a lead such as "Correctness: ".

Numbers share tokens: where digits are tokens, 10 begins with the token of 1. What follows is
counted, so that 1 has the probability of a 1 without a 0 behind it, whatever the tokenizer does.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pytest_cepbench.models.judges.phrase_likelihood import ContinuationReader, TokenRead
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


class NumberScorer:
    """Distributions over whole numbers that could follow a prompt, one for each lead.

    leads: what stands before the number in the reply.
    numbers: how many there are, 0 the first.
    Raises ValueError for a tokenizer in which two numbers are the same tokens.
    """

    tolerances = (1e-3, 0.1)
    """How far two ways to the same probability may differ, in single and in half precision."""

    def __init__(self, model: Any, tokenizer: Any, leads: Sequence[str], numbers: int) -> None:
        self._leads = [_NumberTokens.of(tokenizer, lead, numbers) for lead in leads]
        rows: list[Tokens] = []
        reads: list[TokenRead] = []
        self._reads_of: list[list[list[int]]] = []  # by lead and number, places in `reads`
        for lead in self._leads:
            leaves, first_row = lead.leaves, len(rows)
            rows += [lead.shared + leaf for leaf in leaves]
            own: list[list[int]] = []
            for ending in lead.endings:
                own.append(list(range(len(reads), len(reads) + len(ending))))
                for length, token in enumerate(ending):
                    on_the_way = (leaf[:length] == ending[:length] for leaf in leaves)
                    row = first_row + list(on_the_way).index(True)
                    reads.append(TokenRead(row, len(lead.shared) + length, token))
            self._reads_of.append(own)
        self._reader = ContinuationReader(model, rows, reads)

    @property
    def longest(self) -> int:
        """Tokens that a prompt needs room for behind it."""
        return self._reader.longest

    def score(self, inputs: Mapping[str, Any]) -> FloatArray:
        """(prompts, leads, numbers) probabilities; see `ContinuationReader.read`."""
        return self._distributions(self._reader.read(inputs))

    def score_whole(self, inputs: Mapping[str, Any]) -> FloatArray:
        """The same in the plain way; see `ContinuationReader.read_whole`."""
        return self._distributions(self._reader.read_whole(inputs))

    def _distributions(self, logarithms: FloatArray) -> FloatArray:
        """Probabilities that sum to 1 over the numbers of each lead."""
        by_lead = []
        for lead, reads in zip(self._leads, self._reads_of, strict=True):
            begun = np.stack([logarithms[:, own].sum(axis=1) for own in reads], axis=1)
            ended = begun.copy()
            for number in range(len(reads)):
                for other in lead.longer(number):
                    going_on = np.minimum(np.exp(begun[:, other] - begun[:, number]), 1.0)
                    with np.errstate(divide="ignore"):  # a certain 0 behind the 1: never a 1
                        ended[:, number] += np.log1p(-going_on)
            by_lead.append(np.exp(ended - np.logaddexp.reduce(ended, axis=1, keepdims=True)))
        distributions: FloatArray = np.stack(by_lead, axis=1)
        return distributions


def _shared_start(texts: Sequence[Tokens]) -> Tokens:
    """The tokens with which all texts begin."""
    columns = itertools.takewhile(lambda column: len(set(column)) == 1, zip(*texts, strict=False))
    return tuple(column[0] for column in columns)


def _begins(tokens: Tokens, other: Tokens) -> bool:
    """Whether the other begins with these tokens and goes on."""
    return len(tokens) < len(other) and other[: len(tokens)] == tokens
