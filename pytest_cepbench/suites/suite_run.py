"""The measuring of the cases of one suite, by the models of its roles: what all suites share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_left
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from math import ceil

from pytest_cepbench.artifacts import digest_json, digest_text
from pytest_cepbench.chains import RoleRunner
from pytest_cepbench.chains.batching import Throughput, load_throughput
from pytest_cepbench.chains.steps import remember
from pytest_cepbench.datasets.sample import Dataset, Sample
from pytest_cepbench.errors import MeasurementError, UnscoredError
from pytest_cepbench.gate import FreshMeasurement, Measurement
from pytest_cepbench.gate.measurement import Scores
from pytest_cepbench.gate.statistics.constants import MOST_UNSCORED
from pytest_cepbench.measures.base import (
    CaseScores,
    MeasureBase,
    Measured,
    parts_of,
    strata,
)
from pytest_cepbench.measures.cases import Case, Cell, SampleData
from pytest_cepbench.metrics.facts import Facts
from pytest_cepbench.models.binding import BoundRole
from pytest_cepbench.models.spec import HUMAN
from pytest_cepbench.suites.definition import Suite
from pytest_cepbench.suites.model_pool import (
    ModelPool,
    describe_role,
)
from pytest_cepbench.suites.role_assignment import Assignments, check_people

_LONGEST_PROMPT_SHOWN = 60

IDENTITY_VERSION = "2"
"""Of the fields by which measurements are comparable; raised when one changes its meaning."""

_TRANSIENT = ("exception", "unanswered")
"""Kinds of failures that say nothing of a model where there is nothing else."""


class CaseMeasurement(FreshMeasurement, frozen=True):
    """A measurement with what reports say of it.

    curve: the mean at each iteration or generation.
    notes: what else a reader should know, a sentence each.
    warnings: what makes the number mean less than it seems to, a sentence each.
    judge: what is known of the judge whose verdicts the scores come from, a sentence; empty where
    there were none.
    facts: what became of the facts of the samples along their chains; None where the metric is not
    about facts.
    """

    curve: tuple[float, ...] = ()
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    judge: str = ""
    facts: Facts | None = None


_CARRIED = {own.name for own in fields(Measured)} & {*CaseMeasurement.__struct_fields__} - {
    "identity",
    "notes",
}
"""Fields that a measurement takes over as they are."""


@dataclass
class ModelSteps:
    """The work of one model: the keys of its steps, with results in the store and without.

    incomplete: whether there are steps that depend on results that are yet to be made.
    """

    runner: RoleRunner
    stored: set[str] = field(default_factory=set)
    missing: set[str] = field(default_factory=set)
    incomplete: bool = False

    @property
    def bound(self) -> BoundRole:
        """The model."""
        return self.runner.bound

    @property
    def inputs(self) -> int:
        """How many it would be given."""
        return len(self.missing)

    @cached_property
    def throughput(self) -> Throughput | None:
        """Of earlier runs on this kind of device; None where it was never measured."""
        return load_throughput(self.bound, self.runner.store)

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
    needs: tuple[ModelSteps, ...]

    @property
    def stored(self) -> int:
        """Steps whose results are in the store."""
        return sum(len(need.stored) for need in self.needs)

    @property
    def steps(self) -> int:
        """All steps, those among them."""
        return self.stored + sum(need.inputs for need in self.needs)


class SuiteRun(ABC):
    """A suite that is measured, by the models of its roles; what was read of it is kept.

    measures: its metrics by name.
    """

    growers: tuple[str, ...] = ()
    """The roles that make what the metrics read; all others read it."""

    unit = "chain"
    """What is made of one sample, for people."""

    def __init__(
        self,
        suite: Suite,
        dataset: Dataset,
        assignments: Assignments,
        measures: Mapping[str, MeasureBase],
        model_pool: ModelPool,
    ) -> None:
        self.suite = suite
        self.dataset = dataset
        self.assignments = assignments
        self.measures = measures
        self._model_pool = model_pool
        self._checked: set[str] = set()  # roles that people may play

    @property
    @abstractmethod
    def data(self) -> SampleData:
        """The samples, with what the metrics read of them."""

    @abstractmethod
    def reads(self, case: Case) -> list[list[object]]:
        """What a case reads of each sample, as built-in types: equal for cases that read alike."""

    @abstractmethod
    def steps(self, case: Case) -> int:
        """How many results a case needs of each sample, as far as that is known before."""

    @abstractmethod
    def read(self, case: Case, samples: Sequence[Sample]) -> None:
        """Compute what a case needs of the samples and the store lacks.

        Raises what the models and the store raise.
        """

    @abstractmethod
    def grow(self, wanted: Sequence[tuple[Case, Sequence[Sample]]]) -> None:
        """Make what cases read of samples, each model working on all of them before the next."""

    @abstractmethod
    def _count_steps(
        self, cases: Sequence[tuple[Case, Sequence[Sample]]]
    ) -> tuple[int, Sequence[ModelSteps]]:
        """How many chains or answers are read of samples, and the steps of each model for that."""

    @abstractmethod
    def _measured(self, case: Case, most: int | None) -> Measured:
        """The scores of a case, with the notes and warnings of measure and suite."""

    @abstractmethod
    def identity(self, case: Case, samples: Sequence[Sample]) -> dict[str, str]:
        """The fields that comparable numbers share, as short texts that a reviewer can read.

        Models that are held fixed are bound. Raises what binding raises.
        """

    @cached_property
    def _made_by(self) -> str:
        """Digest of what the chains or answers depend on: plans, models and data set."""
        plans = [*map(repr, self.suite.plans.values()), repr(self.suite.answer_plan)]
        identities = [*map(remember, self._grown_by())] or [self.assignments.subject]
        return digest_json([plans, identities, self.suite.name, dict(self.dataset.identity)])

    def _grown_by(self) -> list[BoundRole]:
        """The models that make what the metrics read."""
        return [self.runner(role).bound for role in self.growers if role in self.assignments.roles]

    def lock_name(self, cell: Cell) -> str:
        """The name of the lock on a shard, the same in all processes of the run."""
        return digest_json([self._made_by, *cell])

    @property
    def loaded(self) -> bool:
        """True where any of its models is loaded in this process."""
        assigned = self.assignments.roles.values()
        # Models that are not bound yet are not bound here: that would raise their errors too early.
        known = (self._model_pool.runners.get((own.role, own.spec)) for own in assigned)
        return any(runner is not None and runner.loaded for runner in known)

    def forecast(self, cases: Iterable[tuple[Case, int | None]]) -> Forecast:
        """Estimate the measurement of cases, each over so many samples of each category; None: all.

        Raises what binding models and looking at samples raise.
        """
        looked_at = [(case, self.looked_at(case, most)) for case, most in cases]
        units, steps = self._count_steps(looked_at)
        samples = {sample.id for _, own in looked_at for sample in own}
        return Forecast(len(samples), units, tuple(steps))

    def looked_at(self, case: Case, most: int | None = None) -> tuple[Sample, ...]:
        """The samples of a case, no more than so many of each of its categories."""
        return parts_of(case, self.data.narrowed(most).dataset)[1]

    def measure(self, case: Case, most: int | None = None) -> CaseMeasurement:
        """The value of a case, making what it reads where that is missing.

        most: samples of each category; all where None.
        Raises DatasetError, CheckpointError, ModelError and StoreError as they come,
        MeasurementError when every sample failed for a reason outside the model under test, and
        UnscoredError when models that measure failed at more than `MOST_UNSCORED` of the samples.
        """
        measure = self.measures[case.key.metric]
        measured = self._measured(case, most)
        self._refuse_infrastructure(measured.outcomes)
        measured, unscored = self._without_unscored(case, measured)
        dataset = self.data.population
        identity = self.identity(case, parts_of(case, dataset)[1]) | dict(measured.identity)
        try:
            return CaseMeasurement.of(
                key=case.key,
                label=case.label,
                higher_is_better=measure.higher_is_better,
                identity=identity,
                model=self.model_record(),
                clusters={s.id: s.unit for s in measured.samples if s.unit != s.id},
                failures=Counter(
                    o.failure.kind for o in measured.outcomes if o.failure is not None
                ),
                notes=(*self.dataset.notes, *measured.notes),
                strata=strata(case, dataset) if measured.answers else {},
                unscored=unscored,
                ends=(0.0 if (measure.span or 2.0) <= 1.0 else -1.0, 1.0),
                **{name: getattr(measured, name) for name in _CARRIED},
            )
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

    def warnings(self, measurement: Measurement) -> list[str]:
        """The warnings of the models that a measurement needed."""
        runners = self.needed(measurement).values()
        return list(dict.fromkeys(warning for runner in runners for warning in runner.warnings))

    def needed(self, measurement: Measurement) -> dict[str, RoleRunner]:
        """The models that a measurement needed, by the names of their roles."""
        gated, roles = self.assignments.gated, self.assignments.roles
        needed = [name for name in roles if name in gated or name in measurement.identity]
        return {name: self.runner(name) for name in needed}

    def runner(self, role: str) -> RoleRunner:
        """The runner of a role by its name. Raises what binding its model and `check_people` raise.

        People are checked here, and not where the suite is made ready, so that ratings which do not
        fit it fail its own cases, and not those of the other suites of a run.
        """
        assignment = self.assignments.roles[role]
        if assignment.spec.scheme == HUMAN and role not in self._checked:
            check_people(self.suite, assignment)
            self._checked.add(role)
        return self._model_pool.runner(assignment)

    def _refuse_infrastructure(self, outcomes: Sequence[CaseScores]) -> None:
        """Raise MeasurementError where a server left samples without an answer, and where every
        sample failed, and not only by what is under test.
        """
        failed = [(o.blamed, o.failure) for o in outcomes if o.failure is not None]
        roles = self.assignments.roles
        people = {name for name, own in roles.items() if own.spec.scheme == HUMAN}
        # People may leave out what they are asked; a server has to be asked again. What a model
        # that measures left out is counted by `_without_unscored`.
        unanswered = [
            (role, why)
            for role, why in failed
            if why.kind == "unanswered" and self._is_scored(role) and role not in people
        ]
        if 0 < len(unanswered) < len(outcomes):
            role, failure = unanswered[0]
            raise MeasurementError(
                f"{len(unanswered)} of {len(outcomes)} {self.unit}s have no answer of the {role}: "
                f"{failure.detail}. Nothing is stored of them: run again when the server answers, "
                "and it is asked for these alone"
            )
        if len(failed) < len(outcomes) or not failed:
            return
        recorded = self.assignments.replay is not None
        under_test = self.growers if recorded else self.assignments.gated
        blamed, failure = failed[0]
        if all(why.kind in _TRANSIENT or role not in under_test for role, why in failed):
            assignment = roles.get(blamed or "")
            who = f"{blamed} ({assignment.spec})" if assignment else blamed
            if assignment is not None and assignment.role != blamed:
                who = f"{assignment.role} {who}"
            raise MeasurementError(
                f"all {len(failed)} {self.unit}s failed at the {who}: {failure.kind}: "
                f"{failure.detail}"
            )

    def _is_scored(self, role: str | None) -> bool:
        """Whether a failure of a role counts in scores: it grows chains, or is under test."""
        return role in (None, *self.growers, *self.assignments.gated)

    def _without_unscored(
        self, case: Case, measured: Measured
    ) -> tuple[Measured, dict[str, tuple[str, ...]]]:
        """The measured without samples at which a model that measures failed, and these by part.

        What such a model fails at says nothing of the model under test, neither good nor bad. A
        failed step of the model under test, and of what else grows chains, is scored.
        Raises UnscoredError.
        """
        sets = not self.measures[case.key.metric].per_sample
        whole = {sample.id for sample in measured.samples}
        if not sets:
            whole = {name for part in measured.scores.values() for name in part}
        failed = {
            o.sample: o
            for o in measured.outcomes
            if o.failure is not None and not self._is_scored(o.blamed) and o.sample in whole
        }
        if not failed:
            return measured, {}
        who = self._who_failed(failed.values(), len(whole))
        unscored = {
            name: tuple(s for s in part if s in failed) for name, part in measured.scores.items()
        }
        empty = [name for name, part in measured.scores.items() if part.keys() <= failed.keys()]
        many = len(failed) > MOST_UNSCORED * len(whole)
        if many or empty:
            limit = f"at most {MOST_UNSCORED:.0%} of a case may be without a score"
            left = limit if many else f"{empty[0]!r} has no score at all"
            first = next(o.failure for o in failed.values() if o.failure is not None)
            msg = (
                f"{who}, and {left}: {first.kind}: {first.detail}. Mend that model or name "
                "another for its role; what ended in an exception is asked again by the next run"
            )
            raise UnscoredError(msg, len(failed))
        if sets:
            # There is no worst case of a set: it is compared with one without the same samples.
            without = f"{len(failed)} {digest_json(sorted(failed))[:16]}"
            warning = f"{who}: these are left out of the sets"
            identity = {**measured.identity, "unscored": without}
            return replace(measured, identity=identity, warnings=(*measured.warnings, warning)), {}
        warning = f"{who}: these are left out, and the bounds allow for the worst they could score"
        return replace(
            measured,
            scores=_without(measured.scores, failed),
            anchor_scores=_without(measured.anchor_scores, failed),
            warnings=(*measured.warnings, warning),
        ), unscored

    def _who_failed(self, outcomes: Collection[CaseScores], samples: int) -> str:
        """Which models failed at how many samples, by kind."""
        parts = []
        for role in dict.fromkeys(outcome.blamed or "" for outcome in outcomes):
            kinds = Counter(o.failure.kind for o in outcomes if o.blamed == role and o.failure)
            shown = ", ".join(f"{count} {kind}" for kind, count in kinds.most_common())
            assignment = self.assignments.roles.get(role)
            who = role if assignment is None else f"{role} ({assignment.spec})"
            parts.append(f"the {who} failed at {kinds.total()} of {samples} samples ({shown})")
        return " and ".join(parts)

    def model_record(self) -> dict[str, str]:
        """The model under test, as measurements and baselines keep it."""
        replay = self.assignments.replay
        if replay is not None:
            return {
                "role": "replay",
                "spec": self.assignments.subject,
                "identity": " ".join(f"{k}={v}" for k, v in sorted(replay.identity.items())),
            }
        bound_roles = [self.runner(role).bound for role in self.assignments.gated]
        steps = [remember(bound) for bound in bound_roles]
        libraries = {
            f"{name} {version}"
            for bound in [*bound_roles, *self._grown_by()]
            for name, version in bound.provenance.items()
            if name in ("torch", "transformers", "diffusers")
        }
        return {
            "role": self.assignments.under_test,
            "spec": self.assignments.subject,
            "identity": " + ".join(describe_role(bound) for bound in bound_roles),
            "step": steps[0] if len(steps) == 1 else f"[{','.join(steps)}]",
            **({"libraries": ", ".join(sorted(libraries))} if libraries else {}),
        }

    def _shared_identity(
        self, metric: str, samples: Sequence[Sample], starts: Sequence[Mapping[str, str]]
    ) -> dict[str, str]:
        """The fields of every identity. metric: of the measure. starts: as of `sample_digest`."""
        return {
            "version": IDENTITY_VERSION,
            "suite": f"{self.suite.name}/{self.suite.table.version}",
            "metric": metric,
            "samples": sample_digest(samples, starts),
            "data": " ".join(f"{k}={v}" for k, v in sorted(self.dataset.identity.items())),
        }

    def _fixed_roles(self, readers: Sequence[str]) -> dict[str, str]:
        """The models that are held fixed, for the identity. readers: beside those that grow."""
        growers = [role for role in self.growers if role in self.assignments.roles]
        return {
            name: describe_role(self.runner(name).bound, fixed=True)
            for name in dict.fromkeys((*growers, *readers))
            if name not in self.assignments.gated
        }


def _without(scores: Scores, names: Collection[str]) -> dict[str, dict[str, float]]:
    return {
        part: {name: score for name, score in own.items() if name not in names}
        for part, own in scores.items()
    }


def sample_digest(samples: Sequence[Sample], starts: Sequence[Mapping[str, str]]) -> str:
    """How many samples, and a digest of their ids and of what each begins with.

    starts: sample id -> digest, for each kind of start.
    """
    seeds = [
        [sample.id, *(digests[sample.id] for digests in starts)]
        for sample in sorted(samples, key=lambda sample: sample.id)
    ]
    return f"{len(seeds)} {digest_json(seeds)[:16]}"


def short_prompt(prompt: str) -> str:
    """A prompt as it is, or its beginning and digest when it is long."""
    if len(prompt) <= _LONGEST_PROMPT_SHOWN:
        return prompt
    return f"{prompt[:_LONGEST_PROMPT_SHOWN]}... {digest_text(prompt)[:16]}"
