"""The test of a drop by flipping signs: exact for few units, by a group of flips for more."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_cepbench.gate.statistics import Differences, mean_bounds
from pytest_cepbench.gate.statistics.bounds import _numbers, flip_p_value
from pytest_cepbench.gate.statistics.constants import ALL_UNITS
from tests.gate.statistics.build import SCORE, Array

LEVELS = (0.3, 0.05, 0.05 / 14, 0.05 / 40)


def statistic(flipped: Array) -> Array:
    """(n, K) -> (n,): the mean over the root of the sum of squares, after Hall, as documented."""
    square = (flipped**2).sum(axis=1)
    mean, skewness = flipped.sum(axis=1) / square**0.5, (flipped**3).sum(axis=1) / square**1.5
    return np.asarray(mean + skewness * mean**2 / 3 + skewness**2 * mean**3 / 27 + skewness / 6)


def share(parts: Array, signs: Array) -> float:
    """Share of flips with a statistic as low as that of no flip; what rounds alike ties."""
    observed = statistic(parts[None])
    return float(np.mean(statistic(signs * parts) <= observed + 1e-9 * (1 + abs(observed))))


@given(st.lists(SCORE.filter(bool), min_size=1, max_size=10), st.sampled_from(LEVELS))
def test_of_few_units_it_is_the_share_of_all_flips(values: list[float], alpha: float) -> None:
    """Every sign of every unit, one by one; units that do not differ change nothing."""
    parts = np.array(values)
    signs = np.array(list(product([1.0, -1.0], repeat=len(values))))
    expected = pytest.approx(share(parts, signs), abs=1e-12)
    assert flip_p_value(parts, alpha) == expected
    assert flip_p_value(np.append(np.zeros(30), parts), alpha) == expected


@pytest.mark.parametrize("seed", range(3))
def test_of_more_units_it_is_right_within_a_tenth(seed: int) -> None:
    """Beside random flips: three of the errors of a hundred in the tail, or both tiny."""
    rng = np.random.default_rng(seed)
    parts = rng.gamma(0.7, size=24) * rng.choice([1, -1], size=24, p=[0.25, 0.75])
    parts[rng.random(24) < 0.1] = 0.0
    signs = rng.choice([1.0, -1.0], size=(200_000, 24))
    exact = share(parts, signs)
    for alpha in LEVELS:
        p = flip_p_value(parts, alpha)
        assert abs(p / max(exact, 1e-9) - 1) < 0.3 or max(p, exact) < alpha / 2


@pytest.mark.parametrize(("units", "bits"), [(5, 5), (30, 11), (400, 15)])
def test_flips_are_a_group_that_can_turn_every_unit(units: int, bits: int) -> None:
    """Two flips in a row are a flip, and no unit stays as it is in all of them."""
    flips = np.random.default_rng(0).integers(0, 1 << bits, size=40)

    def signs(flip: Any) -> Array:
        shared = np.bitwise_and.outer(flip, _numbers(units, bits))
        return np.asarray((-1.0) ** np.array([[int(c).bit_count() for c in row] for row in shared]))

    first, second = signs(flips), signs(flips[::-1])
    assert (first * second == signs(flips ^ flips[::-1])).all()
    assert ((first == 1).any(axis=0) & (first == -1).any(axis=0)).all()


@pytest.mark.parametrize("ties", [0, 10, 53, 993])
def test_seven_losses_beside_any_number_of_ties_are_evidence_at_a_hundredth(ties: int) -> None:
    """Six are none; seeds that cancel out but for their last bits are ties too."""
    for rest in (np.zeros(ties), np.full(ties, (0.1 + 0.2 - 0.3) / 9)):
        losses = -0.2 - np.arange(7) / 100
        assert flip_p_value(np.append(rest, losses), 0.01) == 2**-7
        assert flip_p_value(np.append(losses[:6], rest), 0.01) == 2**-6


@given(st.lists(SCORE, min_size=1, max_size=40), st.sampled_from(LEVELS), st.integers(-9, 9))
def test_the_unit_of_a_score_has_no_say(values: list[float], alpha: float, power: int) -> None:
    """From 1e-9 to 1e9; nor has the order of few, and asked again the answer is the same."""
    parts = np.array(values)
    p = flip_p_value(parts, alpha)
    assert 0 < p <= 1
    assert flip_p_value(parts, alpha) == p
    assert flip_p_value(parts * 10.0**power, alpha) == p
    if len(values) <= ALL_UNITS:
        assert flip_p_value(parts[::-1], alpha) == p


def test_units_are_flipped_whole() -> None:
    """Ten images of four prompts are four losses, whatever else they would be on their own."""
    values, category = np.full(40, -0.25), np.zeros(40, np.int64)
    assert mean_bounds(Differences(values, category, np.arange(40) % 4), 0.05).p == 2**-4
    both = Differences.of({c: {f"s{i}": -0.1 for i in range(6)} for c in "ab"})
    assert mean_bounds(both, 0.05).p == 2**-6


@given(st.integers(0, 2**32), st.floats(1e-5, 0.5), st.floats(1e-5, 0.5))
def test_what_one_level_rejects_every_higher_one_does(seed: int, less: float, more: float) -> None:
    """However few flips a level asks for: stopping early says nothing that going on would not."""
    rng = np.random.default_rng(seed)
    parts = rng.normal(rng.uniform(-1, 0), 1, 20)
    less, more = sorted((less, more))
    if flip_p_value(parts, less) <= less:
        assert flip_p_value(parts, more) <= more
