"""Agreement of judges over the same battles, and of annotators over the same items."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from pytest_cepbench.artifacts.outcome import WINNERS, Winner
from pytest_cepbench.metrics.battles import FloatArray, IntArray, JudgedBattle
from pytest_cepbench.metrics.uncertainty import (
    Estimate,
    estimate_by_items,
    t_upper_quantile,
    wilson_interval,
)

Reading = Literal["fdt", "three_way", "decided"]
"""fdt: a tie is a verdict for the side that it leans to. three_way: both ties are one verdict.
decided: only battles that both judges decided. Source: OpenING, section 5.1 and Table 3."""

Distance = Literal["nominal", "ordinal"]

VERDICTS: dict[Reading, dict[Winner, str]] = {
    "fdt": {"A": "A", "Tie(A)": "A", "Tie(B)": "B", "B": "B"},
    "three_way": {"A": "A", "Tie(A)": "Tie", "Tie(B)": "Tie", "B": "B"},
    "decided": {"A": "A", "B": "B"},
}
"""How each reading writes the four verdicts; those that it leaves out are missing."""

_FEWEST_RATERS = 2


@dataclass(frozen=True)
class Share:
    """right of total verdicts agree. low, high: their 95 % interval, see `share`."""

    right: int
    total: int
    low: float
    high: float

    @property
    def value(self) -> float | None:
        """Right / total in [0, 1]; None of none."""
        return self.right / self.total if self.total else None


@dataclass(frozen=True)
class Agreement:
    """Agreement of two judges in one reading of their verdicts.

    overall: over all battles that both judged.
    seen, unseen: over battles of models that were known while the judge was made, and over battles
    in which at least one was not.
    kappa: Cohen's, in [-1, 1]; None where one verdict alone occurs.
    chance: agreement of a judge that always gives the first judge's most frequent verdict.
    """

    reading: Reading
    overall: Share
    seen: Share
    unseen: Share
    kappa: float | None
    chance: float | None

    @property
    def harmonic_mean(self) -> float | None:
        """Of seen and unseen; None where either has no battles. Source: OpenING, Table 3."""
        seen, unseen = self.seen.value, self.unseen.value
        if seen is None or unseen is None:
            return None
        return 2 * seen * unseen / (seen + unseen) if seen + unseen else 0.0


Pairs = Sequence[tuple[JudgedBattle, Winner]]


def shared_battles(
    first: Iterable[JudgedBattle], second: Iterable[JudgedBattle]
) -> list[tuple[JudgedBattle, Winner]]:
    """Battles that both judged, with the second judge's verdict, in the order of the first.

    A battle is a question and two models in the order in which the judge saw them.
    """
    verdicts = {(b.question, b.first, b.second): b.winner for b in second}
    keyed = (((b.question, b.first, b.second), b) for b in first)
    return [(battle, verdicts[key]) for key, battle in keyed if key in verdicts]


def agreement(shared: Pairs, reading: Reading, unseen: Collection[str] = ()) -> Agreement:
    """Agreement of two judges.

    shared: by `shared_battles`.
    unseen: models that were not known while the judge was made.
    """
    verdicts = VERDICTS[reading]
    pairs = [
        (verdicts[battle.winner], verdicts[other], battle)
        for battle, other in shared
        if battle.winner in verdicts and other in verdicts
    ]
    right = [mine == theirs for mine, theirs, _ in pairs]
    new = [battle.first in unseen or battle.second in unseen for *_, battle in pairs]

    def of(chosen: Sequence[bool]) -> Share:
        own = [
            (good, p[2].question)
            for good, p, in_it in zip(right, pairs, chosen, strict=True)
            if in_it
        ]
        return share([good for good, _ in own], [question for _, question in own])

    labels = list(dict.fromkeys(verdicts.values()))
    table = np.zeros((len(labels), len(labels)))
    for mine, theirs, _ in pairs:
        table[labels.index(mine), labels.index(theirs)] += 1
    return Agreement(
        reading=reading,
        overall=of([True] * len(pairs)),
        seen=of([not own for own in new]),
        unseen=of(new),
        kappa=cohen_kappa(table),
        chance=float(table.sum(axis=1).max() / len(pairs)) if pairs else None,
    )


def grades_of(shared: Pairs) -> FloatArray:
    """(2, n) the verdicts of both judges as numbers, from 0 (A) to 3 (B)."""
    grades = [[WINNERS.index(battle.winner), WINNERS.index(other)] for battle, other in shared]
    return np.array(grades, float).reshape(-1, 2).T


def confusion(shared: Pairs) -> IntArray:
    """(4, 4) counts: the first judge's verdict by row, the second's by column, as `WINNERS`."""
    counts = np.zeros((4, 4), dtype=np.int64)
    np.add.at(counts, tuple(grades_of(shared).astype(np.int64)), 1)
    return counts


def krippendorff_alpha(ratings: FloatArray, distance: Distance = "ordinal") -> float | None:
    """Krippendorff's alpha of any number of raters, at most 1; None where one value alone occurs.

    ratings: (raters, items); NaN where a rater did not judge an item.
    distance: nominal, or ordinal for values whose order counts, such as the four verdicts.
    Items with one rating are left out. Source: Krippendorff, Content Analysis, chapter 12.
    Raises ValueError for an array of another shape.
    """
    if ratings.ndim != 2:
        raise ValueError(f"expected ratings of shape (raters, items), got {ratings.shape}")
    coincidences = item_coincidences(ratings).sum(axis=0)
    return alpha_of_coincidences(coincidences, distance)


def value_counts(ratings: FloatArray) -> FloatArray:
    """(items, V) how many raters gave each value that occurs, the values in rising order."""
    rated = np.isfinite(ratings)
    values, codes = np.unique(ratings[rated], return_inverse=True)
    counts = np.zeros((ratings.shape[1], len(values)))
    np.add.at(counts, (np.nonzero(rated)[1], codes), 1)
    return counts


def item_coincidences(ratings: FloatArray) -> FloatArray:
    """(items, V, V) how often each value met each other on an item, over its pairs of raters.

    ratings: as of `krippendorff_alpha`; the V values in rising order. Each item's table sums to the
    number of its ratings, and to 0 where it has fewer than two. Source: as of that.
    """
    counts = value_counts(ratings)
    raters = counts.sum(axis=1)
    counts[raters < _FEWEST_RATERS] = 0
    pairs = counts[:, :, None] * counts[:, None, :]
    diagonal = np.arange(counts.shape[1])
    pairs[:, diagonal, diagonal] -= counts
    coincidences: FloatArray = pairs / np.maximum(raters - 1, 1)[:, None, None]
    return coincidences


def alpha_of_coincidences(coincidences: FloatArray, distance: Distance) -> float | None:
    """Krippendorff's alpha of a (V, V) table of coincidences; None where one value alone occurs."""
    totals = coincidences.sum(axis=1)
    squared: FloatArray = 1 - np.eye(len(totals))
    if distance == "ordinal":  # the values from one to the other, its ends counted half
        middle = np.cumsum(totals) - totals / 2
        squared = np.subtract.outer(middle, middle) ** 2
    expected_disagreement = float((squared * np.outer(totals, totals)).sum())
    if not expected_disagreement:
        return None
    observed = float((squared * coincidences).sum())
    return 1 - (float(totals.sum()) - 1) * observed / expected_disagreement


