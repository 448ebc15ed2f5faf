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
    "WINNERS",
    "Agreement",
    "BattleRecord",
    "BattleTable",
    "Forfeit",
    "ForfeitPolicy",
    "JudgedBattle",
    "PairModel",
    "Pairing",
    "Ratings",
    "Share",
    "TiePolicy",
    "Winner",
    "agreement",
    "battle_records",
    "confusion",
    "coverage_time",
    "fit_ratings",
    "grades_of",
    "krippendorff_alpha",
    "pairwise_win_rates",
    "roulette",
    "shared_battles",
]
