"""Paired differences with their categories and clusters: what every bound is made from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from math import floor, fsum, isfinite, sqrt
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
Labels = npt.NDArray[np.integer[Any]]


@dataclass(frozen=True, eq=False)
class Differences:
    """Differences candidate - baseline of the same samples and seeds, positive is better.

    values: (n,) one for each pair, finite, n >= 1.
    categories: (n,) which category a pair counts in.
    clusters: (n,) pairs that share a label are not independent of each other: several seeds of one
    sample, several images of one prompt, one sample in several categories.
    center: an estimate that replaces the mean, of a set metric whose values are the differences of
    jackknife pseudo-values: its plain difference. Equal names of blocks in two categories then
    count as one cluster, as they should where both hold the same samples.
    The numbers below are the same for any order of the pairs, up to rounding; for pairs in the
    order of `Differences.of`, to the last bit.
    Raises ValueError for arrays that differ in length, are empty, or values that are not finite.
    """

    values: Array
    categories: Labels
    clusters: Labels
    center: float | None = None

    def __post_init__(self) -> None:
        shapes = [np.shape(part) for part in (self.values, self.categories, self.clusters)]
        if len(set(shapes)) > 1 or len(shapes[0]) != 1 or not shapes[0][0]:
            raise ValueError(
                "expected (n,) differences with a category and a cluster for each, n at least 1, "
                f"got shapes {', '.join(map(str, shapes))}"
            )
        if not np.isfinite(self.values).all():
            bad = int(np.argmin(np.isfinite(self.values)))
            raise ValueError(f"difference {bad} is {self.values[bad]}: expected finite numbers")
        if self.center is not None and not isfinite(self.center):
            raise ValueError(f"expected a finite center, got {self.center}")

    @classmethod
    def of(
        cls,
        differences: Mapping[str, Mapping[str, float]],
        clusters: Mapping[str, str] | None = None,
        center: float | None = None,
    ) -> Differences:
        """Differences from category -> sample -> difference.

        clusters: sample -> the cluster that it shares with others; a sample that is not named is a
        cluster of its own name, in all its categories. Sorted, so that the order of categories and
        samples has no say.
        Raises ValueError as the class does.
        """
        rows = [
            (number, (clusters or {}).get(sample, sample), value)
            for number, category in enumerate(sorted(differences))
            for sample, value in sorted(differences[category].items())
        ]
        labels = {name: i for i, name in enumerate(sorted({name for _, name, _ in rows}))}
        return cls(
            np.array([value for _, _, value in rows], dtype=np.float64),
            np.array([number for number, _, _ in rows], dtype=np.int64),
            np.array([labels[name] for _, name, _ in rows], dtype=np.int64),
            center,
        )

    @property
    def n(self) -> int:
        """Number of pairs."""
        return len(self.values)

    @property
    def units(self) -> int:
        """Number of clusters, which the bounds count; written K below."""
        return self._layout.units

    @cached_property
    def mean(self) -> float:
        """Unweighted mean of the categories' means, or center where that is given."""
        return self._mean if self.center is None else self.center

    @cached_property
    def sd(self) -> float:
        """Standard deviation of a unit: the standard error of the mean times sqrt(K)."""
        return sqrt(float(self.residuals @ self.residuals) / self.units)

    @cached_property
    def residuals(self) -> Array:
        """(K,) what each cluster adds to the mean beyond its share; their variance is the design's.

        r_k = K * sum over the cluster's pairs of (d - m_c) / (C n_c): C categories, n_c pairs and
        the mean m_c in category c; each term times sqrt((k_c - 1) / k_c) / (1 - h), k_c the
        clusters in the category and h the share of its pairs that are the cluster's. Then
        sum r_k^2 / K^2 is the variance by the jackknife that leaves out a cluster, category by
        category: of clusters of equal size the stratified variance of the mean, and of a plain
        sample the usual s^2 / n. A cluster with most of the pairs pulls the mean to itself and
        would look as if it lay near it; leaving it out shows how far it lies from the others.
        A category of one cluster shows no spread of its own: it is centred on the mean of all
        instead, with sqrt(C / (C - 1)), as if those categories were draws from one population;
        where they are not, the bounds are wider than need be.
        Source: Bell and McCaffrey, Bias reduction in standard errors for linear regression with
        multi-stage samples, 2002 (the jackknife, there CR3).
        """
        where = self._layout
        means = np.asarray(
            np.bincount(
                where.category, (self.values / where.pairs_in[where.category]), len(where.pairs_in)
            ),
            np.float64,
        )
        means[where.clusters_in == 1] = self._mean
        away = (self.values - means[where.category]) * where.stretch
        return where.per_cluster(away * where.weights)

    def weighted(self) -> Array:
        """(K,) y_k = K * sum over the cluster's pairs of d / (C n_c), whose plain mean is the mean.

        Not centred: when every difference rises, every y_k rises.
        """
        return self._layout.per_cluster(self.values * self._layout.weights)

    def weights(self) -> Array:
        """(K,) what `weighted` gives for differences of 1; their mean is 1."""
        return self._layout.per_cluster(self._layout.weights)

    @property
    def parts(self) -> Array:
        """(K,) what each cluster adds to the mean, or to the center: their sum is that."""
        moved = self.mean - self._mean
        return (self.weighted() + moved * self.weights()) / self.units

    @cached_property
    def strata(self) -> Labels:
        """(K,) the first category of each cluster; categories of one cluster count together."""
        where = self._layout
        if len(where.clusters_in) == 1:
            return where.home
        home = np.where(where.clusters_in[where.home] > 1, where.home + 1, 0)
        return _numbered(home)[0]

    @cached_property
    def degrees(self) -> int:
        """Degrees of freedom by Satterthwaite over strata, rounded down, at least 1.

        The lesser of two: from the variances that were found, and from those of equal spread in all
        strata, because a category of two clusters finds a tiny variance now and then and would pass
        for known. Within a stratum of k clusters of equal weight there are k - 1; where few of them
        weigh more than the rest, fewer: those of the jackknife variance if the means of clusters
        scatter alike whatever their size, which is the worst that they can do.
        """
        free, found, expected = self._spreads
        # The quotient can fall short of a whole number by rounding alone.
        return max(floor(min(_combined(v, free) for v in (found, expected)) + 1e-9), 1)

    @cached_property
    def effective_units(self) -> float:
        """Number of units of equal weight and spread that would show as much of it.

        All of them in a plain sample; hardly more than the clusters of one stratum where the mean's
        spread is that stratum's alone. The square of a variance that was found is larger than that
        of the true one, on average, by 1 + 2 / degrees, which is taken out: of each stratum's and
        of their sum.
        """
        free, found, expected = self._spreads
        shown = _combined(found, (free + 1) * (1 + 2 / free)) / (1 + 2 / _combined(found, free))
        return min(shown, _combined(expected, free + 1), float(self.units))

    @cached_property
    def _spreads(self) -> tuple[Array, Array, Array]:
        """(S,) each: degrees of freedom of the strata, their variances as found and as expected."""
        free, expected = _expected_spread(self.strata, self.weights())
        return free, np.asarray(np.bincount(self.strata, self.residuals**2), np.float64), expected

    @cached_property
    def skewness(self) -> float:
        """Skewness of `residuals`, each stratum's part corrected for its own bias.

        That of as many `effective_units` whose mean is as skewed as this one. Strata of fewer than
        three clusters cannot show any.
        """
        squares = self.residuals * self.residuals
        second = float(squares.sum())
        if second == 0:
            return 0.0
        third = np.bincount(self.strata, squares * self.residuals)
        sizes = np.bincount(self.strata)
        unbiased = np.sqrt(sizes * (sizes - 1.0)) / np.maximum(sizes - 2, 1)
        shown = float((third * unbiased)[sizes > 2].sum())
        return shown / (second * sqrt(second)) * sqrt(self.effective_units)

    @cached_property
    def _mean(self) -> float:
        where = self._layout
        return fsum((self.values * where.weights).tolist()) / where.units

    @cached_property
    def _layout(self) -> _Layout:
        category, count = _numbered(self.categories)
        cluster, units = _numbered(self.clusters)
        pairs_in = np.bincount(category, minlength=count)
        # Only those cells of categories and clusters that have a pair: all would be too many.
        cells, cell, pairs = np.unique(
            category * units + cluster, return_inverse=True, return_counts=True
        )
        clusters_in = np.bincount(cells // units, minlength=count)
        lone = clusters_in == 1
        left = 1 - np.where(lone[category], 0.0, pairs[cell] / pairs_in[category])
        among = np.where(lone, max(count, 2), clusters_in)[category]
        stretch = np.where(
            lone[category], np.sqrt(among / (among - 1)), np.sqrt((among - 1) / among) / left
        )
        home = np.full(units, count)
        np.minimum.at(home, cluster, category)
        weights = units / (count * pairs_in[category])
        return _Layout(category, cluster, pairs_in, clusters_in, home, weights, stretch, units)


class _Layout(NamedTuple):
    """Which pair is in which category and cluster, both numbered from 0.

    category, cluster: (n,).
    pairs_in, clusters_in: (C,).
    home: (K,) first category of a cluster.
    weights: (n,) K / (C n_c) of each pair.
    stretch: (n,) what makes up for a cluster's own part in the mean of its category, see
    `Differences.residuals`.
    units: K.
    """

    category: Labels
    cluster: Labels
    pairs_in: Labels
    clusters_in: Labels
    home: Labels
    weights: Array
    stretch: Array
    units: int

    def per_cluster(self, values: Array) -> Array:
        return np.asarray(np.bincount(self.cluster, values, self.units), np.float64)


def _numbered(labels: Labels) -> tuple[Labels, int]:
    names, numbers = np.unique(labels, return_inverse=True)
    return numbers, len(names)


def _combined(variances: Array, free: Array) -> float:
    """Degrees of freedom of a sum of variances, after Satterthwaite; all where there is none."""
    square = float((variances**2 / free).sum())
    return float(variances.sum()) ** 2 / square if square else float(free.sum())


def _expected_spread(stratum: Labels, weights: Array) -> tuple[Array, Array]:
    """Jackknife variance of strata whose cluster means scatter alike, at any size.

    weights: (K,) of each cluster, above 0.
    Returns, (S,) each, the degrees of freedom of a stratum's variance, at least 1, and the variance
    that it is expected to add to that of the mean, in an arbitrary unit.
    In a stratum with shares w_k of its weight the jackknife variance is the quadratic form
    sum b_k (m_k - m)^2 of independent means m_k of equal variance, with b_k = (w_k / (1 - w_k))^2
    and m their weighted mean, which has the covariance G_jk = [j = k] - w_j - w_k + sum w^2.
    Its mean is sum b_k G_kk, its variance 2 sum b_j b_k G_jk^2, and it has as many degrees of
    freedom as the chi square of that mean and variance. Of equal weights: their number less 1.
    """
    sizes = np.bincount(stratum)
    whole = np.bincount(stratum, weights)
    share = weights / whole[stratum]
    pulled = np.where(sizes[stratum] > 1, (share / np.maximum(1 - share, 1e-12)) ** 2, 1.0)

    def summed(values: Array) -> Array:
        return np.asarray(np.bincount(stratum, values), np.float64)

    squares = summed(share**2)
    own = 1 - 2 * share + squares[stratum]
    b0, b1, b2 = summed(pulled), summed(pulled * share), summed(pulled * share**2)
    mean = summed(pulled * own)
    between = squares**2 * b0**2 + 2 * b0 * b2 - 4 * squares * b0 * b1 + 2 * b1**2
    variance = between + summed(pulled**2 * (1 + 2 * squares[stratum] - 4 * share))
    alone = sizes == 1
    free = np.maximum(np.where(alone, 1.0, mean**2 / np.where(alone, 1.0, variance)), 1.0)
    expected = whole**2 * np.where(alone, 1.0, mean * (sizes - 1) / sizes)
    return np.asarray(free, np.float64), np.asarray(expected, np.float64)
