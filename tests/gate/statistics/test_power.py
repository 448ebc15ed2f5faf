"""Power: drops that are found, units that do, by drawing them; and division of the error."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import pairwise
from math import fsum, inf, nan, sqrt
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_cepbench.gate.statistics.bounds import mean_bounds
from pytest_cepbench.gate.statistics.differences import Differences
from pytest_cepbench.gate.statistics.error_budget import (
    alpha_shares,
    checkpoint_share,
    holm,
    look_shares,
    look_sizes,
    reference_share,
)
from pytest_cepbench.gate.statistics.power import (
    Design,
    chance_to_fail,
    chance_to_hold,
    smallest_visible,
    tolerance_that_holds,
    units_needed,
    units_to_fail,
)
from tests.gate.statistics.build import Array, raised, sample
from tests.optional import known

RUNS = 250
LEVELS = [0.05, pytest.param(0.05 / 14, marks=pytest.mark.slow)]
NEAR = 0.08  # 5 points, and the rest an error of a share of 0.8 in so many runs


class World(NamedTuple):
    """Categories of so many units each that scatter so much."""

    sizes: list[int]
    sds: list[float]

    def differences(self, values: Array) -> Differences:
        """Of standard normal values."""
        category = np.repeat(np.arange(len(self.sizes)), self.sizes)
        return Differences(
            np.asarray(self.sds)[category] * values, category, np.arange(len(values))
        )

    def drawn(self, runs: int, seed: int) -> list[Differences]:
        """So many samples without drift."""
        rows = np.random.default_rng([seed, *self.sizes]).normal(size=(runs, sum(self.sizes)))
        return [self.differences(row) for row in rows]

    def design(self) -> Design:
        """With the true spread, and the usual numbers of effective units and degrees."""
        seen = [Design.of(d) for d in self.drawn(60, 1)]
        variance = sum(sd**2 / n for n, sd in zip(self.sizes, self.sds, strict=True))
        units, count = sum(self.sizes), len(self.sizes)
        effective = float(np.median([design.effective for design in seen]))
        degrees = float(np.median([design.degrees for design in seen]))
        return Design(sqrt(variance * units) / count, units, effective, degrees)


def one(units: int) -> World:
    """A single category."""
    return World([units], [0.05])


def equal(units: int) -> World:
    """Four alike."""
    return World([units // 4] * 4, [0.05] * 4)


def unequal(units: int) -> World:
    """Six of unequal size and spread, as of CLIP-like similarities."""
    sizes = [units * share // 24 for share in (2, 3, 3, 4, 5, 7)]
    return World(sizes, [0.008, 0.06, 0.02, 0.01, 0.04, 0.03])


WORLDS = [
    *((one, units) for units in (12, 24, 48, 96, 192)),
    *((equal, units) for units in (12, 24, 48, 96, 192)),
    *((unequal, units) for units in (24, 48, 96, 192)),
]


@pytest.mark.parametrize("alpha", LEVELS)
@pytest.mark.parametrize(("world", "units"), WORLDS)
def test_drops_fail_and_good_checkpoints_are_held_as_often_as_said(
    world: Callable[[int], World], units: int, alpha: float
) -> None:
    """With and without categories, at the whole of alpha and at a case's share of it: the smallest
    visible drop fails in four of five runs. So many are held at the tolerance that says so, and far
    fewer are at a quarter of it.
    """
    own = world(units)
    design = own.design()
    tolerance = design.error / 5
    drop = smallest_visible(design, alpha, tolerance)
    found = 0
    for d in own.drawn(RUNS, 2):
        bounds = mean_bounds(raised(d, -drop), alpha, span=10)
        found += bounds.mean < -tolerance and (bounds.p or 0.0) <= alpha
    assert found / RUNS == pytest.approx(0.8, abs=NEAR)
    tolerances = design.error * np.arange(1, 60, 0.02)
    tolerance = next(t for t in tolerances if chance_to_hold(design, alpha, t) >= 0.8)
    assert chance_to_hold(design, alpha, tolerance / 4) < 0.3  # of 48 unequal ones 0.38 are held
    lows = [mean_bounds(d, alpha, span=10).low for d in own.drawn(RUNS, 3)]
    held = sum(low is not None and low > -tolerance for low in lows)
    varying = world is not one and design.degrees < 15  # from run to run
    assert held / RUNS == pytest.approx(0.8, abs=0.16 if varying else NEAR)


@pytest.mark.parametrize("alpha", LEVELS)
def test_as_many_as_are_called_needed_do(alpha: float) -> None:
    """By 24 samples, three of which have most of the spread and often lie close together."""
    own = unequal(24)
    sd, error = own.design().sd, own.design().error
    tolerance = (3 if alpha == 0.05 else 4) * error
    seen = [replace(Design.of(d), sd=sd) for d in own.drawn(40, 4)]
    needed = np.median([known(units_needed(design, tolerance, alpha)) for design in seen])
    drawn = unequal(int(needed)).drawn(RUNS, 5)
    held = [(mean_bounds(d, alpha, span=10).low or -10.0) > -tolerance for d in drawn]
    assert np.mean(held) > 0.8 - NEAR  # 0.6 with those that the strata seem to need


def test_few_units_with_most_of_the_spread_show_it_now_and_then() -> None:
    """With the true degrees of 24: bound and degrees vary together, and fewer are held."""
    own, alpha = unequal(24), 0.05 / 14
    sizes = np.array(own.sizes)
    parts = np.square(own.sds) / sizes
    effective, degrees = (parts.sum() ** 2 / (parts**2 / n).sum() for n in (sizes, sizes - 1))
    design = replace(own.design(), effective=float(effective), degrees=float(degrees))
    tolerance = tolerance_that_holds(design, alpha)
    held = [(mean_bounds(d, alpha, span=10).low or -10.0) > -tolerance for d in own.drawn(RUNS, 6)]
    assert np.mean(held) == pytest.approx(0.8, abs=NEAR)


@pytest.mark.parametrize("shares", [0.02, 0.1])
def test_shares_that_scatter_are_held_as_often_as_said(shares: float) -> None:
    """Answers of which a share was lost, and as many won: Gaffke's bound of 200 of them."""
    rng, units = np.random.default_rng(8), 200
    chances = [shares / 2, 1 - shares, shares / 2]
    rows = rng.choice([-1.0, 0.0, 1.0], size=(RUNS, units), p=chances)
    design = replace(Design.plain(sqrt(shares), units), worst=1.0)
    tolerance = next(t for t in np.arange(0, 1, 1e-3) if chance_to_hold(design, 0.05, t) >= 0.8)
    held = 0
    lows: dict[tuple[int, ...], float | None] = {}  # by how many lost, tied and won
    for row in rows:
        counts = tuple(np.bincount((row + 1).astype(int), minlength=3))
        if counts not in lows:
            lows[counts] = mean_bounds(sample(row), 0.05, shares=True).low
        low = lows[counts]
        held += low is not None and low > -tolerance
    assert held / RUNS == pytest.approx(0.8, abs=0.1)


