"""MCD and drift rates, some from before SciPy made parts of them: no library moves a baseline."""

from __future__ import annotations

import re
from math import fsum

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from pytest_cepbench.artifacts import Modality
from pytest_cepbench.metrics.semantic_drift import (
    DriftRate,
    fit_drift_rate,
    mapping_generations,
    mcd_average,
    mcd_of_mapping,
)
from tests.optional import known

Array = npt.NDArray[np.float64]

SIMILARITIES = hnp.arrays(
    np.float64, st.tuples(st.integers(1, 6), st.integers(1, 10)), elements=st.floats(-1, 1)
)
MODALITIES = st.sampled_from(["image", "text"])


@given(MODALITIES, MODALITIES, st.integers(0, 50))
def test_a_mapping_scores_every_artifact_of_its_modality(
    start: Modality, compares: Modality, generations: int
) -> None:
    """At any length, G included: all that a chain alternating from its start makes, no start."""
    other: Modality = "text" if start == "image" else "image"
    made = {g: start if g % 2 == 0 else other for g in range(1, generations + 1)}
    expected = tuple(g for g, modality in made.items() if modality == compares)
    assert mapping_generations(start, compares, generations) == expected


@given(SIMILARITIES)
def test_mcd_is_the_mean_over_the_mappings_own_generations(similarities: Array) -> None:
    """Each sample's is the mean of its row: not the half of it that Eq. 2 read literally gives."""
    expected = [fsum(row) / len(row) for row in similarities.tolist()]
    np.testing.assert_allclose(mcd_of_mapping(similarities), expected, atol=1e-15)


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
    for others in ({}, {"a": scores[0], "b": np.append(scores[0], 0.0)}):
        with pytest.raises(ValueError, match="expected scores of the same samples"):
            mcd_average(others)


EVEN: Array = np.arange(2.0, 21.0, 2.0)
ODD: Array = np.arange(1.0, 20.0, 2.0)


def curve(g: Array, a: float, b: float, c: float) -> Array:
    """The decay that is fitted."""
    return np.asarray(a * np.exp(-b * g) + c, dtype=np.float64)


@given(
    generations=st.sampled_from([EVEN, ODD, EVEN[:4], np.array([1.0, 2.0, 5.0, 11.0, 30.0])]),
    a=st.floats(0.05, 0.6),
    b=st.floats(0.01, 1.0),
    c=st.floats(-0.4, 0.4),
)
@example(generations=np.arange(1.0, 5.0), a=0.4, b=9.9, c=0.4)  # one step off the fastest
def test_an_exact_decay_gives_its_parameters(
    generations: Array, a: float, b: float, c: float
) -> None:
    """Without noise the fit is the curve, with an interval that is nearly a point around its b."""
    fit = fit_drift_rate(generations.tolist(), curve(generations, a, b, c).tolist())
    assert fit.b is not None, fit.reason
    assert (fit.a, fit.b, fit.c) == pytest.approx((a, b, c), rel=1e-5, abs=1e-6)
    assert known(fit.low) <= b * (1 + 1e-6)
    assert known(fit.high) >= b * (1 - 1e-6)


def noisy(seed: int, b: float, noise: float, generations: Array = EVEN) -> Array:
    """A decay from .8 to .4 with independent errors."""
    error = np.random.default_rng(seed).normal(scale=noise, size=len(generations))
    return np.asarray(curve(generations, 0.4, b, 0.4) + error, dtype=np.float64)


def test_the_fit_is_that_of_a_general_optimiser() -> None:
    """Parameters agree with SciPy's, started at the truth."""
    from scipy import optimize

    for seed in range(20):
        s = noisy(seed, 0.2, 0.01)
        expected, _ = optimize.curve_fit(curve, EVEN, s, p0=(0.4, 0.2, 0.4))
        fit = fit_drift_rate(EVEN.tolist(), s.tolist())
        assert (fit.a, fit.b, fit.c) == pytest.approx(tuple(expected), rel=1e-4)


LINE = 0.9 - 0.03 * EVEN
REFUSED: dict[str, tuple[Array, Array, str]] = {
    # curve: generations, similarities, the reason in words
    "three points": (EVEN[:3], curve(EVEN[:3], 0.4, 0.2, 0.4), "needs at least 4"),
    "no points": (EVEN[:0], EVEN[:0], "needs at least 4 generations, the curve has 0"),
    "flat": (EVEN, np.full(10, 0.4), "is flat"),
    "zero": (EVEN, np.zeros(10), "is flat"),
    "line": (EVEN, LINE, "straight line"),
    "ever faster": (EVEN, 0.9 - 0.0005 * EVEN**2, "straight line"),
    "rising line": (EVEN, LINE[::-1], "rises"),
    "rising to a level": (EVEN, curve(EVEN, -0.3, 0.2, 0.8), "rises"),
    "one step": (EVEN, np.array([0.8] + [0.4] * 9), "falls in one step"),
    "noisy line": (EVEN, LINE + noisy(0, 0, 0.01) - 0.8, "straight line"),
    "noise": (EVEN, noisy(1, 0, 0.01) - 0.3, "noise is larger than the decay"),
    "below -1": (EVEN, curve(EVEN, 1.9, 0.02, -1.2), "level off at -1.2"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_curve_that_tells_no_rate_has_no_number(name: str) -> None:
    """Neither rate, level nor height is given, and the reason is said."""
    generations, s, reason = REFUSED[name]
    fit = fit_drift_rate(generations.tolist(), s.tolist())
    assert (fit.a, fit.b, fit.c) == (None, None, None)
    assert reason in fit.reason
    assert fit.reason in str(fit)


@given(st.lists(st.floats(-1, 1), min_size=0, max_size=12))
def test_any_curve_gets_an_answer(similarities: list[float]) -> None:
    """No curve raises, and a number comes with its interval and no reason."""
    generations = list(range(1, 2 * len(similarities), 2))
    fit = fit_drift_rate(generations, similarities)
    assert (fit.b is not None) == (fit.reason == "")
    if fit.b is not None:
        assert known(fit.a) > 0
        assert known(fit.low) <= fit.b <= known(fit.high)


def test_a_rate_reads_as_a_sentence() -> None:
    """Reports show the rate with its interval, and the other two."""
    noise = 0.001 * np.cos(np.arange(len(EVEN)))
    fit = fit_drift_rate(EVEN.tolist(), (curve(EVEN, 0.4, 0.2, 0.4) + noise).tolist())
    assert re.fullmatch(
        r"b = 0\.\d+ per generation \(95%: 0\.1\d* to 0\.2\d*\), a = 0\.\d+, c = 0\.\d+", str(fit)
    )
    assert str(DriftRate(reason="too short")) == "no rate, too short"


@pytest.mark.parametrize(
    ("generations", "similarities", "message"),
    [
        ([1, 3, 5], [0.5, 0.4], "one similarity per generation"),
        ([1, 3, 3, 5], [0.5] * 4, "ascending generations"),
        ([-1, 1, 3, 5], [0.5] * 4, "ascending generations"),
        ([1, 2, 3, 4], [0.5, float("nan"), 0.3, 0.2], r"similarities in \[-1, 1\]"),
        ([1, 2, 3, 4], [50.0, 40.0, 30.0, 20.0], r"similarities in \[-1, 1\]"),
    ],
)
def test_what_is_no_curve_is_refused(
    generations: list[int], similarities: list[float], message: str
) -> None:
    """A mistake of the caller is not a curve without a rate."""
    with pytest.raises(ValueError, match=message):
        fit_drift_rate(generations, similarities)
