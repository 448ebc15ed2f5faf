"""Agreement of judges and of raters, beside the krippendorff package, and the judge's card."""

from __future__ import annotations

from collections.abc import Sequence
from math import nan

import krippendorff
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_cepbench.artifacts.outcome import WINNERS, Winner
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
from pytest_cepbench.metrics.judge_card import judge_card, match_battles, mirror
from pytest_cepbench.metrics.uncertainty import estimate_by_items
from tests.metrics.arena.panels import SWAPPED, panels, simulate, swap
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


# -- the judge's card: known errors are measured as what they are ----------------------------------


TRUTH = np.array([1.5, 0.5, -0.5, -1.5])

PEOPLE = simulate(TRUTH, 1200, np.random.default_rng(1), order_effect=0.0)


def erring(
    battles: Sequence[JudgedBattle], rate: float, rng: np.random.Generator
) -> list[JudgedBattle]:
    """The same verdicts, turned round at a rate."""
    return [
        JudgedBattle(b.question, b.first, b.second, SWAPPED[b.winner]) if rng.random() < rate else b
        for b in battles
    ]


@pytest.mark.slow
@given(panels())
def test_a_judge_that_copies_people_has_no_errors(battles: list[JudgedBattle]) -> None:
    """Full agreement, no bias, the whole of a drop; correlations of 1 where they exist."""
    card = judge_card(battles, battles)

    assert card.battles == len({(b.question, frozenset((b.first, b.second))) for b in battles})
    assert [agreed.overall.value for agreed in card.agreements][:2] == [1, 1]
    assert card.accuracy == card.visible_drop == card.sample_factor == 1
    assert card.bias_rms == 0
    for value in (card.score_correlation, card.score_correlation_within, card.alpha, card.slope):
        assert value is None or value == pytest.approx(1)
    assert card.order == card.people_order


@given(panels())
def test_people_may_have_seen_the_other_order(battles: list[JudgedBattle]) -> None:
    """Their verdict is turned round, and a battle counts once."""
    once = list({(b.question, frozenset((b.first, b.second))): b for b in battles}.values())

    assert match_battles(swap(once), once) == [(battle, battle.winner) for battle in once]
    assert len(match_battles(once, [*once, *swap(once)])) == len(once)
    assert match_battles([*once, *swap(once)], [*once, *swap(once)]) == match_battles(once, once)
    assert [mirror(mirror(battle)) for battle in battles] == battles
    erred = JudgedBattle("q", "a", "b", "A", ((), ("no-text-or-image",)))
    assert mirror(erred) == JudgedBattle("q", "b", "a", "B", (("no-text-or-image",), ()))


def test_symmetric_errors_shrink_what_is_seen() -> None:
    """A judge that errs in a fifth of all verdicts sees .6 of a drop, and shows .47 of .45."""
    card = judge_card(erring(PEOPLE, 0.2, np.random.default_rng(2)), PEOPLE)

    assert card.accuracy == pytest.approx(0.8, abs=0.03)
    assert judge_card(erring(PEOPLE, 1.0, np.random.default_rng(2)), PEOPLE).accuracy == 0
    assert card.visible_drop == 2 * card.accuracy - 1
    assert card.sample_factor == pytest.approx(1 / card.visible_drop**2)
    assert card.sentence().startswith(
        f"a judge that agrees with people at {card.accuracy:.2f} sees {card.visible_drop:.2f} of a "
        "true drop"
    )
    shown, error = card.shown_win_rate(0.45)
    assert shown == pytest.approx(0.47, abs=3 * error)
    sides = ((own.value or 0, own.total) for own in (card.first_right, card.second_right))
    spread = np.sqrt(sum(p * (1 - p) / n for p, n in sides)) / 2
    assert error == pytest.approx(0.1 * spread)  # which of a rate of one half is 0
    assert card.slope == pytest.approx(0.6, abs=0.05)
    assert card.first_right.low < 0.8 < card.first_right.high
    # No number of samples helps a coin, and its sentence says so.
    card = judge_card(erring(PEOPLE, 0.6, np.random.default_rng(2)), PEOPLE)
    assert card.visible_drop < 0
    assert card.sample_factor is None
    assert "sees nothing of a true drop" in card.sentence()


