"""The measuring of the cases of one suite, by the models of its roles."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property

from pytest_cepbench.artifacts import digest_json, digest_text
from pytest_cepbench.chains import ChainModels, ChainPlan, Modality, RoleRunner
from pytest_cepbench.chains.steps import remember
from pytest_cepbench.datasets.sample import Dataset, Sample
from pytest_cepbench.errors import MeasurementError
from pytest_cepbench.gate import Measurement
from pytest_cepbench.models.protocols import BoundRole
from pytest_cepbench.suites.cases import Case
from pytest_cepbench.suites.chain_data import Cell, ChainData
from pytest_cepbench.suites.definition import Suite
from pytest_cepbench.suites.measures import CaseScores, ChainExcerpt, Measure, Measured
from pytest_cepbench.suites.measures.base import (
    GROWERS,
    by_category,
    everyone,
    plans_of,
    population,
    readers_of,
)
from pytest_cepbench.suites.measures.sanity_checks import same_answers
from pytest_cepbench.suites.model_pool import ModelPool, describe_role
from pytest_cepbench.suites.role_assignment import Assignments

_LONGEST_PROMPT_SHOWN = 60

IDENTITY_VERSION = "2"
"""Of the fields by which measurements are comparable; raised when one changes its meaning."""

_TRANSIENT = ("exception", "unanswered")
"""Kinds of failures that say nothing of a model where there is nothing else."""


class SuiteRun:
    """A suite that is measured, by the models of its roles; what was read of its chains is kept."""

    def __init__(
        self,
        suite: Suite,
        dataset: Dataset,
        assignments: Assignments,
        measures: Mapping[str, Measure],
        model_pool: ModelPool,
    ) -> None:
        self.suite = suite
        self.dataset = dataset
        self.assignments = assignments
        self.measures = measures
        self._model_pool = model_pool

    @cached_property
    def chain_data(self) -> ChainData:
        """The chains that the metrics read; models are bound when the first case needs them."""
        describer, generator = (
            self._runner(role) if role in self.assignments.roles else None for role in GROWERS
        )
        models = ChainModels(describer, generator, self._model_pool.store)
        replay = self.assignments.replay
        if replay is not None:
            replay.check((self.dataset.whole or self.dataset).samples)
        return ChainData(self.dataset, self.suite.plans, models, self._runner, replay)

    @property
    def loaded(self) -> bool:
        """True where any of its models is loaded in this process."""
        assigned = self.assignments.roles.values()
        # Models that are not bound yet are not bound here: that would raise their errors too early.
        known = (self._model_pool.runners.get((own.role, own.spec)) for own in assigned)
        return any(runner is not None and runner.loaded for runner in known)

    def looked_at(self, case: Case, most: int | None = None) -> tuple[Sample, ...]:
        """The samples of a case, no more than so many of each of its categories."""
        chain_data = self.chain_data if most is None else self.chain_data.narrowed(most)
        return everyone(by_category(case, chain_data))

    def reach(self, case: Case) -> list[list[object]]:
        """The features that a case reads of each sample's chains, as built-in types."""
        return [
            [required.plan.start, list(required.generations), required.reader]
            for required in self.measures[case.key.metric].required_features(case)
        ]

    def starts(self, cases: Iterable[Case]) -> list[Modality]:
        """The starts of the chains that cases read."""
        plans = (
            plan
            for case in cases
            for plan in plans_of(self.measures[case.key.metric].required_features(case))
        )
        return list(dict.fromkeys(plan.start for plan in plans))

    def steps(self, case: Case) -> int:
        """How many results a case needs of each sample: of growing its chains, and reading them."""
        required = self.measures[case.key.metric].required_features(case)
        read = [len(features.generations) for features in required if features.reader is not None]
        grown = {plan.start: plan.generations for plan in plans_of(required)}
        return sum(read) + sum(grown.values())

    def read(self, case: Case, samples: Sequence[Sample]) -> None:
        """Compute what a case needs of the samples and the store lacks.

        Raises what growing and reading chains raise.
        """
        self.measures[case.key.metric].read(case, samples, self.chain_data)

    def lock_name(self, cell: Cell) -> str:
        """The name of the lock on a shard's chains, the same in all processes of the run."""
        return digest_json([self._chains, *cell])

    @cached_property
    def _chains(self) -> str:
        """Digest of what the chains depend on: plans, models and data set."""
        growers = [self._runner(role).bound for role in GROWERS if role in self.assignments.roles]
        plans = [
            [_chain(p), p.describe, p.generate, str(p.caption_rules)]
            for p in self.suite.plans.values()
        ]
        identities = [remember(bound) for bound in growers] or [self.assignments.subject]
        return digest_json([plans, identities, self.suite.name, dict(self.dataset.identity)])

    def measure(self, case: Case, most: int | None = None) -> Measurement:
        """The value of a case, growing what chains it needs.

        most: samples of each category; all where None.
        Raises DatasetError, CheckpointError, ModelError and StoreError as they come, and
        MeasurementError when every chain failed for a reason outside the model under test.
        """
        measure = self.measures[case.key.metric]
        chain_data = self.chain_data if most is None else self.chain_data.narrowed(most)
        measured = measure.measure(case, chain_data)
        self._refuse_infrastructure(measured.outcomes)
        everyone = population(case, chain_data)
        identity = self._identity(case, measure, everyone) | dict(measured.identity)
        try:
            return self._measurement(case, measure, measured, identity)
        except ValueError as error:
            raise MeasurementError(str(error)) from error

    def per_sample(self, case: Case) -> bool:
        """True if every sample has a score of its own, so that a part of them can be measured."""
        return self.measures[case.key.metric].per_sample

    def samples(self, case: Case) -> int:
        """The number of samples of a case, counted in each of its categories."""
        return sum(self._category_sizes(case))

    def depth(self, case: Case, samples: int) -> int | None:
        """The samples of each category that make so many of the case; None where that is all."""
        sizes = self._category_sizes(case)
        most = bisect_left(range(max(sizes)), samples, key=lambda k: sum(min(n, k) for n in sizes))
        return None if most >= max(sizes) else most

    def _category_sizes(self, case: Case) -> list[int]:
        return [len(self.dataset.in_category(name)) for name in case.categories]

    def _measurement(
        self, case: Case, measure: Measure, measured: Measured, identity: dict[str, str]
    ) -> Measurement:
        return Measurement(
            key=case.key,
            label=case.label,
            higher_is_better=measure.higher_is_better,
            scores=measured.scores,
            sizes=measured.sizes,
            blocks=measured.blocks,
            shares=measured.shares,
            clusters={s.id: s.unit for s in measured.samples if s.unit != s.id},
            identity=identity,
            model=self._model(),
            failures=Counter(o.failure.kind for o in measured.outcomes if o.failure is not None),
            curve=measured.curve,
            notes=(*measured.notes, *self._cut_prompts(case, measure, measured)),
            floor=measured.floor,
            warnings=(*measured.warnings, *self._same_answers(case, measure, measured)),
        )

    def models(self, measurement: Measurement) -> dict[str, BoundRole]:
        """The models that a measurement needed, by the names of their roles."""
        return {name: runner.bound for name, runner in self._needed(measurement).items()}

    def warnings(self, measurement: Measurement) -> list[str]:
        """The warnings of the models that a measurement needed."""
        runners = self._needed(measurement).values()
        return list(dict.fromkeys(warning for runner in runners for warning in runner.warnings))

    def _needed(self, measurement: Measurement) -> dict[str, RoleRunner]:
        gated, roles = self.assignments.gated, self.assignments.roles
        needed = [name for name in roles if name in gated or name in measurement.identity]
        return {name: self._runner(name) for name in needed}

    def show(self, case: Case, sample_id: str) -> ChainExcerpt | None:
        """A sample of a measured case for the reader; None where no single chain has its score."""
        if not self.chain_data.named(sample_id):
            return None
        return self.measures[case.key.metric].show(case, sample_id, self.chain_data)

    def _cut_prompts(self, case: Case, measure: Measure, measured: Measured) -> list[str]:
        plans = plans_of(measure.required_features(case))
        notes = [self.chain_data.cut_prompts(plan, measured.samples) for plan in plans]
        return [note for note in dict.fromkeys(notes) if note]

    def _same_answers(self, case: Case, measure: Measure, measured: Measured) -> list[str]:
        sentences: dict[str, None] = {}
        for plan in plans_of(measure.required_features(case)):
            chains = self.chain_data.chains(plan.start, measured.samples).values()
            sentences |= dict.fromkeys(same_answers(plan, chains))
        return list(sentences)

    def _runner(self, role: str) -> RoleRunner:
        return self._model_pool.runner(self.assignments.roles[role])

    def _refuse_infrastructure(self, outcomes: Sequence[CaseScores]) -> None:
        """Raise MeasurementError where every chain failed, and not only by the model under test."""
        failed = [(o.blamed, o.failure) for o in outcomes if o.failure is not None]
        if len(failed) < len(outcomes) or not failed:
            return
        under_test = GROWERS if self.assignments.replay is not None else self.assignments.gated
        blamed, failure = failed[0]
        if all(why.kind in _TRANSIENT or role not in under_test for role, why in failed):
            assignment = self.assignments.roles.get(blamed or "")
            who = f"{blamed} ({assignment.spec})" if assignment else blamed
            msg = f"all {len(failed)} chains failed at the {who}: {failure.kind}: {failure.detail}"
            raise MeasurementError(msg)

    def _model(self) -> dict[str, str]:
        replay = self.assignments.replay
        if replay is not None:
            return {
                "role": "replay",
                "spec": self.assignments.subject,
                "identity": " ".join(f"{k}={v}" for k, v in sorted(replay.identity.items())),
            }
        bound_roles = [self._runner(role).bound for role in self.assignments.gated]
        steps = [remember(bound) for bound in bound_roles]
        return {
            "role": self.assignments.under_test,
            "spec": self.assignments.subject,
            "identity": " + ".join(describe_role(bound) for bound in bound_roles),
            "step": steps[0] if len(steps) == 1 else f"[{','.join(steps)}]",
        }

    def _identity(self, case: Case, measure: Measure, samples: Sequence[Sample]) -> dict[str, str]:
        """The fields that comparable numbers share, as short texts that a reviewer can read."""
        required = measure.required_features(case)
        plans, readers = plans_of(required), readers_of(required)
        identity = {
            "version": IDENTITY_VERSION,
            "suite": f"{self.suite.name}/{self.suite.table.version}",
            "metric": measure.identity,
            "samples": self._samples(plans, samples),
            "data": " ".join(f"{k}={v}" for k, v in sorted(self.dataset.identity.items())),
            "chain": "; ".join(_chain(plan) for plan in plans),
            "describe prompt": _short(plans[0].describe),
            "generate prompt": _short(plans[0].generate),
            "descriptions": str(plans[0].caption_rules),
            "under test": self.assignments.under_test,
        }
        growers = [role for role in GROWERS if role in self.assignments.roles]
        for name in dict.fromkeys((*growers, *readers)):
            if name not in self.assignments.gated:
                identity[name] = describe_role(self._runner(name).bound)
        return identity

    def _samples(self, plans: Sequence[ChainPlan], samples: Sequence[Sample]) -> str:
        starts = [self.chain_data.starts(plan.start, samples) for plan in plans]
        seeds = [
            [sample.id, *(digests[sample.id] for digests in starts)]
            for sample in sorted(samples, key=lambda sample: sample.id)
        ]
        return f"{len(seeds)} {digest_json(seeds)[:16]}"


def _chain(plan: ChainPlan) -> str:
    return f"{plan.start}-first, {plan.generations} generations, seed {plan.seed}"


def _short(prompt: str) -> str:
    """A prompt as it is, or its beginning and digest when it is long."""
    if len(prompt) <= _LONGEST_PROMPT_SHOWN:
        return prompt
    return f"{prompt[:_LONGEST_PROMPT_SHOWN]}... {digest_text(prompt)[:16]}"
