"""Betting on the mean of scores: an exact promise at any stopping time, rounds, and bounds."""

from __future__ import annotations

from itertools import product
from math import fsum, prod

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_cepbench.gate.statistics import Differences, mean_bounds
from pytest_cepbench.gate.statistics.betting import Rounds, betting_bounds, stops_of
from pytest_cepbench.gate.statistics.constants import LEAST_LOST
from tests.gate.statistics.build import Array

TOLERANCE, ALPHA, RUNS = 0.05, 0.05, 2000

BEYOND = 3 * (ALPHA * (1 - ALPHA) / RUNS) ** 0.5
"""How far a rate that is promised as alpha may lie above it by chance."""

scores_of_a_battle = st.sampled_from([0.0, 0.25, 0.5, 0.75, 1.0])


def battles(mean: float, runs: int, n: int, *, ties: float = 0.4, seed: int = 0) -> Rounds:
    """Runs of n battles: ties, and wins and losses that make the mean."""
    chances = [(1 - ties) / 2 - (mean - 0.5), ties, (1 - ties) / 2 + (mean - 0.5)]
    generator = np.random.default_rng([seed, round(1000 * mean)])
    return Rounds.single(generator.choice([0.0, 0.5, 1.0], p=chances, size=(runs, n)))


@pytest.mark.slow
@pytest.mark.parametrize("ties", [0.0, 0.4, 0.6])
def test_the_promises_hold_at_their_boundaries(ties: float) -> None:
    """A drop of the tolerance is held, and none regresses, in at most alpha of the runs."""
    dropped = stops_of(battles(0.5 - TOLERANCE, RUNS, 600, ties=ties), TOLERANCE, ALPHA)
    equal = stops_of(battles(0.5, RUNS, 600, ties=ties), TOLERANCE, ALPHA)

    assert dropped.held.mean() <= ALPHA + BEYOND
    assert equal.regressed.mean() <= ALPHA + BEYOND
    strict = stops_of(battles(0.5 - TOLERANCE, RUNS, 600, ties=ties), TOLERANCE, ALPHA, strict=True)
    assert strict.regressed.mean() <= ALPHA + BEYOND


def test_what_is_there_is_found_and_early() -> None:
    """Equal models are held, and a drop of three tolerances regresses, before all is judged."""
    equal = stops_of(battles(0.5, 300, 2160), TOLERANCE, ALPHA)
    worse = stops_of(battles(0.35, 300, 2160), TOLERANCE, ALPHA)
    strict = stops_of(battles(0.35, 300, 2160), TOLERANCE, ALPHA, strict=True)

    assert equal.held.mean() > 0.93
    assert equal.counts.mean() < 700
    assert worse.regressed.mean() > 0.99
    assert worse.counts.mean() < strict.counts.mean() < 300


@pytest.mark.slow
def test_plain_bounds_at_each_look_would_break_the_promise() -> None:
    """What betting is for: bounds for one look, looked at again and again, err too often."""
    runs = battles(0.5 - TOLERANCE, 150, 600).scores

    def ever_held(run: Array) -> bool:
        looks = (Differences(run[:n] - 0.5, zeros[:n], places[:n]) for n in range(50, 601, 50))
        return any((mean_bounds(d, ALPHA, span=0.5).low or 0.0) > -TOLERANCE for d in looks)

    zeros, places = np.zeros(600, np.int64), np.arange(600)
    assert np.mean([ever_held(run) for run in runs]) > 2 * ALPHA


chance = st.integers(0, 10).map(lambda tenths: tenths / 10)


