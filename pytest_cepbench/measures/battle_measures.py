"""Metrics of battles: win rates, and the verdicts and scores that a judge did not give."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import comb
from operator import mul

from pytest_cepbench.artifacts.outcome import CRITERIA, EVEN, CriteriaScores
from pytest_cepbench.chains.answers.answer_plan import BattleRules
from pytest_cepbench.chains.answers.answering import SampleAnswer
from pytest_cepbench.chains.answers.battles import OrderedVerdict, PairOutcome, mean_score
from pytest_cepbench.datasets.sample import Sample
from pytest_cepbench.errors import MeasurementError
from pytest_cepbench.gate.measurement import Blindness, mean_of_scores
from pytest_cepbench.gate.statistics.constants import MOST_TIES
from pytest_cepbench.measures.answer_contents import (
    AnswerMeasure,
    CaseOpponents,
    outcome_of_answer,
)
from pytest_cepbench.measures.answer_data import AnswerData, Opponents
from pytest_cepbench.measures.base import (
    JUDGE,
    Against,
    AnswerContext,
    CaseScores,
    Measured,
    MetricTable,
    by_category,
    by_part,
    everyone,
)
from pytest_cepbench.measures.cases import Case

_NAMED = 3

VERDICT_FAILURES = "judge_failures/1"
"""Definition of the share of verdicts, and no scores, that a judge did not give."""


class WinRateTable(MetricTable, frozen=True, kw_only=True):
    """win_rate: how often an answer is better than the one that it battles."""


class JudgeFailuresTable(MetricTable, frozen=True, kw_only=True):
    """judge_failures: the share of verdicts and scores that the judge did not give."""


@dataclass(frozen=True, kw_only=True)
class WinRateMeasure(AnswerMeasure):
    """The mean score of battles against accepted answers, or against reference answers.

    A sample scores 1 where its answer is better in every order that is asked, 0 where it is worse,
    one half for a tie and for equal answers. A missing answer loses; two missing ones are a tie. A
    battle without a verdict in an order that is asked is missing.
    """

    against: Against
    judged: bool = True
    span: float = 1.0

    @property
    def label(self) -> str:
        """Its name for people."""
        return "win rate" if self.against == "accepted" else "win rate against reference answers"

    @property
    def identity(self) -> str:
        """The definition."""
        return f"win_rate/1 against {self.against}"

    def read(
        self,
        case: Case,
        samples: Sequence[Sample],
        data: AnswerData,
        opponents: CaseOpponents,
    ) -> None:
        """The answers and the verdicts."""
        data.answers(samples)
        if self.against == "gold":
            data.battles(samples, None)
            return
        _fight(samples, data, opponents.accepted, "baseline")
        _fight(samples, data, opponents.anchor, "anchor")

    def measure(self, case: Case, data: AnswerData, opponents: CaseOpponents) -> Measured:
        """A score per sample."""
        parts = by_category(case, data)
        samples = everyone(parts)
        answers = data.answers(samples)
        if all(own.answer is None for own in answers.values()):
            failure = next(iter(answers.values())).failure
            detail = "" if failure is None else f": {failure.kind}: {failure.detail}"
            raise MeasurementError(f"not one of {len(answers)} questions was answered{detail}")
        if self.against == "gold":
            fought = data.battles(samples, None)
            outcomes = _outcomes(answers, [fought], data)
            scores = {name: outcome.score for name, outcome in fought.items()}
            votes = _missing_votes(fought, data)
            remarks = _remarks_on_judge(fought.values(), data.rules)
            sight = _sight_of_judge(fought, parts, data.rules, self.span)
            return Measured(
                by_part(parts, scores),
                samples,
                outcomes,
                obstacles=votes,
                notes=remarks.notes,
                blind=sight.blind,
                at_stake=sight.at_stake,
                warnings=remarks.warnings,
                verdicts=remarks.verdicts,
            )
        fought, obstacles = _fight(samples, data, opponents.accepted, "baseline")
        since, more = _fight(samples, data, opponents.anchor, "anchor")
        anchor_scores = {name: since[name].score for name in since}
        scores = {s.id: fought[s.id].score if s.id in fought else EVEN for s in samples}
        outcomes = _outcomes(answers, [fought, since], data)
        remarks = _remarks_on_judge(fought.values(), data.rules)
        sides = [(fought, opponents.accepted), (since, opponents.anchor)]
        redrawn: set[tuple[str, str]] = set()
        sights = []
        for outcomes_of, side in sides:
            redrawn |= data.redrawn(samples, side) if side is not None and outcomes_of else set()
            other = {
                name: outcome
                for name, outcome in outcomes_of.items()
                if side is None or (name, side.answers.get(name)) not in redrawn
            }
            sights.append(_sight_of_judge(other, parts, data.rules, self.span))
        return Measured(
            by_part(parts, scores),
            samples,
            outcomes,
            blind=sights[0].blind,
            at_stake=sights[0].at_stake,
            redrawn=frozenset(redrawn),
            anchor_blind=sights[1].blind,
            answers={s.id: answers[s.id].digest for s in samples},
            anchor_scores=by_part(parts, anchor_scores) if anchor_scores else {},
            obstacles=(*obstacles, *more, *_missing_votes(fought | since, data)),
            notes=remarks.notes,
            warnings=remarks.warnings,
            verdicts=remarks.verdicts,
        )


@dataclass(frozen=True, kw_only=True)
class JudgeFailuresMeasure(AnswerMeasure):
    """The share of verdicts and scores that the judge did not give.

    Counted are the verdicts of a win rate's battles, and beside them the replies with scores, each
    by its share of the seven criteria without one.

    win_rate: that metric; empty where reference answers are battled, or none.
    judged, scored: which of the two the suite asks for.
    """

    against: Against
    higher_is_better: bool = False
    judged: bool = True

    @property
    def label(self) -> str:
        """Its name for people."""
        return "judge's failures"

    @property
    def identity(self) -> str:
        """The definition."""
        if not self.scored:
            return VERDICT_FAILURES
        return f"judge_failures/2 of {'verdicts and ' if self.judged else ''}scores"

    def read(
        self,
        case: Case,
        samples: Sequence[Sample],
        data: AnswerData,
        opponents: CaseOpponents,
    ) -> None:
        """The verdicts and scores."""
        self._fought(samples, data, opponents)
        if self.scored:
            data.scores(samples)

    def measure(self, case: Case, data: AnswerData, opponents: CaseOpponents) -> Measured:
        """A share per sample; 0 where the judge was not needed."""
        parts = by_category(case, data)
        samples = everyone(parts)
        fought, obstacles = self._fought(samples, data, opponents)
        scores = data.scores(samples) if self.scored else {}
        shares = {s.id: _failed_share(fought.get(s.id), scores.get(s.id)) for s in samples}
        outcomes = [outcome_of_answer(own) for own in data.answers(samples).values()]
        return Measured(by_part(parts, shares), samples, outcomes, shares=True, obstacles=obstacles)

    def _fought(
        self, samples: Sequence[Sample], data: AnswerData, opponents: CaseOpponents
    ) -> tuple[dict[str, PairOutcome], tuple[str, ...]]:
        if not self.judged:
            return {}, ()
        if self.against == "gold":
            return data.battles(samples, None), ()
        return _fight(samples, data, opponents.accepted, "baseline")


def make_win_rate(
    kind: str, name: str, table: WinRateTable, context: AnswerContext
) -> WinRateMeasure:
    """The measure of a table; there is one kind."""
    # Accepted answers score one half against themselves, so no more can be lost.
    span, win_rate = (EVEN, name) if context.against == "accepted" else (1.0, "")
    return WinRateMeasure(
        **table.shared(name), against=context.against, span=span, win_rate=win_rate
    )


def make_judge_failures(
    kind: str, name: str, table: JudgeFailuresTable, context: AnswerContext
) -> JudgeFailuresMeasure:
    """The measure of a table; there is one kind."""
    return JudgeFailuresMeasure(**table.shared(name, parts="overall"), **vars(context))


def _failed_share(outcome: PairOutcome | None, scores: CriteriaScores | None) -> float:
    """The share of a judge's replies on one sample that failed; 0 where it was not asked."""
    failed = asked = 0.0
    if outcome is not None:
        failed, asked = float(len(outcome.failures)), float(len(outcome.verdicts))
    if scores is not None:
        failed, asked = failed + len(scores.failures) / len(CRITERIA), asked + 1
    return failed / asked if asked else 0.0


