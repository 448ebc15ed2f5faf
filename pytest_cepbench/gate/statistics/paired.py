"""Paired differences with their categories and clusters: what every bound is made from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from math import floor, fsum, isfinite, sqrt
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
Labels = npt.NDArray[np.integer[Any]]

_NO_CLUSTERS: Mapping[str, str] = {}


@dataclass(frozen=True, eq=False)
class Differences:
    """Differences candidate - baseline of the same samples and seeds, positive is better.

    values: (n,) one for each pair, finite, n >= 1. categories: (n,) which category a pair counts
    in. clusters: (n,) pairs that share a label are not independent of each other: several seeds of
    one sample, several images of one prompt, one sample in several categories.
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
            msg = (
                "expected (n,) differences with a category and a cluster for each, n at least 1, "
                f"got shapes {', '.join(map(str, shapes))}"
            )
            raise ValueError(msg)
        if not np.isfinite(self.values).all():
            bad = int(np.argmin(np.isfinite(self.values)))
            msg = f"difference {bad} is {self.values[bad]}: expected finite numbers"
            raise ValueError(msg)
        if self.center is not None and not isfinite(self.center):
            msg = f"expected a finite center, got {self.center}"
            raise ValueError(msg)

    @classmethod
    def of(
        cls,
        differences: Mapping[str, Mapping[str, float]],
        clusters: Mapping[str, str] = _NO_CLUSTERS,
        center: float | None = None,
    ) -> Differences:
        """From category -> sample -> difference.

        clusters: sample -> the cluster that it shares with others; a sample that is not named is
        a cluster of its own name, in all its categories. Sorted, so that the order of categories
        and samples has no say. Raises ValueError as the class does.
        """
        rows = [
            (number, clusters.get(sample, sample), value)
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
        """How many pairs."""
        return len(self.values)

    @property
    def units(self) -> int:
        """How many clusters: what the bounds count, written K below."""
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
        """(K,) what each cluster adds to the mean beyond its share; see `centred`."""
        where = self._layout
        scale = np.sqrt(where.clusters_in / np.maximum(where.clusters_in - 1, 1))
        means = where.per_category(self.values / where.pairs_in[where.category])
        lone = where.clusters_in == 1
        if lone.any():
            means[lone] = self._mean
            scale[lone] = sqrt(len(lone) / max(len(lone) - 1, 1))
        away = (self.values - means[where.category]) * scale[where.category]
        return where.per_cluster(away * where.weights)

    def centred(self) -> Array:
        """(K,) mean + r_k of each cluster k, whose plain variance is that of the design.

        r_k = K * sum over the cluster's pairs of (d - m_c) / (C n_c): C categories, n_c pairs and
        the mean m_c in category c; each term times sqrt(k_c / (k_c - 1)), k_c the clusters in the
        category, so that sum r_k^2 / K^2 is the stratified variance of the mean, and of a plain
        sample the usual s^2 / n. A category of one cluster shows no spread of its own: it is
        centred on the mean of all instead, with sqrt(C / (C - 1)), as if those categories were
        draws from one population; where they are not, the bounds are wider than need be.
        """
        return self.mean + self.residuals

    def weighted(self) -> Array:
        """(K,) y_k = K * sum over the cluster's pairs of d / (C n_c), whose plain mean is the mean.

        Not centred: when every difference rises, every y_k rises.
        """
        return self._layout.per_cluster(self.values * self._layout.weights)

    def weights(self) -> Array:
        """(K,) what `weighted` gives for differences of 1; their mean is 1."""
        return self._layout.per_cluster(self._layout.weights)

    @cached_property
    def degrees(self) -> int:
        """Degrees of freedom by Satterthwaite over categories, rounded down, at least 1.

        The smaller of two: from the variances that were found, and from those of equal spread in
        all categories. A category of two clusters finds a tiny variance now and then and would
        pass for known; bounds of small errors then missed up to 20 times too often.
        A cluster counts in the first of its categories; categories of one cluster count together.
        """
        where = self._layout
        if len(where.clusters_in) == 1:
            return max(where.units - 1, 1)
        stratum = np.where(where.clusters_in[where.home] > 1, where.home + 1, 0)
        found = _satterthwaite(stratum, self.residuals)
        return min(found, _satterthwaite(stratum, self.weights()))

    @cached_property
    def _mean(self) -> float:
        where = self._layout
        return fsum((self.values * where.weights).tolist()) / where.units

    @cached_property
    def _layout(self) -> _Layout:
        return _layout(self.categories, self.clusters)


@dataclass(frozen=True, eq=False)
class _Layout:
    """Which pair is in which category and cluster, both numbered from 0.

    category, cluster: (n,). pairs_in, clusters_in: (C,). home: (K,) first category of a cluster.
    weights: (n,) K / (C n_c) of each pair.
    """

    category: Labels
    cluster: Labels
    pairs_in: Labels
    clusters_in: Labels
    home: Labels
    weights: Array
    units: int

    def per_category(self, values: Array) -> Array:
        return np.asarray(np.bincount(self.category, values, len(self.pairs_in)), np.float64)

    def per_cluster(self, values: Array) -> Array:
        return np.asarray(np.bincount(self.cluster, values, self.units), np.float64)


def _layout(categories: Labels, clusters: Labels) -> _Layout:
    category, count = _numbered(categories)
    cluster, units = _numbered(clusters)
    pairs_in = np.bincount(category, minlength=count)
    met = np.unique(category * units + cluster)
    home = np.full(units, count)
    np.minimum.at(home, cluster, category)
    return _Layout(
        category,
        cluster,
        pairs_in,
        np.bincount(met // units, minlength=count),
        home,
        units / (count * pairs_in[category]),
        units,
    )


def _numbered(labels: Labels) -> tuple[Labels, int]:
    names, numbers = np.unique(labels, return_inverse=True)
    return numbers, len(names)


def _satterthwaite(stratum: Labels, spreads: Array) -> int:
    """Whole degrees of freedom of the sum of the squared spreads, at least 1.

    stratum: (K,) where each cluster counts. spreads: (K,).
    """
    parts = np.asarray(np.bincount(stratum, spreads**2), np.float64)
    free = np.maximum(np.bincount(stratum) - 1, 1)
    whole = float(parts.sum())
    if whole == 0:
        return 1
    # The quotient can fall short of a whole number by rounding alone.
    return max(floor(whole**2 / float((parts**2 / free).sum()) + 1e-9), 1)
