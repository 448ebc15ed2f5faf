"""Outcomes of a step that are neither text nor image: objects, verdicts, scores, and failures.

Of the seven criteria of OpenING, each has a score or a failure: what a judge left out, or gave out
of range, is never a 0.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import isfinite
from numbers import Integral
from statistics import fmean
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from pytest_cepbench.errors import unknown_name
from pytest_cepbench.escapes import plain_line
from pytest_cepbench.files import canonical_json

FailureKind = Literal[
    "empty-text",
    "only-reasoning",
    "blank-image",
    "bad-image",
    "nan-image",
    "bad-sound",
    "silent-sound",
    "nan-sound",
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

AnswerError = Literal[
    "no-text-or-image", "factual", "incoherent", "offensive", "image-text", "poor-image",
    "poor-text", "incomplete",
]  # fmt: skip

ANSWER_ERRORS: dict[AnswerError, str] = {
    "no-text-or-image": "text or image is missing",
    "factual": "factual error, or not what was asked",
    "incoherent": "incoherent in style or entities",
    "offensive": "offensive or unsafe",
    "image-text": "image and text do not agree",
    "poor-image": "poor image",
    "poor-text": "poor text",
    "incomplete": "incomplete",
}
"""The typical errors of interleaved answers, and how people are asked about them. Source: OpenING,
section 5.3 and appendix D.7."""

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


# -- scores by criteria ----------------------------------------------------------------------------


Criterion = Literal[
    "correctness",
    "coherency",
    "consistency",
    "quality",
    "preference",
    "completeness",
    "richness",
]

CRITERIA: tuple[Criterion, ...] = get_args(Criterion)
"""The criteria, the most important first. Source: OpenING, appendix C.3."""

HIGHEST_SCORE = 10
"""Scores are whole numbers from 0 to this one. Source: OpenING's script GPT_score_A.py."""

OVERALL = "overall"

_LONGEST_JUSTIFICATION = 300


@dataclass(frozen=True)
class CriterionScore:
    """The score of an answer in one criterion.

    score: whole number from 0 to `HIGHEST_SCORE`.
    justification: the judge's own words, on one line without control characters, and short; not
        trusted.
    expected: mean of the judge's distribution over the whole numbers, where it has one.
    Raises ValueError for numbers that are none of these.
    """

    score: int
    justification: str = ""
    expected: float | None = None

    def __post_init__(self) -> None:
        if type(self.score) is not int or not 0 <= self.score <= HIGHEST_SCORE:
            raise ValueError(
                f"a score is a whole number from 0 to {HIGHEST_SCORE}, got {self.score!r:.40}"
            )
        expected = self.expected
        if expected is not None and not (isfinite(expected) and 0 <= expected <= HIGHEST_SCORE):
            raise ValueError(
                f"an expected score lies in [0, {HIGHEST_SCORE}], got {expected!r:.40}"
            )
        line = plain_line(self.justification, _LONGEST_JUSTIFICATION)
        object.__setattr__(self, "justification", line)

    @property
    def value(self) -> float:
        """The expected score where there is one, else the score."""
        return float(self.score) if self.expected is None else self.expected


CriterionResult = CriterionScore | Failure


@dataclass(frozen=True)
class CriteriaScores:
    """The scores of an answer.

    by_criterion: all of `CRITERIA`, in their order; one that is left out becomes a failure.
    Raises ValueError for another name.
    """

    by_criterion: Mapping[Criterion, CriterionResult]

    def __post_init__(self) -> None:
        for name in self.by_criterion:
            if name not in CRITERIA:
                raise ValueError(unknown_name("criterion", str(name), CRITERIA))
        complete = {
            name: self.by_criterion.get(name, Failure("no-score", f"{name}: no score was given"))
            for name in CRITERIA
        }
        object.__setattr__(self, "by_criterion", complete)

    @classmethod
    def of(cls, scores: Mapping[str, object]) -> CriteriaScores:
        """Scores from whole numbers by criterion; whatever else stands there is a failure.

        Raises ValueError for a name that is none of `CRITERIA`.
        """
        results: dict[Any, CriterionResult] = {
            name: value if isinstance(value, CriterionScore | Failure) else read_score(name, value)
            for name, value in scores.items()
        }
        return cls(results)

    @classmethod
    def failed(cls, failure: Failure) -> CriteriaScores:
        """Every criterion without a score, for one reason."""
        return cls(dict.fromkeys(CRITERIA, failure))

    @property
    def failures(self) -> list[Failure]:
        """Of the criteria that have no score."""
        return [result for result in self.by_criterion.values() if isinstance(result, Failure)]

    def value(self, criterion: str) -> float | None:
        """The score in one criterion, or the mean of all seven for `OVERALL`.

        In [0, `HIGHEST_SCORE`]; None where a score that it takes is missing.
        """
        if criterion == OVERALL:
            values = [self.value(name) for name in CRITERIA]
            given = [value for value in values if value is not None]
            return fmean(given) if len(given) == len(CRITERIA) else None
        result = self.by_criterion[criterion]  # type: ignore[index] # one of the names
        return None if isinstance(result, Failure) else result.value

    def filled_from(self, other: CriteriaScores) -> CriteriaScores:
        """The same, with the other's scores where these have none."""
        return CriteriaScores(
            {
                name: other.by_criterion[name] if isinstance(result, Failure) else result
                for name, result in self.by_criterion.items()
            }
        )

    def to_json(self) -> str:
        """Canonical JSON; `from_json` reads it."""
        plain: dict[str, object] = {}
        for name, own in self.by_criterion.items():
            if isinstance(own, Failure):
                plain[name] = {"failure": [own.kind, own.detail]}
            else:
                optional = {} if own.expected is None else {"expected": own.expected}
                plain[name] = {"score": own.score, "justification": own.justification, **optional}
        return canonical_json(plain)

    @classmethod
    def from_json(cls, text: str) -> CriteriaScores:
        """The scores that `to_json` wrote. Raises ValueError for any other text."""
        try:
            document = json.loads(text)
            results: dict[Any, CriterionResult] = {}
            for name, value in document.items():
                if "failure" in value:
                    kind, detail = value["failure"]
                    results[name] = Failure(kind, str(detail))
                else:
                    words, expected = value["justification"], value.get("expected")
                    results[name] = CriterionScore(value["score"], words, expected)
            return cls(results)
        except (AttributeError, KeyError, TypeError, ValueError, RecursionError) as error:
            raise ValueError(f"no scores by criteria: {text!r:.80} ({error})") from error


def read_score(name: str, value: object, justification: object = "") -> CriterionResult:
    """A score that a judge gave; a failure for all but a whole number from 0 to 10.

    name: of the criterion, for the failure. A justification that is no text is left out.
    """
    whole = isinstance(value, Integral) or (isinstance(value, float) and value.is_integer())
    if isinstance(value, bool) or not whole:
        return Failure("no-score", f"{name}: {value!r:.40} is no whole number")
    number = int(value)  # type: ignore[call-overload] # a number, as was looked at above
    if not 0 <= number <= HIGHEST_SCORE:
        return Failure("no-score", f"{name}: {value!r:.40} is not from 0 to {HIGHEST_SCORE}")
    text = justification if isinstance(justification, str) else ""
    return CriterionScore(number, text)
