"""Battles: leaderboards of verdicts, judges beside one another, panels for a judge to see."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_cepbench.datasets.opening.answers import read_answers
from pytest_cepbench.datasets.opening.questions import load_opening
from pytest_cepbench.metrics.battles import BattleTable, Forfeit, JudgedBattle
from pytest_cepbench.metrics.pair_models import ELO, fit_ratings
from pytest_cepbench.models.spec import parse_spec
from pytest_cepbench.store import Store
from pytest_cepbench.studies.arena import make_leaderboard
from pytest_cepbench.studies.judge_card import (
    AskedJudge,
    collect_verdicts,
    measure_judge,
)
from pytest_cepbench.studies.panels import PANEL_MODELS, choose_battles, opening_panel, shapes_panel
from pytest_cepbench.suites import ModelPool
from pytest_cepbench.suites.judge_cards import identify_judge
from pytest_cepbench.suites.role_assignment import RoleAssignment
from tests.datasets.opening.files import png, put_answer, put_questions, question
from tests.metrics.arena.panels import panels, simulate

TRUTH = np.array([1.5, 0.0, -1.5])

PANEL = simulate(TRUTH, 300, np.random.default_rng(0), per_question=3)


def test_standings() -> None:
    """The best first, with ratings, their ranks and all four win rates.

    Forfeits count in win rates alone: lost by the model without answer, won by the other.
    """
    board = make_leaderboard("panel", PANEL)

    assert [standing.model for standing in board.standings] == ["m00", "m01", "m02"]
    assert [(s.rank_low, s.rank_high) for s in board.standings] == [(1, 1), (2, 2), (3, 3)]
    fit = fit_ratings(BattleTable(PANEL))
    elo = {
        m: (r * ELO, e * ELO) for m, r, e in zip(fit.models, fit.ratings, fit.errors, strict=True)
    }
    assert {s.model: (s.rating, s.error) for s in board.standings} == elo
    assert sum(standing.rating for standing in board.standings) == pytest.approx(0, abs=1e-6)
    assert all(len(standing.win_rates) == 4 for standing in board.standings)
    assert (board.verdicts, board.questions) == (300, 100)
    assert board.tie_share == sum(battle.winner.startswith("Tie") for battle in PANEL) / 300 > 0.1
    assert (board.order_effect or 0) == pytest.approx(0.3, abs=3 * (board.order_error or 0))
    assert (board.forfeits, board.regularized) == (0, False)
    forfeits = [Forfeit("x1", "m00", "m02"), Forfeit("x2", "m00", "m01")]
    plain, board = board, make_leaderboard("panel", PANEL, forfeits=forfeits)

    assert board.forfeits == 2
    assert [s.rating for s in board.standings] == [s.rating for s in plain.standings]
    assert [
        s.battles - p.battles for s, p in zip(board.standings, plain.standings, strict=True)
    ] == [2, 1, 1]
    assert (board.standings[0].win_rates["fdt"] or 0) < (plain.standings[0].win_rates["fdt"] or 0)


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
    names = ("flip", panel.name)
    measured = measure_judge(names, given.verdicts, panel.people, asked=asked)

    assert len(panel.people) > 350
    assert {b.first for b in panel.people} == set(PANEL_MODELS)
    assert measured.people == "the truth of shapes-arena"
    assert measured.card.agreements[0].overall.low < 0.9 < measured.card.agreements[0].overall.high
    assert measured.card.order is not None
    assert abs(measured.card.order.logit) < 4 * measured.card.order.error