def _fight(
    samples: Sequence[Sample],
    data: AnswerData,
    opponents: Opponents | None,
    name: str,
) -> tuple[dict[str, PairOutcome], tuple[str, ...]]:
    """The battles against the answers of one baseline, and why they could not be fought.

    Also of a model with the identity of the accepted one: its answers are looked at, and equal ones
    need no judge. name: of the baseline, for people.
    """
    if opponents is None:
        return {}, ()
    fought: dict[str, PairOutcome] = {}
    missing = data.missing_opponents(samples, opponents)
    if not missing:
        fought = data.battles(samples, opponents)
        # Damaged images are noticed where the judge is to see them.
        missing = [s.id for s in samples if s.id in opponents.answers and s.id not in fought]
    if missing:
        shown = ", ".join(missing[:_NAMED])
        obstacle = (
            f"answers: {len(missing)} of {len(samples)} answers of the {name} are not in the "
            f"store ({shown}): use the store of the run that accepted them (--cep-store, "
            "--cep-shared), or bring them with `cepbench store import`"
        )
        return {}, (obstacle,)
    return {s.id: fought.get(s.id, PairOutcome()) for s in samples}, ()


def _outcomes(
    answers: Mapping[str, SampleAnswer],
    battles: Sequence[Mapping[str, PairOutcome]],
    data: AnswerData,
) -> list[CaseScores]:
    """Why samples have no score: there is no answer, or the judge gave no verdict on one.

    Of people `_missing_votes` says more, and accepts none that is missing.
    """
    outcomes = {name: outcome_of_answer(own) for name, own in answers.items()}
    missing = {
        name: outcome.failures[0]
        for fought in battles
        for name, outcome in fought.items()
        if outcome.missing
    }
    if missing and not data.runner(JUDGE).bound.named_in_baselines:
        outcomes |= {name: CaseScores(name, why, JUDGE) for name, why in missing.items()}
    return list(outcomes.values())


