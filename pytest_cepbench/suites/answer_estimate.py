"""What stores have of interleaved answers and their battles, and the steps that are left."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from pytest_cepbench.artifacts import Failure
from pytest_cepbench.artifacts.outcome import CRITERIA, CriteriaScores
from pytest_cepbench.chains import RoleRunner
from pytest_cepbench.chains.answers.answer_plan import (
    BattleRules,
    PieceRefs,
    refer_to_answer,
    refer_to_gold,
    refer_to_question,
)
from pytest_cepbench.chains.answers.answering import SampleAnswer, foresee_answers
from pytest_cepbench.chains.answers.battles import (
    AnswerPair,
    StoredAnswer,
    judge_pairs,
    score_answers,
)
from pytest_cepbench.chains.role_runner import Results
from pytest_cepbench.chains.steps import Step
from pytest_cepbench.datasets.sample import Sample
from pytest_cepbench.measures.answer_contents import AnswerMeasure, CaseOpponents
from pytest_cepbench.measures.answer_data import AnswerData, Opponents
from pytest_cepbench.measures.base import JUDGE
from pytest_cepbench.store import Result, Store
from pytest_cepbench.store.answers import get_answers
from pytest_cepbench.suites.estimate import ModelSteps

_NOT_MADE = Failure("missing", "it is yet to be made")

# By method of the judge: after these nothing is asked for again.
_TAKEN: dict[str, Result] = {
    "judge": "A",
    "score_answers": CriteriaScores.of(dict.fromkeys(CRITERIA, 0)).to_json(),
}


@dataclass
class _CountingRunner(RoleRunner):
    """A role whose steps are counted; their results are those in the store."""

    steps: ModelSteps = field(init=False)

    def __post_init__(self) -> None:
        self.steps = ModelSteps(self)

    def begin(self, method: str, steps: Sequence[Step], *_: object) -> Results:
        """The results in the store; no model is asked."""
        unknown = _TAKEN.get(method, _NOT_MADE)
        known = self.store.get(step.key for step in steps)
        self.steps.stored.update(known)
        self.steps.missing.update(step.key for step in steps if step.key not in known)
        results = [self._answer(known.get(step.key, unknown)) for step in steps]
        return lambda: results


class CountedCase(NamedTuple):
    """A case whose steps are counted.

    samples: that are looked at.
    opponents: the accepted answers that are battled; None where reference answers are.
    """

    measure: AnswerMeasure
    samples: Sequence[Sample]
    opponents: CaseOpponents | None


def count_answer_steps(
    data: AnswerData, roles: Iterable[str], cases: Sequence[CountedCase]
) -> list[ModelSteps]:
    """The steps of the model of each role for cases on samples.

    Answers that are yet to be made are taken to differ from those that they battle. Raises what
    binding models and looking at questions raise.
    """
    runners = {role: _CountingRunner(data.runner(role).bound, data.store) for role in roles}
    answering: dict[str, Any] = {r: runner for r, runner in runners.items() if r != JUDGE}
    samples = {sample.id: sample for case in cases for sample in case.samples}
    models = replace(data.models, **answering)
    answers = {a.sample.id: a for a in foresee_answers(data.plan, list(samples.values()), models)}
    # What is drawn follows from the texts.
    unwritten = "writer" in runners and bool(runners["writer"].steps.missing)
    for role in ("generator", "editor"):
        if role in runners:
            runners[role].steps.incomplete = unwritten
    missing = {key for runner in answering.values() for key in runner.steps.missing}
    known = {
        name: answer
        for name, answer in answers.items()
        if data.models.recorded is None and missing.isdisjoint(answer.keys)
    }
    if JUDGE in runners:
        for case in cases:
            if case.measure.judged:
                _count_verdicts(case, known, data.rules, runners[JUDGE])
            if case.measure.scored:
                _count_scores(case.samples, known, data.rules.seed, runners[JUDGE])
    return [runner.steps for runner in runners.values()]


def _count_verdicts(
    case: CountedCase,
    known: Mapping[str, SampleAnswer],
    rules: BattleRules,
    judge: _CountingRunner,
) -> None:
    """Add a case's verdicts to the steps of the judge. known: answers whose content is known."""
    store, missing = judge.store, judge.steps.missing
    pairs: list[AnswerPair] = []
    orders = 2 if rules.order == "both" else 1
    for opposing in _opposing(case, store):
        for sample in case.samples:
            opponent = opposing.get(sample.id)
            if opponent is None:  # no judge is needed
                continue
            if sample.id not in known:
                missing |= {f"{sample.id} {opponent.digest} {k}" for k in range(orders)}
                continue
            answer = known[sample.id].answer
            own = None if answer is None else refer_to_answer(answer, sample.id)
            pairs.append(AnswerPair(sample.id, refer_to_question(sample, store), own, opponent))
    judge_pairs(pairs, rules, judge)
    judge.steps.incomplete |= rules.order == "adaptive" and bool(missing)


def _count_scores(
    samples: Sequence[Sample],
    known: Mapping[str, SampleAnswer],
    seed: int,
    judge: _CountingRunner,
) -> None:
    """Add the scores of single answers to the steps of the judge."""
    answers = []
    for sample in samples:
        if sample.id not in known:
            judge.steps.missing.add(f"{sample.id} scores")
            continue
        answer = known[sample.id].answer
        if answer is not None:
            question = refer_to_question(sample, judge.store)
            own = refer_to_answer(answer, sample.id)
            answers.append(StoredAnswer(sample.id, question, own))
    score_answers(answers, seed, judge)


def _opposing(case: CountedCase, store: Store) -> list[Mapping[str, PieceRefs | None]]:
    """The answers that a case's answers battle, by sample id: of the baseline, and the anchor."""
    if case.opponents is None:
        return [{sample.id: refer_to_gold(sample, store) for sample in case.samples}]
    sides = (case.opponents.accepted, case.opponents.anchor)
    return [_stored(side, case.samples, store) for side in sides if side is not None]


def _stored(side: Opponents, samples: Sequence[Sample], store: Store) -> dict[str, PieceRefs]:
    """The accepted answers that are in the store."""
    digests = {sample.id: side.answers.get(sample.id, "") for sample in samples}
    stored = get_answers(store, set(digests.values()) - {""})
    return {
        name: refer_to_answer(stored[digest], name)
        for name, digest in digests.items()
        if digest in stored
    }
