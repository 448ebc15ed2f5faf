"""Similarities to the start and those that chance gives; GC@T and its means."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from pytest_cepbench.metrics.gc import (
    chance_similarities,
    cosine_to_start,
    gc_at_t,
    mean_of_categories,
    mean_similarity,
)
from pytest_cepbench.metrics.semantic_drift import mcd_of_mapping

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


@given(chains())
def test_it_is_the_papers_formula(vectors: tuple[Array, Array]) -> None:
    """Each later vector is compared with the start of its own chain, within rounding: GenCeption,
    Eq. 2, word by word.
    """
    start, later = vectors
    similarity = cosine_to_start(start, later)
    for n, t in np.ndindex(later.shape[:2]):
        first, second = start[n].tolist(), later[n, t].tolist()
        dot = math.fsum(a * b for a, b in zip(first, second, strict=True))
        expected = dot / (math.hypot(*first) * math.hypot(*second))
        assert math.isclose(similarity[n, t], expected, abs_tol=1e-12)


@pytest.mark.parametrize("scale", [1e-300, 1e-160, 1e-30, 1e30, 1e160, 1e300])
def test_no_magnitude_overflows_or_vanishes(scale: float) -> None:
    """Squares of such numbers are infinite or zero in float64; the angle is what it is."""
    start = np.array([[3.0, 4.0]]) * scale
    later = np.array([[[4.0, 3.0], [-3.0, -4.0]]])
    np.testing.assert_allclose(cosine_to_start(start, later / scale), [[24 / 25, -1]], rtol=1e-14)


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
    with pytest.raises(ValueError, match="and n names twice, got"):
        chance_similarities(np.ones(start), np.ones(later), ["a"], ["c"])


@given(st.integers(1, 9), st.integers(1, 3), st.integers(0, 2**32 - 1))
def test_it_is_exact_over_all_pairs(n: int, steps: int, seed: int) -> None:
    """With groups of any size, one too, equal starts, failed steps and vectors of any length: by
    definition, the mean cosine with outputs of all other starts of the group, else of all.
    """
    rng = np.random.default_rng(seed)
    start, later = rng.normal(size=(n, 5)), rng.normal(size=(n, steps, 5)) * 100
    starts = [str(rng.integers(n)) for _ in range(n)]
    groups = [str(rng.integers(3)) for _ in range(n)]
    later[rng.random((n, steps)) < 0.2] = 0.0
    start[rng.random(n) < 0.1] = 0.0
    chance = chance_similarities(start, later, starts, groups)
    if len(set(starts)) < 2:
        assert chance is None
        return

    def cosine(left: npt.NDArray[Any], two: npt.NDArray[Any]) -> float:
        lengths = np.linalg.norm(left) * np.linalg.norm(two)
        return float(left @ two / lengths) if lengths else 0.0

    rows = []
    for i, own in enumerate(starts):
        others = [j for j, other in enumerate(starts) if other != own]
        chosen = [j for j in others if groups[j] == groups[i]] or others
        means = [np.mean([cosine(start[i], later[j, t]) for j in chosen]) for t in range(steps)]
        rows.append(means)
    assert chance == pytest.approx(np.array(rows), abs=1e-12)


SIMILARITY = st.floats(-1, 1)
TRACES = hnp.arrays(
    np.float64, st.tuples(st.integers(1, 6), st.integers(1, 12)), elements=SIMILARITY
)


@given(TRACES)
def test_gc_is_the_papers_formula(traces: Array) -> None:
    """Every chain's score is sum t*s_t / sum t of its own similarities, within rounding: Eq. 3. The
    curve s(t) has one value per iteration, the mean over chains, and its score is the scores' mean.
    """
    result = gc_at_t(traces)
    weights = range(1, traces.shape[1] + 1)
    expected = [sum(t * s for t, s in zip(weights, row, strict=True)) for row in traces.tolist()]
    np.testing.assert_allclose(result, np.array(expected) / sum(weights), atol=1e-14)
    curve = mean_similarity(traces)
    means = [math.fsum(column) / len(traces) for column in traces.T.tolist()]
    np.testing.assert_allclose(curve, means, atol=1e-14)
    np.testing.assert_allclose(gc_at_t(curve[None])[0], result.mean(), atol=1e-14)


@pytest.mark.parametrize("shape", [(3,), (2, 0), (0, 0), (1, 2, 3), ()])
def test_other_shapes_are_refused(shape: tuple[int, ...]) -> None:
    """Nothing is broadcast into a score: the shape that came is said."""
    with pytest.raises(ValueError, match=r"expected \(n_chains, T\) with T at least 1, got \("):
        gc_at_t(np.zeros(shape))
    with pytest.raises(ValueError, match=r"expected \(n_chains, T\) with T at least 1, got \("):
        mcd_of_mapping(np.zeros(shape))
    with pytest.raises(ValueError, match="of no chains is not defined"):
        mean_similarity(np.zeros((0, 2)))


SCORES = st.lists(st.floats(-1, 1).map(lambda x: round(x, 6)), min_size=1, max_size=8)


@given(st.dictionaries(st.text(max_size=5), SCORES, min_size=1, max_size=5), st.randoms())
def test_the_mean_of_categories_does_not_depend_on_any_order(
    scores: dict[str, list[float]], random: object
) -> None:
    """Shuffled samples and categories give the same bits, or a verdict could hang on the order."""
    names = list(scores)
    random.shuffle(names)  # type: ignore[attr-defined] # a random.Random
    shuffled = {
        name: sorted(scores[name], key=lambda _: random.random())  # type: ignore[attr-defined]
        for name in names
    }
    assert _mean(shuffled) == _mean(scores)


def test_categories_count_the_same_however_large_they_are() -> None:
    """The paper's means are over categories, not over samples."""
    assert _mean({"large": [0.0] * 99, "small": [1.0]}) == 0.5
    # A category that lost its samples must not vanish from the mean silently.
    empty: list[dict[str, list[float]]] = [{}, {"a": []}, {"a": [1.0], "b": []}]
    for scores in empty:
        with pytest.raises(ValueError, match="at least one category and one score in each"):
            _mean(scores)


def _mean(scores: dict[str, list[float]]) -> float:
    return mean_of_categories({name: np.array(part) for name, part in scores.items()})


def test_many_chains_are_compared_each_with_its_own_start() -> None:
    """More chains than are computed at once come out as they do one by one."""
    random = np.random.default_rng(0)
    start, later = random.normal(size=(1000, 5)), random.normal(size=(1000, 3, 5))
    singly = [cosine_to_start(start[i : i + 1], later[i : i + 1])[0] for i in range(1000)]
    np.testing.assert_allclose(cosine_to_start(start, later), singly, rtol=1e-13, atol=1e-15)
    # Rounding takes no cosine beyond 1.
    turned = np.stack([start, -start], axis=1)
    assert np.abs(cosine_to_start(start, turned)).max() == 1.0
