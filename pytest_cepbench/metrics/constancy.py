"""Whether answers stay as they are when their input is another."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from pytest_cepbench.metrics.gc import FloatArray

SAME_VECTORS = 1e-4
"""Vectors that lie no farther from the first than this share of its length are one vector: every
cosine among them is 1 in the six decimals that scores are kept with. The rounding of float32 moves
a vector by about 2e-7, saving an image as JPEG by 1e-2 or more; docs/the-gate.md has the
measurements."""

FEWEST_ANSWERS = 4
"""Different inputs that equal answers are remarkable of; two or three may be alike by right."""

COMMON_SHARE = 0.9
"""Answers of which a larger share is the same are called the same."""

_BLOCK = 1000  # rows widened to float64 at once


@dataclass(frozen=True)
class MostFrequentAnswer:
    """The most frequent answer.

    count: number of inputs that got it.
    of: number of different inputs.
    """

    answer: Hashable
    count: int
    of: int

    @property
    def constant(self) -> bool:
        """True where nearly all inputs got it, and they were enough to remark on."""
        return self.of >= FEWEST_ANSWERS and self.count > COMMON_SHARE * self.of

    def __str__(self) -> str:
        return f"all {self.of}" if self.count == self.of else f"{self.count} of {self.of}"


def most_common(answers: Iterable[tuple[Hashable, Hashable]]) -> MostFrequentAnswer | None:
    """The most frequent answer to different inputs.

    answers: (input, answer) pairs; of an input that is there several times the first answer counts.
    None where there is no pair.
    """
    by_input: dict[Hashable, Hashable] = {}
    for asked, answer in answers:
        by_input.setdefault(asked, answer)
    if not by_input:
        return None
    answer, count = Counter(by_input.values()).most_common(1)[0]
    return MostFrequentAnswer(answer, count, len(by_input))


def spread_of_directions(vectors: FloatArray) -> float:
    """Largest distance of the vectors, at length 1, from the first: what cosines can tell apart.

    vectors: (n, d), n at least 1, none of length 0.
    Returns a number in [0, 2], 0 for equal directions. No two are farther apart than twice as much.
    """
    return _spread(vectors, lambda rows: np.linalg.norm(rows, axis=1, keepdims=True))


def spread_of_vectors(vectors: FloatArray) -> float:
    """Largest distance of the vectors from the first, in its length: what distances can tell apart.

    vectors: (n, d), n at least 1, the first not of length 0.
    Returns a number of at least 0, 0 for equal vectors.
    """
    length = np.linalg.norm(vectors[0].astype(np.float64))
    return _spread(vectors, lambda _: length)


def _spread(vectors: FloatArray, length_of: Callable[[FloatArray], Any]) -> float:
    first = vectors[:1].astype(np.float64)
    first /= length_of(first)
    blocks = (vectors[low : low + _BLOCK] for low in range(0, len(vectors), _BLOCK))
    wide = (block.astype(np.float64) for block in blocks)
    return max(float(np.linalg.norm(rows / length_of(rows) - first, axis=1).max()) for rows in wide)
