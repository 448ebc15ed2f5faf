"""Self-preference: a favour for a family of models is measured with its error."""

from __future__ import annotations

import numpy as np
import pytest

from pytest_cepbench.metrics.arena import JudgedBattle, judge_card
from pytest_cepbench.metrics.arena.self_preference import self_preference
from tests.metrics.arena.panels import simulate, swap

LEVELS = np.array([0.8, 0.2, -0.2, -0.8])


def favouring(
    people: list[JudgedBattle], model: str, rate: float, rng: np.random.Generator
) -> list[JudgedBattle]:
    """Verdicts of people, of which a share of those on the model become wins of it."""
    return [
        JudgedBattle(b.question, b.first, b.second, "A" if b.first == model else "B")
        if model in (b.first, b.second) and rng.random() < rate
        else b
        for b in people
    ]


def test_counted_by_hand() -> None:
    """Two battles of the family against others: people give it 1 and 0, the judge 1 and 1/2."""
    people = [
        JudgedBattle("p", "own", "other", "A"),
        JudgedBattle("q", "other", "own", "A"),
        JudgedBattle("q", "own", "sibling", "A"),
        JudgedBattle("q", "other", "third", "B"),
    ]
    judge = [people[0], JudgedBattle("q", "other", "own", "Tie(A)"), *people[2:]]
    preference = judge_card(judge, people, family=["own", "sibling"]).self_preference

    assert preference is not None
    assert preference.family == ("own", "sibling")
    assert (preference.battles, preference.people, preference.judge) == (2, 0.5, 0.75)
    assert preference.excess == 0.25
    # Deviations of -1/4 and 1/4, of two questions.
    assert preference.error == pytest.approx(np.sqrt(2 * 2 / 16) / 2)


def test_a_favourite_is_measured() -> None:
    """The excess is that of the model's wins; people who saw the other order change nothing."""
    rng = np.random.default_rng(0)
    people = simulate(LEVELS, 2400, rng, order_effect=0.0)
    judge = favouring(people, "m02", 0.3, rng)
    preference = judge_card(judge, people, family={"m02"}).self_preference

    assert preference is not None
    assert preference.error is not None
    assert preference.excess == pytest.approx(0.3 * (1 - preference.people), abs=0.03)
    assert preference.excess > 5 * preference.error
    assert judge_card(judge, swap(people), family={"m02"}).self_preference == preference


def test_intervals_cover() -> None:
    """Of 400 panels some 95 % of the 95 % intervals hold the favour, battles being clustered."""
    rng = np.random.default_rng(1)
    inside = 0
    for _ in range(400):
        people, gained, clusters = [], [], 60
        for question in range(clusters):
            # What a question adds is shared by its four battles.
            shared = rng.normal(0.1, 0.1)
            people += [JudgedBattle(f"q{question}", "own", f"m{k}", "Tie(A)") for k in range(4)]
            gained += [0.5 + shared + rng.normal(0, 0.1) for _ in range(4)]
        scores = {"people": [0.5] * len(people), "judge": gained}
        preference = self_preference(people, scores, {"own"})
        assert preference is not None
        assert preference.error is not None
        inside += abs(preference.excess - 0.1) < 1.96 * preference.error
    assert 0.92 < inside / 400 < 0.98


def test_an_order_effect_is_no_favour() -> None:
    """Verdicts in both orders are averaged: always the first is no preference for a model."""
    people = [JudgedBattle(f"q{i}", "own", "other", "Tie(A)") for i in range(6)]
    judge = [JudgedBattle(b.question, *models, "A") for b in people
             for models in (("own", "other"), ("other", "own"))]  # fmt: skip
    preference = judge_card(judge, people, family={"own"}).self_preference

    assert preference is not None
    assert (preference.judge, preference.excess, preference.error) == (0.5, 0.0, 0.0)


def test_nothing_to_compare() -> None:
    """Without a family, or with a family that never met another model, there is no figure."""
    people = [JudgedBattle("q", "a", "b", "A")]

    assert judge_card(people, people).self_preference is None
    assert judge_card(people, people, family={"a", "b"}).self_preference is None
    alone = judge_card(people, people, family={"a"}).self_preference
    assert alone is not None
    assert alone.error is None
