"""Similarities to the start, and those that chance gives."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from pytest_cepbench.metrics.gc import chance_similarities, cosine_to_start

Array = npt.NDArray[np.float64]

ENTRY = st.floats(-100, 100).map(lambda x: round(x, 3))


@st.composite
def chains(draw: st.DrawFn) -> tuple[Array, Array]:
    """Vectors of a few chains: their starts and what came later, none of them zero."""
    n, iterations, dimension = draw(
        st.tuples(st.integers(1, 4), st.integers(1, 4), st.integers(1, 6))
    )
    vectors = draw(hnp.arrays(np.float64, (n, iterations + 1, dimension), elements=ENTRY))
    assume(vectors.any(axis=-1).all())
    return vectors[:, 0], vectors[:, 1:]


def reference(first: Sequence[float], second: Sequence[float]) -> float:
    """GenCeption, Eq. 2, word by word."""
    dot = math.fsum(a * b for a, b in zip(first, second, strict=True))
    return dot / (math.hypot(*first) * math.hypot(*second))


@given(chains())
def test_it_is_the_papers_formula(vectors: tuple[Array, Array]) -> None:
    """Each later vector is compared with the start of its own chain, within rounding."""
    start, later = vectors
    similarity = cosine_to_start(start, later)
    for n, t in np.ndindex(later.shape[:2]):
        assert math.isclose(
            similarity[n, t], reference(start[n].tolist(), later[n, t].tolist()), abs_tol=1e-12
        )


def test_rounding_never_leaves_the_range() -> None:
    """Thousands of vectors against multiples of themselves: none is beyond 1 by a last bit."""
    start = np.random.default_rng(0).normal(size=(5000, 7))
    assert np.abs(cosine_to_start(start, start[:, None] * 3.3)).max() == 1.0


@pytest.mark.parametrize("scale", [1e-300, 1e-160, 1e-30, 1e30, 1e160, 1e300])
def test_no_magnitude_overflows_or_vanishes(scale: float) -> None:
    """Squares of such numbers are infinite or zero in float64; the angle is what it is."""
    start = np.array([[3.0, 4.0]]) * scale
    later = np.array([[[4.0, 3.0], [-3.0, -4.0]]])
    np.testing.assert_allclose(cosine_to_start(start, later / scale), [[24 / 25, -1]], rtol=1e-14)


def test_a_tiny_entry_beside_a_huge_one_is_no_zero_vector() -> None:
    """Directions are kept down to the last entry that float64 can hold."""
    start, later = np.array([[1e300, 1e-300]]), np.array([[[5e-324, 0.0]]])
    assert cosine_to_start(start, later)[0, 0] == 1.0


def test_many_chains_are_compared_each_with_its_own_start() -> None:
    """More chains than are computed at once come out as they do one by one."""
    random = np.random.default_rng(0)
    start, later = random.normal(size=(1000, 5)), random.normal(size=(1000, 3, 5))
    singly = [cosine_to_start(start[i : i + 1], later[i : i + 1])[0] for i in range(1000)]
    np.testing.assert_allclose(cosine_to_start(start, later), singly, rtol=1e-13, atol=1e-15)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 0.0])
@pytest.mark.parametrize("where", ["start", "later"])
def test_a_vector_without_direction_is_an_error(value: float, where: str) -> None:
    """NaN, infinity and zero are failures that the caller must have counted, never a similarity."""
    start, later = np.ones((2, 3)), np.ones((2, 4, 3))
    if where == "start":
        start[1] = [value, 0, 0]
    else:
        later[1, 2] = [value, 0, 0]
    with pytest.raises(ValueError, match="zero or not finite"):
        cosine_to_start(start, later)


@pytest.mark.parametrize(
    ("start", "later"),
    [
        ((2, 3), (2, 3)),
        ((3,), (1, 1, 3)),
        ((2, 3), (3, 1, 3)),
        ((2, 3), (2, 1, 4)),
        ((1, 3), (2, 1, 3)),
    ],
)
def test_shapes_that_do_not_fit_are_refused(start: tuple[int, ...], later: tuple[int, ...]) -> None:
    """Nothing is broadcast: one start would be compared with another chain's images."""
    with pytest.raises(ValueError, match=r"expected \(n, d\) and \(n, T, d\), got"):
        cosine_to_start(np.ones(start), np.ones(later))


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


def test_shapes_without_a_chance_are_refused() -> None:
    """Vectors of another width, or names that are missing, are named in the error."""
    with pytest.raises(ValueError, match=r"got \(2, 3\), \(2, 1, 4\)"):
        chance_similarities(np.ones((2, 3)), np.ones((2, 1, 4)), ["a", "b"], ["c", "c"])
    with pytest.raises(ValueError, match="1 and 2"):
        chance_similarities(np.ones((2, 3)), np.ones((2, 1, 3)), ["a"], ["c", "c"])