def share(right: Sequence[bool], questions: Sequence[str]) -> Share:
    """How many verdicts are right, with Wilson's interval for verdicts that share questions.

    right, questions: (n,) of each verdict. Verdicts on one question tend to be right together, so
    the interval is that of their effective number: n by the design effect, at least 1, times
    (t(n - 1) / t(K - 1))^2 for K questions, the quantiles of Student's t. Where all are right, or
    none, they count as one a question. Of one question nothing is known.
    Source: Korn and Graubard, Confidence intervals for proportions with small expected number of
    positive counts estimated from survey data, 1998; here with Wilson's interval.
    """
    n, answered = len(right), len(set(questions))
    if answered < 2:
        return Share(sum(right), n, 0.0, 1.0)
    mean = sum(right) / n
    trials = float(answered)
    if 0 < mean < 1:
        _, asked = np.unique(questions, return_inverse=True)
        apart = np.bincount(asked, np.asarray(right) - mean)
        clustered = float(apart @ apart) / n**2 * answered / (answered - 1)
        effect = max(clustered / (mean * (1 - mean) / (n - 1)), 1.0)
        few = t_upper_quantile(0.025, n - 1) / t_upper_quantile(0.025, answered - 1)
        trials = n / effect * few**2
    return Share(sum(right), n, *wilson_interval(mean, trials))


