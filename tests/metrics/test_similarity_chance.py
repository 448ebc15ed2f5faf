"""What chance alone gives, against all pairs counted one by one."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_cepbench.metrics.gc import chance_similarities, gc_at_t


def _pair_by_pair(
    start: npt.NDArray[Any], later: npt.NDArray[Any], starts: list[str], groups: list[str]
) -> npt.NDArray[np.float64]:
    """By definition, the mean cosine with outputs of all other starts of the group, else of all."""

    def cosine(left: npt.NDArray[Any], two: npt.NDArray[Any]) -> float:
        lengths = np.linalg.norm(left) * np.linalg.norm(two)
        return float(left @ two / lengths) if lengths else 0.0

    rows = []
    for i, own in enumerate(starts):
        others = [j for j, other in enumerate(starts) if other != own]
        near = [j for j in others if groups[j] == groups[i]]
        chosen = near or others
        rows.append([
            np.mean([cosine(start[i], later[j, t]) for j in chosen])
            for t in range(later.shape[1])
        ])  # fmt: skip
    return np.array(rows)


@given(st.integers(2, 9), st.integers(1, 3), st.integers(0, 2**32 - 1))
def test_it_is_exact_over_all_pairs(n: int, steps: int, seed: int) -> None:
    """With groups of any size, equal starts, steps that failed and vectors of any length."""
    rng = np.random.default_rng(seed)
    start, later = rng.normal(size=(n, 5)), rng.normal(size=(n, steps, 5)) * 100
    starts = [str(rng.integers(n)) for _ in range(n)]
    groups = [str(rng.integers(3)) for _ in range(n)]
    later[rng.random((n, steps)) < 0.2] = 0.0
    start[rng.random(n) < 0.1] = 0.0
    chance = chance_similarities(start, later, starts, groups)
    if len(set(starts)) < 2:
        assert chance is None
    else:
        assert chance == pytest.approx(_pair_by_pair(start, later, starts, groups), abs=1e-12)


def test_it_is_computed_in_double_precision() -> None:
    """Thousands of nearly equal vectors in float32: no digit of the score is lost."""
    rng = np.random.default_rng(0)
    start = (1 + rng.normal(scale=1e-4, size=(2000, 16))).astype(np.float32)
    names = [str(i) for i in range(2000)]
    chance = chance_similarities(start, start[:, None], names, ["all"] * 2000)
    assert chance is not None
    wide = start.astype(np.float64)
    unit = wide / np.linalg.norm(wide, axis=1, keepdims=True)
    among = unit @ unit.T
    exact = (among.sum(axis=1) - among.diagonal()) / 1999
    assert chance[:, 0] == pytest.approx(exact, abs=1e-13)


def test_failed_chains_count_as_nothing() -> None:
    """Outputs that are not there are similar to nothing, in the floor as in the score."""
    start = np.eye(2)
    later = np.ones((2, 1, 2))
    later[1] = 0.0
    chance = chance_similarities(start, later, ["a", "b"], ["c", "c"])
    assert chance is not None
    assert chance[:, 0] == pytest.approx([0.0, np.sqrt(0.5)])


def test_who_is_alone_is_exchanged_with_all_others() -> None:
    """A category of one sample has a floor in a case of several, and none by itself."""
    start = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    chance = chance_similarities(start, start[:, None], ["x", "y", "z"], ["a", "a", "b"])
    assert chance is not None
    assert chance[:, 0] == pytest.approx([0.0, 0.0, np.sqrt(0.5)])
    assert chance_similarities(start[:1], start[:1, None], ["x"], ["a"]) is None
    assert chance_similarities(start, start[:, None], ["x"] * 3, ["a"] * 3) is None


def test_scores_of_it_are_means_over_pairs() -> None:
    """GC@T of the mean similarities is the mean of GC@T over the pairs: the score is linear."""
    rng = np.random.default_rng(5)
    start, later = rng.normal(size=(4, 3)), rng.normal(size=(4, 3, 3))
    names = list("abcd")
    chance = chance_similarities(start, later, names, ["all"] * 4)
    assert chance is not None

    def row(i: int, j: int) -> list[float]:
        a, b = start[i], later[j]
        return [float(a @ v / np.linalg.norm(a) / np.linalg.norm(v)) for v in b]

    pairs = np.array([row(0, j) for j in (1, 2, 3)])
    assert gc_at_t(chance)[0] == pytest.approx(gc_at_t(pairs).mean())


def test_shapes_that_do_not_fit_are_refused() -> None:
    """Vectors of another width, or names that are missing, are named in the error."""
    with pytest.raises(ValueError, match=r"got \(2, 3\), \(2, 1, 4\)"):
        chance_similarities(np.ones((2, 3)), np.ones((2, 1, 4)), ["a", "b"], ["c", "c"])
    with pytest.raises(ValueError, match="1 and 2"):
        chance_similarities(np.ones((2, 3)), np.ones((2, 1, 3)), ["a"], ["c", "c"])
