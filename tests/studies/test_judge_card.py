"""A measured judge: what follows from its card, and where nothing does."""

from __future__ import annotations

import numpy as np
import pytest

from pytest_cepbench.metrics.battles import JudgedBattle
from pytest_cepbench.studies.judge_card import measure_judge
from tests.metrics.arena.panels import SWAPPED, simulate

TRUTH = np.array([1.5, 0.0, -1.5])


@pytest.mark.parametrize(("order_effect", "advised"), [(0.0, False), (1.2, True)])
def test_both_orders_are_advised_where_the_order_matters(
    order_effect: float, advised: bool
) -> None:
    """One call in balanced order is enough for a judge without an order effect."""
    people = simulate(TRUTH, 600, np.random.default_rng(0), per_question=3, order_effect=0.0)
    judge = simulate(
        TRUTH, 600, np.random.default_rng(0), per_question=3, order_effect=order_effect
    )
    judge[0] = JudgedBattle(
        judge[0].question, judge[0].first, judge[0].second, SWAPPED[judge[0].winner]
    )
    measured = measure_judge(("judge", "people"), judge, people)

    assert measured.both_orders_advised is advised
    assert (measured.judge_alone, measured.people_alone, measured.unknown_models) == (0, 0, ())


def test_a_panel_that_tells_little() -> None:
    """People on one side alone: no shown win rate, no order effect, so both orders are advised."""
    people = [JudgedBattle(f"q{i}", "a", "b", "A") for i in range(4)]
    judge = [JudgedBattle(b.question, "a", "b", "Tie(A)") for b in people]
    measured = measure_judge(("judge", "people"), judge, people)

    assert (measured.shown_win_rate, measured.shown_error) == (None, None)
    assert measured.card.order is None
    assert measured.both_orders_advised
    assert measured.accuracy == 1
    assert measured.card.slope is None
