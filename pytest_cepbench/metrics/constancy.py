"""What answers do when their input is another: they stay as they are, or change with it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from math import fsum
from typing import Any

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.floating[Any]]

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
    return max(_distances(vectors, of_length_1=True))


def spread_of_vectors(vectors: FloatArray) -> float:
    """Largest distance of the vectors from the first, in its length: what distances can tell apart.

    vectors: (n, d), n at least 1, the first not of length 0.
    Returns a number of at least 0, 0 for equal vectors.
    """
    return max(_distances(vectors, of_length_1=False))


def _distances(vectors: FloatArray, *, of_length_1: bool) -> Iterator[float]:
    """Of each block of rows the largest distance from the first vector."""
    first = vectors[:1].astype(np.float64)
    length = np.linalg.norm(first)
    for low in range(0, len(vectors), _BLOCK):
        rows = vectors[low : low + _BLOCK].astype(np.float64)
        if of_length_1:
            rows /= np.linalg.norm(rows, axis=1, keepdims=True)
        else:
            rows /= length
        yield float(np.linalg.norm(rows - first / length, axis=1).max())


@dataclass(frozen=True)
class EditScore:
    """How well an answer went along with an edit.

    followed: share of what the edit changes in the answer that did change so, in [0, 1].
    kept: share of what it leaves alone that stayed, in [0, 1].
    """

    followed: float
    kept: float

    @property
    def both(self) -> float:
        """Followed x kept, in [0, 1]: an answer must change, and only where it should."""
        return self.followed * self.kept


FAILED = EditScore(0.0, 0.0)
"""Of a pair of which one has no answer."""


def edit_score(
    before: AbstractSet[Hashable],
    expected: AbstractSet[Hashable] | None,
    after: AbstractSet[Hashable],
    *,
    changes: bool = True,
) -> EditScore:
    """Equivariance: the score of one pair of answers, to a start and to the start edited.

    An edit of the start should appear in the answer, and the rest of it stay. No truth is needed: a
    model that is wrong in the same way twice is equivariant. But a model that does not look is not,
    since its answer does not change. Idea: ACON (arXiv 2505.24211), which trains on such pairs; the
    scores are this project's own.

    before: facts of the answer to the start, A.
    expected: facts of that answer after the edit, e(A); None where the edit cannot be made in it,
        such as an object recolored that the answer does not name.
    after: facts of the answer to the edited start, B.
    changes: whether the edit is one that answers must show, rather than one they must not.

    With C = A xor e(A), the facts that come or go by the edit, K = A and e(A), those that stay, and
    F = B - (A or e(A)), foreign ones:

        followed = |{f in C: f in B if and only if f in e(A)}| / |C|
        kept     = |K and B| / |K or F|, 1 where there are none

    An edit that finds nothing to change in the answer was not followed: followed = 0. Of one that
    answers must not show followed is 1, and kept says all. Range [0, 1]; 1 for an exact model.
    A constant answer has followed = 0 (where the edit must be seen). The chance level is the same
    score against B of an unrelated pair: see `chance_level`.
    """
    if expected is None:
        return FAILED
    changed, stays = before ^ expected, before & expected
    foreign = after - (before | expected)
    followed = 0.0 if changes else 1.0
    if changed:
        followed = sum((fact in after) == (fact in expected) for fact in changed) / len(changed)
    rest = len(stays) + len(foreign)
    return EditScore(followed, len(stays & after) / rest if rest else 1.0)


@dataclass(frozen=True)
class EditedFacts:
    """The facts of one pair; `before`, `expected` and `after` as in `edit_score`.

    unit: what the pair shares with others that are not independent of it.
    """

    unit: Hashable
    before: AbstractSet[Hashable]
    expected: AbstractSet[Hashable] | None
    after: AbstractSet[Hashable]


_MOST_OTHERS = 64


def chance_level(
    pairs: Sequence[EditedFacts], score: Callable[[EditScore], float], *, changes: bool = True
) -> float | None:
    """What chance gives: the mean score of each pair with the edited answer of another pair.

    pairs: where all are of one unit, None is returned. Of more than 64 others as many are taken, at
    equal distances in the order that is given.
    score: which number of a pair is meant.
    """
    scores = []
    for place, own in enumerate(pairs):
        ring = (*pairs[place + 1 :], *pairs[:place])
        others = [other for other in ring if other.unit != own.unit]
        if len(others) > _MOST_OTHERS:
            others = [others[k * len(others) // _MOST_OTHERS] for k in range(_MOST_OTHERS)]
        scores += [
            score(edit_score(own.before, own.expected, other.after, changes=changes))
            for other in others
        ]
    return fsum(scores) / len(scores) if scores else None
