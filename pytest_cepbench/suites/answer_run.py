"""The measuring of a suite that asks for interleaved answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from pytest_cepbench.artifacts import Failure, digest_json
from pytest_cepbench.artifacts.outcome import CRITERIA, CriteriaScores
from pytest_cepbench.chains import RoleRunner
from pytest_cepbench.chains.answers.answer_plan import refer_to_gold
from pytest_cepbench.chains.answers.answering import AnswerModels, foresee_answers
from pytest_cepbench.chains.answers.battles import verdict_keys
from pytest_cepbench.chains.steps import Step
from pytest_cepbench.datasets.sample import Sample
from pytest_cepbench.errors import MeasurementError, RoleError
from pytest_cepbench.gate.baseline import anchor_path, baseline_path, usable_baseline
from pytest_cepbench.gate.measurement import Blindness, CaseKey
from pytest_cepbench.measures.answer_data import (
    AnswerData,
    AnswerExcerpt,
    CaseOpponents,
    Opponents,
    excerpt_answer,
    excerpt_gold,
    excerpt_question,
)
from pytest_cepbench.measures.answer_measures import AnswerMeasure, CriteriaMeasure, StepGapMeasure
from pytest_cepbench.measures.base import JUDGE, Measured
from pytest_cepbench.measures.cases import OVERALL, Case
from pytest_cepbench.models.text_model.judge_prompts import SCORE_PROMPT
from pytest_cepbench.store import Result
from pytest_cepbench.store.answers import BUNDLE, import_bundle
from pytest_cepbench.suites.definition import ANSWERING
from pytest_cepbench.suites.judge_cards import remark_on_judge
from pytest_cepbench.suites.suite_run import ModelSteps, SuiteRun, sample_digest, short_prompt

_JUDGES_ITSELF = (
    "the judge has the weights of the model under test: judges prefer answers of their own kind"
)


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

    def ask(self, method: str, steps: Sequence[Step], *_: object) -> list[Result]:
        """The results in the store; no model is asked."""
        unknown = _TAKEN.get(method, Failure("missing", "it is yet to be made"))
        known = self.store.get(step.key for step in steps)
        self.steps.stored.update(known)
        self.steps.missing.update(step.key for step in steps if step.key not in known)
        return [self._answer(known.get(step.key, unknown)) for step in steps]


class AnswerRun(SuiteRun):
    """A suite of interleaved answers that is measured.

    baselines: folder of accepted baselines, whose answers the candidate's battle; None where there
        are none to battle.
    """

    growers = ANSWERING
    unit = "answer"
    measures: Mapping[str, AnswerMeasure]

    def __init__(self, *parts: Any, baselines: Path | None = None) -> None:
        super().__init__(*parts)
        self._baselines = baselines
        self._opponents: dict[str, CaseOpponents] = {}

    @cached_property
    def data(self) -> AnswerData:
        """The answers; models are bound when the first case needs them."""
        runners = {role: self.runner(role) for role in ANSWERING if role in self.assignments.roles}
        plan = self.suite.answer_plan
        assert plan is not None
        rules = self.suite.battle_rules
        recorded = self.assignments.replay
        if recorded is not None:
            from pytest_cepbench.datasets.opening.answers import RecordedAnswers

            assert isinstance(recorded, RecordedAnswers)  # chains are refused as they are opened
            recorded.check((self.dataset.whole or self.dataset).samples)
        scored = [measure.name for measure in self.measures.values() if measure.scored]
        if scored and not self.runner(JUDGE).bound.scores_answers:
            spec = self.runner(JUDGE).bound.spec
            raise RoleError(
                f"suite {self.suite.name!r}: [metrics.{scored[0]}] needs scores of single answers, "
                f"and the judge {spec!r} gives verdicts alone: add the method "
                "score_answers(answers, seeds) to it, or name another with --judge=SPEC"
            )
        models = AnswerModels(self._model_pool.store, recorded=recorded, **runners)
        return AnswerData(self.dataset, plan, rules, models, self.runner)

    def reads(self, case: Case) -> list[list[object]]:
        """Whether a case needs scores, or verdicts, and on which accepted answers."""
        measure = self.measures[case.key.metric]
        reads: list[list[object]] = [["answers"]]
        if measure.judged:
            opponents = self.opponents_of(case)
            sides = [opponents.accepted, opponents.anchor]
            answers = [None if side is None else dict(side.answers) for side in sides]
            reads.append(["battles", digest_json(answers)])
        if measure.scored:
            reads.append(["scores"])
        return reads

    def steps(self, case: Case) -> int:
        """How many results a case needs of each sample, as far as that is known before."""
        battles = 2 if self.suite.battle_rules.order == "both" else 1
        measure = self.measures[case.key.metric]
        return 1 + battles * measure.judged + measure.scored

    def read(self, case: Case, samples: Sequence[Sample]) -> None:
        """Compute what a case needs of the samples and the store lacks.

        Raises what models and store raise.
        """
        data = self.data.against(self.opponents_of(case))
        self.measures[case.key.metric].read(samples, data)

    def grow(self, wanted: Sequence[tuple[Case, Sequence[Sample]]]) -> None:
        """Answer all questions, before the judge is asked."""
        by_id = {sample.id: sample for _, samples in wanted for sample in samples}
        self.data.answers(list(by_id.values()))

    def show(self, case: Case, sample_id: str, *, anchor: bool = False) -> AnswerExcerpt | None:
        """A sample of a measured case for the reader; None for one that was not looked at.

        anchor: whether the answer that is shown beside is the anchor's, not the baseline's.
        """
        samples = self.data.named(sample_id)
        if not samples:
            return None
        measure, store = self.measures[case.key.metric], self.data.store
        own = self.data.answers(samples)[sample_id]
        excerpt = AnswerExcerpt(
            excerpt_question(own.sample, store), excerpt_answer(own.answer), own.failure
        )
        if isinstance(measure, CriteriaMeasure):
            scores = self.data.known_scores(own.sample)
            return replace(excerpt, remark="" if scores is None else measure.explain(scores))
        if not measure.judged:
            return excerpt
        if self.suite.table.arena.against == "gold":
            return replace(
                excerpt,
                opponent="reference",
                opposing=excerpt_gold(own.sample, store),
                outcome=self.data.known_outcome(own.sample, None),
            )
        both = self.opponents_of(case)
        opponents = both.anchor if anchor else both.accepted
        if opponents is None or sample_id not in opponents.answers:
            return excerpt
        digest = opponents.answers[sample_id]
        opposing = self.data.stored_answers([digest]).get(digest) if digest else None
        return replace(
            excerpt,
            opponent="anchor" if anchor else "accepted",
            opposing=excerpt_answer(opposing),
            opposing_lost=bool(digest) and opposing is None,
            outcome=self.data.known_outcome(own.sample, opponents),
        )

    def _measured(self, case: Case, most: int | None) -> Measured:
        """Also says how many answers hold reasoning, how many texts were cut, and what is known of
        the judge.

        Raises MeasurementError where a server left an image of an answer without a reply.
        """
        measure = self.measures[case.key.metric]
        gated, roles = self.assignments.gated, self.assignments.roles
        data = self.data.narrowed(most).against(self.opponents_of(case))
        measured = measure.measure(case, data)
        answers = data.answers(measured.samples).values()
        for own in answers:
            for lost in own.lost_images:
                if lost.kind == "unanswered":
                    raise MeasurementError(
                        f"an image of the answer to {own.sample.id} is missing: {lost.detail}. Run "
                        "again when the server answers"
                    )
        notes, warnings = list(measured.notes), list(measured.warnings)
        writer = next((role for role in ("interleaver", "writer") if role in roles), None)
        if writer is not None:
            keys = [own.keys[0] for own in answers if own.keys]
            told = self.runner(writer).text_notes(keys, "answers")
            notes += told[0]
            warnings += told[1]
        accepted = data.opponents.accepted
        if measure.judged and accepted is not None:
            judge, pairs = self.runner(JUDGE), data.pairs(measured.samples, accepted)
            keys = [key for pair in pairs for key in verdict_keys(pair, data.rules, judge)]
            warnings += judge.text_notes(keys, "verdicts of the judge")[1]
        if (measure.judged or measure.scored) and JUDGE not in gated:
            weights = {self.runner(role).bound.fingerprint for role in gated if role in roles}
            if self.runner(JUDGE).bound.fingerprint in weights:
                warnings.append(_JUDGES_ITSELF)
            if measured.verdicts:
                line, warning = self._judge_remark
                measured = replace(measured, judge=line)
                if warning:  # of more battles than this case has
                    measured = replace(measured, blind=Blindness(warning, measured.at_stake))
        return replace(measured, notes=tuple(notes), warnings=tuple(warnings))

    @cached_property
    def _judge_remark(self) -> tuple[str, str]:
        """What is known of the judge, by its card beside the baselines."""
        return remark_on_judge(self._baselines, self.runner(JUDGE).bound)

    def _count_steps(
        self, cases: Sequence[tuple[Case, Sequence[Sample]]]
    ) -> tuple[int, Sequence[ModelSteps]]:
        """Answers that are yet to be made are taken to differ from those that they battle."""
        data = self.data
        runners = {
            role: _CountingRunner(data.runner(role).bound, data.store)
            for role in self.assignments.roles
        }
        answering: dict[str, Any] = {r: runner for r, runner in runners.items() if r != JUDGE}
        samples = {sample.id: sample for _, own in cases for sample in own}
        models = replace(data.models, **answering)
        answers = foresee_answers(data.plan, list(samples.values()), models)
        # What is drawn follows from the texts.
        unwritten = "writer" in runners and bool(runners["writer"].steps.missing)
        for role in ("generator", "editor"):
            if role in runners:
                runners[role].steps.incomplete = unwritten
        missing = {key for runner in answering.values() for key in runner.steps.missing}
        recorded = data.models.recorded is not None
        known = [own for own in answers if not recorded and missing.isdisjoint(own.keys)]
        counting = AnswerData(self.dataset, data.plan, data.rules, models, runners.__getitem__)
        counting.keep_answers(known)
        made = {own.sample.id for own in known}
        for case, own_samples in cases:
            measure, opponents = self.measures[case.key.metric], self.opponents_of(case)
            if not (measure.judged or measure.scored):
                continue
            steps, rules = runners[JUDGE].steps, data.rules
            measure.read([s for s in own_samples if s.id in made], counting.against(opponents))
            sides = [side.answers for side in (opponents.accepted, opponents.anchor) if side]
            if self.suite.table.arena.against == "gold":
                sides = [{sample.id: "gold" for sample in own_samples}]
            for sample in own_samples:
                if sample.id in made:
                    continue
                asked = ["scores"] if measure.scored else []
                for side in sides if measure.judged else []:
                    if opponent := side.get(sample.id):
                        orders = ("first", "second")[: 2 if rules.order == "both" else 1]
                        asked += [f"{opponent} {order}" for order in orders]
                steps.missing.update(f"{sample.id} {what}" for what in asked)
        return len(samples), [runner.steps for runner in runners.values()]

    def opponents_of(self, case: Case) -> CaseOpponents:
        """The accepted answers that a case's answers battle; none from a file that is unusable."""
        win_rate, baselines = self.measures[case.key.metric].win_rate, self._baselines
        name = str(case.key)
        if baselines is None or not win_rate:
            return CaseOpponents()
        if name in self._opponents:
            return self._opponents[name]

        def read(path_of: Callable[[Path, CaseKey], Path], *parts: str) -> Opponents | None:
            for part in parts:  # the first that has any
                key = CaseKey(case.key.suite, part, win_rate)
                baseline = usable_baseline(path_of(baselines, key), key)
                if baseline is not None and baseline.answers:
                    return Opponents(baseline.answers, baseline.model.get("identity", ""))
            return None

        # A win rate may have no case of its own for this part of the suite.
        parts = (case.key.part, OVERALL)
        opponents = CaseOpponents(read(baseline_path, *parts), read(anchor_path, *parts))
        sides = [side for side in (opponents.accepted, opponents.anchor) if side is not None]
        wanted = {digest for side in sides for digest in side.answers.values()} - {""}
        whole = None if self._opponents else read(baseline_path, OVERALL)
        if whole is not None:  # together: other parts ask next, and each look takes queries
            self.data.stored_answers(set(whole.answers.values()) - {""})
        missing = wanted - self.data.stored_answers(wanted).keys()
        bundle = baselines / self.suite.name / BUNDLE
        if missing and bundle.exists():
            import_bundle(bundle, self._model_pool.store, missing)
        self._opponents[name] = opponents
        return opponents

    def identity(self, case: Case, samples: Sequence[Sample]) -> dict[str, str]:
        """As of every suite, with the answers' plan and prompts, and how they are judged."""
        measure, plan = self.measures[case.key.metric], self.data.plan
        identity = {
            **self._shared_identity(measure.identity, samples, [self.data.starts(samples)]),
            "answer": str(plan),
            "under test": self.assignments.under_test,
        }
        if "writer" in self.assignments.roles:
            identity["system prompt"] = short_prompt(plan.system)
            identity["image prompt"] = short_prompt(plan.image)
        if "editor" in self.assignments.roles:
            identity["edit prompt"] = short_prompt(plan.edit)
        if measure.judged:
            identity["battles"] = str(self.data.rules)
        if measure.scored:
            identity["scores"] = f"{SCORE_PROMPT}, seed {self.data.rules.seed}"
        if references := self._references(measure, samples):
            identity["references"] = sample_digest(samples, [references])
        return identity | self._fixed_roles((JUDGE,) if measure.judged or measure.scored else ())

    def _references(self, measure: AnswerMeasure, samples: Sequence[Sample]) -> dict[str, str]:
        """What a case reads of each reference answer, by id: all of it, how many steps, or nothing.

        Where that is battled, also the answer of the data set's own that battles it.
        """
        store = self.data.store

        def digest(sample: Sample) -> str:
            own = refer_to_gold(replace(sample, gold=sample.answer), store)
            refs = [refer_to_gold(sample, store), own]
            return digest_json([None if pieces is None else pieces.digest for pieces in refs])

        if measure.judged and self.suite.table.arena.against == "gold":
            return {s.id: self.data.cached("references", s.id, partial(digest, s)) for s in samples}
        if self.data.plan.steps == "gold" or isinstance(measure, StepGapMeasure):
            return {sample.id: str(len(sample.gold)) for sample in samples}
        return {}
