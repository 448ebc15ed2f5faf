"""Agreement of judges and of raters: by definitions, and beside the krippendorff package."""

from __future__ import annotations

from math import nan

import krippendorff
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_cepbench.artifacts.outcome import WINNERS
from pytest_cepbench.metrics.battles import JudgedBattle
from pytest_cepbench.metrics.judge_agreement import (
    Distance,
    RatedThings,
    Reading,
    Share,
    agreement,
    alpha_estimate,
    confusion,
    equal_votes_estimate,
    grades_of,
    krippendorff_alpha,
    ratio_estimate,
    share,
    shared_battles,
)
from pytest_cepbench.metrics.uncertainty import estimate_by_items
from tests.optional import known

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
    assert known(estimate.low) < value < known(estimate.high)


@given(ratings, st.sampled_from(["nominal", "ordinal"]))
def test_alpha_is_that_of_the_package(values: np.ndarray, distance: Distance) -> None:
    """With any missing ratings; one value alone has no alpha."""
    ours = krippendorff_alpha(values, distance)
    pairable = np.isfinite(values).sum(axis=0) > 1
    kept = values[:, pairable]
    if len(np.unique(kept[np.isfinite(kept)])) > 1:
        theirs = krippendorff.alpha(values, level_of_measurement=distance)
        assert ours == pytest.approx(theirs, abs=1e-9)


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
    assert known(apart.high) < known(together.high)


FIRST = [
    JudgedBattle("q1", "a", "b", "A"),
    JudgedBattle("q2", "a", "b", "Tie(A)"),
    JudgedBattle("q3", "a", "b", "Tie(B)"),
    JudgedBattle("q4", "a", "c", "B"),
    JudgedBattle("q5", "a", "c", "A"),
]

SECOND = [
    JudgedBattle("q5", "a", "c", "B"),
    JudgedBattle("q1", "a", "b", "Tie(A)"),
    JudgedBattle("q2", "a", "b", "Tie(B)"),
    JudgedBattle("q3", "b", "a", "Tie(A)"),
    JudgedBattle("q4", "a", "c", "B"),
]


def test_shared_battles_and_their_readings() -> None:
    """Those of the same question, models and order, as the first judge has them.

    q1 agrees when ties are forced, q2 when they are one verdict; q4 alone when both decided.
    """
    shared = shared_battles(FIRST, SECOND)

    assert [(battle.question, other) for battle, other in shared] == [
        ("q1", "Tie(A)"),
        ("q2", "Tie(B)"),
        ("q4", "B"),
        ("q5", "B"),
    ]
    assert grades_of(shared).tolist() == [[0, 1, 3, 0], [1, 2, 3, 3]]
    assert confusion(shared).tolist() == [[0, 1, 0, 1], [0, 0, 1, 0], [0] * 4, [0, 0, 0, 1]]
    readings: dict[Reading, tuple[int, int]] = {
        "fdt": (2, 4),
        "three_way": (2, 4),
        "decided": (1, 2),
    }
    for reading, (right, total) in readings.items():
        agreed = agreement(shared, reading, unseen=["c"])
        assert (agreed.overall.right, agreed.overall.total) == (right, total)
        assert (agreed.unseen.right, agreed.unseen.total) == (1, 2)
        assert agreed.seen.total == total - 2


def test_verdicts_on_one_question_are_no_independent_ones() -> None:
    """Intervals hold the true share in 95 % of draws where ten battles share each question.

    Taken for independent, they would hold it in 53 % of them.
    """
    rng = np.random.default_rng(0)
    questions = [f"q{i // 10}" for i in range(300)]
    held = 0
    for _ in range(400):
        chances = np.repeat(rng.beta(1.4, 0.6, 30), 10)  # of a right verdict, by question; mean 0.7
        own = share((rng.random(300) < chances).tolist(), questions)
        held += own.low <= 0.7 <= own.high
    assert held >= 400 * 0.95 - 3 * (400 * 0.05 * 0.95) ** 0.5


def test_verdicts_that_are_all_right_count_once_a_question() -> None:
    """Of four questions asked ten times each no more is known than of four; of one, nothing."""
    four = share([True] * 40, [f"q{i % 4}" for i in range(40)])
    once = share([True] * 4, ["q0", "q1", "q2", "q3"])
    assert (four.low, four.high) == (once.low, once.high)
    assert share([True] * 9, ["q"] * 9) == Share(9, 9, 0.0, 1.0)
    assert share([True] * 2, ["q0", "q1"]).low == pytest.approx(2 / (2 + 1.959964**2))
    # Wilson's interval of eight of ten, by Brown, Cai and DasGupta's formula by hand.
    z = 1.959963984540054
    middle = (0.8 + z * z / 20) / (1 + z * z / 10)
    half = z * np.sqrt(0.8 * 0.2 / 10 + z * z / 400) / (1 + z * z / 10)
    apart = share([True] * 8 + [False] * 2, [f"q{i}" for i in range(10)])
    assert (apart.low, apart.high) == pytest.approx((middle - half, middle + half))


def test_kappa_and_harmonic_mean() -> None:
    """Cohen's textbook table: 20 and 15 agreed of 50, 25 to 25 and 30 to 20 by the margins."""
    counts = {("A", "A"): 20, ("A", "B"): 5, ("B", "A"): 10, ("B", "B"): 15}
    shared = [
        (JudgedBattle(f"{mine}{theirs}{i}", "a", "b", mine), theirs)  # type: ignore[arg-type]
        for (mine, theirs), count in counts.items()
        for i in range(count)
    ]

    agreed = agreement(shared, "decided")  # type: ignore[arg-type]
    assert agreed.kappa == pytest.approx(0.4)
    assert agreed.chance == 0.5
    # The harmonic mean of 1 and 1/2 is 2/3; it is 0 where both are.
    battles = [("q1", "b", "A"), ("q2", "c", "A"), ("q3", "c", "B")]
    pairs = [
        (JudgedBattle(q, "a", second, "A"), WINNERS[0 if w == "A" else 3])
        for q, second, w in battles
    ]
    assert agreement(pairs, "fdt", ["c"]).harmonic_mean == pytest.approx(2 / 3)
    assert agreement(pairs, "fdt").harmonic_mean is None
    assert agreement(pairs, "fdt", ["a"]).harmonic_mean is None
    wrong = [(battle, WINNERS[3]) for battle, _ in pairs]
    assert agreement(wrong, "fdt", ["c"]).harmonic_mean == 0


def test_no_battles_have_no_agreement() -> None:
    """No share, no kappa, no harmonic mean; and a single item has no interval."""
    single = ratio_estimate(np.array([1.0]), np.array([2.0]))
    assert (single.value, single.low, single.items) == (0.5, None, 1)
    assert estimate_by_items(lambda _: None, 5).value is None
    with pytest.raises(ValueError, match="raters, things"):
        RatedThings(np.zeros(3))
    agreed = agreement([], "fdt")
    assert agreed.overall == Share(0, 0, 0.0, 1.0)
    assert (agreed.overall.value, agreed.kappa, agreed.chance, agreed.harmonic_mean) == (None,) * 4
    with pytest.raises(ValueError, match=r"shape \(raters, items\), got \(3,\)"):
        krippendorff_alpha(np.zeros(3))