def test_without_any_difference_the_rule_of_three_decides() -> None:
    """As many as exclude a loss of 1 % hold it, one fewer do not; no drop of theirs is planned."""
    design = Design(0.0, 24, 24, 23, worst=1.0)
    assert units_needed(design, 0.01, 0.05) == 299  # 0.99^299 < 0.05 < 0.99^298
    assert chance_to_hold(design.scaled(299), 0.05, 0.01) == 1.0
    assert chance_to_hold(design.scaled(298), 0.05, 0.01) == 0.0
    assert chance_to_fail(design, 0.5, 0.05, 0.01) == 0.0
    with pytest.raises(ValueError, match=r"no number of units fails a drop of 0\.01"):
        units_to_fail(Design.plain(1.0, 24), 0.01, 0.05, 0.01)


@given(
    st.floats(0.01, 1),
    st.integers(2, 500),
    st.floats(0.1, 1),
    st.floats(0, 0.5),
    st.sampled_from([0.05, 0.001, 1e-5]),
)
def test_the_numbers_agree(
    sd: float, units: int, share: float, tolerance: float, alpha: float
) -> None:
    """The drop that is visible fails in 80 %, and as many units as fail it are those there are."""
    effective = max(share * units, 1.0)
    design = Design(sd, units, effective, max(effective - 1, 1.0))
    drop = smallest_visible(design, alpha, tolerance)
    if drop == inf:
        assert alpha < 0.5**units
        return
    assert drop > tolerance
    assert chance_to_fail(design, drop, alpha, tolerance) == pytest.approx(0.8, abs=5e-3)
    assert known(units_to_fail(design, drop * 1.0001, alpha, tolerance)) <= units
    assert smallest_visible(design, alpha / 2, tolerance) >= drop
    assert smallest_visible(design, alpha, tolerance, strict=True) > tolerance
    assert 0 <= chance_to_hold(design, alpha, tolerance) <= 1


@given(st.integers(2, 400), st.floats(0, 1), st.floats(0, 1), st.floats(0.05, 2))
def test_more_units_are_needed_where_these_do_not_hold(
    units: int, share: float, free: float, tolerance: float
) -> None:
    """Whatever their strata: no one is told that 159 hold what 162 do not."""
    effective = 1 + share * (units - 1)
    design = Design(1.0, units, effective, max(free * (effective - 1), 1.0))
    held = chance_to_hold(design, 0.05 / 20, tolerance) >= 0.8
    assert held == (known(units_needed(design, tolerance, 0.05 / 20)) <= units)


def test_other_numbers_are_refused() -> None:
    """No error, no tolerance: there is no number of units for these.

    One unit, and units that are all alike, are no design.
    """
    for alpha, tolerance, message in (
        (0.0, 0.1, "alpha in"),
        (0.05, -0.1, "a tolerance of at least 0"),
        (0.05, nan, "a tolerance of at least 0"),
        (0.05, 0.0, "a tolerance above 0"),
    ):
        with pytest.raises(ValueError, match=message):
            units_needed(Design.plain(1.0, 24), tolerance, alpha)
    for sd, units, message in (
        (0.0, 24, "a standard deviation above 0, got 0.0"),
        (nan, 24, "a standard deviation above 0, got nan"),
        (0.1, 1, "at least 2 units, got 1"),
    ):
        with pytest.raises(ValueError, match=message):
            Design.plain(sd, units)


