"""Metrics of battles: win rates, and the verdicts and scores that a judge did not give."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

from pytest_cepbench.artifacts.outcome import CRITERIA, EVEN, CriteriaScores
from pytest_cepbench.chains.answers.answer_plan import BattleRules
from pytest_cepbench.chains.answers.battles import PairOutcome, mean_score
from pytest_cepbench.datasets.sample import Sample
from pytest_cepbench.errors import MeasurementError
from pytest_cepbench.gate.measurement import Blindness, mean_of_scores
from pytest_cepbench.gate.statistics.constants import MOST_TIES
from pytest_cepbench.measures.answer_data import AnswerData
from pytest_cepbench.measures.answer_measures import AnswerMeasure, outcome_of_answer
from pytest_cepbench.measures.base import (
    JUDGE,
    Against,
    AnswerContext,
    CaseScores,
    Measured,
    MetricTable,
    by_part,
    parts_of,
)
from pytest_cepbench.measures.cases import Case

_NAMED = 3

VERDICT_FAILURES = "judge_failures/1"
"""Definition of the share of verdicts, and no scores, that a judge did not give."""


class WinRateMeasure(AnswerMeasure):
    """The mean score of battles against accepted answers, or against reference answers.

    A sample scores 1 where its answer is better in every order that is asked, 0 where it is worse,
    one half for a tie and for equal answers. A missing answer loses; two missing ones are a tie. A
    battle without a verdict in an order that is asked is missing.
    """

    parts = "all"
    judged = True

    def __init__(self, kind: str, name: str, table: MetricTable, context: AnswerContext) -> None:
        super().__init__(kind, name, table, context)
        self.against = context.against
        accepted = self.against == "accepted"
        self.label = "win rate" if accepted else "win rate against reference answers"
        self.identity = f"win_rate/1 against {self.against}"
        # Accepted answers score one half against themselves, so no more can be lost.
        self.span = self.worth = EVEN if accepted else 1.0
        self.win_rate = name if accepted else ""

    def read(self, samples: Sequence[Sample], data: AnswerData) -> list[_Fought]:
        """The battles against the last baseline and against the anchor."""
        data.answers(samples)
        return [_fight(samples, data, self.against), _fight(samples, data, "anchor")]

    def measure(self, case: Case, data: AnswerData) -> Measured:
        """A score per sample."""
        parts, samples = parts_of(case, data.dataset)
        answers = data.answers(samples)
        if all(own.answer is None for own in answers.values()):
            failure = next(iter(answers.values())).failure
            detail = "" if failure is None else f": {failure.kind}: {failure.detail}"
            raise MeasurementError(f"not one of {len(answers)} questions was answered{detail}")
        (fought, obstacles), (since, more) = self.read(samples, data)
        obstacles += more
        # Why samples have no score: there is no answer, or the judge gave no verdict on one.
        outcomes = {name: outcome_of_answer(own) for name, own in answers.items()}
        every = [*fought.items(), *since.items()]
        missing = {name: own.failures[0] for name, own in every if own.missing}
        unvoted = [name for name, own in (fought | since).items() if own.failures]
        by_people = bool(missing or unvoted) and data.runner(JUDGE).bound.named_in_baselines
        if not by_people:
            outcomes |= {name: CaseScores(name, why, JUDGE) for name, why in missing.items()}
        elif unvoted:  # a vote of people is missing, and none is made up
            votes = (
                f"votes: {len(unvoted)} of {len(fought | since)} battles have no vote of people "
                f"({', '.join(unvoted[:_NAMED])}): let people judge them (`cepbench rate ask`), or "
                "name another judge"
            )
            obstacles += (votes,)
        notes, warnings, verdicts = _remarks_on_judge(fought.values())
        redrawn: set[tuple[str, str]] = set()
        sights = []
        accepted = self.against == "accepted"
        for battles, side in ((fought, data.opponents.accepted), (since, data.opponents.anchor)):
            other = battles
            if side is not None and battles and accepted:
                redrawn |= data.redrawn(samples, side)
                opposing = side.answers
                other = {n: o for n, o in battles.items() if (n, opposing.get(n)) not in redrawn}
            sights.append(_sight_of_judge(other, parts, data.rules, self.worth))
        scores = {s.id: fought[s.id].score if s.id in fought else EVEN for s in samples}
        anchor_scores = {name: own.score for name, own in since.items()}
        return Measured(
            by_part(parts, scores),
            samples,
            list(outcomes.values()),
            blind=sights[0][0],
            notes=notes,
            warnings=warnings,
            answers={s.id: answers[s.id].digest for s in samples if accepted},
            anchor_scores=by_part(parts, anchor_scores) if anchor_scores else {},
            obstacles=obstacles,
            anchor_blind=sights[1][0],
            redrawn=frozenset(redrawn),
            verdicts=verdicts,
            at_stake=sights[0][1],
        )


class JudgeFailuresMeasure(AnswerMeasure):
    """The share of verdicts and scores that the judge did not give.

    Counted are the verdicts of a win rate's battles, and beside them the replies with scores, each
    by its share of the seven criteria without one.
    """

    label = "judge's failures"
    higher_is_better = False

    def __init__(self, kind: str, name: str, table: MetricTable, context: AnswerContext) -> None:
        super().__init__(kind, name, table, context)
        self.against, self.win_rate = context.against, context.win_rate
        self.judged, self.scored = context.judged, context.scored
        counted = f"judge_failures/2 of {'verdicts and ' if self.judged else ''}scores"
        self.identity = counted if self.scored else VERDICT_FAILURES

    def read(
        self, samples: Sequence[Sample], data: AnswerData
    ) -> tuple[_Fought, dict[str, CriteriaScores]]:
        """The verdicts and scores."""
        fought = _fight(samples, data, self.against) if self.judged else ({}, ())
        return fought, data.scores(samples) if self.scored else {}

    def measure(self, case: Case, data: AnswerData) -> Measured:
        """A share per sample; 0 where the judge was not needed."""
        parts, samples = parts_of(case, data.dataset)
        (fought, obstacles), scores = self.read(samples, data)
        shares = {}
        for sample in samples:
            failed = asked = 0.0
            if (outcome := fought.get(sample.id)) is not None:
                failed, asked = float(len(outcome.failures)), float(len(outcome.verdicts))
            if (given := scores.get(sample.id)) is not None:
                failed, asked = failed + len(given.failures) / len(CRITERIA), asked + 1
            shares[sample.id] = failed / asked if asked else 0.0
        outcomes = [outcome_of_answer(own) for own in data.answers(samples).values()]
        return Measured(by_part(parts, shares), samples, outcomes, shares=True, obstacles=obstacles)


_Fought = tuple[dict[str, PairOutcome], tuple[str, ...]]
"""The outcomes of battles by sample, and why there are none."""


def _fight(
    samples: Sequence[Sample], data: AnswerData, against: Against | Literal["anchor"]
) -> _Fought:
    """The battles against reference answers or those of one baseline; why they could not be fought.

    Also of a model with the identity of the accepted one: its answers are looked at, and equal ones
    need no judge.
    """
    if against == "gold":
        return data.battles(samples, None), ()
    opponents = data.opponents.anchor if against == "anchor" else data.opponents.accepted
    if opponents is None:
        return {}, ()
    fought: dict[str, PairOutcome] = {}
    named = {s.id: digest for s in samples if (digest := opponents.answers.get(s.id))}
    stored = data.stored_answers(named.values())
    missing = [name for name, digest in named.items() if digest not in stored]
    if not missing:
        fought = data.battles(samples, opponents)
        # Damaged images are noticed where the judge is to see them.
        missing = [s.id for s in samples if s.id in opponents.answers and s.id not in fought]
    if missing:
        shown = ", ".join(missing[:_NAMED])
        name = "anchor" if against == "anchor" else "baseline"
        obstacle = (
            f"answers: {len(missing)} of {len(samples)} answers of the {name} are not in the "
            f"store ({shown}): use the store of the run that accepted them (--cep-store, "
            "--cep-shared), or bring them with `cepbench store import`"
        )
        return {}, (obstacle,)
    return {s.id: fought.get(s.id, PairOutcome()) for s in samples}, ()


_MOST_FIRST = 0.95
"""Of the verdicts for the answer in one place; above it a judge looks at places, not at answers."""

_MANY_FIRST = 0.65
"""From here on reports warn; GPT-4o's share was .641 in the released verdicts of OpenING."""

