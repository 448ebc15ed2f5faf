"""Pairs of feature sets that tests of the distances share, and what of these they look at."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from pytest_cepbench.metrics.diversity import vendi_scores
from pytest_cepbench.metrics.set_distances import frechet_influences, kernel_distances

Array = npt.NDArray[np.float64]


def pair(n_x: int, n_y: int, dimension: int, seed: int = 0) -> tuple[Array, Array]:
    """Two sets of correlated features with different laws."""
    random = np.random.default_rng(seed)
    mix = random.standard_normal((2, dimension, dimension))
    x = random.standard_normal((n_x, dimension)) @ mix[0]
    y = random.standard_normal((n_y, dimension)) @ mix[1] + 0.5
    return x, y


NO_PARTS = np.empty(0, dtype=np.intp)


def frechet_distance(x: Any, y: Any) -> float:
    """The distance without influences."""
    return frechet_influences(x, y).distance


def kernel_distance(x: Any, y: Any, block: int = 1000) -> float:
    """The distance of all samples."""
    return kernel_distances(x, y, NO_PARTS, NO_PARTS, 0, block=block)[0]


def vendi_score(vectors: Any) -> float:
    """The score of all vectors."""
    return vendi_scores(vectors, NO_PARTS, 0)[0]
