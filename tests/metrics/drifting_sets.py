"""Simulated starts and what two models make of them, to compare jackknife and true error."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pytest_cepbench.metrics.uncertainty import pseudo_values

Array = npt.NDArray[np.float64]
Labels = npt.NDArray[np.intp]

Leaving = Callable[[Array, Array, Labels, int], tuple[float, list[float]]]
"""Two sets, the block of each pair of rows, number of blocks: a distance and its leave-outs."""


@dataclass(frozen=True)
class Agreement:
    """Over many draws of one world. ratio: root mean square of the jackknife's standard errors of
    the paired difference over its true spread. mean: of the differences themselves.
    """

    ratio: float
    mean: float


def agreement(
    leaving: Leaving, n: int, dimension: int, *, far: float = 0.0, drifts: bool = True
) -> Agreement:
    """Two models, in 200 draws, that each keep a share of the start and draw the rest themselves.

    far: how far both move the mean; the second a third further. drifts: whether what they draw by
    themselves has another spectrum than the starts; else the drawings have the law of the starts.
    """
    random = np.random.default_rng(7)
    scale = np.arange(1, dimension + 1) ** -0.5
    own = 0.8 * (scale[::-1] if drifts else scale)
    differences, variances = [], []
    for _ in range(200):
        starts = random.standard_normal((n, dimension)) * scale
        blocks = random.permutation(np.arange(n) % 10)
        estimates = []
        for moved in (far, far * 4 / 3):
            drawn = 0.6 * starts + random.standard_normal((n, dimension)) * own + moved * scale
            estimates.append(leaving(starts, drawn, blocks, 10))
        differences.append(estimates[1][0] - estimates[0][0])
        pseudo = pseudo_values(*estimates[1]) - pseudo_values(*estimates[0])
        variances.append(pseudo.var(ddof=1) / len(pseudo))
    ratio = float(np.sqrt(np.mean(variances)) / np.std(differences, ddof=1))
    return Agreement(ratio, float(np.mean(differences)))