_ENOUGH_VERDICTS = 20

_ORDER_DECIDES = 0.75
"""Of decided verdicts in one order, for one place: where a share f follows the order and the others
the answers, (1 + f) / 2 are for that place, so that from here on f is at least one half."""

_CHANCE = 0.05
"""Two-sided level of the sign test by which so many verdicts for one place are no chance."""


def _remarks_on_judge(
    outcomes: Iterable[PairOutcome],
) -> tuple[tuple[str, ...], tuple[str, ...], int]:
    """Notes and warnings on how a judge judged; its verdicts' number.

    Raises MeasurementError where its verdicts follow the order of the answers alone: every score
    would be one half then, whatever the answers are.
    """
    fought = [outcome for outcome in outcomes if outcome.verdicts and not outcome.missing]
    if not fought:
        return (), (), 0
    verdicts = [verdict for outcome in fought for verdict in outcome.verdicts]
    given = [verdict.winner for verdict in verdicts if isinstance(verdict.winner, str)]
    notes, warnings = [], []
    if given:
        first = sum(winner in ("A", "Tie(A)") for winner in given) / len(given)
        said = f"{len(given)} verdicts, {first:.0%} of them for the answer that was shown first"
        notes.append(said)
        one_place = max(first, 1 - first)
        if len(given) >= _ENOUGH_VERDICTS and one_place >= _MOST_FIRST:
            raise MeasurementError(
                f"{said}: this judge looks at the order of the answers, not at them"
            )
        if len(given) >= _ENOUGH_VERDICTS and one_place >= _MANY_FIRST:
            warnings.append(f"{said}: the judge has a strong order effect")
    return tuple(notes), tuple(warnings), len(given)


