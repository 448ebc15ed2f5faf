"""Lumps of equal differences: what counts as one, and no jump of bounds where it dissolves."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_cepbench.gate.statistics import Differences, mean_bounds
from pytest_cepbench.gate.statistics.bounds import find_lump
from tests.gate.statistics.build import Array, sample

RNG = np.random.default_rng(8)
NOISE = RNG.normal(size=400) / 16
JITTER = RNG.normal(size=400) * 1e-4


OTHERS = np.linspace(0.02, 0.2, 60) * np.tile([-1, 1], 30)
"""Far from 0 and from each other."""


def tied(ties: int, others: int) -> Array:
    """So many zeros, and so many other differences."""
    return np.append(np.zeros(ties), OTHERS[:others])


@pytest.mark.parametrize(
    ("values", "share"),
    [
        (NOISE[:60], 0),
        ([0.25, 0.5], 0),
        (tied(31, 29), 1),
        (tied(60, 30), 1),
        (tied(60, 45), 0),
        (tied(200, 45), 0),
        (tied(12, 30), pytest.approx((11 / 41 - 0.25) / 0.25)),
        (tied(6, 14), pytest.approx((5 / 19 - 0.25) / 0.25)),
        (tied(60, 36), pytest.approx(0.6)),
        ([0.0] * 10 + [0.04] * 10, pytest.approx((9 / 19 - 0.25) / 0.25)),
        (JITTER[:60], 1),
        (0.3 + JITTER[:60], 1),
        (NOISE[:60] / 10, 0),
    ],
)
def test_a_lump_is_many_alike_and_few_others(values: Array, share: object) -> None:
    """Half alike and 30 others are a lump, a quarter or 45 others none; noise of 1e-4 is alike."""
    lump = find_lump(sample(values), 1.0)
    assert lump.share == share
    assert bool(lump.statement) is (share != 0)


def test_differences_are_alike_within_half_a_thousandth_of_the_span() -> None:
    """Full until there, gone at twice as much, and in a score with a larger span at more."""
    halves = [np.append(np.zeros(30), np.full(30, apart)) for apart in (0.0005, 0.00075, 0.001)]
    shares = [find_lump(sample(np.append(values, OTHERS[:45])), 1.0).share for values in halves]
    assert shares[0] == 0.0  # 45 others are enough, whatever the rest is
    counts = [find_lump(sample(np.append(values, OTHERS[:38])), 1.0).share for values in halves]
    assert counts[0] == pytest.approx(7 / 15)
    assert counts[0] > counts[1] >= counts[2] == 0.0
    assert find_lump(sample(NOISE[:60] / 10), 100.0).share == 1.0


@pytest.mark.parametrize(
    ("apart", "share"), [(0.0005, 1), (0.0006, 14 / 15), (0.00075, 1 / 3), (0.0009, 0), (0.001, 0)]
)
@pytest.mark.parametrize("span", [1.0, 0.5, 4.0])
@pytest.mark.parametrize("sign", [1, -1])
def test_what_lies_between_near_and_apart_counts_in_part(
    apart: float, share: float, span: float, sign: int
) -> None:
    """Thirty zeros beside 32 other equal ones and 25 others are 0, 6, 15, 24 and 30 others more."""
    others = np.linspace(0.02, 0.2, 25)
    values = np.concatenate([np.zeros(30), np.full(32, apart), others])
    assert find_lump(sample(sign * span * values), span).share == pytest.approx(share)


FULL = "too few are others for a bell shape"
MIRRORED = np.append(np.linspace(0.02, 0.2, 10), -np.linspace(0.02, 0.2, 10))
"""Others whose mean is 0."""


@pytest.mark.parametrize(
    ("values", "statement"),
    [
        (np.full(60, 0.25), "all 60 differences are 0.25: the bounds allow for rare others"),
        (np.append(np.full(59, 0.25), 0.26), f"59 of 60 differences are 0.25, {FULL}"),
        (np.append(np.full(59, 0.25), 0.24), f"59 of 60 differences are 0.25, {FULL}"),
        (tied(31, 29), f"31 of 60 differences are 0, {FULL}"),
        (np.append(np.zeros(30), MIRRORED), f"30 of 50 differences are 0, {FULL}"),
        (
            np.append(np.repeat([0.25, 0.2501], 20), OTHERS[:20]),
            f"40 of 60 differences are 0.25 but for noise, {FULL}",
        ),
        (
            tied(60, 36),
            "60 of 96 differences are 0, few are others: the bounds lie between exact ones and t",
        ),
    ],
    ids=[
        "all",
        "all but one better",
        "all but one worse",
        "most",
        "about 0",
        "noise",
        "dissolving",
    ],
)
def test_the_statement_says_what_is_alike(values: Array, statement: str) -> None:
    """How many differences are alike, which one they are, and whether they are so exactly."""
    assert find_lump(sample(values), 1.0).statement == statement


def test_one_unit_is_a_lump() -> None:
    """It shows no spread at all."""
    statement = "one unit shows no spread: the bounds allow for whatever others may show"
    assert find_lump(sample([0.25]), 1.0) == (1.0, statement)


def test_heavy_units_are_alike_where_their_pairs_are() -> None:
    """Clusters of one to ten pairs of one difference, and noise in categories of 4 and of 40."""
    clusters = np.repeat(np.arange(10), np.arange(1, 11))
    equal = Differences(np.full(55, 0.25), np.zeros(55, np.int64), clusters)
    assert find_lump(equal, 1.0).statement.startswith("all 10 differences are 0.25:")
    categories = np.repeat([0, 1], [4, 40])
    noisy = np.where(categories, -0.1, 0.1) + np.tile([-0.0003, 0.0003], 22)
    statement = find_lump(Differences(noisy, categories, np.arange(44)), 1.0).statement
    assert statement.startswith("no category shows any spread")


def test_differences_that_are_those_of_their_category_are_said_to_be() -> None:
    """Three categories of ten equal differences each: no one value has thirty."""
    values = np.append(np.repeat([-0.1, 0.0, 0.1], 10), MIRRORED[::2])
    d = Differences(values, np.repeat(np.arange(4), 10), np.arange(40))
    statement = find_lump(d, 1.0).statement
    assert statement == f"30 of 40 differences are those of their category, {FULL}"


def test_categories_that_are_each_alike_are_a_lump() -> None:
    """Five categories, each of another difference, and noise of 1e-5 within: no spread to go by."""
    values = np.repeat(np.linspace(-0.2, 0.2, 5), 6) + JITTER[:30] / 10
    d = Differences(values, np.repeat(np.arange(5), 6), np.arange(30))
    lump = find_lump(d, 1.0)
    assert lump.share == 1
    assert "no category shows any spread" in lump.statement
    assert mean_bounds(d, 0.05).method == "exact"


def bounds(values: Array, alpha: float = 0.05) -> tuple[float, float]:
    """Of plain samples."""
    mixed = mean_bounds(sample(values), alpha)
    assert mixed.low is not None
    assert mixed.high is not None
    return mixed.low, mixed.high


def test_eleven_of_twenty_equal_are_hardly_more_than_ten() -> None:
    """Eleven zeros and nine gains do not exclude a loss, and ten and ten are no improvement."""
    eleven = bounds(np.append(np.zeros(11), np.full(9, 0.04)))
    ten = bounds(np.append(np.zeros(10), np.full(10, 0.04)))
    assert eleven[0] < -0.01
    assert ten[0] < -0.01
    assert ten[0] - eleven[0] < 0.03


@pytest.mark.parametrize("jitter", [0.0, 1e-6, 1e-5, 1e-4])
def test_jitter_is_as_careful_as_ties(jitter: float) -> None:
    """Sixty samples that hardly differ hide as rare a loss as sixty that do not differ at all."""
    ties, low = bounds(np.zeros(60))[0], bounds(jitter * RNG.normal(size=60))[0]
    assert ties == pytest.approx(-1 + 0.05 ** (1 / 60))
    assert low == pytest.approx(ties, abs=1e-3)


def test_bounds_go_over_without_a_jump() -> None:
    """Tie by tie, as a lump dissolves among more and more others, no step is a large one."""
    ends = np.array([bounds(tied(60, others)) for others in range(25, 55)])
    steps = np.abs(np.diff(ends, axis=0)).max(axis=0)
    whole = np.abs(ends[-1] - ends[0])
    assert whole[0] > 0.02  # what used to be one jump
    assert steps[0] < whole[0] / 5


@pytest.mark.slow
def test_noise_grows_out_of_a_lump_without_a_jump() -> None:
    """The same sixty differences, a hundredth larger each time: no step is a tenth of the whole."""
    shape = RNG.normal(size=60)
    lows = np.array([bounds(scale * shape)[0] for scale in np.geomspace(1e-4, 5e-3, 400)])
    assert lows[0] < -0.04
    assert lows[-1] > -0.01
    assert np.abs(np.diff(lows)).max() < (lows.max() - lows.min()) / 10


@given(st.lists(st.integers(-3, 3).map(lambda i: i / 100), min_size=2, max_size=50))
def test_between_two_bounds_none_is_passed(values: list[float]) -> None:
    """What lies between t and exact lies between them, on either side."""
    d = sample(values)
    auto = mean_bounds(d, 0.05)
    if auto.method != "t, exact":
        return
    ends = [mean_bounds(d, 0.05, method=method).low for method in ("t", "exact")]
    assert auto.low is not None
    low, high = sorted(end for end in ends if end is not None)
    assert low - 1e-12 <= auto.low <= high + 1e-12
    assert "the bounds lie between exact ones and t" in auto.statement