def cohen_kappa(table: FloatArray) -> float | None:
    """Cohen's kappa of a square table of counts, in [-1, 1]; None where one value alone occurs."""
    total = float(table.sum())
    if not total:
        return None
    by_chance = float(table.sum(axis=1) @ table.sum(axis=0)) / total**2
    observed = float(np.trace(table)) / total
    return (observed - by_chance) / (1 - by_chance) if by_chance < 1 else None


@dataclass(frozen=True)
class RatedThings:
    """What several raters said of the same things.

    values: (raters, things) numbers, NaN where a rater did not judge a thing.
    owners: (things,) the number of the item that each belongs to, from 0 on: all things of an item
        are drawn together. None where each is an item of its own.
    Raises ValueError for arrays of other shapes.
    """

    values: FloatArray
    owners: IntArray | None = None

    def __post_init__(self) -> None:
        things = self.values.shape[1:]
        if self.values.ndim != 2 or (self.owners is not None and self.owners.shape != things):
            raise ValueError(
                f"expected (raters, things), and an item for each, got {self.values.shape}"
            )

    @property
    def items(self) -> IntArray:
        """(things,) the item of each."""
        return np.arange(self.values.shape[1]) if self.owners is None else self.owners

    def estimate(self, statistic: Callable[[FloatArray], float | None]) -> Estimate:
        """A statistic of (things,) weights with its interval by item, over items with a pair."""
        shared = np.isfinite(self.values).sum(axis=0) >= _FEWEST_RATERS
        numbers, places = np.unique(self.items[shared], return_inverse=True)

        def weighted(weights: FloatArray) -> float | None:
            of_things = np.zeros(len(shared))
            of_things[shared] = weights[places]
            return statistic(of_things)

        return estimate_by_items(weighted, len(numbers))


def alpha_estimate(rated: RatedThings, distance: Distance) -> Estimate:
    """Krippendorff's alpha."""
    coincidences = item_coincidences(rated.values)
    shape = coincidences.shape[1:]
    flat = coincidences.reshape(len(coincidences), -1)
    return rated.estimate(
        lambda weights: alpha_of_coincidences((weights @ flat).reshape(shape), distance)
    )


def equal_votes_estimate(rated: RatedThings) -> Estimate:
    """The share of equal votes among all pairs of votes on a thing, in [0, 1]."""
    counts = value_counts(rated.values)
    raters = counts.sum(axis=1)
    pairs = raters * (raters - 1) / 2
    equal = (counts * (counts - 1)).sum(axis=1) / 2
    return rated.estimate(lambda weights: _ratio(weights, equal, pairs))


def _ratio(weights: FloatArray, right: FloatArray, total: FloatArray) -> float | None:
    whole = float(weights @ total)
    return float(weights @ right) / whole if whole else None


def ratio_estimate(right: FloatArray, total: FloatArray) -> Estimate:
    """A share of things that lie in clusters.

    right, total: (items,) how many of each item are counted, and how many there are; items without
    any are left out.
    """
    there = np.flatnonzero(total)
    right, total = right[there], total[there]
    return estimate_by_items(lambda w: _ratio(w, right, total), len(there))
