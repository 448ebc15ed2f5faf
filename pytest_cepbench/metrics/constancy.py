"""Answers that do not depend on what was asked: one vector, text, picture, box or verdict for all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.floating[Any]]

SAME_VECTORS = 1e-4
"""Vectors that lie no farther from their mean than this share of its length are one vector: every
cosine among them is 1 in the six decimals that scores are kept with. The rounding of float32 moves a
vector by about 2e-7, saving an image as JPEG by 1e-2 or more; docs/the-gate.md has the measurements."""

FEWEST_ANSWERS = 4
"""Different inputs that equal answers are remarkable of; two or three may be alike by right."""

COMMON_SHARE = 0.9
"""Answers of which a larger share is the same are called the same."""


class Common(NamedTuple):
    """The most frequent answer. count: how many inputs got it. of: how many different ones there were."""

    answer: Hashable
    count: int
    of: int

    @property
    def constant(self) -> bool:
        """Whether nearly all inputs got it, and they were enough to remark on."""
        return self.of >= FEWEST_ANSWERS and self.count > COMMON_SHARE * self.of

    def __str__(self) -> str:
        return f"all {self.of}" if self.count == self.of else f"{self.count} of {self.of}"


def most_common(answers: Iterable[tuple[Hashable, Hashable]]) -> Common | None:
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
    return Common(answer, count, len(by_input))


def one_verdict(battles: Sequence[Hashable], verdicts: Sequence[Hashable]) -> Common | None:
    """The verdict that nearly all battles got; None where a judge told them apart.

    battles, verdicts: (n,), in the same order. Raises ValueError for different lengths.
    """
    common = most_common(zip(battles, verdicts, strict=True))
    return common if common is not None and common.constant else None


def spread_of_directions(vectors: FloatArray) -> float:
    """Largest distance of the vectors, at length 1, from their mean: what cosines can tell apart.

    vectors: (n, d), n at least 1, none of length 0. Returns a number in [0, 2); 0 for equal
    directions. The largest distance of any two is at most twice as large.
    """
    wide = vectors.astype(np.float64)
    wide /= np.abs(wide).max(axis=1, keepdims=True)
    return _spread(wide / np.linalg.norm(wide, axis=1, keepdims=True))


def spread_of_vectors(vectors: FloatArray) -> float:
    """Largest distance of the vectors from their mean, in its length: what distances can tell apart.

    vectors: (n, d), n at least 1. Returns a number of at least 0, 0 for equal vectors.
    """
    wide = vectors.astype(np.float64)
    length = float(np.linalg.norm(wide.mean(axis=0)))
    return _spread(wide / length) if length > 0.0 else _spread(wide)


def _spread(vectors: npt.NDArray[np.float64]) -> float:
    # From the first vector, which makes equal vectors exactly 0 apart.
    apart = vectors - vectors[0]
    return float(np.linalg.norm(apart - apart.mean(axis=0), axis=1).max())
