"""Agreement of several raters: by definitions, beside the krippendorff package, and by item."""

from __future__ import annotations

from math import nan

import krippendorff
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_cepbench.metrics.judge_agreement import (
    Distance,
    RatedThings,
    alpha_estimate,
    equal_votes_estimate,
    fleiss_estimate,
    fleiss_kappa,
    krippendorff_alpha,
    mean_cohen_estimate,
    median_estimate,
    ratio_estimate,
)
from pytest_cepbench.metrics.uncertainty import estimate_by_items

RATINGS = np.array(
    [
        [0, 1, 2, 2, 1, 0, 3, 0, 1, nan, nan, nan],
        [0, 1, 2, 2, 1, 1, 3, 0, 1, 4, nan, 2],
        [nan, 2, 2, 2, 1, 2, 3, 1, 1, 4, 0, nan],
        [0, 1, 2, 2, 1, 3, 3, 0, 1, 4, 0, nan],
    ],
    float,
)
"""Krippendorff's own example, with values from 0: nominal .743, ordinal .815."""

FLEISS = np.array(
    [
        [0, 0, 0, 0, 14],
        [0, 2, 6, 4, 2],
        [0, 0, 3, 5, 6],
        [0, 3, 9, 2, 0],
        [2, 2, 8, 1, 1],
        [7, 7, 0, 0, 0],
        [3, 2, 6, 3, 0],
        [2, 5, 3, 2, 2],
        [6, 5, 2, 1, 0],
        [0, 2, 2, 3, 7],
    ],
    float,
)
"""An example of 14 raters and 10 subjects whose kappa is .210."""

ratings = st.integers(2, 4).flatmap(
    lambda raters: st.lists(
        st.lists(st.sampled_from([0.0, 1.0, 2.0, nan]), min_size=raters, max_size=raters),
        min_size=2,
        max_size=8,
    ).map(lambda columns: np.array(columns).T)
)


@pytest.mark.parametrize(("distance", "value"), [("nominal", 0.743), ("ordinal", 0.815)])
def test_krippendorffs_example(distance: Distance, value: float) -> None:
    """The printed values; the interval has the estimate inside."""
    estimate = alpha_estimate(RatedThings(RATINGS), distance)

    assert estimate.value == pytest.approx(value, abs=5e-4)
    assert estimate.items == 11  # one has a single rating
    assert estimate.low is not None
    assert estimate.high is not None
    assert estimate.low < value < estimate.high


@given(ratings, st.sampled_from(["nominal", "ordinal"]))
def test_alpha_is_that_of_the_package(values: np.ndarray, distance: Distance) -> None:
    """With any missing ratings; one value alone has no alpha."""
    ours = alpha_estimate(RatedThings(values), distance, draws=2).value
    assert ours == pytest.approx(krippendorff_alpha(values, distance), abs=1e-12)
    pairable = np.isfinite(values).sum(axis=0) > 1
    kept = values[:, pairable]
    if len(np.unique(kept[np.isfinite(kept)])) > 1:
        theirs = krippendorff.alpha(values, level_of_measurement=distance)
        assert ours == pytest.approx(theirs, abs=1e-9)


def test_fleiss_example() -> None:
    """The value of the example, and that of ratings which have the same counts."""
    assert fleiss_kappa(FLEISS) == pytest.approx(0.210, abs=5e-4)
    rows = [np.repeat(np.arange(5), row.astype(int)) for row in FLEISS]
    estimate, raters = fleiss_estimate(RatedThings(np.array(rows, float).T))
    assert estimate.value == pytest.approx(0.210, abs=5e-4)
    assert raters == 14


def test_fleiss_takes_the_most_usual_number_of_ratings() -> None:
    """Items with another number are left out; without any pair there is none."""
    values = np.array([[0, 1, 1, 0], [0, 1, 0, nan], [nan, nan, nan, nan]])
    estimate, raters = fleiss_estimate(RatedThings(values))
    assert (raters, estimate.items) == (2, 3)
    alone = RatedThings(np.array([[0.0, 1.0]]))
    assert fleiss_estimate(alone)[0].value is None
    with pytest.raises(ValueError, match="one number of raters"):
        fleiss_kappa(np.array([[2.0, 0.0], [1.0, 0.0]]))


def test_cohen_of_two_raters() -> None:
    """Two raters of 50 things: 20 and 15 equal, 5 and 10 not, kappa .4."""
    first = [0] * 25 + [1] * 25
    second = [0] * 20 + [1] * 5 + [0] * 10 + [1] * 15
    estimate = mean_cohen_estimate(RatedThings(np.array([first, second], float)))
    assert estimate.value == pytest.approx(0.4)


@given(ratings)
def test_full_agreement_is_one(values: np.ndarray) -> None:
    """Where every rater says what the first says, each coefficient is 1 or not defined."""
    filled = np.where(np.isfinite(values[0]), values[0], 0.0)
    same = RatedThings(np.repeat(filled[None], 3, axis=0))
    estimates = [
        alpha_estimate(same, "ordinal", 5),
        mean_cohen_estimate(same, 5),
        fleiss_estimate(same, 5)[0],
        equal_votes_estimate(same, 5),
    ]
    assert all(each.value is None or each.value == pytest.approx(1) for each in estimates)
    assert estimates[-1].value == 1


@given(ratings, st.randoms(use_true_random=False))
def test_order_changes_nothing(values: np.ndarray, random: object) -> None:
    """Neither that of raters nor that of things."""
    turned = values[::-1, ::-1]
    for measure in (mean_cohen_estimate, equal_votes_estimate):
        first, second = (measure(RatedThings(each), 2).value for each in (values, turned))
        assert first == (None if second is None else pytest.approx(second))


def test_things_of_an_item_are_drawn_together() -> None:
    """Ten equal things of one item are one item: the interval is that of the items."""
    source = np.random.default_rng(0)
    few = source.integers(0, 2, (2, 30)).astype(float)
    many = np.repeat(few, 10, axis=1)
    owners = np.repeat(np.arange(30), 10)
    alone = equal_votes_estimate(RatedThings(few))
    together = equal_votes_estimate(RatedThings(many, owners))
    apart = equal_votes_estimate(RatedThings(many))
    assert together == alone
    assert apart.high is not None
    assert together.high is not None
    assert apart.high < together.high


def test_intervals_cover_the_truth() -> None:
    """Shares of 100 items: about 95 % of 200 intervals have the true share inside."""
    source = np.random.default_rng(1)
    covered = 0
    for _ in range(200):
        right = (source.random(100) < 0.8).astype(float)
        estimate = ratio_estimate(right, np.ones(100), draws=200)
        assert estimate.low is not None
        assert estimate.high is not None
        covered += estimate.low <= 0.8 <= estimate.high
    assert 0.9 <= covered / 200 <= 0.98


def test_medians_and_what_is_not_defined() -> None:
    """The lower of two in the middle; nothing of nothing, and no interval of a single item."""
    assert median_estimate([4.0, 1.0, 3.0, 2.0], [0, 1, 2, 3]).value == 2
    assert median_estimate([], []).value is None
    single = median_estimate([1.0, 5.0, 9.0], [7, 7, 7])
    assert (single.value, single.low, single.items) == (5, None, 1)
    assert estimate_by_items(lambda _: None, 5).value is None
    with pytest.raises(ValueError, match="raters, things"):
        RatedThings(np.zeros(3))