def _missing_votes(fought: Mapping[str, PairOutcome], data: AnswerData) -> tuple[str, ...]:
    """Why the battles of a gate by people are not decided: a vote is missing, and none is made up.

    Nothing is said of models as judges: their battles without a verdict are left out, and counted.
    """
    missing = [name for name, outcome in fought.items() if outcome.failures]
    if not missing or not data.runner(JUDGE).bound.named_in_baselines:
        return ()
    named = ", ".join(missing[:_NAMED])
    obstacle = (
        f"votes: {len(missing)} of {len(fought)} battles have no vote of people ({named}): let "
        "people judge them (`cepbench rate ask`), or name another judge"
    )
    return (obstacle,)


_MOST_FIRST = 0.95
"""Of the verdicts for the answer in one place; above it a judge looks at places, not at answers."""

_MANY_FIRST = 0.65
"""From here on reports warn; GPT-4o's share was .641 in the released verdicts of OpenING."""

_ENOUGH_VERDICTS = 20

_EVEN_ENOUGH = 0.01
"""Soft scores that are all as near to one half say nothing."""

_ORDER_DECIDES = 0.75
"""Of decided verdicts in one order, for one place: where a share f follows the order and the others
the answers, (1 + f) / 2 are for that place, so that from here on f is at least one half."""

_CHANCE = 0.05
"""Two-sided level of the sign test by which so many verdicts for one place are no chance."""

_HARDLY_ANY = 0.04
"""Below it not even a model that loses every battle drops by more than 0.02: an error."""

_MUCH_SHRUNK = 0.5
"""From here down a drop of win rate is less than half as large in soft scores: reports warn."""


@dataclass(frozen=True)
class _JudgeRemarks:
    """What is to be said of the judge of some battles, a sentence each.

    verdicts: how many it gave.
    """

    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    verdicts: int = 0


def _remarks_on_judge(outcomes: Iterable[PairOutcome], rules: BattleRules) -> _JudgeRemarks:
    """Remarks on how a judge judged, by the rules of the battles.

    Raises MeasurementError where its verdicts follow the order of the answers alone: every score
    would be one half then, whatever the answers are. Soft scores still differ where its
    probabilities do; where they hardly do, it is raised too.
    """
    fought = [outcome for outcome in outcomes if outcome.verdicts and not outcome.missing]
    if not fought:
        return _JudgeRemarks()
    verdicts = [verdict for outcome in fought for verdict in outcome.verdicts]
    given = [verdict.winner for verdict in verdicts if isinstance(verdict.winner, str)]
    notes, warnings = [], []
    if given:
        first = sum(winner in ("A", "Tie(A)") for winner in given) / len(given)
        said = f"{len(given)} verdicts, {first:.0%} of them for the answer that was shown first"
        notes.append(said)
        one_place = max(first, 1 - first)
        even = max(abs(outcome.score - EVEN) for outcome in fought) < _EVEN_ENOUGH
        blind = rules.score == "verdict" or even
        if len(given) >= _ENOUGH_VERDICTS and one_place >= _MOST_FIRST and blind:
            raise MeasurementError(
                f"{said}: this judge looks at the order of the answers, not at them"
            )
        if len(given) >= _ENOUGH_VERDICTS and one_place >= _MANY_FIRST:
            warnings.append(f"{said}: the judge has a strong order effect")
    shown = _shown_by_soft_scores(fought, rules)
    if shown is not None:
        remark = (
            f"soft scores show {shown:.2f} of the differences that the verdicts show: a tolerance "
            f"on them is wider by as much, and no drop beyond {max(0.0, shown) * EVEN:.3f} can show"
        )
        if shown < _HARDLY_ANY:
            raise MeasurementError(
                f'{remark}: this judge is hardly ever sure; set score = "verdict" under [arena]'
            )
        (warnings if shown < _MUCH_SHRUNK else notes).append(remark)
    return _JudgeRemarks(tuple(notes), tuple(warnings), len(given))


