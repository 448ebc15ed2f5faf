"""Whether what became of a sample is still nearest to the sample's own start, among all starts.

The score has a chance level and no unit: it needs neither an encoder whose cosines mean something
in themselves nor a tolerance in cosines. Outputs that have become alike are nearest to one start,
and so to at most one of their own.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from pytest_cepbench.metrics.diversity import unit_rows

FloatArray = npt.NDArray[np.floating[Any]]
Array = npt.NDArray[np.float64]

TIED = 1e-6
"""Cosines that differ by no more are tied: scores are kept with six decimals, and the rounding of
float32 vectors moves a cosine by about 1e-7."""

_ROWS = 256  # queries compared at once: (256, n) cosines


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
            unit_rows(_checked(np.asarray(vectors)[list(first.values())])),
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
        for low in range(0, len(outputs), _ROWS):
            rows = slice(low, low + _ROWS)
            cosines = unit_rows(_checked(np.asarray(outputs[rows]))) @ self.vectors.T
            largest = cosines.max(axis=1)
            tied = cosines >= (largest - TIED)[:, None]
            right = tied[np.arange(len(cosines)), own[rows]]
            scores[rows] = np.where(right, 1 / tied.sum(axis=1), 0.0)
        return scores

    def ceiling(self) -> Array:
        """(m,) what each start itself scores: 1, or 1 / k where k starts have one direction."""
        names = sorted(self.place, key=lambda name: self.place[name])
        return self.top_1(self.vectors, names)


def _checked(vectors: FloatArray) -> FloatArray:
    """The vectors, each with a direction."""
    largest = np.abs(vectors).max(axis=1, initial=0.0)
    if not np.isfinite(largest).all() or not largest.all():
        raise ValueError("a vector is zero or not finite")
    return vectors
