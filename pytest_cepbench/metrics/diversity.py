"""How different the items of a set are: diversity, retrieval, words of texts, constant answers.

Diversity compares nothing with a start. So a set can keep its diversity and have lost every
meaning, and noise raises it: read it beside retrieval or a similarity to the start. Retrieval asks
whether what became of a sample is still nearest to the sample's own start, among all starts. It has
a chance level and no unit: it needs neither an encoder whose cosines mean something in themselves
nor a tolerance in cosines. Outputs that have become alike are nearest to one start, and so to at
most one of their own.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from pytest_cepbench.errors import TooFewError
from pytest_cepbench.metrics.gc import Array, FloatArray, directed, unit_vectors

Labels = npt.NDArray[np.integer[Any]]

_ROWS = 512  # rows widened to float64 at once


def vendi_scores(vectors: FloatArray, blocks: Labels, count: int) -> tuple[float, list[float]]:
    """`vendi_score` of a set, and of the set without each block, block 0 first.

    blocks: (n,) the block of each vector, 0 to count - 1; not read where count is 0.
    K / n and the (d, d) matrix of second moments sum_i u_i u_i' / n have the same eigenvalues other
    than 0, so the smaller of the two is made: no array is larger than the vectors, min(n, d)^2, and
    for fewer vectors than dimensions (n, n).
    Raises as `vendi_score` does, and TooFewError where fewer than two vectors are left.
    """
    shape = np.shape(vectors)
    if len(shape) != 2:
        raise ValueError(f"expected (n, d) vectors, got {shape}")
    if shape[0] < 2:
        raise TooFewError(f"the diversity of a set needs at least 2 vectors, got {shape[0]}")
    directed(vectors)
    wide = len(vectors) < len(vectors[0])
    unit = unit_vectors(vectors) if wide else vectors
    whole = unit @ unit.T if wide else _moments(vectors)
    without = []
    for block in range(count):
        kept = blocks != block
        if kept.sum() < 2:
            raise TooFewError(
                f"without a block {kept.sum()} of {len(kept)} vectors are left, "
                "at least 2 are needed"
            )
        rest = whole[np.ix_(kept, kept)] if wide else whole - _moments(vectors[~kept])
        without.append(_effective_number(rest, int(kept.sum())))
    return _effective_number(whole, len(vectors)), without


def _moments(vectors: FloatArray) -> Array:
    moments = np.zeros((vectors.shape[1], vectors.shape[1]))
    for low in range(0, len(vectors), _ROWS):
        rows = unit_vectors(vectors[low : low + _ROWS])
        moments += rows.T @ rows
    return moments


def _effective_number(products: Array, count: int) -> float:
    shares = np.linalg.eigvalsh(products) / count
    shares = shares[shares > 0.0]  # rounding alone makes them negative
    entropy = -float((shares * np.log(shares)).sum())
    return float(min(count, max(1.0, np.exp(entropy))))


TIED = 1e-6
"""Cosines that differ by no more are tied: scores are kept with six decimals, and the rounding of
float32 vectors moves a cosine by about 1e-7."""

_RETRIEVAL_ROWS = 256  # queries compared at once: (256, n) cosines


@dataclass(frozen=True)
class Gallery:
    """The different starts among which outputs are looked up.

    vectors: (m, d) one for each different start, at length 1.
    place: name of a start (the digest of its content) -> its row.
    """

    vectors: Array
    place: dict[Hashable, int]

    @classmethod
    def of(cls, vectors: FloatArray, starts: Sequence[Hashable]) -> Gallery:
        """The gallery of all starts. Equal starts are one entry, with the vector of the first.

        vectors: (n, d). starts: (n,) their names.
        Raises ValueError for shapes that do not fit, for fewer than two different starts (there is
        nothing to confuse), and for a vector that is zero or not finite.
        """
        if np.ndim(vectors) != 2 or len(vectors) != len(starts):
            raise ValueError(
                f"expected (n, d) vectors and n names, got {np.shape(vectors)}, {len(starts)}"
            )
        first: dict[Hashable, int] = {}
        for row, name in enumerate(starts):
            first.setdefault(name, row)
        if len(first) < 2:
            raise ValueError(f"retrieval needs at least 2 different starts, got {len(first)}")
        return cls(
            unit_vectors(directed(np.asarray(vectors)[list(first.values())])),
            {name: number for number, name in enumerate(first)},
        )

    @property
    def chance(self) -> float:
        """Accuracy of outputs that do not depend on their starts: 1 / m."""
        return 1 / len(self.vectors)

    def top_1(self, outputs: FloatArray, starts: Sequence[Hashable]) -> Array:
        """Top-1 retrieval of each output's own start.

        outputs: (n, d). starts: (n,) names of their own starts, all in the gallery.
        Returns (n,): 1 where the own start has the largest cosine of all different starts, 0 where
        another has, 1 / k where the own is among k that are tied within `TIED`: the chance of a
        fair draw among them. So the mean of outputs that are all alike is the chance level exactly
        where starts are equally frequent, and an encoder that cannot tell starts apart gains
        nothing. Not changed by the length of vectors, by a rotation of the space, or by the order
        of the gallery.
        Source: retrieval by nearest neighbour, recall at 1; for chains, the question is Conde and
        others', whether recursions from different starts stay apart (Recursiveness in multimodal
        generative AI, 2024).
        Memory: 256 rows of m cosines at a time, never (n, m).
        Raises ValueError for shapes that do not fit, vectors without direction and unknown starts.
        """
        if np.ndim(outputs) != 2 or len(outputs) != len(starts):
            raise ValueError(
                f"expected (n, d) vectors and n names, got {np.shape(outputs)}, {len(starts)}"
            )
        unknown = [name for name in starts if name not in self.place]
        if unknown:
            raise ValueError(
                f"{len(unknown)} starts are not in the gallery, such as {unknown[0]!r}"
            )
        own = np.array([self.place[name] for name in starts], dtype=np.intp)
        scores = np.empty(len(outputs))
        for low in range(0, len(outputs), _RETRIEVAL_ROWS):
            rows = slice(low, low + _RETRIEVAL_ROWS)
            cosines = unit_vectors(directed(np.asarray(outputs[rows]))) @ self.vectors.T
            largest = cosines.max(axis=1)
            tied = cosines >= (largest - TIED)[:, None]
            right = tied[np.arange(len(cosines)), own[rows]]
            scores[rows] = np.where(right, 1 / tied.sum(axis=1), 0.0)
        return scores

    def ceiling(self) -> Array:
        """(m,) what each start itself scores: 1, or 1 / k where k starts have one direction."""
        names = sorted(self.place, key=lambda name: self.place[name])
        return self.top_1(self.vectors, names)


_UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff"  # Thai, Lao, Burmese, Khmer
    "\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"  # kana and Han
    "\U00020000-\U0003ffff"
)
"""Letters of scripts that put no space between words."""

_WORD = re.compile(rf"[{_UNSPACED}]|[^\W_{_UNSPACED}]+(?:['\u2019-][^\W_{_UNSPACED}]+)*")

REPEATED = 4
"""n of repeated n-grams, as in the paper."""


def words_of(text: str) -> list[str]:
    """The words of a text, without case or punctuation, canonical forms of letters.

    A word is a run of letters and digits, with apostrophes and hyphens inside. Each letter of a
    script without spaces between words (Chinese, Japanese kana and Han, Thai, Lao, Burmese, Khmer)
    is a word of its own: no dictionary cuts them. Empty for a text without letters and digits.
    """
    return _WORD.findall(unicodedata.normalize("NFKC", text).casefold())


def repeated_share(text: str, n: int = REPEATED) -> float:
    """Share of a text's n-grams that were there before in it.

    n: at least 1.
    Returns 1 - different n-grams / n-grams, in [0, 1): 0 where none is repeated, and where the
    text has fewer than n words. There is no value by chance.
    Source: Welleck et al., Neural text generation with unlikelihood training, ICLR 2020, section
    6.1 (seq-rep-n, with n = 4).
    Raises ValueError for n below 1.
    """
    if n < 1:
        raise ValueError(f"expected n-grams of at least 1 word, got {n}")
    words = words_of(text)
    grams = [tuple(words[i : i + n]) for i in range(len(words) - n + 1)]
    return 1.0 - len(set(grams)) / len(grams) if grams else 0.0


def kept_length(first: str, later: str) -> float:
    """How near the length of a later text is to that of the first, in words.

    Returns the shorter length over the longer, in [0, 1]: 1 for equal lengths, 0.5 for half as long
    and for twice as long. 0 where one of them has no words, 1 where both have none.
    """
    lengths = sorted((len(words_of(first)), len(words_of(later))))
    return 1.0 if lengths[0] == lengths[1] else lengths[0] / lengths[1]


# -- whether answers stay as they are when their input is another ---------------------------------

SAME_VECTORS = 1e-4
"""Vectors that lie no farther from the first than this share of its length are one vector: every
cosine among them is 1 in the six decimals that scores are kept with. The rounding of float32 moves
a vector by about 2e-7, saving an image as JPEG by 1e-2 or more; docs/the-gate.md has the
measurements."""

FEWEST_ANSWERS = 4
"""Different inputs that equal answers are remarkable of; two or three may be alike by right."""

COMMON_SHARE = 0.9
"""Answers of which a larger share is the same are called the same."""

_SPREAD_ROWS = 1000  # rows widened to float64 at once


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
    blocks = (vectors[low : low + _SPREAD_ROWS] for low in range(0, len(vectors), _SPREAD_ROWS))
    wide = (block.astype(np.float64) for block in blocks)
    return max(float(np.linalg.norm(rows / length_of(rows) - first, axis=1).max()) for rows in wide)
