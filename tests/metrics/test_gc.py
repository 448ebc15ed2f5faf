"""GC@T and its means: against a plain reference, by their properties, against published numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from pytest_cepbench.metrics.gc import gc_at_t, mean_of_categories, mean_similarity

Array = npt.NDArray[np.float64]

SIMILARITY = st.floats(-1, 1)
TRACES = hnp.arrays(
    np.float64, st.tuples(st.integers(1, 6), st.integers(1, 12)), elements=SIMILARITY
)


def reference(trace: Sequence[float]) -> float:
    """GenCeption, Eq. 3, word by word."""
    return sum(t * s for t, s in enumerate(trace, start=1)) / sum(range(1, len(trace) + 1))


@given(TRACES)
def test_gc_is_the_papers_formula(traces: Array) -> None:
    """Every chain's score is sum t*s_t / sum t of its own similarities, within rounding."""
    result = gc_at_t(traces)
    np.testing.assert_allclose(result, [reference(trace.tolist()) for trace in traces], atol=1e-14)


def test_the_weights_are_those_of_three_iterations() -> None:
    """1/6, 2/6 and 3/6: the last iteration counts most."""
    np.testing.assert_allclose(gc_at_t(np.eye(3)), [1 / 6, 2 / 6, 3 / 6], rtol=1e-15)


def test_no_chain_has_no_score() -> None:
    """An empty batch is allowed and gives an empty array."""
    assert gc_at_t(np.empty((0, 3))).shape == (0,)


@pytest.mark.parametrize("shape", [(3,), (2, 0), (0, 0), (1, 2, 3), ()])
def test_other_shapes_are_refused(shape: tuple[int, ...]) -> None:
    """Nothing is broadcast into a score: the shape that came is said."""
    with pytest.raises(ValueError, match=r"expected \(n_chains, T\) with T at least 1, got \("):
        gc_at_t(np.zeros(shape))


@given(TRACES)
def test_the_curve_is_the_mean_over_chains(traces: Array) -> None:
    """s(t) has one value per iteration, and the scores' mean is the curve's score."""
    curve = mean_similarity(traces)
    expected = [math.fsum(column) / len(traces) for column in traces.T.tolist()]
    np.testing.assert_allclose(curve, expected, atol=1e-14)
    np.testing.assert_allclose(gc_at_t(curve[None])[0], gc_at_t(traces).mean(), atol=1e-14)


def test_the_curve_of_no_chains_is_refused() -> None:
    """A mean of nothing is not a number."""
    with pytest.raises(ValueError, match="no chains"):
        mean_similarity(np.empty((0, 3)))


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


@pytest.mark.parametrize("scores", [{}, {"a": []}, {"a": [1.0], "b": []}])
def test_an_empty_category_has_no_mean(scores: dict[str, list[float]]) -> None:
    """A category that lost its samples must not vanish from the mean silently."""
    with pytest.raises(ValueError, match="at least one category and one score in each"):
        _mean(scores)


def _mean(scores: dict[str, list[float]]) -> float:
    return mean_of_categories({name: np.array(part) for name, part in scores.items()})
