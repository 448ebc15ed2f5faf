"""How likely a loaded language model holds each whole number after a lead such as "Correctness: ".

Numbers share tokens: where digits are tokens, 10 begins with the token of 1. What follows is
counted, so that 1 has the probability of a 1 without a 0 behind it, whatever the tokenizer does.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from pytest_cepbench.models.judges.phrase_likelihood import ContinuationReader, TokenRead
from pytest_cepbench.models.protocols import FloatArray


class NumberScorer:
    """Distributions over whole numbers that could follow a prompt, one for each lead.

    leads: what stands before the number in the reply.
    numbers: how many there are, 0 the first.
    Raises ValueError for a tokenizer in which two numbers are the same tokens.
    """

    def __init__(self, model: Any, tokenizer: Any, leads: Sequence[str], numbers: int) -> None:
        rows: list[list[int]] = []
        reads: list[TokenRead] = []
        self._places: list[list[list[int]]] = []  # lead, number -> its reads
        self._longer: list[list[list[int]]] = []  # lead, number -> numbers that go on from it
        for lead in leads:
            texts = [f"{lead}{number}" for number in range(numbers)]
            tokens = [tokenizer(text, add_special_tokens=False)["input_ids"] for text in texts]
            shared = _shared_start(tokens)
            endings = [number[len(shared) :] for number in tokens]
            if len(set(map(tuple, endings))) < numbers or not all(endings):
                msg = f"the same tokens for several of the numbers 0 to {numbers - 1}"
                raise ValueError(msg)
            # The longest texts that numbers go on from: shorter ones are read on the way.
            nodes = {tuple(ending[:length]) for ending in endings for length in range(len(ending))}
            leaves = [node for node in sorted(nodes) if not _goes_on(node, nodes)]
            first_row = len(rows)
            rows += [[*shared, *leaf] for leaf in leaves]
            places = []
            for ending in endings:
                own = []
                for length, token in enumerate(ending):
                    node = tuple(ending[:length])
                    leaf = next(i for i, leaf in enumerate(leaves) if leaf[:length] == node)
                    own.append(len(reads))
                    reads.append(TokenRead(first_row + leaf, len(shared) + length, token))
                places.append(own)
            self._places.append(places)
            self._longer.append(
                [
                    [n for n, other in enumerate(endings) if _is_start(ending, other)]
                    for ending in endings
                ]
            )
        self._reader = ContinuationReader(model, rows, reads)

    @property
    def longest(self) -> int:
        """Tokens that a prompt needs room for behind it."""
        return self._reader.longest

    tolerances = (1e-3, 0.1)
    """How far two ways to the same probability may differ, in single and in half precision."""

    def score(self, inputs: Mapping[str, Any]) -> FloatArray:
        """(prompts, leads, numbers) probabilities; see `ContinuationReader.read`."""
        return self._distributions(self._reader.read(inputs))

    def score_whole(self, inputs: Mapping[str, Any]) -> FloatArray:
        """The same in the plain way; see `ContinuationReader.read_whole`."""
        return self._distributions(self._reader.read_whole(inputs))

    def _distributions(self, logarithms: FloatArray) -> FloatArray:
        """Probabilities that sum to 1 over the numbers of each lead."""
        by_lead = []
        for places, longer in zip(self._places, self._longer, strict=True):
            started = np.stack([logarithms[:, own].sum(axis=1) for own in places], axis=1)
            exact = started.copy()
            for number, others in enumerate(longer):
                for other in others:
                    going_on = np.minimum(np.exp(started[:, other] - started[:, number]), 1.0)
                    with np.errstate(divide="ignore"):  # a certain 0 behind the 1: never a 1
                        exact[:, number] += np.log1p(-going_on)
            by_lead.append(np.exp(exact - np.logaddexp.reduce(exact, axis=1, keepdims=True)))
        distributions: FloatArray = np.stack(by_lead, axis=1)
        return distributions


def _shared_start(texts: Sequence[Sequence[int]]) -> list[int]:
    """The tokens with which all texts begin."""
    columns = itertools.takewhile(lambda column: len(set(column)) == 1, zip(*texts, strict=False))
    return [column[0] for column in columns]


def _is_start(tokens: Sequence[int], other: Sequence[int]) -> bool:
    return len(tokens) < len(other) and list(other[: len(tokens)]) == list(tokens)


def _goes_on(node: tuple[int, ...], nodes: set[tuple[int, ...]]) -> bool:
    return any(_is_start(node, other) for other in nodes)
