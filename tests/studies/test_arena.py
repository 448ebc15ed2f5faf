"""Leaderboards from verdicts: forfeits, groups, what cannot be ranked; comparisons of judges."""

from __future__ import annotations

import numpy as np
import pytest

from pytest_cepbench.errors import DatasetError
from pytest_cepbench.metrics.battles import BattleTable, Forfeit, JudgedBattle
from pytest_cepbench.metrics.pair_models import ELO, fit_ratings
from pytest_cepbench.studies.arena import compare_judges, make_leaderboard
from tests.metrics.arena.panels import simulate

TRUTH = np.array([1.5, 0.0, -1.5])

PANEL = simulate(TRUTH, 300, np.random.default_rng(0), per_question=3)


def test_standings() -> None:
    """The best first, with ratings, their ranks and all four win rates."""
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


def test_forfeits_count_in_win_rates_alone() -> None:
    """Lost by the model without answer, won by the other."""
    forfeits = [Forfeit("x1", "m00", "m02"), Forfeit("x2", "m00", "m01")]
    plain = make_leaderboard("panel", PANEL)
    board = make_leaderboard("panel", PANEL, forfeits=forfeits)

    assert board.forfeits == 2
    assert [s.rating for s in board.standings] == [s.rating for s in plain.standings]
    assert [
        s.battles - p.battles for s, p in zip(board.standings, plain.standings, strict=True)
    ] == [2, 1, 1]
    assert (board.standings[0].win_rates["fdt"] or 0) < (plain.standings[0].win_rates["fdt"] or 0)


def test_groups() -> None:
    """By the first digits of a question's id, under the paper's names; unknown ones as they are."""
    battles = [
        JudgedBattle("0101001", "a", "b", "A"),
        JudgedBattle("0102001", "b", "a", "Tie(A)"),
        JudgedBattle("9901001", "a", "b", "B"),
    ]
    by_task = make_leaderboard("p", battles, grouping="task").standings
    by_topic = make_leaderboard("p", battles, grouping="meta-topic").standings
    rates = {standing.model: standing.groups for standing in by_topic}

    assert list(by_task[0].groups) == ["Story Writing", "Fiction Writing", "9901"]
    assert rates["a"] == {"Storybook Creation": 0.75, "99": 0.0}
    assert rates["b"] == {"Storybook Creation": 0.25, "99": 1.0}


def test_panels_that_cannot_be_ranked() -> None:
    """The panel is named."""
    with pytest.raises(DatasetError, match=r"p: the judge leaned to the first answer in all 2"):
        make_leaderboard("p", [JudgedBattle(q, "a", "b", "A") for q in "xy"])


def test_comparison() -> None:
    """Shares, what each judged alone, alpha, confusion."""
    second = [JudgedBattle(b.question, b.first, b.second, "Tie(A)") for b in PANEL[10:]]
    comparison = compare_judges(("one", "two"), PANEL, second, ["m02"])

    assert (comparison.shared, comparison.only_first, comparison.only_second) == (290, 10, 0)
    assert [a.reading for a in comparison.agreements] == ["fdt", "three_way", "decided"]
    assert sum(row[1] for row in comparison.confusion) == 290
    assert comparison.alpha is not None
    assert comparison.alpha < 0.1
    assert comparison.unseen == ("m02",)


def test_nothing_to_compare() -> None:
    """No shared battle, or an unseen model that is nowhere."""
    with pytest.raises(DatasetError, match="one and two judged no battle both"):
        compare_judges(("one", "two"), PANEL, [JudgedBattle("else", "m00", "m01", "A")])
    with pytest.raises(DatasetError, match="no battle has the model 'm07': m00, m01, m02 do"):
        compare_judges(("one", "two"), PANEL, PANEL, ["m07"])
