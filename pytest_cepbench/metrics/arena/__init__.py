"""The arena of OpenING: battles, win rates, agreement of judges, ratings, roulette matching."""

from pytest_cepbench.artifacts.outcome import WINNERS, Winner
from pytest_cepbench.metrics.arena.agreement import (
    Agreement,
    Share,
    agreement,
    confusion,
    grades_of,
    krippendorff_alpha,
    shared_battles,
)
from pytest_cepbench.metrics.arena.battles import BattleTable, JudgedBattle
from pytest_cepbench.metrics.arena.criteria import mean_of_rounded_means
from pytest_cepbench.metrics.arena.judge_card import (
    TRUE_WIN_RATE,
    BothOrders,
    JudgeCard,
    ModelBias,
    OrderEffect,
    Stability,
    judge_card,
    match_battles,
    mirror,
    shown_win_rate,
)
from pytest_cepbench.metrics.arena.pair_models import (
    ELO,
    PAIR_MODELS,
    PairModel,
    Ratings,
    fit_ratings,
)
from pytest_cepbench.metrics.arena.roulette import Pairing, coverage_time, roulette
from pytest_cepbench.metrics.arena.win_rates import (
    TIE_POLICIES,
    BattleRecord,
    Forfeit,
    ForfeitPolicy,
    TiePolicy,
    battle_records,
    pairwise_win_rates,
)

__all__ = [
    "ELO",
    "PAIR_MODELS",
    "TIE_POLICIES",
    "TRUE_WIN_RATE",
    "WINNERS",
    "Agreement",
    "BattleRecord",
    "BattleTable",
    "BothOrders",
    "Forfeit",
    "ForfeitPolicy",
    "JudgeCard",
    "JudgedBattle",
    "ModelBias",
    "OrderEffect",
    "PairModel",
    "Pairing",
    "Ratings",
    "Share",
    "Stability",
    "TiePolicy",
    "Winner",
    "agreement",
    "battle_records",
    "confusion",
    "coverage_time",
    "fit_ratings",
    "grades_of",
    "judge_card",
    "krippendorff_alpha",
    "match_battles",
    "mean_of_rounded_means",
    "mirror",
    "pairwise_win_rates",
    "roulette",
    "shared_battles",
    "shown_win_rate",
]
