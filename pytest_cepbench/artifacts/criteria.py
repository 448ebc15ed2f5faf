"""Scores of a single answer by the seven criteria of OpenING, as a judge gives them.

A criterion has a score or a failure: what a judge left out, or gave out of range, is never a 0.
"""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite
from numbers import Integral
from statistics import fmean
from typing import Any, Literal, get_args

from pytest_cepbench.artifacts.digest import canonical_json
from pytest_cepbench.artifacts.outcome import Failure
from pytest_cepbench.errors import unknown_name

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
        object.__setattr__(self, "justification", _tidy(self.justification))

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
        return canonical_json({name: _plain(result) for name, result in self.by_criterion.items()})

    @classmethod
    def from_json(cls, text: str) -> CriteriaScores:
        """The scores that `to_json` wrote. Raises ValueError for any other text."""
        try:
            document = json.loads(text)
            return cls({name: _from_plain(value) for name, value in document.items()})
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


def _tidy(text: str) -> str:
    """A model's words on one line: no control characters, none without width, not too many."""
    spaced = "".join(
        " " if char.isspace() else char
        for char in text[: 4 * _LONGEST_JUSTIFICATION]
        if char.isspace() or not unicodedata.category(char).startswith("C")
    )
    line = " ".join(spaced.split())
    most = _LONGEST_JUSTIFICATION
    return line if len(line) <= most else f"{line[: most - 3]}..."


def _plain(result: CriterionResult) -> dict[str, Any]:
    if isinstance(result, Failure):
        return {"failure": [result.kind, result.detail]}
    optional = {} if result.expected is None else {"expected": result.expected}
    return {"score": result.score, "justification": result.justification, **optional}


def _from_plain(value: Mapping[str, Any]) -> CriterionResult:
    if "failure" in value:
        kind, detail = value["failure"]
        return Failure(kind, str(detail))
    return CriterionScore(value["score"], value["justification"], value.get("expected"))
