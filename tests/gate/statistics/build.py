"""Differences to test bounds on: plain samples, and drawn ones with categories and clusters."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from hypothesis import strategies as st

from pytest_cepbench.gate.statistics.differences import Differences

Array = npt.NDArray[np.float64]

SCORE = st.integers(-64, 64).map(lambda i: i / 64)
"""Dyadic, so that sums and shifts are exact and equal stays equal."""

NAMES = "abcdefghijkl"


def sample(values: list[float] | Array) -> Differences:
    """One category, every pair a unit of its own."""
    n = len(values)
    return Differences(np.asarray(values, np.float64), np.zeros(n, np.int64), np.arange(n))


def raised(d: Differences, by: float) -> Differences:
    """The same pairs, each better by the same amount."""
    return Differences(d.values + by, d.categories, d.clusters, d.center)


@st.composite
def differences(draw: st.DrawFn, least: int = 1) -> Differences:
    """Up to 12 samples in up to 3 categories (some in several), some of them in clusters."""
    names = NAMES[: draw(st.integers(least, len(NAMES)))]
    categories: dict[str, dict[str, float]] = {}
    for name in names:
        for category in draw(st.sets(st.sampled_from("xyz"), min_size=1, max_size=2)):
            categories.setdefault(category, {})[name] = draw(SCORE)
    clusters = draw(st.dictionaries(st.sampled_from(names), st.sampled_from("ab"), max_size=4))
    return Differences.of(categories, clusters)
