"""The judge's card: known errors are measured as what they are."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given

from pytest_cepbench.artifacts.outcome import Winner
from pytest_cepbench.metrics.battles import JudgedBattle
from pytest_cepbench.metrics.judge_card import judge_card, match_battles, mirror
from tests.metrics.arena.panels import SWAPPED, panels, simulate, swap
from tests.optional import known

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
