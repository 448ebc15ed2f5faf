"""Scores in words: which JSON object of a judge's reply counts, and which of its numbers.

A criterion that is missing, given twice, no whole number or out of range has no score: nothing is
rounded, clipped or taken for 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pytest_cepbench.artifacts import Failure
from pytest_cepbench.artifacts.criteria import (
    CRITERIA,
    CriteriaScores,
    CriterionResult,
    read_score,
)
from pytest_cepbench.artifacts.reasoning import after_reasoning
from pytest_cepbench.models.json_objects import Repeated, read_objects
from pytest_cepbench.models.judges.score_prompt import CRITERION_SENTENCES


def read_scores(text: str) -> CriteriaScores | Failure:
    """The scores that a reply gives; a failure where it has no object with a criterion in it.

    Read is what stands outside of reasoning: the whole of it where that is JSON, else the first
    balanced `{...}` that is an object with a criterion. Keys are names or titles of criteria,
    values `{"score": 7, "justification": "..."}` or the number alone. A second object with other
    scores makes the reply a failure: which of them counts cannot be told.
    """
    reply = after_reasoning(text)
    if reply is None:
        return Failure("no-score", f"ends inside its reasoning: {text!r:.300}")
    read = [_scores_of(document) for document in read_objects(reply.strip())]
    by_numbers = {
        tuple(scores.value(name) for name in CRITERIA): scores
        for scores in reversed(read)
        if scores is not None
    }
    if len(by_numbers) == 1:
        return next(iter(by_numbers.values()))
    what = "several objects with other scores" if by_numbers else "no JSON object with a criterion"
    return Failure("no-score", f"{what}: {text!r:.300}")


def problem_of(scores: CriteriaScores | Failure) -> str:
    """Why a reply does not have all seven scores; empty where it has."""
    if isinstance(scores, Failure):
        return scores.detail
    return "; ".join(dict.fromkeys(failure.detail for failure in scores.failures))


def _letters(key: str) -> str:
    return "".join(char for char in key.casefold() if char.isalnum())


_NAMES = {_letters(name): name for name in CRITERIA} | {
    _letters(title): name for name, (title, _) in CRITERION_SENTENCES.items()
}


def _scores_of(document: Mapping[str, Any]) -> CriteriaScores | None:
    """The scores of an object; None where no criterion is in it."""
    results: dict[str, CriterionResult] = {}
    for key, value in document.items():
        name = _NAMES.get(_letters(key))
        if name is None:
            continue
        twice = name in results or isinstance(value, Repeated)
        results[name] = (
            Failure("no-score", f"{name}: given twice") if twice else _result(name, value)
        )
    return CriteriaScores.of(results) if results else None


def _result(name: str, value: Any) -> CriterionResult:
    if not isinstance(value, dict):
        return read_score(name, value)
    fields = {key.casefold(): field for key, field in value.items()}
    if "score" not in fields or len(fields) < len(value):
        return Failure("no-score", f"{name}: has no score, or two")
    return read_score(name, fields["score"], fields.get("justification", ""))
