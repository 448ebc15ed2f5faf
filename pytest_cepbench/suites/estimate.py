"""An estimate of a measurement: the inputs of each model, counted without loading one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import ceil
from typing import Any

from pytest_cepbench.artifacts import Failure
from pytest_cepbench.artifacts.outcome import CRITERIA, CriteriaScores
from pytest_cepbench.chains import Modality, PendingChain, RoleRunner
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
from pytest_cepbench.chains.batching import Throughput, load_throughput
from pytest_cepbench.chains.role_runner import Results
from pytest_cepbench.chains.steps import Step
from pytest_cepbench.datasets.sample import Sample
from pytest_cepbench.measures.answer_contents import JUDGE
from pytest_cepbench.measures.answer_data import Opponents
from pytest_cepbench.measures.base import RequiredFeatures
from pytest_cepbench.measures.cases import Case
from pytest_cepbench.models.binding import BoundRole
from pytest_cepbench.store import Result, Store
from pytest_cepbench.store.answers import get_answers
from pytest_cepbench.suites.answer_run import AnswerRun
from pytest_cepbench.suites.chain_run import ChainRun
from pytest_cepbench.suites.suite_run import SuiteRun

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


_READ = 500  # results looked at together; vectors are large


@dataclass(frozen=True)
class ModelEstimate:
    """The work of one model.

    stored: results that are in the store.
    inputs: what it would be given.
    throughput: of earlier runs on this kind of device.
    incomplete: whether it gets more than can be foreseen.
    """

    bound: BoundRole
    stored: int
    inputs: int
    throughput: Throughput | None
    incomplete: bool = False

    @property
    def calls(self) -> int:
        """At the batch size that is known to fit, else the one that is asked for."""
        known = self.throughput
        size = self.bound.resources.batch_size if known is None else known.batch_size
        return ceil(self.inputs / size)

    @property
    def seconds(self) -> float | None:
        """On one device; None where it was never measured."""
        if not self.inputs:
            return 0.0
        return None if self.throughput is None else self.inputs * self.throughput.seconds


@dataclass(frozen=True)
class Forecast:
    """The work that the cases of one suite need.

    samples: how many they read.
    units: how many chains, or answers.
    needs: the work of each model.
    """

    samples: int
    units: int
    needs: tuple[ModelEstimate, ...]

    @property
    def stored(self) -> int:
        """Steps whose results are in the store."""
        return sum(need.stored for need in self.needs)

    @property
    def steps(self) -> int:
        """All steps, those among them."""
        return self.stored + sum(need.inputs for need in self.needs)


@dataclass
class _ModelSteps:
    """The keys of what one model is to do: with results in the store, and without."""

    runner: RoleRunner
    stored: set[str] = field(default_factory=set)
    missing: set[str] = field(default_factory=set)
    incomplete: bool = False


def forecast(run: SuiteRun, cases: Iterable[tuple[Case, int | None]]) -> Forecast:
    """Estimate the measurement of some cases, each over at most so many samples of each category.

    Steps whose inputs are yet to be made are taken to succeed, and to give artifacts that differ;
    what is detected in images, to be cut out and read, is not foreseen. Raises what binding models
    and looking at seeds raise.
    """
    if isinstance(run, AnswerRun):
        return _forecast_answers(run, cases)
    assert isinstance(run, ChainRun)
    return _forecast_chains(run, cases)


def _forecast_chains(run: ChainRun, cases: Iterable[tuple[Case, int | None]]) -> Forecast:
    readings = [
        (required, run.looked_at(case, most))
        for case, most in cases
        for required in run.measures[case.key.metric].required_features(case)
    ]
    wanted: dict[Modality, dict[str, Sample]] = {}
    for required, samples in readings:
        own = wanted.setdefault(required.plan.start, {})
        own.update((sample.id, sample) for sample in samples)
    by_runner: dict[int, _ModelSteps] = {}

    def steps_of(runner: RoleRunner) -> _ModelSteps:
        return by_runner.setdefault(id(runner), _ModelSteps(runner))

    chains: dict[tuple[Modality, str], PendingChain] = {}
    for start, own in wanted.items():
        for pending in run.chain_data.look_ahead(start, list(own.values())):
            chains[start, pending.chain.sample.id] = pending
            for runner, key in pending.stored:
                steps_of(runner).stored.add(key)
            for runner, key in pending.missing:
                steps_of(runner).missing.add(key)
    for required, samples in readings:
        if required.reader is None:
            continue
        steps = steps_of(run.chain_data.runner(required.reader))
        if required.cutouts:  # what detectors find in images that they have not read yet
            steps.incomplete |= any(
                other.missing
                for other in by_runner.values()
                if other.runner.bound.role == "detector"
            )
        else:
            _add_readings(steps, required, [chains[required.plan.start, s.id] for s in samples])
    store = run.chain_data.store
    return Forecast(
        samples=len({sample_id for own in wanted.values() for sample_id in own}),
        units=len(chains),
        needs=tuple(
            ModelEstimate(
                steps.runner.bound,
                len(steps.stored),
                len(steps.missing),
                load_throughput(steps.runner.bound, store),
                steps.incomplete,
            )
            for steps in by_runner.values()
        ),
    )


def _forecast_answers(run: AnswerRun, cases: Iterable[tuple[Case, int | None]]) -> Forecast:
    looked_at = [(case, run.looked_at(case, most)) for case, most in cases]
    samples = {sample.id for _, own in looked_at for sample in own}
    return Forecast(
        samples=len(samples),
        units=len(samples),
        needs=tuple(
            ModelEstimate(
                runner.bound,
                len(runner.results),
                len(runner.missing),
                load_throughput(runner.bound, run.data.store),
                runner.incomplete,
            )
            for runner in count_answer_steps(run, looked_at)
        ),
    )


def _add_readings(
    steps: _ModelSteps, required: RequiredFeatures, chains: Sequence[PendingChain]
) -> None:
    """Add what a reader is to do for some chains."""
    together = _READ // len(required.generations) + 1
    for low in range(0, len(chains), together):
        keys = [
            list(_keys(required, pending, steps.runner)) for pending in chains[low : low + together]
        ]
        stored = steps.runner.store.get(key for own in keys for key in own)
        for own in keys:
            for key in own:
                (steps.stored if key in stored else steps.missing).add(key)
                if required.stops_chain and isinstance(stored.get(key), Failure):
                    break


def _keys(required: RequiredFeatures, pending: PendingChain, runner: RoleRunner) -> Iterator[str]:
    """The keys of the steps that read a chain, as far as it goes."""
    query = required.query(pending.chain.sample, runner.bound)
    for generation in required.generations:
        digest = pending.digests[generation] if generation < len(pending.digests) else None
        if digest is not None:
            yield runner.key(query, 0, required.plan.modality(generation), digest)
