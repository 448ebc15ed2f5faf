"""Whether people's votes decide already: what the operator of a rating sees, and annotators never.

Who looks after every vote and stops when the numbers please errs far more often than a bound says.
Bets on the votes hold at every look, so an operator may stop as soon as they decide.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from pytest_cepbench.artifacts.outcome import EVEN
from pytest_cepbench.gate.statistics.betting import Decision, Rounds, stops_of

TOLERANCE, ALPHA = 0.05, 0.05
"""As of a gate by win rate with its defaults."""


@dataclass(frozen=True)
class VoteDecision:
    """What votes on pairs of a first and a second side say so far.

    decision: "held" where the first side is not worse than the second by more than the tolerance,
    "regressed" where it is worse, "inconclusive" before either is known.
    items: of which a vote counts.
    stopped_at: the items after which it was decided; all of them before that.
    mean: of the first side's scores on these; one half without a vote.
    tolerance, alpha: as asked.
    """

    decision: Decision
    items: int
    stopped_at: int
    mean: float
    tolerance: float
    alpha: float

    @property
    def decided(self) -> bool:
        """True where no more votes are needed."""
        return self.decision != "inconclusive"

    @property
    def progress(self) -> str:
        """For the operator while people vote: whether it is decided, not for whom."""
        return f"{'decided' if self.decided else 'undecided'} ({self.items} items)"


def decided(
    votes: Iterable[tuple[str, float]], tolerance: float = TOLERANCE, alpha: float = ALPHA
) -> VoteDecision:
    """What votes decide, at any time and as often as one likes to look.

    votes: item and score of the first side (1 better, one half a tie, 0 worse) of each vote, in the
        order in which they were saved. The first vote on an item counts: a bet is placed before its
        outcome, and an outcome that further votes change later would be none. Items have to come in
        an order that knows nothing of outcomes, as the orders of annotators do.
    tolerance: in [0, 1/2). alpha: error of each decision, in (0, 1).
    `stops_of` has the rules: the wealth of bets reaches 1 / alpha, and nothing is lost before 50
    items. What is decided once stays so.
    Raises ValueError for a score outside of [0, 1] and other numbers out of their range.
    """
    first: dict[str, float] = {}
    for item, score in votes:
        first.setdefault(item, score)
    if not first:
        return VoteDecision("inconclusive", 0, 0, EVEN, tolerance, alpha)
    stops = stops_of(Rounds.single(list(first.values())), tolerance, alpha)
    decision: Decision = "inconclusive"
    if stops.held or stops.regressed:
        decision = "held" if stops.held else "regressed"
    return VoteDecision(
        decision, len(first), int(stops.counts), float(stops.means), tolerance, alpha
    )
