"""Similarities to the start and those that chance gives; GC@T, MCD, and the rate of drift."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from pytest_cepbench.artifacts import Modality
from pytest_cepbench.metrics.gc import (
    chance_similarities,
    cosine_to_start,
    gc_at_t,
    mean_of_categories,
    mean_similarity,
)
from pytest_cepbench.metrics.semantic_drift import (
    DriftRate,
    fit_drift_rate,
    mapping_generations,
    mcd_average,
    mcd_of_mapping,
)
from tests.optional import known

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


# -- drift by mapping: no library moves a baseline, so some rates are from before SciPy made them --


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


@given(TRACES)
def test_mcd_is_the_mean_over_the_mappings_own_generations(similarities: Array) -> None:
    """Each sample's is the mean of its row: not the half of it that Eq. 2 read literally gives."""
    expected = [math.fsum(row) / len(row) for row in similarities.tolist()]
    np.testing.assert_allclose(mcd_of_mapping(similarities), expected, atol=1e-15)


@given(TRACES)
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
