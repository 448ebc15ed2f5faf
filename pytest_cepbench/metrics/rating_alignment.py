"""Agreement of a metric with people: per sample, per model, and of two grades of one model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from pytest_cepbench.metrics.item_bootstrap import DRAWS, Estimate, estimate_by_items

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

Grade = Literal["poor", "medium", "good"]
"""What people call one output. Source: SDP, section 3.3."""

GRADES: tuple[Grade, ...] = get_args(Grade)
"""From the worst to the best."""


def grade_score(grade: Grade) -> float:
    """A grade as a number: poor 0, medium one half, good 1."""
    return GRADES.index(grade) / (len(GRADES) - 1)


@dataclass(frozen=True)
class CrossInconsistency:
    """How the grades of understanding meet those of generation, for the same sample and model.

    counts: (3, 3), understanding by row and generation by column, in the order of `GRADES`.
    """

    counts: tuple[tuple[int, ...], ...]

    @property
    def total(self) -> int:
        """How many pairs of grades."""
        return sum(map(sum, self.counts))

    @property
    def inconsistent(self) -> float | None:
        """The share of pairs whose grades differ, in [0, 1]; None of no pair."""
        equal = sum(row[place] for place, row in enumerate(self.counts))
        return 1 - equal / self.total if self.total else None


def cross_inconsistency(
    understanding: Sequence[Grade], generation: Sequence[Grade]
) -> CrossInconsistency:
    """The table of nine cells of a model that describes and draws.

    understanding, generation: (n,) grades of the same samples, models and annotators.
    Source: SDP, section 3.3: a model can be good at the one and poor at the other.
    Raises ValueError when the lengths differ or a grade is unknown.
    """
    counts = np.zeros((len(GRADES), len(GRADES)), np.int64)
    for row, column in zip(understanding, generation, strict=True):
        counts[GRADES.index(row), GRADES.index(column)] += 1
    return CrossInconsistency(tuple(tuple(map(int, row)) for row in counts))


def sample_correlation(
    metric: FloatArray, people: FloatArray, items: Sequence[int], draws: int = DRAWS
) -> Estimate:
    """Spearman's correlation of a metric with people's scores, with a bootstrap by item.

    metric, people: (n,) finite, both larger where a sample is better.
    items: (n,) the number of the item that each belongs to; all of an item are drawn together.
    The value is None where either is constant.
    """
    _, owners = np.unique(np.array(items, int), return_inverse=True)

    def coefficient(weights: FloatArray) -> float | None:
        drawn = np.repeat(np.arange(len(owners)), weights[owners].astype(int))
        return _spearman(metric[drawn], people[drawn])

    return estimate_by_items(coefficient, int(owners.max()) + 1 if len(owners) else 0, draws=draws)


def _spearman(first: FloatArray, second: FloatArray) -> float | None:
    """As `correlation` has it, without its interval: it is called for every draw."""
    from scipy.stats import rankdata

    x, y = (ranks - ranks.mean() for ranks in (rankdata(first), rankdata(second)))
    scale = float(np.sqrt((x @ x) * (y @ y)))
    return float(x @ y) / scale if scale else None


def same_direction(metric: FloatArray, people: FloatArray, draws: int = DRAWS) -> Estimate:
    """How often the metric prefers the side that people prefer, in [0, 1], ties of either half.

    metric, people: (n,) differences of two sides, one for each item; items on which people prefer
        neither are left out.
    """
    decided = np.flatnonzero(people)
    right = (np.sign(metric[decided]) == np.sign(people[decided])) + 0.5 * (metric[decided] == 0)

    def share(weights: FloatArray) -> float | None:
        total = float(weights.sum())
        return float(weights @ right) / total if total else None

    return estimate_by_items(share, len(decided), draws=draws)
