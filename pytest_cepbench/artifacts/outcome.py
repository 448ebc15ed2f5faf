"""Outcomes of a step that are neither text nor image: objects, verdicts, and failures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import isfinite
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from pytest_cepbench.errors import unknown_name

FailureKind = Literal[
    "empty-text",
    "only-reasoning",
    "blank-image",
    "bad-image",
    "nan-image",
    "nan-vector",
    "bad-boxes",
    "bad-answer",
    "refused",
    "unanswered",
    "no-verdict",
    "no-score",
    "bad-json",
    "missing",
    "exception",
]

Winner = Literal["A", "Tie(A)", "Tie(B)", "B"]
"""A judge's verdict on two answers: the first is better, a tie that leans to the first, one that
leans to the second, the second is better. Source: OpenING, section 4.2."""

WINNERS: tuple[Winner, ...] = get_args(Winner)
"""From the best for the first answer to the best for the second."""

EVEN = 0.5
"""The score of a tie, and with it the win rate of answers against themselves: what an accepted
model's own answers score."""

FAILURE_KINDS: frozenset[str] = frozenset(get_args(FailureKind))


@dataclass(frozen=True)
class Failure:
    """A step that failed: part of the measurement, never dropped.

    kind: one of `FAILURE_KINDS`.
    detail: one line for the reader; untrusted where it quotes a model.
    Raises ValueError for another kind, which the store could not return.
    """

    kind: FailureKind
    detail: str = ""

    def __post_init__(self) -> None:
        if self.kind not in FAILURE_KINDS:
            raise ValueError(unknown_name("kind of failure", self.kind, FAILURE_KINDS))


@dataclass(frozen=True)
class Mask:
    """The pixels of an object, run-length encoded.

    height, width: of the whole image, in pixels.
    runs: lengths of alternating runs of pixels outside and inside the object, row by row, beginning
        with outside (0 where the first pixel is inside).
    Raises ValueError when the runs do not add up to the image.
    """

    height: int
    width: int
    runs: tuple[int, ...]

    def __post_init__(self) -> None:
        if sum(self.runs) != self.height * self.width or any(run < 0 for run in self.runs):
            raise ValueError(
                f"runs of {sum(self.runs)} pixels do not fit {self.height} x {self.width}"
            )

    @classmethod
    def from_array(cls, inside: npt.NDArray[np.bool_]) -> Mask:
        """Encode a (height, width) array of booleans."""
        height, width = inside.shape
        flat = inside.ravel()
        edges = [0, *(np.flatnonzero(flat[1:] != flat[:-1]) + 1).tolist(), flat.size]
        runs = [after - before for before, after in pairwise(edges)]
        return cls(height, width, tuple([0, *runs] if flat.size and flat[0] else runs))

    def to_array(self) -> npt.NDArray[np.bool_]:
        """(height, width) booleans, True inside the object."""
        values = np.arange(len(self.runs)) % 2 == 1
        inside: npt.NDArray[np.bool_] = np.repeat(values, self.runs)
        return inside.reshape(self.height, self.width)


@dataclass(frozen=True)
class Detection:
    """One detected object.

    query: the query to the detector that it answers.
    score: the detector's confidence, in [0, 1].
    box: left, top, right, bottom in pixels; right and bottom at or beyond left and top. It may
        reach over the image's edge.
    mask: its pixels, where the detector gives them.
    color: where the detector names colors itself.
    Raises ValueError for a score outside [0, 1] or a box that is not one.
    """

    query: str
    score: float
    box: tuple[float, float, float, float]
    mask: Mask | None = None
    color: str | None = None

    def __post_init__(self) -> None:
        left, top, right, bottom = self.box
        if not (all(map(isfinite, self.box)) and left <= right and top <= bottom):
            raise ValueError(f"a box is left, top, right, bottom in pixels, got {self.box}")
        if not 0.0 <= self.score <= 1.0:
            raise ValueError(f"a detection's score lies in [0, 1], got {self.score}")


@dataclass(frozen=True)
class Detections:
    """All detections in one image.

    found: most confident first, ties in the detector's order.
    """

    found: tuple[Detection, ...] = ()

    @classmethod
    def sort(cls, found: Sequence[Detection]) -> Detections:
        """The detections in the order of their confidence, highest first."""
        return cls(tuple(sorted(found, key=lambda detection: -detection.score)))
