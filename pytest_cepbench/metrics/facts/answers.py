"""The answers on one sample's facts along its chain, and the score that they make (F1)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import fsum, isnan
from typing import Any

import numpy as np
import numpy.typing as npt

from pytest_cepbench.metrics.facts.fact import check_kinds, order_kinds

FloatArray = npt.NDArray[np.floating[Any]]
Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class FactAnswers:
    """What was found of one sample's facts in each artifact of its chain.

    kinds: (n_facts,) the kind of each fact, n_facts at least 1.
    answers: (n_facts, n_artifacts), one column per artifact in the order of the chain, the start
    left out: 1 where the fact holds there, 0 where it does not, between where the check is soft,
    NaN where there is no answer. A chain that stopped has zeros for what is missing.
    surplus: kind -> (n_artifacts,) how many facts of it the artifact claims that the start does
    not have; NaN where nothing was read. None where the checker can only be asked for given facts.
    invented: the same of those that the artifact before it did not claim; None where that is not
    known.
    Raises ValueError for shapes that do not fit, an unknown kind, or an answer outside [0, 1].
    """

    kinds: tuple[str, ...]
    answers: Array
    surplus: Mapping[str, Array] | None = field(default=None)
    invented: Mapping[str, Array] | None = field(default=None)

    def __post_init__(self) -> None:
        check_kinds((*self.kinds, *(self.surplus or ()), *(self.invented or ())))
        answers = np.asarray(self.answers, dtype=np.float64)
        if answers.ndim != 2 or not answers.size or len(answers) != len(self.kinds):
            raise ValueError(
                f"expected answers on {len(self.kinds)} facts, at least 1, got {answers.shape}"
            )
        answered = answers[~np.isnan(answers)]
        if ((answered < 0) | (answered > 1)).any():
            raise ValueError(f"answers lie in [0, 1], got {answered.min():g} to {answered.max():g}")
        added = [*(self.surplus or {}).items(), *(self.invented or {}).items()]
        for kind, counts in added:
            if np.shape(counts) != (answers.shape[1],) or (np.asarray(counts) < 0).any():
                raise ValueError(
                    f"expected {answers.shape[1]} counts from 0 of surplus {kind} facts"
                )
        object.__setattr__(self, "answers", answers)

    @property
    def artifacts(self) -> int:
        """How many artifacts were checked."""
        return int(self.answers.shape[1])


def right_share(checked: FactAnswers, kind: str) -> Array:
    """(n_artifacts,) mean answer over the answered facts of a kind; NaN where there is none."""
    return mean_answered(checked.answers[[own == kind for own in checked.kinds]])


def mean_answered(answers: FloatArray) -> Array:
    """(n_artifacts,) mean over rows without NaN; NaN where a column has no answer."""
    answered = ~np.isnan(answers)
    counts = answered.sum(axis=0)
    totals = np.where(answered, answers, 0.0).sum(axis=0)
    means: Array = np.where(counts > 0, totals / np.maximum(counts, 1), np.nan)
    return means


def fact_f1(checked: FactAnswers) -> Array:
    """Macro-F1 of the facts of each artifact: every kind counts alike, however many facts it has.

    Of a kind, TP = sum of answers, FN = sum of (1 - answer), over the facts that were answered,
    FP = surplus, and F1 = 2 TP / (2 TP + FP + FN). The artifact's score is the mean over the kinds
    that the start has or the artifact claims. Where the checker cannot list what an artifact
    claims there is no precision, and the score is the mean over the start's kinds of the recall
    TP / (TP + FN).
    Returns (n_artifacts,) in [0, 1], higher is better; NaN where no fact was answered. 1 exactly
    where every fact holds and nothing else is claimed.
    Source: F1 over atomic facts of a scene graph, after XTC-Bench (2026); over chains, ours.
    """
    means = np.full(checked.artifacts, np.nan)
    for column in range(checked.artifacts):
        scores = list(_kind_scores(checked, column).values())
        if scores and not np.isnan(checked.answers[:, column]).all():
            means[column] = fsum(scores) / len(scores)
    return means


def _kind_scores(checked: FactAnswers, column: int) -> dict[str, float]:
    """F1, or recall, of each kind at one artifact."""
    scores = {}
    for kind in order_kinds((*checked.kinds, *(checked.surplus or ()))):
        own = [
            float(answers[column])
            for other, answers in zip(checked.kinds, checked.answers, strict=True)
            if other == kind and not isnan(answers[column])
        ]
        right, false = fsum(own), 0.0
        if checked.surplus is not None and kind in checked.surplus:
            false = float(checked.surplus[kind][column])
        if checked.surplus is None and own:
            scores[kind] = right / len(own)
        elif own or false > 0:
            scores[kind] = 2 * right / (right + len(own) + false)
    return scores
