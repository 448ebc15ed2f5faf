"""Whether people's votes decide already: what the operator of a rating sees, and annotators never.

Who looks after every vote and stops when the numbers please errs far more often than a bound says.
Bets on the votes hold at every look, so an operator may stop as soon as they decide.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from pytest_cepbench.artifacts.outcome import EVEN
from pytest_cepbench.gate.statistics.betting import LEAST_LOST, Rounds, betting_bounds

Side = Literal["", "first", "second"]


@dataclass(frozen=True)
class VoteDecision:
    """What votes on pairs of two sides say so far.

    winner: the side that is better beyond doubt; empty where that is not decided.
    items: of which a vote counts.
    mean: of the first side's scores; one half without a vote.
    low, high: bounds of its true mean, each wrong at any look with probability at most alpha.
    alpha: that error.
    """

    winner: Side
    items: int
    mean: float
    low: float
    high: float
    alpha: float

    @property
    def decided(self) -> bool:
        """True where no more votes are needed to tell which side is better."""
        return bool(self.winner)

    @property
    def sentence(self) -> str:
        """For the operator."""
        if not self.items:
            return "no vote yet"
        so_far = (
            f"the first side has {self.mean:.2f} of {self.items} battles, bounds {self.low:.2f} "
            f"and {self.high:.2f}, each wrong with at most {self.alpha:g} at any look"
        )
        if not self.winner:
            return f"not decided: {so_far}"
        return (
            f"decided: the {self.winner} side is better ({so_far}; a rating that stops here "
            "overstates the difference)"
        )


def decided(votes: Iterable[tuple[str, float]], alpha: float = 0.05) -> VoteDecision:
    """What votes decide, at any time and as often as one likes to look.

    votes: item and score of the first side (1 better, one half a tie, 0 worse) of each vote, in the
        order in which they were saved. The first vote on an item counts: a bet is placed before its
        outcome, and an outcome that further votes changed later would be none. Items have to come
        in an order that knows nothing of outcomes, as the orders of annotators do.
    alpha: error of each side, in (0, 1).
    A side is better where the bound by betting lies beyond one half; both sides ask for at least 50
    items, since what stops sooner overstates too much. Source: `gate.statistics.betting`.
    Raises ValueError for a score outside of [0, 1] or another alpha.
    """
    first: dict[str, float] = {}
    for item, score in votes:
        first.setdefault(item, score)
    if not first:
        return VoteDecision("", 0, EVEN, 0.0, 1.0, alpha)
    rounds = Rounds.single(list(first.values()))
    low, high = betting_bounds(rounds, alpha)
    mean = float(rounds.means[-1])
    winner: Side = ""
    if len(first) >= LEAST_LOST:
        winner = "first" if low > EVEN else "second" if high < EVEN else ""
    return VoteDecision(winner, len(first), mean, low, high, alpha)
