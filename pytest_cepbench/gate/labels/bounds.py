"""Bounds of a win rate of which people labelled a part at random, and whether votes decide already.

Who looks after every vote and stops when the numbers please errs far more often than a bound says.
Bets on the votes hold at every look, so the operator of a rating, who alone sees what they say, may
stop as soon as they decide.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from math import sqrt

from pytest_cepbench.artifacts.outcome import EVEN
from pytest_cepbench.gate.labels.usable import PeopleScores
from pytest_cepbench.gate.statistics.betting import Decision, Rounds, stops_of
from pytest_cepbench.gate.statistics.bounds import Bounds
from pytest_cepbench.gate.statistics.prediction_powered import (
    PREDICTION_POWERED,
    LabelledScores,
    PredictionPoweredMean,
    labelled_bounds,
)

_FEW = "the labels are few, or most of them alike"


def bounds_by_labels(
    scores: Mapping[str, Mapping[str, float]],
    people: PeopleScores,
    clusters: Mapping[str, str],
    alpha: float,
    *,
    unscored: Mapping[str, Collection[str]] = {},
) -> Bounds:
    """Bounds of people's win rate less one half, each at level alpha, in (0, 0.5].

    scores: category -> sample -> the judge's score of the candidate, in [0, 1].
    clusters: sample -> the cluster that it shares with others.
    unscored: category -> samples that the judge did not score. They are taken for one half: what is
    followed where there is no label may be anything, and where there is one people decide.
    Raises ValueError as `LabelledScores`.
    """
    judge = {
        name: dict.fromkeys(unscored.get(name, ()), 0.0)
        | {sample: score - EVEN for sample, score in part.items()}
        for name, part in scores.items()
    }
    labelled = {
        name: {sample: people.scores[sample] - EVEN for sample in part if sample in people.scores}
        for name, part in judge.items()
    }
    bounds, mean = labelled_bounds(
        LabelledScores(judge, labelled, clusters, people.probabilities),
        alpha,
        span=EVEN * people.stretch,
    )
    return replace(
        bounds,
        low=None if bounds.low is None or bounds.low <= -EVEN else bounds.low,
        high=None if bounds.high is None or bounds.high >= EVEN else bounds.high,
        statement=_statement(bounds, mean, scores, people),
        spread=mean.error * sqrt(bounds.units),
    )


def _statement(
    bounds: Bounds,
    mean: PredictionPoweredMean,
    scores: Mapping[str, Mapping[str, float]],
    people: PeopleScores,
) -> str:
    samples = len({sample for part in scores.values() for sample in part})
    judged = sum(sum(part.values()) / len(part) for part in scores.values()) / len(scores)
    start = (
        f"people's labels decide: win rate {bounds.mean + EVEN:.3f} with them, {judged:.3f} by the "
        f"judge alone; people labelled {people.rated} of {samples} battles{_beside(people)}"
    )
    if bounds.method != PREDICTION_POWERED:
        return f"{start}; people count alone: {bounds.statement or _FEW}"
    return (
        f"{start}; the judge has weight {mean.lam:.2f} where no label is, which makes a label "
        f"worth {mean.worth:.2f}; the bounds hold for what people would say, whatever the judge "
        "gets wrong"
    )


def _beside(people: PeopleScores) -> str:
    """The drawn battles that no person labelled."""
    parts = []
    if people.decided:
        parts.append(f"{people.decided} drawn ones are decided without them")
    if people.missing:
        parts.append(
            f"{people.missing} have no label, for which the others of their category count"
        )
    return "".join(f", {part}" for part in parts)


# -- whether votes decide already ------------------------------------------------------------------

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