@pytest.mark.parametrize(
    ("pairs", "slope"),
    [(["ab", "ab"], None), (["ab", "bc", "ca"], None), (["ab", "bc", "ac"], 1)],
    ids=["two models", "models that are equal", "three models"],
)
def test_a_slope_takes_three_models_that_differ(pairs: list[str], slope: float | None) -> None:
    """A line through two points, or of points above one another, tells nothing of a judge."""
    battles = [JudgedBattle(f"q{i}", pair[0], pair[1], "A") for i, pair in enumerate(pairs)]
    assert judge_card(battles, battles).slope == (slope and pytest.approx(slope))


@pytest.mark.parametrize(("winner", "side"), [("A", "first"), ("Tie(B)", "second")])
def test_a_judge_that_always_says_the_same_sees_nothing(winner: Winner, side: str) -> None:
    """However often people happen to agree, it says nothing of the models."""
    judge = [JudgedBattle(b.question, b.first, b.second, winner) for b in PEOPLE]
    card = judge_card(judge, PEOPLE)

    assert card.one_side == side
    assert card.sentence().startswith(f"this judge leaned to the {side} answer in all 1200 battles")
    assert card.order is None
    assert card.score_correlation is None
    shown, _ = card.shown_win_rate(0.45)
    assert shown == pytest.approx(0.5)


def test_an_order_effect_is_measured() -> None:
    """In logits, with a standard error that covers it, and as errors on one side."""
    rng = np.random.default_rng(3)
    judge = [
        JudgedBattle(b.question, b.first, b.second, "A") if rng.random() < 0.3 else b
        for b in PEOPLE
    ]
    card = judge_card(judge, PEOPLE)

    order, people_order = known(card.order), known(card.people_order)
    assert abs(people_order.logit) < 3 * people_order.error
    assert order.logit > 5 * order.error
    assert card.first_right.value == 1
    assert card.second_right.value == pytest.approx(0.7, abs=0.05)


def test_a_favourite_is_found() -> None:
    """A judge that always prefers one model has its largest bias there."""
    judge = [
        JudgedBattle(b.question, b.first, b.second, "A" if b.first == "m03" else "B")
        if "m03" in (b.first, b.second)
        else b
        for b in PEOPLE
    ]
    card = judge_card(judge, PEOPLE)

    assert card.largest_bias.model == "m03"
    assert card.largest_bias.judge == 1
    assert card.bias_rms**2 == pytest.approx(np.mean([model.bias**2 for model in card.models]))
    assert [model.people for model in card.models] == sorted(
        (model.people for model in card.models), reverse=True
    )


def test_what_tells_nothing() -> None:
    """There is no card of no battles. Verdicts that an ever larger order effect would explain ever
    better do not tell how large it is.
    """
    with pytest.raises(ValueError, match="no battle in common"):
        judge_card([JudgedBattle("q", "a", "b", "A")], [JudgedBattle("p", "a", "b", "A")])
    same = [JudgedBattle("q", "a", "b", "A")]
    with pytest.raises(ValueError, match="all battles to the same side"):
        judge_card(same, same).shown_win_rate(0.5)
    verdicts = [
        ("q0", "ada", "bob", "A"),
        ("q0", "ada", "cyd", "Tie(B)"),
        ("q1", "bob", "ada", "A"),
        ("q1", "ada", "bob", "Tie(A)"),
    ]
    judge = [JudgedBattle(*verdict) for verdict in verdicts]  # type: ignore[arg-type]
    people = [JudgedBattle(b.question, b.first, b.second, "A") for b in judge]

    assert judge_card(judge, people).order is None
    assert judge_card(swap(judge), swap(people)).order is None
