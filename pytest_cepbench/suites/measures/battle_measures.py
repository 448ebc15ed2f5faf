"""Metrics of battles: win rates, and the verdicts and scores that a judge did not give."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import mul

from pytest_cepbench.artifacts.criteria import CRITERIA, CriteriaScores
from pytest_cepbench.artifacts.outcome import EVEN
from pytest_cepbench.chains.answers.answer_plan import BattleRules
from pytest_cepbench.chains.answers.answering import SampleAnswer
from pytest_cepbench.chains.answers.battles import PairOutcome, mean_score
from pytest_cepbench.datasets.sample import Sample
from pytest_cepbench.errors import MeasurementError
from pytest_cepbench.suites.answer_data import AnswerData, Opponents
from pytest_cepbench.suites.cases import Case
from pytest_cepbench.suites.measures.answer_base import (
    JUDGE,
    Against,
    CaseOpponents,
    by_part,
    outcome_of_answer,
)
from pytest_cepbench.suites.measures.base import (
    CaseScores,
    Measured,
    MetricTable,
    Parts,
    Pool,
    by_category,
    everyone,
)

_NAMED = 3

VERDICT_FAILURES = "judge_failures/1"
"""Definition of the share of verdicts, and no scores, that a judge did not give."""


class WinRateTable(MetricTable, frozen=True, kw_only=True):
    """win_rate: how often an answer is better than the one that it battles."""


class JudgeFailuresTable(MetricTable, frozen=True, kw_only=True):
    """judge_failures: the share of verdicts and scores that the judge did not give."""


@dataclass(frozen=True)
class WinRateMeasure:
    """The mean score of battles against accepted answers, or against reference answers.

    A sample scores 1 where its answer is better in every order that is asked, 0 where it is worse,
    one half for a tie and for equal answers. A missing answer loses; two missing ones are a tie. A
    battle without a verdict in an order that is asked is missing.
    """

    name: str
    against: Against
    pool: Pool
    parts: Parts
    higher_is_better: bool = True
    own_parts: tuple[str, ...] = ()
    per_sample: bool = True
    judged: bool = True
    scored: bool = False

    @property
    def label(self) -> str:
        """Its name for people."""
        return "win rate" if self.against == "accepted" else "win rate against reference answers"

    @property
    def span(self) -> float:
        """Accepted answers score one half against themselves, so no more can be lost."""
        return EVEN if self.against == "accepted" else 1.0

    @property
    def identity(self) -> str:
        """The definition."""
        return f"win_rate/1 against {self.against}"

    @property
    def win_rate(self) -> str:
        """Its own name, where accepted answers are battled."""
        return self.name if self.against == "accepted" else ""

    def read(
        self,
        _: Case,
        samples: Sequence[Sample],
        data: AnswerData,
        opponents: CaseOpponents,
        model: str,
    ) -> None:
        """The answers and the verdicts."""
        data.answers(samples)
        if self.against == "gold":
            data.gold_battles(samples)
            return
        _fight(samples, data, opponents.accepted, model, "baseline")
        _fight(samples, data, opponents.anchor, model, "anchor")

    def measure(
        self, case: Case, data: AnswerData, opponents: CaseOpponents, model: str
    ) -> Measured:
        """A score per sample."""
        parts = by_category(case, data)
        samples = everyone(parts)
        answers = data.answers(samples)
        if all(own.answer is None for own in answers.values()):
            failure = next(iter(answers.values())).failure
            detail = "" if failure is None else f": {failure.kind}: {failure.detail}"
            msg = f"not one of {len(answers)} questions was answered{detail}"
            raise MeasurementError(msg)
        if self.against == "gold":
            fought = data.gold_battles(samples)
            outcomes = _outcomes(answers, [fought], data)
            scores = {name: outcome.score for name, outcome in fought.items()}
            votes = _missing_votes(fought, data)
            remarks = _remarks_on_judge(fought.values(), data.rules)
            return Measured(
                by_part(parts, scores),
                samples,
                outcomes,
                obstacles=votes,
                notes=remarks.notes,
                warnings=remarks.warnings,
                verdicts=remarks.verdicts,
            )
        fought, obstacles = _fight(samples, data, opponents.accepted, model, "baseline")
        since, more = _fight(samples, data, opponents.anchor, model, "anchor")
        anchor_scores = {name: since[name].score for name in since}
        scores = {s.id: fought[s.id].score if s.id in fought else EVEN for s in samples}
        outcomes = _outcomes(answers, [fought, since], data)
        remarks = _remarks_on_judge(fought.values(), data.rules)
        return Measured(
            by_part(parts, scores),
            samples,
            outcomes,
            answers={s.id: answers[s.id].digest for s in samples},
            anchor_scores=by_part(parts, anchor_scores) if anchor_scores else {},
            obstacles=(*obstacles, *more, *_missing_votes(fought | since, data)),
            notes=remarks.notes,
            warnings=remarks.warnings,
            verdicts=remarks.verdicts,
        )


@dataclass(frozen=True)
class JudgeFailuresMeasure:
    """The share of verdicts and scores that the judge did not give.

    Counted are the verdicts of a win rate's battles, and beside them the replies with scores, each
    by its share of the seven criteria without one.

    win_rate: that metric; empty where reference answers are battled, or none.
    judged, scored: which of the two the suite asks for.
    """

    name: str
    against: Against
    win_rate: str
    pool: Pool
    parts: Parts
    label: str = "judge's failures"
    higher_is_better: bool = False
    own_parts: tuple[str, ...] = ()
    per_sample: bool = True
    span: float | None = 1.0
    judged: bool = True
    scored: bool = False

    @property
    def identity(self) -> str:
        """The definition."""
        if not self.scored:
            return VERDICT_FAILURES
        return f"judge_failures/2 of {'verdicts and ' if self.judged else ''}scores"

    def read(
        self,
        _: Case,
        samples: Sequence[Sample],
        data: AnswerData,
        opponents: CaseOpponents,
        model: str,
    ) -> None:
        """The verdicts and scores."""
        self._fought(samples, data, opponents, model)
        if self.scored:
            data.scores(samples)

    def measure(
        self, case: Case, data: AnswerData, opponents: CaseOpponents, model: str
    ) -> Measured:
        """A share per sample; 0 where the judge was not needed."""
        parts = by_category(case, data)
        samples = everyone(parts)
        fought, obstacles = self._fought(samples, data, opponents, model)
        scores = data.scores(samples) if self.scored else {}
        shares = {s.id: _failed_share(fought.get(s.id), scores.get(s.id)) for s in samples}
        outcomes = [outcome_of_answer(own) for own in data.answers(samples).values()]
        return Measured(by_part(parts, shares), samples, outcomes, shares=True, obstacles=obstacles)

    def _fought(
        self, samples: Sequence[Sample], data: AnswerData, opponents: CaseOpponents, model: str
    ) -> tuple[dict[str, PairOutcome], tuple[str, ...]]:
        if not self.judged:
            return {}, ()
        if self.against == "gold":
            return data.gold_battles(samples), ()
        return _fight(samples, data, opponents.accepted, model, "baseline")


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
    model: str,
    name: str,
) -> tuple[dict[str, PairOutcome], tuple[str, ...]]:
    """The battles against the answers of one baseline, and why they could not be fought.

    model: identity of the model under test. name: of the baseline, for people.
    """
    if opponents is None:
        return {}, ()
    if opponents.identity == model:
        # The same weights and settings: other digests would be another machine's arithmetic.
        return {sample.id: PairOutcome() for sample in samples}, ()
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
            "--cep-shared), or bring them with `cepbench answers import`"
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
        "people judge them (`cepbench rate`), or name another judge"
    )
    return (obstacle,)


_MOST_FIRST = 0.95
"""Of the verdicts for the answer in one place; above it a judge looks at places, not at answers."""

_MANY_FIRST = 0.65
"""From here on reports warn; GPT-4o's share was .641 in the released verdicts of OpenING."""

_ENOUGH_VERDICTS = 20

_EVEN_ENOUGH = 0.01
"""Soft scores that are all as near to one half say nothing."""

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
            msg = f"{said}: this judge looks at the order of the answers, not at them"
            raise MeasurementError(msg)
        if len(given) >= _ENOUGH_VERDICTS and one_place >= _MANY_FIRST:
            warnings.append(f"{said}: the judge has a strong order effect")
        if len(given) >= _ENOUGH_VERDICTS and all(w in ("Tie(A)", "Tie(B)") for w in given):
            warnings.append(f"all {len(given)} verdicts are ties: this judge saw no difference")
    shown = _shown_by_soft_scores(fought, rules)
    if shown is not None:
        remark = (
            f"soft scores show {shown:.2f} of the differences that the verdicts show: a tolerance "
            f"on them is wider by as much, and no drop beyond {max(0.0, shown) * EVEN:.3f} can show"
        )
        if shown < _HARDLY_ANY:
            msg = f'{remark}: this judge is hardly ever sure; set score = "verdict" under [arena]'
            raise MeasurementError(msg)
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