@pytest.mark.slow
@given(
    chances=st.lists(chance, min_size=1, max_size=3), sizes=st.lists(st.integers(1, 3), max_size=2)
)
@settings(deadline=None)
def test_wealth_is_expected_not_to_grow(chances: list[float], sizes: list[int]) -> None:
    """Exactly, over all outcomes: categories far from each other, of unlike sizes, up to a round.

    The mean that is bet against is the true one: the least favourable of those to be rejected.
    """
    counts = [*sizes, 2, 2, 2][: len(chances)]
    samples = {str(c): [f"{c}/{i}" for i in range(n)] for c, n in enumerate(counts)}
    names = [(category, name) for category, members in samples.items() for name in members]
    mean = fsum(chances) / len(chances)
    if not 0 < mean < 1:
        return
    for direction in ("above", "below"):
        expected = 0.0
        for outcome in product((0.0, 1.0), repeat=len(names)):
            scores: dict[str, dict[str, float]] = {}
            for (category, name), score in zip(names, outcome, strict=True):
                scores.setdefault(category, {})[name] = score
            rounds = Rounds.deal(samples, scores)
            assert rounds is not None
            likely = prod(
                chances[int(category)] if score else 1 - chances[int(category)]
                for (category, _), score in zip(names, outcome, strict=True)
            )
            wealth = rounds.log_wealth(mean, "above" if direction == "above" else "below")
            expected += likely * float(np.exp(wealth[-1]))
        assert expected <= 1 + 1e-9


@given(st.lists(scores_of_a_battle, min_size=2, max_size=60), scores_of_a_battle)
def test_stakes_know_nothing_of_what_comes(scores: list[float], other: float) -> None:
    """Another last score leaves the wealth before it as it was."""
    first = Rounds.single(scores).log_wealth(0.45)
    second = Rounds.single([*scores[:-1], other]).log_wealth(0.45)
    assert np.array_equal(first[:-1], second[:-1])
    assert np.isfinite(first).all()


@given(
    sizes=st.lists(st.integers(1, 9), min_size=1, max_size=4),
    seen=st.integers(0, 9),
    data=st.data(),
)
def test_rounds_weigh_categories_alike_and_stay(
    sizes: list[int], seen: int, data: st.DataObject
) -> None:
    """Every round has the same weight of each category; a part measured is a first part of all."""
    samples = {f"c{c}": [f"c{c}/{i}" for i in range(n)] for c, n in enumerate(sizes)}
    scores = {
        c: {name: data.draw(scores_of_a_battle) for name in names} for c, names in samples.items()
    }
    whole = Rounds.deal(samples, scores)
    assert whole is not None
    assert len(whole.starts) == min(sizes)
    weights = np.add.reduceat(whole.weights, whole.starts)
    assert weights == pytest.approx(np.full(min(sizes), weights[0]))
    means = [fsum(part.values()) / len(part) for part in scores.values()]
    if len(set(sizes)) == 1:
        assert whole.means[-1] == pytest.approx(fsum(means) / len(means))
    some = {
        category: {name: part[name] for name in data.draw(st.permutations(sorted(part)))[:seen]}
        for category, part in scores.items()
    }
    part = Rounds.deal(samples, some)
    if part is not None:
        n = part.scores.shape[-1]
        assert np.array_equal(part.scores, whole.scores[:n])
        assert np.array_equal(part.weights, whole.weights[:n])
        assert np.array_equal(part.starts, whole.starts[: len(part.starts)])


def test_a_cluster_is_a_unit() -> None:
    """Three seeds of a sample count once, as their mean, and not before all three are there."""
    samples = {"c": ["a", "a seed 1", "a seed 2", "b"]}
    clusters = {"a": "a", "a seed 1": "a", "a seed 2": "a"}
    scores = {"a": 0.0, "a seed 1": 0.5, "a seed 2": 1.0, "b": 1.0}
    rounds = Rounds.deal(samples, {"c": scores}, clusters)
    assert rounds is not None
    shown = {
        round(score, 9): weight for score, weight in zip(rounds.scores, rounds.weights, strict=True)
    }
    assert shown == pytest.approx({0.5: 1.0, 1.0: 1 / 3})
    del scores["a seed 2"]
    part = Rounds.deal(samples, {"c": scores}, clusters)
    assert part is None or part.scores.tolist() == [1.0]


