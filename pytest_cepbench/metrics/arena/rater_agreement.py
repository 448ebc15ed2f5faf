"""Agreement of several annotators over the same items, each coefficient with its interval."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import numpy.typing as npt

from pytest_cepbench.metrics.arena.agreement import (
    Distance,
    alpha_of_coincidences,
    cohen_kappa,
    item_coincidences,
    value_counts,
)
from pytest_cepbench.metrics.item_bootstrap import DRAWS, Estimate, estimate_by_items

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

_FEWEST_RATERS = 2


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

    def estimate(
        self, statistic: Callable[[FloatArray], float | None], draws: int = DRAWS
    ) -> Estimate:
        """A statistic of (things,) weights with its interval by item, over items with a pair."""
        shared = np.isfinite(self.values).sum(axis=0) >= _FEWEST_RATERS
        numbers, places = np.unique(self.items[shared], return_inverse=True)

        def weighted(weights: FloatArray) -> float | None:
            of_things = np.zeros(len(shared))
            of_things[shared] = weights[places]
            return statistic(of_things)

        return estimate_by_items(weighted, len(numbers), draws=draws)


def alpha_estimate(rated: RatedThings, distance: Distance, draws: int = DRAWS) -> Estimate:
    """Krippendorff's alpha."""
    coincidences = item_coincidences(rated.values)
    shape = coincidences.shape[1:]
    flat = coincidences.reshape(len(coincidences), -1)
    return rated.estimate(
        lambda weights: alpha_of_coincidences((weights @ flat).reshape(shape), distance), draws
    )


def mean_cohen_estimate(rated: RatedThings, draws: int = DRAWS) -> Estimate:
    """The mean of Cohen's kappa over all pairs of raters that share a thing.

    Pairs whose kappa is not defined are left out. Source: Light, Measures of response agreement for
    qualitative data (1971).
    """
    codes, values = _codes(rated.values)
    shared: list[IntArray] = []  # things of each pair
    cells: list[IntArray] = []  # where in its pair's table each of them counts
    for first, second in combinations(codes, 2):
        both = np.flatnonzero((first >= 0) & (second >= 0))
        if len(both):
            place = len(shared) * values**2
            shared.append(both)
            cells.append(place + first[both] * values + second[both])
    if not shared:
        return Estimate(None, None, None, 0)
    things, counted = np.concatenate(shared), np.concatenate(cells)

    def mean_kappa(weights: FloatArray) -> float | None:
        sums = np.bincount(counted, weights[things], len(shared) * values**2).astype(np.float64)
        kappas = map(cohen_kappa, sums.reshape(-1, values, values))
        defined = [kappa for kappa in kappas if kappa is not None]
        return sum(defined) / len(defined) if defined else None

    return rated.estimate(mean_kappa, draws)


def fleiss_kappa(counts: FloatArray, weights: FloatArray | None = None) -> float | None:
    """Fleiss' kappa, at most 1; None where one value alone occurs.

    counts: (items, V) how many raters gave each value; the same number of raters for every item.
    weights: (items,) how often each item counts; once where None.
    Source: Fleiss, Measuring nominal scale agreement among many raters (1971), equations 1 to 7.
    Raises ValueError for items with different numbers of raters, or with fewer than two.
    """
    raters = counts.sum(axis=1)
    if not len(counts) or (raters != raters[0]).any() or raters[0] < _FEWEST_RATERS:
        raise ValueError(
            f"expected one number of raters, at least 2, for all items, got {raters.tolist()!r}"
        )
    weights = np.ones(len(counts)) if weights is None else weights
    m = float(raters[0])
    within = ((counts**2).sum(axis=1) - m) / (m * (m - 1))
    total = float(weights.sum())
    if not total:
        return None
    observed = float(weights @ within) / total
    shares = weights @ counts / (m * total)
    by_chance = float(shares @ shares)
    return (observed - by_chance) / (1 - by_chance) if by_chance < 1 else None


def fleiss_estimate(rated: RatedThings, draws: int = DRAWS) -> tuple[Estimate, int]:
    """Fleiss' kappa over the things with the most usual number of raters, and that number.

    It is defined for one number of raters alone; of two that are as usual the larger is taken. The
    number is 0 where nothing has two ratings.
    """
    counts = value_counts(rated.values)
    raters = counts.sum(axis=1).astype(int)
    usual = np.bincount(raters)
    usual[:_FEWEST_RATERS] = 0
    if not usual.any():
        return Estimate(None, None, None, 0), 0
    most = len(usual) - 1 - int(np.argmax(usual[::-1]))
    chosen = raters == most
    own = RatedThings(rated.values[:, chosen], rated.items[chosen])
    estimate = own.estimate(lambda weights: fleiss_kappa(counts[chosen], weights), draws)
    return estimate, most


def equal_votes_estimate(rated: RatedThings, draws: int = DRAWS) -> Estimate:
    """The share of equal votes among all pairs of votes on a thing, in [0, 1]."""
    counts = value_counts(rated.values)
    raters = counts.sum(axis=1)
    pairs = raters * (raters - 1) / 2
    equal = (counts * (counts - 1)).sum(axis=1) / 2
    return rated.estimate(lambda weights: _ratio(weights, equal, pairs), draws)


def _ratio(weights: FloatArray, right: FloatArray, total: FloatArray) -> float | None:
    whole = float(weights @ total)
    return float(weights @ right) / whole if whole else None


def ratio_estimate(right: FloatArray, total: FloatArray, draws: int = DRAWS) -> Estimate:
    """A share of things that lie in clusters.

    right, total: (items,) how many of each item are counted, and how many there are; items without
    any are left out.
    """
    there = np.flatnonzero(total)
    right, total = right[there], total[there]

    return estimate_by_items(
        lambda weights: _ratio(weights, right, total),
        len(there),
        draws=draws,
    )


def median_estimate(values: Sequence[float], items: Sequence[int], draws: int = DRAWS) -> Estimate:
    """The median of values that lie in clusters, the lower one of two in the middle.

    values: finite. items: of each value, the number of its item.
    """
    _, places = np.unique(np.array(items, int), return_inverse=True)
    order = np.argsort(np.array(values, float), kind="stable")
    ordered, owners = np.array(values, float)[order], places[order]

    def median(weights: FloatArray) -> float | None:
        reached = np.cumsum(weights[owners])
        if not len(reached) or not reached[-1]:
            return None
        return float(ordered[np.searchsorted(reached, reached[-1] / 2)])

    return estimate_by_items(median, int(places.max()) + 1 if len(places) else 0, draws=draws)


def _codes(ratings: FloatArray) -> tuple[npt.NDArray[np.int64], int]:
    """Ratings as numbers from 0 in the order of their values, -1 for missing; and how many."""
    rated = np.isfinite(ratings)
    values, places = np.unique(ratings[rated], return_inverse=True)
    codes = np.full(ratings.shape, -1, np.int64)
    codes[rated] = places
    return codes, len(values)
