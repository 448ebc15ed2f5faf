"""The interface of metrics: their settings, cases, features and scores; and shared helpers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from math import isfinite
from typing import Any, Literal

import msgspec

from pytest_cepbench.artifacts import Failure
from pytest_cepbench.chains import Chain, ChainPlan, Modality, Trace
from pytest_cepbench.datasets.sample import Dataset, Sample
from pytest_cepbench.errors import SuiteError
from pytest_cepbench.gate.measurement import Blindness
from pytest_cepbench.gate.policy import GateName, check_alpha, check_tolerance
from pytest_cepbench.measures.cases import Case
from pytest_cepbench.measures.chain_data import ChainData
from pytest_cepbench.metrics.facts import Facts
from pytest_cepbench.models.binding import BoundRole
from pytest_cepbench.models.spec import ModelSpec

ENCODER = "encoder"
"""The role of the encoder that `--encoder` names; further encoders have names of their own."""

JUDGE = "judge"

_HEAVIEST = 100.0
"""The largest weight, and the inverse of the smallest one."""

Pool = Literal["categories", "samples"]

Parts = Literal["all", "overall"]


class MetricTable(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True
):
    """Settings that every metric has; what is left out is the suite's or the metric's own.

    kind: which metric it is; the table's name when left out.
    tolerance, anchor_tolerance, gate: of the metric's cases; the suite's when left out.
    weight: of each of its cases when alpha is divided among the cases of a run, 0.01 to 100.
    pool: whether groups and the whole suite are the unweighted mean of their categories' values
        ("categories") or one value over all their samples, each counted once ("samples").
    parts: whether categories and groups are cases of their own ("all") or only the whole suite.
    """

    kind: str | None = None
    tolerance: float | None = None
    anchor_tolerance: float | None = None
    gate: GateName | None = None
    weight: float | None = None
    pool: Pool | None = None
    parts: Parts | None = None


def number_problems(table: object) -> Iterator[str]:
    """The errors in the numbers of a table of gate settings."""
    checks = {
        "tolerance": check_tolerance,
        "anchor_tolerance": check_tolerance,
        "alpha": check_alpha,
    }
    for name, check in checks.items():
        value = getattr(table, name, None)
        if value is not None:
            try:
                check(value, name)
            except ValueError as error:
                yield str(error)
    weight = getattr(table, "weight", None)
    if weight is not None and not (isfinite(weight) and weight > 0):
        yield f"weight is a number over 0, got {weight}"
    elif weight is not None and not 1 / _HEAVIEST <= weight <= _HEAVIEST:
        yield (
            f"weight {weight:g}: cases of so different weights would leave some without a share of "
            f"alpha, which never fail then; give one from {1 / _HEAVIEST:g} to {_HEAVIEST:g}"
        )


@dataclass(frozen=True)
class CaseScores:
    """The outcome of one chain that a measure read.

    sample: its id.
    failure: what stopped it, if anything.
    blamed: the role whose step that was.
    """

    sample: str
    failure: Failure | None = None
    blamed: str | None = None


@dataclass(frozen=True)
class Measured:
    """The scores of a case, with all that a measurement says of them.

    scores, and anchor_scores of battles: as in `FreshMeasurement`, and of every sample: `SuiteRun`
    takes out those of samples at which a model that measures failed, whatever stands there.
    sizes, blocks, shares, curve, notes, floor, warnings, facts, blind, answers, obstacles,
    anchor_blind, redrawn, judge: as in `CaseMeasurement`.
    samples: those that the numbers come from.
    outcomes: one for every chain that was read, under the id that has its score.
    identity: what else must be equal for the numbers to be comparable, "metric" among it where only
    a part of the measure was at work.
    verdicts: how many of a judge the scores come from.
    at_stake: the most that the battles with such verdicts are worth, of the case's value.
    """

    scores: Mapping[str, Mapping[str, float]]
    samples: Sequence[Sample]
    outcomes: Sequence[CaseScores]
    curve: tuple[float, ...] = ()
    sizes: Mapping[str, int] = field(default_factory=dict)
    blocks: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    shares: bool = False
    notes: tuple[str, ...] = ()
    identity: Mapping[str, str] = field(default_factory=dict)
    floor: float | None = None
    warnings: tuple[str, ...] = ()
    facts: Facts | None = None
    blind: Blindness | None = None
    answers: Mapping[str, str] = field(default_factory=dict)
    anchor_scores: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    obstacles: tuple[str, ...] = ()
    anchor_blind: Blindness | None = None
    redrawn: AbstractSet[tuple[str, str]] = frozenset()
    judge: str = ""
    verdicts: int = 0
    at_stake: float = 0.0


@dataclass(frozen=True)
class ChainExcerpt:
    """A chain for the reader.

    marks: generation -> the number that was measured there.
    failure, failed_at: what stopped it, if that was not growing it.
    remark: what else a reader should know of it.
    """

    chain: Chain
    marks: Mapping[int, float]
    failure: Failure | None = None
    failed_at: int | None = None
    remark: str = ""


@dataclass(frozen=True)
class RequiredFeatures:
    """Artifacts of chains that a case depends on, said before there are any.

    plan: of the chains.
    generations: at which they stand, rising, 0 for the start.
    reader: the role that reads them; None where it counts only how far the chains go.
    query: what that reader is asked about an artifact of a sample, as it enters the step's key.
    stops_chain: whether what cannot be read is the end of its chain.
    cutouts: not the artifacts are read, but what another reader finds in them.
    """

    plan: ChainPlan
    generations: tuple[int, ...]
    reader: str | None
    query: Callable[[Sample, BoundRole], str] = lambda _sample, _reader: ""
    stops_chain: bool = True
    cutouts: bool = False


class MeasureBase(ABC):
    """One metric of a suite, with its settings; it can be made without models or data.

    name: its key under [metrics].
    label: its name for people.
    identity: version and settings that decide its numbers, in one line.
    pool: the way in which categories make a group or the whole.
    parts: which parts of the data are its cases.
    higher_is_better: its direction.
    own_parts: further cases over all samples, such as mappings.
    per_sample: whether every sample has a score of its own, or all have one together.
    span: the distance of its best from its worst value: 2 for cosines, 1 for shares, None where
        there is no limit.
    """

    label: str
    identity: str
    pool: Pool = "categories"
    parts: Parts = "all"
    higher_is_better: bool = True
    own_parts: tuple[str, ...] = ()
    per_sample: bool = True
    span: float | None = 1.0

    def __init__(self, kind: str, name: str, table: MetricTable, context: Any) -> None:
        self.kind = kind
        self.name = name
        self.pool = table.pool or self.pool
        self.parts = table.parts or self.parts

    def check_data(self, samples: Sequence[Sample]) -> None:  # noqa: B027 - most measure any
        """Raise MeasurementError for data that it cannot measure, before a model is asked."""


class Measure(MeasureBase):
    """One metric of chains."""

    @property
    def compares(self) -> Iterable[tuple[Modality, str]]:
        """Starts of chains, and the encoder that compares artifacts of their modality with them."""
        return ()

    @abstractmethod
    def required_features(self, case: Case | None) -> tuple[RequiredFeatures, ...]:
        """All that the scores of a case depend on; those of all its cases where None."""

    @abstractmethod
    def read(self, case: Case, samples: Sequence[Sample], data: ChainData) -> object:
        """Everything that the case needs of these samples; what the store does not hold is made.

        Raises what growing and reading chains raise.
        """

    @abstractmethod
    def measure(self, case: Case, data: ChainData) -> Measured:
        """The scores of a case. Raises MeasurementError where there can be none."""

    @abstractmethod
    def show(self, case: Case, sample_id: str, data: ChainData) -> ChainExcerpt | None:
        """A sample of a case for the reader; None where a score belongs to no single chain."""


def plans_of(required: Iterable[RequiredFeatures]) -> tuple[ChainPlan, ...]:
    """The chains that are read, each once."""
    return tuple(dict.fromkeys(features.plan for features in required))


def plans_read(required: Iterable[RequiredFeatures]) -> dict[Modality, ChainPlan]:
    """The chains that are read, by start, no longer than they are read."""
    plans: dict[Modality, ChainPlan] = {}
    for features in required:
        start, last = features.plan.start, features.generations[-1]
        if start not in plans or plans[start].generations < last:
            plans[start] = replace(features.plan, generations=last)
    return plans


def readers_of(required: Iterable[RequiredFeatures]) -> tuple[str, ...]:
    """The names of the roles (encoders, detector) that read, each once."""
    return tuple(
        dict.fromkeys(features.reader for features in required if features.reader is not None)
    )


Against = Literal["accepted", "gold"]
"""What answers battle: the accepted ones, or the reference answers."""


@dataclass(frozen=True)
class AnswerContext:
    """What a suite of interleaved answers asks its judge, for its measures.

    win_rate: the metric whose accepted answers are battled; empty where none are.
    judged: whether there are battles. scored: whether answers are scored by criteria.
    """

    against: Against
    win_rate: str
    judged: bool
    scored: bool


@dataclass(frozen=True)
class SuiteContext:
    """The chains and models of a suite, for its measures.

    suite: its name.
    plans: of its chains, by start.
    specs: model specs of the roles that have one, by the role's name.
    encoders: by start, the role that the other metrics compare artifacts of its modality with.
    """

    suite: str
    plans: Mapping[Modality, ChainPlan]
    specs: Mapping[str, ModelSpec]
    encoders: dict[Modality, str] = field(default_factory=dict)

    def plan(self, metric: str, start: Modality | None) -> ChainPlan:
        """The chains of a start; where nothing is said and both are played, not those of texts.

        Raises SuiteError where the suite does not play them.
        """
        others: list[Modality] = [own for own in self.plans if own != "text"]
        chosen = start or (others[0] if others else "text")
        if chosen not in self.plans:
            raise self.error(
                metric,
                f"there are no {chosen}-first chains ([chain] start = {' and '.join(self.plans)})",
            )
        return self.plans[chosen]

    def error(self, metric: str, problem: object) -> SuiteError:
        """What is raised for a metric that does not fit its suite."""
        return SuiteError(f"suite {self.suite!r}, metric {metric!r}: {problem}")


def outcome_of(trace: Trace, plan: ChainPlan, reader: str) -> CaseScores:
    """The role whose step stopped a chain: one that grows it, or the one that reads it."""
    if trace.chain.failure is trace.failure:
        return outcome_of_chain(trace.chain, plan)
    return CaseScores(trace.chain.sample.id, trace.failure, reader)


def outcome_of_chain(chain: Chain, plan: ChainPlan) -> CaseScores:
    """The role whose step stopped a chain that was grown."""
    if chain.failure is None or chain.failed_at is None:
        return CaseScores(chain.sample.id)
    return CaseScores(chain.sample.id, chain.failure, plan.role(chain.failed_at))


def by_part(
    parts: Mapping[str, Sequence[Sample]], scores: Mapping[str, float]
) -> dict[str, dict[str, float]]:
    """Scores of samples by the part of the case that pools them."""
    return {name: {s.id: scores[s.id] for s in samples} for name, samples in parts.items()}


def parts_of(
    case: Case, dataset: Dataset
) -> tuple[dict[str, tuple[Sample, ...]], tuple[Sample, ...]]:
    """A case's samples as its scores are pooled, by category or all once under its own name; and
    every one of them once, by id.
    """
    parts = {name: dataset.in_category(name) for name in case.categories}
    by_id = {sample.id: sample for part in parts.values() for sample in part}
    every = tuple(by_id[name] for name in sorted(by_id))
    return parts if case.pool == "categories" else {case.key.part: every}, every


def strata(case: Case, dataset: Dataset) -> dict[str, tuple[str, ...]]:
    """Ids of the samples that a case is about, by category.

    Of a case that counts every sample once, each is in the first of its categories.
    """
    parts, every = parts_of(case, dataset)
    if case.pool == "categories":
        return {name: tuple(sample.id for sample in samples) for name, samples in parts.items()}
    homes: dict[str, list[str]] = {}
    for sample in every:
        homes.setdefault(sample.categories[0], []).append(sample.id)
    return {name: tuple(ids) for name, ids in homes.items()}