def test_a_sample_in_two_categories_is_a_unit() -> None:
    """It counts once, with the weight that it has in both."""
    samples = {"x": ["a", "b"], "y": ["a"]}
    scores = {"x": {"a": 1.0, "b": 0.0}, "y": {"a": 1.0}}
    rounds = Rounds.deal(samples, scores)
    assert rounds is not None
    assert sorted(zip(rounds.scores, rounds.weights, strict=True)) == [(0.0, 1 / 3), (1.0, 1.0)]
    assert rounds.means[-1] == pytest.approx(0.75)


@given(st.lists(scores_of_a_battle, min_size=1, max_size=150), st.integers(1, 150))
@settings(deadline=None, max_examples=50)
def test_bounds_only_narrow(scores: list[float], first: int) -> None:
    """What was excluded at a look stays excluded; bounds of the mirror image are mirrored."""
    early = betting_bounds(Rounds.single(scores[:first]), ALPHA)
    low, high = betting_bounds(Rounds.single(scores), ALPHA)
    assert early[0] <= low
    assert high <= early[1]
    wider = betting_bounds(Rounds.single(scores), ALPHA / 10)
    assert wider[0] <= low
    assert high <= wider[1]
    if len(scores) >= LEAST_LOST:
        mirrored = betting_bounds(Rounds.single([1 - x for x in scores]), ALPHA)
        assert mirrored == pytest.approx((1 - high, 1 - low), abs=1e-9)
    else:
        assert high == 1


@pytest.mark.slow
@pytest.mark.parametrize("mean", [0.35, 0.45, 0.5, 0.6])
def test_bounds_and_stops_agree(mean: float) -> None:
    """A run whose bounds exclude the tolerated drop has been held, or the opposite before that."""
    runs = battles(mean, 30, 400)
    stops = stops_of(runs, TOLERANCE, ALPHA)
    for number, scores in enumerate(runs.scores):
        low, high = betting_bounds(Rounds.single(scores), ALPHA)
        if low > 0.5 - TOLERANCE:
            assert stops.held[number] or stops.regressed[number]
        if not stops.held[number] and not stops.regressed[number]:
            assert low <= 0.5 - TOLERANCE
            assert high > 0.499 or runs.means[number, -1] >= 0.5 - TOLERANCE


def test_nothing_regresses_within_the_first_samples() -> None:
    """Lost battles alone, and still a run ends at the fiftieth, not before."""
    stops = stops_of(Rounds.single(np.zeros((1, 200))), TOLERANCE, ALPHA)
    assert (stops.regressed.tolist(), stops.counts.tolist()) == ([True], [LEAST_LOST])
    assert betting_bounds(Rounds.single(np.zeros(LEAST_LOST - 1)), ALPHA)[1] == 1


@pytest.mark.parametrize("scores", [[], [0.5, 1.1], [-0.1], [float("nan")]])
def test_other_scores_are_refused(scores: list[float]) -> None:
    """Betting needs at least one score, and all in [0, 1]."""
    with pytest.raises(ValueError, match=r"scores in \[0, 1\]"):
        Rounds.single(scores)


def test_other_numbers_are_refused() -> None:
    """Weights, rounds, alpha and tolerance out of their ranges, each in its own words."""
    x = np.array([0.5, 1.0])
    with pytest.raises(ValueError, match="weights over 0"):
        Rounds(x, np.array([1.0, 0.0]), np.array([0]))
    with pytest.raises(ValueError, match="starts of rounds"):
        Rounds(x, np.ones(2), np.array([0, 2]))
    with pytest.raises(ValueError, match="alpha"):
        betting_bounds(Rounds.single(x), 1.0)
    with pytest.raises(ValueError, match="alpha"):
        stops_of(Rounds.single(x), 0.05, 0.0)
    with pytest.raises(ValueError, match="tolerance"):
        stops_of(Rounds.single(x), 0.5, 0.05)
