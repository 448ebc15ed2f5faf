"""Attractors: clusters of outputs that came from different starts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from pytest_cepbench.metrics.diversity import unit_rows
from pytest_cepbench.metrics.retrieval import Gallery

FloatArray = npt.NDArray[np.floating[Any]]
Labels = npt.NDArray[np.intp]

FEWEST_ORIGINS = 3
"""Clusters of starts that the outputs of an attractor come from at least. Two may meet by the loss
of the one thing that told them apart."""

_ROWS = 256  # compared with all at once


@dataclass(frozen=True)
class Attractor:
    """Outputs that ended alike.

    members: rows of the outputs, rising.
    center: the row of the member that is nearest to the mean direction of all.
    origins: number of clusters, by the same radius, that the members' starts lie in.
    """

    members: tuple[int, ...]
    center: int
    origins: int


def attractor_radius(gallery: Gallery) -> float:
    """Distance within which outputs count as alike: nearer than starts usually come.

    Half the median distance, 1 - cosine, of a start to the nearest other one, over starts that are
    not tied with another. So it needs no setting for an encoder, and it is the same for baseline
    and candidate, whose starts are the same. 0 where all starts are tied.
    """
    distances = gallery.nearest_distances()
    apart = distances[distances > 1e-6]
    return 0.5 * float(np.median(apart)) if len(apart) else 0.0


def find_attractors(starts: FloatArray, outputs: FloatArray, radius: float) -> list[Attractor]:
    """The attractors of a set of chains, those with most members first.

    starts, outputs: (n, d), a start and an output of each chain. radius: see `attractor_radius`.
    Outputs are clustered by complete linkage, cut at the radius: no two members of a cluster are
    farther apart. A cluster is an attractor if its members' starts lie in at least three clusters,
    by the same linkage at the same radius. So starts that were alike make none. Nothing is random;
    ties between clusters depend on the order of the rows.
    Memory: rows are first split into those that chains of steps within the radius connect, 256 rows
    at a time; only within such a part are distances of all pairs made, 8 bytes each and a copy.
    Source of the linkage: Defays, An efficient algorithm for a complete link method, 1977, as SciPy
    has it.
    Raises ValueError for shapes that do not fit.
    """
    if np.ndim(starts) != 2 or np.shape(starts) != np.shape(outputs):
        msg = f"expected starts and outputs (n, d), got {np.shape(starts)} and {np.shape(outputs)}"
        raise ValueError(msg)
    if not len(outputs):
        return []
    unit = unit_rows(outputs)
    labels, origin = clusters(unit, radius), clusters(unit_rows(starts), radius)
    found = []
    for label in np.unique(labels):
        members = np.flatnonzero(labels == label)
        origins = len(np.unique(origin[members]))
        if origins >= FEWEST_ORIGINS:
            mean = unit[members].sum(axis=0)
            center = int(members[np.argmax(np.round(unit[members] @ mean, 9))])
            found.append(Attractor(tuple(members.tolist()), center, origins))
    return sorted(found, key=lambda attractor: (-len(attractor.members), attractor.members))


def clusters(unit: npt.NDArray[np.float64], radius: float) -> Labels:
    """(n,) number of each row's cluster by complete linkage. unit: (n, d) of length 1."""
    labels = np.empty(len(unit), np.intp)
    count = 0
    for part in _connected(unit, radius):
        own = _linked(unit[part], radius)
        labels[part] = own + count
        count += int(own.max()) + 1
    return labels


def _connected(unit: npt.NDArray[np.float64], radius: float) -> list[Labels]:
    """Rows that steps within the radius connect: no cluster reaches beyond."""
    labels = np.arange(len(unit))
    for low in range(0, len(unit), _ROWS):
        near = 1.0 - unit[low : low + _ROWS] @ unit.T <= radius
        for row, neighbours in enumerate(near):
            # A row is near itself, whatever rounding makes of it.
            touched = np.unique(np.append(labels[neighbours], labels[low + row]))
            if len(touched) > 1:
                labels[np.isin(labels, touched)] = touched[0]
    return [np.flatnonzero(labels == label) for label in np.unique(labels)]


def _linked(unit: npt.NDArray[np.float64], radius: float) -> Labels:
    """(m,) cluster of each row, from 0."""
    if len(unit) == 1:
        return np.zeros(1, np.intp)
    from scipy.cluster.hierarchy import fcluster, linkage

    distances = np.empty(len(unit) * (len(unit) - 1) // 2)
    place = 0
    for row in range(len(unit) - 1):
        others = len(unit) - 1 - row
        distances[place : place + others] = 1.0 - unit[row + 1 :] @ unit[row]
        place += others
    np.clip(distances, 0.0, 2.0, out=distances)
    labels = fcluster(linkage(distances, method="complete"), t=radius, criterion="distance")
    return np.unique(labels, return_inverse=True)[1].astype(np.intp)


def share_in(attractors: Sequence[Attractor], outputs: int) -> float:
    """Share of the outputs that lie in an attractor, in [0, 1]."""
    return sum(len(attractor.members) for attractor in attractors) / outputs if outputs else 0.0
