"""Pairs of feature sets that tests of the distances share."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]


def pair(n_x: int, n_y: int, dimension: int, seed: int = 0) -> tuple[Array, Array]:
    """Two sets of correlated features with different laws."""
    random = np.random.default_rng(seed)
    mix = random.standard_normal((2, dimension, dimension))
    x = random.standard_normal((n_x, dimension)) @ mix[0]
    y = random.standard_normal((n_y, dimension)) @ mix[1] + 0.5
    return x, y
