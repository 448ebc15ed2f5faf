"""The prediction-powered mean: published numbers, people alone, categories, clusters, bounds."""

from __future__ import annotations

import json
from itertools import product
from math import sqrt
from statistics import NormalDist
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_cepbench.gate.statistics import Differences, mean_bounds
from pytest_cepbench.gate.statistics.constants import LEAST_LABELLED, LEAST_UNLIKE
from pytest_cepbench.gate.statistics.differences import Array
from pytest_cepbench.gate.statistics.prediction_powered import (
    PEOPLE_ONLY,
    PREDICTION_POWERED,
    LabelledScores,
    PredictionPoweredMean,
    labelled_bounds,
    prediction_powered_mean,
)
from tests.gate.statistics.published_intervals import ALPHA, FILE, LAMS, SIZES, drawn, published

ALIKE = 1e-9

GRADES = st.sampled_from([-0.5, 0.0, 0.5])


def scores_of_array(people: Array, judge: Array, judge_unlabelled: Array) -> LabelledScores:
    """Scores of one category. people, judge: of the labelled samples, at least 2."""
    labelled = {f"l{i}": float(value) for i, value in enumerate(judge)}
    rest = {f"u{i}": float(value) for i, value in enumerate(judge_unlabelled)}
    own = {f"l{i}": float(value) for i, value in enumerate(people)}
    return LabelledScores({"": labelled | rest}, {"": own}, {})


def published_interval(mean: PredictionPoweredMean) -> tuple[float, float]:
    """Two-sided, with a normal quantile and variances by n: Angelopoulos, Duchi and Zrnic, 2023,
    Algorithm 1.
    """
    own, rest = mean.variances
    n = mean.labelled.units
    count = 2 if mean.unlabelled is None else mean.unlabelled.units
    steps = -NormalDist().inv_cdf(ALPHA / 2)
    reach = steps * sqrt(own * (n - 1) / n + rest * (count - 1) / count)
    return mean.mean - reach, mean.mean + reach


def as_published(scores: LabelledScores) -> float:
    """The lam of the package, which divides the covariance by n and the variance by n - 1."""
    n = len(scores.people[""])
    return scores.tune() * (n - 1) / n


@pytest.mark.parametrize("frozen", json.loads(FILE.read_text("utf-8")))
def test_intervals_are_those_of_ppi_python(frozen: dict[str, Any]) -> None:
    """To 1e-9, with fixed and with tuned lam, as the package printed them."""
    own = drawn(frozen["labelled"], frozen["unlabelled"])
    scores = scores_of_array(*own)
    lam = as_published(scores) if frozen["lam"] is None else frozen["lam"]
    interval = published_interval(prediction_powered_mean(scores, lam))
    assert interval == pytest.approx(frozen["interval"], abs=ALIKE)


def test_intervals_are_those_of_the_package_that_is_installed() -> None:
    """The same where ppi-python is there to be asked."""
    pytest.importorskip("ppi_py", reason="ppi-python is not installed: its frozen numbers are read")
    for sizes, lam in product(SIZES, LAMS):
        own = drawn(*sizes)
        scores = scores_of_array(*own)
        mean = prediction_powered_mean(scores, as_published(scores) if lam is None else lam)
        assert published_interval(mean) == pytest.approx(published(own, lam), abs=ALIKE)