def _shown_by_soft_scores(fought: Sequence[PairOutcome], rules: BattleRules) -> float | None:
    """Slope of soft scores on the verdicts' scores, through one half.

    It is below 1 for a judge that is seldom sure. None where scores are not soft, where there are
    few verdicts, and where all of them are ties.
    """
    if rules.score != "soft" or sum(len(o.verdicts) for o in fought) < _ENOUGH_VERDICTS:
        return None
    verdicts = [mean_score(o.verdicts, rules.tie, "verdict") - EVEN for o in fought]
    square = sum(verdict**2 for verdict in verdicts)
    soft = (outcome.score - EVEN for outcome in fought)
    return sum(map(mul, soft, verdicts)) / square if square else None


# -- judges that tell nothing apart ----------------------------------------------------------------


_BLIND = "the judge cannot see a drop"


@dataclass(frozen=True)
class _Sight:
    """Why a judge sees no drop in some battles, and the most that they are worth together."""

    at_stake: float = 0.0
    blind: Blindness | None = None


def _sight_of_judge(
    outcomes: Mapping[str, PairOutcome],
    parts: Mapping[str, Sequence[Sample]],
    rules: BattleRules,
    span: float,
) -> _Sight:
    """Whether the battles of a case would show a drop, by the verdicts that were given.

    They would not where the order of the answers outweighs what is said of them, or where nearly
    all different answers tie.
    outcomes: of answers that differ. parts: the samples of the case. span: the most that a sample
    can lose.
    """
    given = {name: o.verdicts for name, o in outcomes.items() if o.verdicts and not o.missing}
    if not given:
        return _Sight()
    hidden = mean_of_scores(
        {name: {s.id: span * (s.id in given) for s in part} for name, part in parts.items()}
    )
    outweighed = _outweighed_by_order(list(given.values()), rules)
    if outweighed:
        return _Sight(hidden, Blindness(f"{_BLIND}: {outweighed}", hidden))
    ties = sum(not _tells_apart(verdicts, rules) for verdicts in given.values())
    if ties / len(given) >= MOST_TIES:
        said = f"{_BLIND}: {ties} of {len(given)} different answers are ties to it"
        return _Sight(hidden, Blindness(said, hidden))
    shown = _shown_by_soft_scores([outcomes[name] for name in given], rules)
    if shown is not None and shown < _MUCH_SHRUNK:
        visible = max(0.0, shown) * EVEN
        said = f"{_BLIND}: its soft scores show none beyond {visible:.3f}"
        return _Sight(hidden, Blindness(said, hidden, visible))
    return _Sight(hidden)


def _tells_apart(verdicts: Sequence[OrderedVerdict], rules: BattleRules) -> bool:
    """Whether one of two answers is ahead by the verdicts on them; a tie is none that leans."""
    if rules.score == "soft":
        return abs(mean_score(verdicts, rules.tie, "soft") - EVEN) >= _EVEN_ENOUGH
    return mean_score(verdicts, "half", "verdict") != EVEN


def _outweighed_by_order(battles: Sequence[Sequence[OrderedVerdict]], rules: BattleRules) -> str:
    """How the order decides more than the answers; "" where it does not.

    With both orders more verdicts turn with it than stand; soft scores still tell answers apart by
    their sizes. With one, or one first, so many are for the answer in one place that at least every
    second one follows it, and chance does not explain that.
    """
    if rules.order == "both":
        scores = [[v.score(rules.tie) for v in own] for own in battles if len(own) > 1]
        turned = sum(first != second and first + second == 1 for first, second in scores)
        stood = sum(first == second != EVEN for first, second in scores)
        if rules.score == "soft" or turned <= stood:
            return ""
        return f"{turned} of its verdicts turn with the order of the answers, and {stood} stand"
    first = [own[0].score(rules.tie) == own[0].candidate_first for own in battles
             if own[0].score(rules.tie) != EVEN]  # fmt: skip
    most = max(sum(first), len(first) - sum(first))
    tail = sum(comb(len(first), k) for k in range(most, len(first) + 1))
    if not first or most < _ORDER_DECIDES * len(first) or 2 * tail > _CHANCE * 2 ** len(first):
        return ""
    place = "first" if 2 * sum(first) > len(first) else "second"
    return f"{most} of its {len(first)} verdicts are for the answer that was shown {place}"
