"""Panels for a judge, and what follows from its card."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_cepbench.datasets.opening.answers import read_answers
from pytest_cepbench.datasets.opening.questions import load_opening
from pytest_cepbench.metrics.battles import JudgedBattle
from pytest_cepbench.models.spec import parse_spec
from pytest_cepbench.store import Store
from pytest_cepbench.studies.judge_card import (
    AskedJudge,
    collect_verdicts,
    measure_asked,
    measure_judge,
)
from pytest_cepbench.studies.panels import PANEL_MODELS, choose_battles, opening_panel, shapes_panel
from pytest_cepbench.suites import ModelPool
from pytest_cepbench.suites.judge_cards import identify_judge
from pytest_cepbench.suites.role_assignment import RoleAssignment
from tests.datasets.opening.files import png, put_answer, put_questions, question
from tests.metrics.arena.panels import SWAPPED, panels, simulate

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


UID = "0101001"


@given(panels(), st.integers(0, 40), st.integers(0, 3))
def test_chosen_battles_are_nested(battles: list[JudgedBattle], limit: int, seed: int) -> None:
    """Each pair once; so many of them, or all; fewer are among more, in the order of the file."""
    every = choose_battles(battles, None, seed)
    some = choose_battles(battles, limit, seed)
    more = choose_battles(battles, limit + 1, seed)

    pairs = {(b.question, frozenset((b.first, b.second))) for b in battles}
    assert len(every) == len(pairs)
    assert len(some) == min(limit, len(pairs))
    assert set(some) <= set(more) <= set(every)
    assert [battle for battle in battles if battle in set(some)] == some
    backwards = {
        (b.question, frozenset((b.first, b.second)))
        for b in choose_battles(battles[::-1], limit, seed)
    }
    assert backwards == {(b.question, frozenset((b.first, b.second))) for b in some}


def test_a_pair_holds_what_the_files_hold(tmp_path: Path, store: Store) -> None:
    """Question and answers as texts and images, in the order of the battle."""
    folder = tmp_path / "x_output"
    put_answer(folder, UID, [{"text": "first", "image": f"{UID}-o-0.jpg"}])
    (folder / f"{UID}-o-0.jpg").write_bytes(png(90))
    questions = load_opening(put_questions(tmp_path / "q", [question(UID)]))
    battle = JudgedBattle(UID, "Human", "x", "A")
    panel = opening_panel("p", [battle], questions, {"x": read_answers(folder)}, store)
    pair = panel.pair(battle)
    assert pair.candidate is not None
    assert pair.opponent is not None
    gold, recorded = pair.candidate.load(store), pair.opponent.load(store)

    assert gold is not None
    assert recorded is not None
    assert gold[0] == "It ends well."
    assert recorded[0] == "first"
    assert not isinstance(recorded[1], str)
    assert recorded[1].getpixel((0, 0)) == (90, 90, 90)


@pytest.mark.slow
def test_the_embedded_panel_measures_known_faults(tmp_path: Path, store: Store) -> None:
    """A tenth of wrong verdicts is an agreement of nine tenths, without bias for a place."""
    pool = ModelPool(store)
    panel = shapes_panel(pool)
    judge = pool.runner(RoleAssignment("judge", parse_spec("shapes:?flip=0.1"), "a test"))
    given = collect_verdicts(panel.people, panel.pair, judge, "both", lambda _: None)
    asked = AskedJudge(identify_judge(judge.bound), "both", 0, given.failures, panel.left_out)
    measured = measure_asked("flip", asked, panel, given)

    assert len(panel.people) > 350
    assert {b.first for b in panel.people} == set(PANEL_MODELS)
    assert measured.people == "the truth of shapes-arena"
    assert measured.card.agreements[0].overall.low < 0.9 < measured.card.agreements[0].overall.high
    assert measured.card.order is not None
    assert abs(measured.card.order.logit) < 4 * measured.card.order.error
    # Two draws of a tenth agree in .82 of all pairs.
    assert measured.card.both_orders is not None
    assert (
        measured.card.both_orders.consistent.low < 0.82 < measured.card.both_orders.consistent.high
    )