def world(labels: int, size: int, categories: int = 1, seed: int = 0) -> LabelledScores:
    """Battles in categories of equal size; the judge repeats people's verdict half of the time."""
    generator = np.random.default_rng([seed, labels, size, categories])
    judge: dict[str, dict[str, float]] = {}
    people: dict[str, dict[str, float]] = {}
    for category in range(categories):
        said = generator.choice([-0.5, 0.0, 0.5], size=size)
        own = generator.choice([-0.5, 0.0, 0.5], size=size)
        judged = np.where(generator.random(size) < 0.5, said, own)
        names = [f"{category}/{i}" for i in range(size)]
        judge[f"c{category}"] = dict(zip(names, judged.tolist(), strict=True))
        people[f"c{category}"] = dict(
            zip(names[: labels // categories], said.tolist(), strict=False)
        )
    return LabelledScores(judge, people, {})


@given(st.integers(2, 40), st.integers(1, 3), st.integers(0, 99))
def test_people_alone_at_lam_zero(labels: int, categories: int, seed: int) -> None:
    """Mean and error are those of the labels, whatever the judge says."""
    scores = world(labels * categories, labels + 5, categories, seed)
    mean = prediction_powered_mean(scores, 0.0)
    alone = Differences.of(scores.people)
    assert mean.mean == pytest.approx(alone.mean, abs=ALIKE)
    assert mean.error == pytest.approx(alone.sd / alone.units**0.5, abs=ALIKE)
    assert mean.worth == pytest.approx(1.0)


@given(st.integers(0, 99), st.floats(-0.3, 0.3), st.sampled_from([40, 80, 240]))
def test_a_judge_that_is_off_by_a_constant_changes_nothing(
    seed: int, lean: float, labels: int
) -> None:
    """Its bias is what the labels take out: the same mean and error for a judge with a lean."""
    scores = world(labels, 300, seed=seed)
    leaning = {c: {s: x + lean for s, x in part.items()} for c, part in scores.judge.items()}
    other = LabelledScores(leaning, scores.people, {})
    first, second = prediction_powered_mean(scores), prediction_powered_mean(other)
    assert second.mean == pytest.approx(first.mean, abs=ALIKE)
    assert second.error == pytest.approx(first.error, abs=ALIKE)


def test_a_perfect_judge_is_followed() -> None:
    """The lam approaches N / (n + N), and a label counts as often as there are battles for it."""
    generator = np.random.default_rng(0)
    said = generator.choice([-0.5, 0.0, 0.5], size=1000)
    mean = prediction_powered_mean(scores_of_array(said[:200], said[:200], said[200:]))
    assert mean.lam == pytest.approx(0.8, abs=0.03)
    assert mean.worth == pytest.approx(5, rel=0.15)


@pytest.mark.parametrize("judge", ["constant", "opposite"])
def test_a_judge_that_says_nothing_is_not_followed(judge: str) -> None:
    """One that scores all alike, and one that says the opposite: lam is 0, people count alone."""
    generator = np.random.default_rng(1)
    said = generator.choice([-0.5, 0.0, 0.5], size=300)
    own = np.zeros(300) if judge == "constant" else -said
    scores = scores_of_array(said[:100], own[:100], own[100:])
    mean = prediction_powered_mean(scores)
    assert (mean.lam, mean.unlabelled) == (0.0, None)
    assert mean.mean == pytest.approx(float(said[:100].mean()))


def test_every_battle_labelled() -> None:
    """Nothing is left to follow the judge on: the mean is people's."""
    said = np.array([0.5, 0.0, -0.5, 0.5] * 15)
    mean = prediction_powered_mean(scores_of_array(said, -said, np.array([])))
    assert mean.mean == pytest.approx(float(said.mean()))
    assert mean.unlabelled is None


def test_lam_is_tuned_in_folds() -> None:
    """Each fold has the lam of the others; too few labels for folds have one lam."""
    many = world(200, 500)
    assert prediction_powered_mean(many).lam != pytest.approx(many.tune(), abs=1e-12)
    assert prediction_powered_mean(many).lam == pytest.approx(many.tune(), abs=0.05)
    few = world(4, 500)
    assert prediction_powered_mean(few).lam == few.tune()


def test_folds_leave_their_own_labels_out() -> None:
    """A label has no part in the lam by which it is corrected."""
    scores = world(100, 400)
    first = scores.units[0]
    changed = {c: dict(part) for c, part in scores.people.items()}
    changed["c0"][first] = -changed["c0"][first] or 0.5
    other = LabelledScores(scores.judge, changed, {})
    own = frozenset(scores.units[0::5])
    assert first in own
    assert other.tune(own) == scores.tune(own)
    assert other.tune() != scores.tune()


def test_categories_have_equal_weights() -> None:
    """The mean is that of the categories' means, however many battles each has."""
    judge = {"a": {f"a{i}": 0.0 for i in range(80)}, "b": {f"b{i}": 0.0 for i in range(20)}}
    people = {
        "a": {f"a{i}": 0.5 if i % 2 else 0.4 for i in range(40)},
        "b": {f"b{i}": -0.5 if i % 2 else -0.4 for i in range(10)},
    }
    assert prediction_powered_mean(LabelledScores(judge, people, {})).mean == pytest.approx(0)


def test_labels_that_were_drawn_more_often_weigh_less() -> None:
    """Each counts by 1 / probability: two of ten and two of two speak for twelve battles."""
    judge = {"c": {f"s{i}": 0.0 for i in range(12)}}
    people = {"c": {"s0": 0.5, "s1": 0.5, "s10": -0.5, "s11": -0.5}}
    probabilities = {"s0": 0.2, "s1": 0.2, "s10": 1.0, "s11": 1.0}
    mean = prediction_powered_mean(LabelledScores(judge, people, {}, probabilities)).mean
    assert mean == pytest.approx((10 * 0.5 - 2 * 0.5) / 12)


def test_clusters_are_units() -> None:
    """Four seeds of a question say no more than one where they are equal."""
    single = world(60, 200)
    judge = {"c0": {f"{s} {k}": x for s, x in single.judge["c0"].items() for k in range(4)}}
    people = {"c0": {f"{s} {k}": x for s, x in single.people["c0"].items() for k in range(4)}}
    clusters = {sample: sample.split()[0] for sample in judge["c0"]}
    four = prediction_powered_mean(LabelledScores(judge, people, clusters), 0.5)
    one = prediction_powered_mean(single, 0.5)
    assert four.labelled.units == one.labelled.units == 60
    assert four.error == pytest.approx(one.error, abs=ALIKE)


def test_labels_that_cannot_be_used_are_refused() -> None:
    """Of no sample, of half a cluster, of a single battle of a category; a lam that is none."""
    judge = {"c": {f"s{i}": 0.0 for i in range(6)}}
    with pytest.raises(ValueError, match="not in it"):
        LabelledScores(judge, {"c": {"s0": 0, "s1": 0, "x": 0}}, {})
    with pytest.raises(ValueError, match="its cluster has others"):
        LabelledScores(judge, {"c": {"s0": 0, "s1": 0}}, {"s1": "u", "s2": "u"})
    with pytest.raises(ValueError, match="labels of 1 units"):
        LabelledScores(judge, {"c": {"s0": 0}}, {})
    with pytest.raises(ValueError, match="labels of 0 units"):
        LabelledScores(judge, {}, {})
    with pytest.raises(ValueError, match="in \\[0, 1\\]"):
        prediction_powered_mean(LabelledScores(judge, {"c": {"s0": 0, "s1": 0}}, {}), 1.5)


def test_bounds_of_few_labels_are_peoples_alone() -> None:
    """Under 50 labels the bounds are those of the labels without a judge, to the last bit."""
    scores = world(LEAST_LABELLED - 1, 300)
    bounds, mean = labelled_bounds(scores, 0.05, span=0.5)
    alone = mean_bounds(Differences.of(scores.people), 0.05, span=0.5)
    assert (bounds.low, bounds.high, bounds.units) == (alone.low, alone.high, 49)
    assert bounds.method == f"{PEOPLE_ONLY}, {alone.method}"
    assert mean.lam == 0


def test_bounds_of_labels_that_are_alike_are_peoples_alone() -> None:
    """Fifty ties and 14 losses show too little of a spread to be corrected by a judge."""
    judge = np.array([0.5, -0.5] * 150)
    for losses in (5, LEAST_UNLIKE - 1, LEAST_UNLIKE):
        said = np.array([0.0] * 50 + [-0.5] * losses)
        scores = scores_of_array(said, judge[: len(said)], judge[len(said) :])
        bounds, _ = labelled_bounds(scores, 0.05, span=0.5)
        alone = losses < LEAST_UNLIKE
        assert bounds.method == (f"{PEOPLE_ONLY}, Gaffke" if alone else PREDICTION_POWERED)
    everything, _ = labelled_bounds(
        scores_of_array(said * 0, judge[: len(said)], judge[len(said) :]), 0.05, span=0.5
    )
    assert everything.method == f"{PEOPLE_ONLY}, Gaffke"
    assert everything.low is not None
    assert everything.low < 0


@given(st.integers(0, 99), st.floats(0.001, 0.4), st.sampled_from([60, 250]))
def test_bounds_enclose_the_mean(seed: int, alpha: float, labels: int) -> None:
    """Both lie within what a score can be, and a smaller error makes them wider."""
    scores = world(labels, 400, 2, seed)
    bounds, _ = labelled_bounds(scores, alpha, span=0.5)
    wider, _ = labelled_bounds(scores, alpha / 2, span=0.5)
    assert bounds.method == PREDICTION_POWERED
    assert bounds.low is not None
    assert bounds.high is not None
    assert -0.5 <= bounds.low <= bounds.mean <= bounds.high <= 0.5
    assert (wider.low or 0) <= bounds.low
    assert bounds.high <= (wider.high or 0)


@pytest.mark.slow
@pytest.mark.parametrize("labels", [50, 100, 250])
def test_bounds_hold_as_often_as_they_say(labels: int) -> None:
    """Of a judge with a strong lean each bound misses the truth in about 5 % of 600 runs."""
    generator = np.random.default_rng(labels)
    below = above = 0
    for _ in range(600):
        said = generator.choice([-0.5, 0.0, 0.5], p=[0.3, 0.4, 0.3], size=600)
        own = generator.choice([-0.5, 0.0, 0.5], p=[0.05, 0.15, 0.8], size=600)
        judge = np.where(generator.random(600) < 0.5, said, own)
        scores = scores_of_array(said[:labels], judge[:labels], judge[labels:])
        bounds, _ = labelled_bounds(scores, 0.05, span=0.5)
        assert bounds.low is not None
        assert bounds.high is not None
        below += bounds.low > 0
        above += bounds.high < 0
    assert 10 <= below <= 50
    assert 10 <= above <= 50
