"""MCD: which generations a mapping scores, and the means over them."""

from __future__ import annotations

from math import fsum
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from pytest_cepbench.metrics.gc import mean_similarity
from pytest_cepbench.metrics.semantic_drift import (
    Modality,
    mapping_generations,
    mcd_average,
    mcd_of_mapping,
)

Array = npt.NDArray[np.float64]

SIMILARITIES = hnp.arrays(
    np.float64, st.tuples(st.integers(1, 6), st.integers(1, 10)), elements=st.floats(-1, 1)
)
MODALITIES = st.sampled_from(["image", "text"])


@pytest.mark.parametrize(
    ("start", "compares", "scored"),
    [
        ("text", "text", (2, 4, 6, 8, 10, 12, 14, 16, 18, 20)),
        ("text", "image", (1, 3, 5, 7, 9, 11, 13, 15, 17, 19)),
        ("image", "image", (2, 4, 6, 8, 10, 12, 14, 16, 18, 20)),
        ("image", "text", (1, 3, 5, 7, 9, 11, 13, 15, 17, 19)),
    ],
)
def test_the_papers_mappings_score_ten_of_twenty_generations(
    start: Modality, compares: Modality, scored: tuple[int, ...]
) -> None:
    """G = 20: texts of a text-first chain have even generations, its images odd ones, and so on."""
    assert mapping_generations(start, compares, 20) == scored


@given(MODALITIES, MODALITIES, st.integers(0, 50))
def test_a_mapping_scores_every_artifact_of_its_modality(
    start: Modality, compares: Modality, generations: int
) -> None:
    """At any length, G included: all that a chain alternating from its start makes, no start."""
    other: Modality = "text" if start == "image" else "image"
    made = {g: start if g % 2 == 0 else other for g in range(1, generations + 1)}
    expected = tuple(g for g, modality in made.items() if modality == compares)
    assert mapping_generations(start, compares, generations) == expected


@given(MODALITIES, st.integers(0, 50))
def test_two_mappings_of_a_chain_share_its_generations(start: Modality, generations: int) -> None:
    """Every generation is scored by exactly one of the two mappings of its chain."""
    both = [mapping_generations(start, compares, generations) for compares in ("image", "text")]
    assert sorted(both[0] + both[1]) == list(range(1, generations + 1))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("video", "text", 20), "expected a modality of .*, got 'video'"),
        (("text", "text-first", 20), "expected a modality of .*, got 'text-first'"),
        (("text", "text", -1), "at least 0 generations, got -1"),
    ],
)
def test_other_mappings_are_refused(arguments: tuple[Any, ...], message: str) -> None:
    """A misspelt modality must not read as "the other one"."""
    with pytest.raises(ValueError, match=message):
        mapping_generations(*arguments)


@given(SIMILARITIES)
def test_mcd_is_the_mean_over_the_mappings_own_generations(similarities: Array) -> None:
    """Each sample's is the mean of its row: not the half of it that Eq. 2 read literally gives."""
    expected = [fsum(row) / len(row) for row in similarities.tolist()]
    np.testing.assert_allclose(mcd_of_mapping(similarities), expected, atol=1e-15)


def test_a_chain_that_changes_nothing_has_an_mcd_of_one() -> None:
    """Similarity 1 at all ten generations of twenty is no drift at all."""
    generations = mapping_generations("text", "text", 20)
    assert mcd_of_mapping(np.ones((3, len(generations)))).tolist() == [1.0, 1.0, 1.0]


@given(SIMILARITIES)
def test_the_papers_mcd_is_the_mean_of_the_curve(similarities: Array) -> None:
    """Samples first or generations first: the mean of S_delta(g) is the mean over samples."""
    curve = mean_similarity(similarities)
    np.testing.assert_allclose(mcd_of_mapping(similarities).mean(), curve.mean(), atol=1e-14)


@given(
    hnp.arrays(
        np.float64, st.tuples(st.integers(1, 4), st.integers(1, 6)), elements=st.floats(-1, 1)
    )
)
def test_the_average_weighs_every_mapping_the_same(scores: Array) -> None:
    """Per sample, and so on average over samples too, as every sample is in every mapping."""
    result = mcd_average({str(i): mapping for i, mapping in enumerate(scores)})
    np.testing.assert_allclose(result, scores.mean(axis=0), atol=1e-15)
    np.testing.assert_allclose(result.mean(), np.mean([m.mean() for m in scores]), atol=1e-14)


def test_no_samples_have_no_scores() -> None:
    """An empty batch is allowed and gives an empty array."""
    assert mcd_of_mapping(np.empty((0, 10))).shape == (0,)


@pytest.mark.parametrize("shape", [(3,), (2, 0), (1, 2, 3), ()])
def test_other_shapes_are_refused(shape: tuple[int, ...]) -> None:
    """A mapping without a generation has no mean, and nothing is broadcast."""
    with pytest.raises(ValueError, match=r"expected \(n, k\)"):
        mcd_of_mapping(np.zeros(shape))


@pytest.mark.parametrize("mappings", [{}, {"a": 2, "b": 3}])
def test_mappings_of_other_samples_are_not_averaged(mappings: dict[str, int]) -> None:
    """The average is over the same samples, or it would be of no sample at all."""
    with pytest.raises(ValueError, match="same samples"):
        mcd_average({name: np.zeros(n) for name, n in mappings.items()})