# -- division of the error: among cases, looks at more samples, checkpoints ------------------------


@pytest.mark.parametrize(
    ("most", "sizes"),
    [
        (1, (1,)),
        (25, (25,)),
        (31, (31,)),
        (32, (25, 32)),
        (50, (25, 50)),
        (110, (25, 50, 110)),
        (125, (25, 50, 100, 125)),
        (1284, (25, 50, 100, 200, 400, 800, 1284)),
    ],
)
def test_looks_double_up_to_the_most(most: int, sizes: tuple[int, ...]) -> None:
    """A last step of less than a quarter replaces the look before it."""
    assert look_sizes(most) == sizes


@given(st.integers(1, 30))
def test_shares_add_up(count: int) -> None:
    """To 1, half of it for the last look, the others alike."""
    shares = look_shares(count)
    assert len(shares) == count
    assert fsum(shares) == pytest.approx(1.0, abs=1e-12)
    assert shares[-1] == (1.0 if count == 1 else 0.5)
    assert len(set(shares[:-1])) <= 1


P_VALUES = st.dictionaries(st.text(max_size=2), st.floats(0, 0.1), max_size=8)
WEIGHT = st.floats(0.1, 10)


@given(st.dictionaries(st.text(max_size=2), WEIGHT, min_size=1), st.floats(0.001, 0.5))
def test_shares_follow_the_weights(weights: dict[str, float], alpha: float) -> None:
    """They add up to alpha, and a case of twice the weight has twice the share."""
    shares = alpha_shares(weights, alpha)
    assert shares.keys() == weights.keys()
    assert fsum(shares.values()) == pytest.approx(alpha)
    per_weight = {share / weights[case] for case, share in shares.items()}
    assert max(per_weight) == pytest.approx(min(per_weight))


@given(P_VALUES, st.floats(0.01, 0.2))
def test_equal_weights_give_holms_procedure(p_values: dict[str, float], alpha: float) -> None:
    """As Holm states it: the ordered p-values against alpha / (m - rank), whatever the ties."""
    rejected = holm(
        lambda case, level: p_values[case] <= level, dict.fromkeys(p_values, 1.0), alpha
    )
    expected: set[str] = set()
    for rank, case in enumerate(sorted(p_values, key=lambda name: p_values[name])):
        if p_values[case] > alpha / (len(p_values) - rank):
            break
        expected.add(case)
    assert rejected == expected


@given(expected=st.integers(1, 10_000), count=st.integers(1, 400))
def test_the_shares_of_checkpoints_never_exceed_the_whole(expected: int, count: int) -> None:
    """The first K of N expected have K / (K + N) together, so that all of them have 1."""
    shares = [checkpoint_share(number, expected) for number in range(1, count + 1)]
    assert fsum(shares) == pytest.approx(count / (count + expected), rel=1e-9)
    assert all(earlier > later > 0 for earlier, later in pairwise(shares))


@given(number=st.integers(1, 2_000))
def test_the_parts_of_references_never_exceed_their_checkpoint(number: int) -> None:
    """The first baseline, one from before, every earlier checkpoint: any of them is compared."""
    earlier = (reference_share(number, reference) for reference in range(number))
    assert fsum([reference_share(number, None), *earlier]) <= 1
    # The nearest two have half of what the first baseline leaves: 1 / 6 and 1 / 12 of the whole.
    assert reference_share(number, number - 1) == pytest.approx(1 / 6)


@pytest.mark.parametrize(
    ("share", "numbers", "message"),
    [
        (look_sizes, (0,), "at least 1 sample"),
        (look_shares, (0,), "at least 1 look"),
        (checkpoint_share, (0, 40), "from 1 on"),
        (checkpoint_share, (-1, 40), "from 1 on"),
        (checkpoint_share, (1, 0), "from 1 on"),
        (reference_share, (5, -1), "checkpoint 5 is compared with earlier ones"),
        (reference_share, (5, 5), "checkpoint 5 is compared with earlier ones"),
        (reference_share, (5, 6), "checkpoint 5 is compared with earlier ones"),
        *(
            (divide, own, message)
            for divide in (alpha_shares, partial(holm, lambda _case, _level: True))
            for *own, message in (
                ({"a": 0.0}, 0.05, "the weight of 'a' is 0.0"),
                ({"a": float("inf")}, 0.05, "expected a number above 0"),
                ({"a": 1.0}, 0.0, "alpha is the error of the whole run"),
                ({"a": 1.0}, 1.0, "alpha is the error of the whole run"),
            )
        ),
    ],
)
def test_what_is_not_there_has_no_share(
    share: Callable[..., object], numbers: tuple[object, ...], message: str
) -> None:
    """Looks at nothing, checkpoints before the first, comparisons with later ones, a case without
    weight and a run without error, which would have no verdicts.
    """
    with pytest.raises(ValueError, match=message):
        share(*numbers)
