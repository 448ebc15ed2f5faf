"""The labels that a measurement may use, the bounds they make, and whether votes decide already."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from math import sqrt

from pytest_cepbench.artifacts.outcome import EVEN
from pytest_cepbench.errors import LabelError, SpecError
from pytest_cepbench.escapes import one_line
from pytest_cepbench.gate.labels.label_file import (
    Contestant,
    LabelFile,
    draw_battles,
    population_digest,
)
from pytest_cepbench.gate.statistics.betting import Decision, Rounds, stops_of
from pytest_cepbench.gate.statistics.bounds import Bounds
from pytest_cepbench.gate.statistics.prediction_powered import (
    LEAST_IN_CATEGORY,
    PREDICTION_POWERED,
    LabelledScores,
    labelled_bounds,
)

_PARTS = 10
"""At most one in so many: of the drawn battles that need people, those without a label; of all
battles of a suite, those on which the judge was asked before the draw."""


@dataclass(frozen=True)
class PeopleScores:
    """What people say of a random part of a measurement's battles.

    scores: sample id -> score of the candidate's answer, in [0, 1]. Where labels are missing it is
    one half for those that have none, and the others count for them, see `people_scores`.
    probabilities: sample id -> the probability with which it was drawn.
    decided: how many of them were decided without people.
    missing: how many of them need people, and have no label.
    ties: how many labels are ties.
    stretch: at least 1; no score is farther from one half than half of it.
    needed: whether the suite accepts no verdict of the judge alone.
    """

    scores: Mapping[str, float] = field(default_factory=dict)
    probabilities: Mapping[str, float] = field(default_factory=dict)
    decided: int = 0
    missing: int = 0
    ties: int = 0
    stretch: float = 1.0
    needed: bool = False

    @property
    def rated(self) -> int:
        """Battles that people labelled."""
        return len(self.scores) - self.decided - self.missing


@dataclass(frozen=True)
class UsableLabels:
    """Labels of the battles of a suite.

    file: their file; None where no draw is of these battles.
    scores: sample id -> people's score of its battle.
    missing: drawn battles without a label, of those that need one.
    undrawn: labels of battles that were not drawn.
    others: labels of other answers, in other files.
    """

    file: LabelFile | None = None
    scores: Mapping[str, float] = field(default_factory=dict)
    missing: int = 0
    undrawn: int = 0
    others: int = 0

    def notes(self) -> list[str]:
        """What is not used, a sentence each."""
        notes = []
        if self.undrawn:
            notes.append(f"{self.undrawn} labels of battles that were not drawn are not used")
        if self.others:
            notes.append(
                f"{self.others} labels in other files are of other answers: not one is used"
            )
        return notes


def find_labels(
    files: Sequence[LabelFile], battles: Sequence[Contestant], suite: str
) -> UsableLabels:
    """The labels of these very battles.

    battles: all of the suite. Answers are compared by digest, so that a label of another answer is
    never taken for one of these.
    suite: its name.
    Raises LabelError where the file was drawn for another suite, or its battles are not those that
    are drawn from these.
    """
    population = population_digest(battles)
    own = next((file for file in files if file.draw.population == population), None)
    others = sum(len(file.labels) for file in files if file is not own)
    if own is None:
        return UsableLabels(others=others)
    if own.draw.suite != suite:
        raise LabelError(
            f"labels {own.path}, line 1: drawn for the suite {one_line(own.draw.suite, 60)!r}, and "
            f"this is {suite!r}: restore the file from version control"
        )
    by_sample = {contestant.sample: contestant for contestant in battles}
    alike = own.draw.battles == len(battles)
    if alike:
        try:
            drawn = draw_battles(battles, own.draw.count)
        except SpecError as error:
            raise LabelError(
                f"labels {own.path}, line 1: {error}; restore the file from version control"
            ) from error
        alike = {s: (line.battle, line.probability) for s, line in own.drawn.items()} == {
            sample: (by_sample[sample].battle, probability) for sample, probability in drawn.items()
        }
    if not alike:
        raise LabelError(
            f"labels {own.path}: its battles are not the {own.draw.count} that are drawn from "
            f"these {len(battles)}: it was made by hand or changed; restore it from version control"
        )
    scores: dict[str, float] = {}
    wanted, missing = set(), 0
    for sample in own.drawn:
        battle = by_sample[sample].battle
        wanted.add(battle)
        label = own.labels.get(battle)
        if label is not None and not battle.decided:
            scores[sample] = label.score
        else:
            missing += not battle.decided
    undrawn = sum(battle not in wanted for battle in own.labels)
    return UsableLabels(own, scores, missing, undrawn, others)


def judged_first(judged: int, battles: int) -> str:
    """Why labels may not be drawn any more, or "".

    judged: of the battles, those on which there was a verdict before the draw.
    battles: all of the suite.
    Who has seen verdicts may want labels only where these disappoint, and a second look that is
    taken for that reason errs more often than the gate promises. Which battles are drawn follows
    from all answers. Verdicts on a few battles, such as those on another model that gave the same
    answers, had no say in it, and show too little to disappoint.
    """
    if judged * _PARTS <= battles:
        return ""
    return (
        f"{judged} of {battles} battles had verdicts of the judge before the draw, and at most "
        f"{battles // _PARTS} may: labels are drawn before the judge is asked, since a second look "
        "at what disappoints errs more often; verdicts on another model with the same answers "
        "count too; gate these answers by the judge alone"
    )


def check_drawn_first(file: LabelFile, verdicts: Iterable[float]) -> str:
    """A note where a few battles were judged before the draw, else "".

    verdicts: Unix time of the first verdict on each battle that has one.
    Raises LabelError where there are more of them than `judged_first` allows.
    """
    early = [moment for moment in verdicts if moment < file.draw.seconds]
    if not early:
        return ""
    first = datetime.fromtimestamp(min(early), UTC).isoformat(timespec="seconds")
    when = f"labels {file.path} were drawn on {file.draw.drawn}, the first verdict is of {first}"
    if why := judged_first(len(early), file.draw.battles):
        raise LabelError(f"{when}: {why}, without the file")
    return (
        f"{len(early)} of {file.draw.battles} battles had verdicts before labels were drawn, as "
        "where another model gave the same answers: so few had no say in the draw"
    )


def people_scores(
    labels: UsableLabels,
    measured: Mapping[str, Mapping[str, float]],
    decided: AbstractSet[str],
    clusters: Mapping[str, str],
) -> tuple[PeopleScores | None, str]:
    """People's scores of a case, or why there are none.

    measured: category -> sample -> the judge's score.
    decided: samples whose score needs no judge: people have nothing to add.
    clusters: sample -> the cluster that it shares with others; one that is labelled in part is not.
    Battles that are decided without people never lack a label, so that missing labels would move
    the mean towards them. Of a category's clusters that need people let O be drawn and L labelled:
    the score of a labelled one is one half and O / L times what it differs from that, and the
    others have one half. Where labels are missing at random within a category the mean stays
    unbiased, and its spread is not underrated. A rating of which more than a tenth is missing, or
    more than half of a category, has not ended, and is not used.
    Source: Horvitz and Thompson, A generalization of sampling without replacement from a finite
    universe, 1952, with the share that is labelled for the probability of a label.
    """
    assert labels.file is not None
    drawn = labels.file.drawn
    judged = {sample: score for part in measured.values() for sample, score in part.items()}
    clustered: dict[str, set[str]] = {}
    for sample in judged:
        clustered.setdefault(clusters.get(sample, sample), set()).add(sample)
    members = {name: part for name, part in clustered.items() if part <= drawn.keys()}
    samples = {sample for part in members.values() for sample in part}
    asked = samples - decided
    missing = asked - labels.scores.keys()
    for lacking, whole in (
        (labels.missing, len(labels.scores)),
        (len(missing), len(asked - missing)),
    ):
        if lacking * _PARTS > lacking + whole:
            return None, _unfinished(whole, lacking + whole)
    home = {clusters.get(s, s): name for name, scored in measured.items() for s in scored}
    wanted = Counter(home[cluster] for cluster, part in members.items() if asked & part)
    lost = Counter(home[cluster] for cluster, part in members.items() if missing & part)
    for name, scored in measured.items():
        if 2 * lost[name] > wanted[name]:
            return None, _unfinished(wanted[name] - lost[name], wanted[name], f" of {name}")
        units = {clusters.get(sample, sample) for sample in scored if sample in samples}
        if len(units) < LEAST_IN_CATEGORY:
            why = f"category {name} has {len(units)} drawn battles, {LEAST_IN_CATEGORY} are needed"
            return None, why
    stretch = {name: count / (count - lost[name]) for name, count in wanted.items()}
    scores: dict[str, float] = {}
    for cluster, part in members.items():
        if missing & part:
            scores |= dict.fromkeys(part, EVEN)
            continue
        own = {s: labels.scores[s] if s in asked else judged[s] for s in part}
        factor = stretch[home[cluster]] if asked & part else 1.0
        scores |= own if factor == 1 else {s: EVEN + factor * (own[s] - EVEN) for s in own}
    people = PeopleScores(
        scores,
        {sample: drawn[sample].probability for sample in scores},
        decided=len(samples & decided),
        missing=len(missing),
        ties=sum(labels.scores[sample] == EVEN for sample in asked - missing),
        stretch=max(stretch.values(), default=1.0),
    )
    return people, ""


def _unfinished(labelled: int, asked: int, where: str = "") -> str:
    return (
        f"rating not finished: {labelled} of {asked} drawn battles{where} that need people have a "
        "label: `cepbench rate labels` takes over what people rated"
    )


# -- bounds of a win rate of which people labelled a part at random ------------------------------


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
    samples = len({sample for part in scores.values() for sample in part})
    judged = sum(sum(part.values()) / len(part) for part in scores.values()) / len(scores)
    said = (
        f"people's labels decide: win rate {bounds.mean + EVEN:.3f} with them, {judged:.3f} by the "
        f"judge alone; people labelled {people.rated} of {samples} battles"
    )
    if people.decided:
        said += f", {people.decided} drawn ones are decided without them"
    if people.missing:
        said += f", {people.missing} have no label, for which the others of their category count"
    if bounds.method == PREDICTION_POWERED:
        said += (
            f"; the judge has weight {mean.lam:.2f} where no label is, which makes a label worth "
            f"{mean.worth:.2f}; the bounds hold for what people would say, whatever the judge gets "
            "wrong"
        )
    else:
        said += f"; people count alone: {bounds.statement or _FEW}"
    return replace(
        bounds,
        low=None if bounds.low is None or bounds.low <= -EVEN else bounds.low,
        high=None if bounds.high is None or bounds.high >= EVEN else bounds.high,
        statement=said,
        spread=mean.error * sqrt(bounds.units),
    )


# -- whether votes decide already ------------------------------------------------------------------
# Who looks after every vote and stops when the numbers please errs far more often than a bound
# says. Bets on the votes hold at every look, so the operator of a rating, who alone sees what they
# say, may stop as soon as they decide.

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
