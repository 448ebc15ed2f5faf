"""Agreement of metrics with people: who compared captions, or rated samples and models."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal, get_args

import numpy as np

from pytest_cepbench.metrics.battles import FloatArray
from pytest_cepbench.metrics.judge_agreement import ratio_estimate
from pytest_cepbench.metrics.uncertainty import Estimate, estimate_by_items

Choice = Literal["C1", "B", "C2"]
"""Caption 1 is better, both are comparable, caption 2 is better."""

MARGIN = 0.01


@dataclass(frozen=True)
class HumanAgreement:
    """right of total decisions agree."""

    right: int
    total: int

    @property
    def share(self) -> float | None:
        """The share that agrees, in [0, 1]; None of no decision."""
        return self.right / self.total if self.total else None


@dataclass(frozen=True)
class Alignment:
    """Agreement of predictions with people.

    votes: with every single vote.
    majorities: with the choice of more than half of an item's votes, over the items that have one.
    without_majority: the items that have none; they are in votes but not in majorities.
    """

    items: int
    votes: HumanAgreement
    majorities: HumanAgreement
    without_majority: int


def predicted_choice(first: float, second: float, margin: float = MARGIN) -> Choice:
    """Choice between two captions by SIM: C1, C2, or B where they differ by at most the margin.

    first, second: SIM of the captions' images, finite.
    margin: at least 0.
    The comparison is exact on the decimal numbers as they are written: 0.51 and 0.50 differ by
    exactly 0.01 and are B, although their difference in floats is larger than 0.01. So the scores
    are taken here, not their difference.
    Source: MMGenBench, C.4 (the main text says "less than 0.01" for B; the appendix, which has the
    formula, includes 0.01).
    Raises ValueError for other numbers.
    """
    try:
        left, right, most = (Fraction(str(number)) for number in (first, second, margin))
    except ValueError:
        raise ValueError(
            f"expected finite similarities and margin, got {first}, {second} and {margin}"
        ) from None
    if most < 0:
        raise ValueError(f"expected a margin of at least 0, got {margin}")
    if abs(left - right) <= most:
        return "B"
    return "C1" if left > right else "C2"


def alignment(predictions: Sequence[Choice], votes: Sequence[Sequence[Choice]]) -> Alignment:
    """Agreement of predictions with the votes on the same items.

    predictions: one per item, see `predicted_choice`.
    votes: those of each item, at least one; items may have different numbers of votes.
    Source: MMGenBench, C.4, which divides the agreement with majorities by all 1,000 items and
    does not say what it did with items that have none; here they are left out and counted.
    Raises ValueError when the lengths differ, an item has no vote, or a choice is unknown.
    """
    if len(predictions) != len(votes):
        raise ValueError(
            f"expected one prediction per item, got {len(predictions)} for {len(votes)} items"
        )
    known = get_args(Choice)
    for item, (choice, cast) in enumerate(zip(predictions, votes, strict=True)):
        if not cast or not {choice, *cast} <= set(known):
            raise ValueError(
                f"item {item}: expected votes of {known}, got {choice!r} against {list(cast)}"
            )
    right = sum(
        vote == choice for choice, cast in zip(predictions, votes, strict=True) for vote in cast
    )
    decided = []
    for choice, cast in zip(predictions, votes, strict=True):
        majority, count = Counter(cast).most_common(1)[0]
        if 2 * count > len(cast):
            decided.append(choice == majority)
    return Alignment(
        items=len(votes),
        votes=HumanAgreement(right, sum(map(len, votes))),
        majorities=HumanAgreement(sum(decided), len(decided)),
        without_majority=len(votes) - len(decided),
    )


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


def sample_correlation(metric: FloatArray, people: FloatArray, items: Sequence[int]) -> Estimate:
    """Spearman's correlation of a metric with people's scores, with a bootstrap by item.

    metric, people: (n,) finite, both larger where a sample is better.
    items: (n,) the number of the item that each belongs to; all of an item are drawn together.
    The value is None where either is constant.
    """
    _, owners = np.unique(np.array(items, int), return_inverse=True)
    places = [np.unique(own, return_inverse=True)[1] for own in (metric, people)]

    def coefficient(weights: FloatArray) -> float | None:
        # As `correlation` has it, without its interval and sorted once: what is drawn several times
        # is as many equal values, which share their mean rank.
        times = weights[owners]
        counts = [np.bincount(place, times) for place in places]
        ranks = [(n.cumsum() - (n - 1) / 2)[at] for n, at in zip(counts, places, strict=True)]
        x, y = (own - times @ own / times.sum() for own in ranks)
        scale = float(np.sqrt((times @ x**2) * (times @ y**2)))
        return float(times @ (x * y)) / scale if scale else None

    return estimate_by_items(coefficient, int(owners.max()) + 1 if len(owners) else 0)


def same_direction(metric: FloatArray, people: FloatArray) -> Estimate:
    """How often the metric prefers the side that people prefer, in [0, 1], ties of either half.

    metric, people: (n,) differences of two sides, one for each item; items on which people prefer
        neither are left out.
    """
    decided = np.flatnonzero(people)
    right = (np.sign(metric[decided]) == np.sign(people[decided])) + 0.5 * (metric[decided] == 0)
    return ratio_estimate(right, np.ones(len(right)))
