"""The work that a suite of interleaved answers takes, counted without asking a model."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pytest_cepbench.artifacts import Failure
from pytest_cepbench.artifacts.outcome import CRITERIA, CriteriaScores
from pytest_cepbench.chains import RoleRunner
from pytest_cepbench.chains.answers.answer_plan import (
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
from pytest_cepbench.store import Result, Store
from pytest_cepbench.store.answers import get_answers
from pytest_cepbench.suites.answer_data import Opponents
from pytest_cepbench.suites.answer_run import AnswerRun
from pytest_cepbench.suites.cases import Case
from pytest_cepbench.suites.measures.answer_base import JUDGE

_NOT_MADE = Failure("missing", "it is yet to be made")

# By method of the judge: after these nothing is asked for again.
_TAKEN: dict[str, Result] = {
    "judge": "A",
    "score_answers": CriteriaScores.of(dict.fromkeys(CRITERIA, 0)).to_json(),
}


@dataclass
class CountingRunner(RoleRunner):
    """A role whose steps are counted; their results are those in the store.

    results: keys of steps with a result in the store.
    missing: keys of the others.
    incomplete: whether there are steps that depend on results that are yet to be made.
    """

    results: set[str] = field(default_factory=set)
    missing: set[str] = field(default_factory=set)
    incomplete: bool = False

    def begin(self, method: str, steps: Sequence[Step], *_: object) -> Results:
        """The results in the store; no model is asked."""
        unknown = _TAKEN.get(method, _NOT_MADE)
        known = self.store.get(step.key for step in steps)
        self.results.update(known)
        self.missing.update(step.key for step in steps if step.key not in known)
        results = [self._answer(known.get(step.key, unknown)) for step in steps]
        return lambda: results


def count_answer_steps(
    run: AnswerRun, cases: Iterable[tuple[Case, Sequence[Sample]]]
) -> list[CountingRunner]:
    """The steps of each model for cases on samples.

    Answers that are yet to be made are taken to differ from those that they battle. Raises what
    binding models and looking at questions raise.
    """
    cases = list(cases)
    data = run.data
    runners = {
        role: CountingRunner(run.runner(role).bound, data.store) for role in run.assignments.roles
    }
    answering: dict[str, Any] = {r: runner for r, runner in runners.items() if r != JUDGE}
    samples = {sample.id: sample for _, own in cases for sample in own}
    models = replace(data.models, **answering)
    answers = {a.sample.id: a for a in foresee_answers(data.plan, list(samples.values()), models)}
    # What is drawn follows from the texts.
    unwritten = "writer" in runners and bool(runners["writer"].missing)
    for role in ("generator", "editor"):
        if role in runners:
            runners[role].incomplete = unwritten
    missing = {key for runner in answering.values() for key in runner.missing}
    known = {
        name: answer
        for name, answer in answers.items()
        if data.models.recorded is None and missing.isdisjoint(answer.keys)
    }
    if JUDGE in runners:
        for case, own in cases:
            measure = run.measures[case.key.metric]
            if measure.judged:
                _count_verdicts(run, case, own, known, runners[JUDGE])
            if measure.scored:
                _count_scores(run, own, known, runners[JUDGE])
    return list(runners.values())


def _count_verdicts(
    run: AnswerRun,
    case: Case,
    samples: Sequence[Sample],
    known: Mapping[str, SampleAnswer],
    judge: CountingRunner,
) -> None:
    """Add a case's verdicts to the steps of the judge. known: answers whose content is known."""
    store, rules = judge.store, run.data.rules
    pairs: list[AnswerPair] = []
    orders = 2 if rules.order == "both" else 1
    for opposing in _opposing(run, case, samples):
        for sample in samples:
            opponent = opposing.get(sample.id)
            if opponent is None:  # no judge is needed
                continue
            if sample.id not in known:
                judge.missing |= {f"{sample.id} {opponent.digest} {k}" for k in range(orders)}
                continue
            answer = known[sample.id].answer
            own = None if answer is None else refer_to_answer(answer, sample.id)
            pairs.append(AnswerPair(sample.id, refer_to_question(sample, store), own, opponent))
    judge_pairs(pairs, rules, judge)
    judge.incomplete |= rules.order == "adaptive" and bool(judge.missing)


def _count_scores(
    run: AnswerRun,
    samples: Sequence[Sample],
    known: Mapping[str, SampleAnswer],
    judge: CountingRunner,
) -> None:
    """Add the scores of single answers to the steps of the judge."""
    answers = []
    for sample in samples:
        if sample.id not in known:
            judge.missing.add(f"{sample.id} scores")
            continue
        answer = known[sample.id].answer
        if answer is not None:
            question = refer_to_question(sample, judge.store)
            own = refer_to_answer(answer, sample.id)
            answers.append(StoredAnswer(sample.id, question, own))
    score_answers(answers, run.data.rules.seed, judge)


def _opposing(
    run: AnswerRun, case: Case, samples: Sequence[Sample]
) -> list[Mapping[str, PieceRefs | None]]:
    """The answers that a case's answers battle, by sample id: of the baseline, and the anchor."""
    store = run.data.store
    if run.suite.table.arena.against == "gold":
        return [{sample.id: refer_to_gold(sample, store) for sample in samples}]
    both = run.opponents_of(case)
    return [
        _stored(side, samples, store) for side in (both.accepted, both.anchor) if side is not None
    ]


def _stored(side: Opponents, samples: Sequence[Sample], store: Store) -> dict[str, PieceRefs]:
    """The accepted answers that are in the store."""
    digests = {sample.id: side.answers.get(sample.id, "") for sample in samples}
    stored = get_answers(store, set(digests.values()) - {""})
    return {
        name: refer_to_answer(stored[digest], name)
        for name, digest in digests.items()
        if digest in stored
    }
