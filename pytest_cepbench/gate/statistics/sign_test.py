"""Win rates of battles with ties: the exact sign test, and bounds of the rate."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pytest_cepbench.gate.statistics.exact import lower_exact, upper_exact


@dataclass(frozen=True)
class WinRate:
    """What battles say of two models.

    rate: share won, a tie counting half, in [0, 1]. low, high: its one-sided bounds, each at level
    alpha. p_better, p_worse: probability of at least so many wins, or losses, among the decided
    battles if both models were equally good.
    """

    rate: float
    low: float
    high: float
    p_better: float
    p_worse: float


def win_rate(wins: int, losses: int, ties: int, alpha: float) -> WinRate:
    """Win rate with exact p-values and bounds.

    wins, losses, ties: battles, at least 0 each and 1 together, independent of each other. alpha:
    in (0, 0.5].
    Ties say nothing of who is better: the p-values are binomial over the decided battles alone
    (both 1 where all are ties). The bounds are of the rate with ties as half, OpenING's fourth
    policy, over all battles; see `lower_exact`. So a model can be better by the test and hardly
    above half.
    Source: Dixon and Mood, The statistical sign test, 1946.
    Raises ValueError for no battles, a negative number of them or another alpha.
    """
    if min(wins, losses, ties) < 0 or wins + losses + ties == 0:
        msg = f"expected at least one battle, got {wins} wins, {losses} losses and {ties} ties"
        raise ValueError(msg)
    points = np.repeat([0.0, 0.5, 1.0], [losses, ties, wins])
    return WinRate(
        rate=(wins + ties / 2) / len(points),
        low=lower_exact(points, 0.0, alpha),
        high=upper_exact(points, 1.0, alpha),
        p_better=_at_least(wins, wins + losses),
        p_worse=_at_least(losses, wins + losses),
    )


def _at_least(least: int, throws: int) -> float:
    """P(at least so many heads) of a fair coin, in whole numbers until the last division."""
    ways, total = 1, 0
    for tails in range(throws - least + 1):
        total += ways
        ways = ways * (throws - tails) // (tails + 1)
    return total / (1 << throws)