# -- judges that tell nothing apart ----------------------------------------------------------------


def _sight_of_judge(
    outcomes: Mapping[str, PairOutcome],
    parts: Mapping[str, Sequence[Sample]],
    rules: BattleRules,
    span: float,
) -> tuple[Blindness | None, float]:
    """Why a judge sees no drop in the battles of a case, and the most that they are worth together.

    They would not where the order of the answers outweighs what is said of them, or where nearly
    all different answers tie. With both orders it does where more verdicts turn with it than stand.
    With one so many are for the answer in one place that at least every second one follows it, and
    chance does not explain that.
    outcomes: of answers that differ. parts: the samples of the case. span: the most that a sample
    can lose.
    """
    given = {name: o.verdicts for name, o in outcomes.items() if o.verdicts and not o.missing}
    if not given:
        return None, 0.0
    hidden = mean_of_scores(
        {name: {s.id: span * (s.id in given) for s in part} for name, part in parts.items()}
    )
    said = ""
    if rules.order == "both":
        scores = [[v.score for v in own] for own in given.values() if len(own) > 1]
        turned = sum(first != second and first + second == 1 for first, second in scores)
        stood = sum(first == second != EVEN for first, second in scores)
        if turned > stood:
            said = f"{turned} of its verdicts turn with the order of the answers, and {stood} stand"
    else:
        from scipy.special import bdtrc

        decided = [verdict for verdict, *_ in given.values() if verdict.score != EVEN]
        first = sum(verdict.score == verdict.candidate_first for verdict in decided)
        count, most = len(decided), max(first, len(decided) - first)
        # Of as many for one place, or more, by chance.
        if count and most >= _ORDER_DECIDES * count and 2 * bdtrc(most - 1, count, 0.5) <= _CHANCE:
            place = "first" if 2 * first > count else "second"
            said = f"{most} of its {count} verdicts are for the answer that was shown {place}"
    ties = sum(mean_score(verdicts) == EVEN for verdicts in given.values())
    if not said and ties / len(given) >= MOST_TIES:
        said = f"{ties} of {len(given)} different answers are ties to it"
    blind = Blindness(f"the judge cannot see a drop: {said}", hidden) if said else None
    return blind, hidden
