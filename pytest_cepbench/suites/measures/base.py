"""What a metric is to a suite: which cases it has, what it reads, how it turns that into scores."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from pytest_cepbench.artifacts import Failure
from pytest_cepbench.chains import Chain, ChainPlan, Modality, Trace
from pytest_cepbench.datasets.sample import Dataset, Sample
from pytest_cepbench.errors import SuiteError
from pytest_cepbench.models.protocols import BoundRole
from pytest_cepbench.models.spec import ModelSpec
from pytest_cepbench.suites.cases import Case
from pytest_cepbench.suites.chain_data import ChainData
from pytest_cepbench.suites.measures.measure_options import Parts, Pool


@dataclass(frozen=True)
class CaseScores:
    """How one chain that a measure read came out.

    sample: its id. failure: what stopped it, if anything. blamed: the seat whose step that was.
    """

    sample: str
    failure: Failure | None = None
    blamed: str | None = None


@dataclass(frozen=True)
class Measured:
    """What a measure makes of a case.

    scores, sizes, blocks, shares, curve, notes: as in `Measurement`. samples: those that the numbers come from.
    outcomes: one for every chain that was read. identity: what else must be equal for the numbers
    to be comparable, "metric" among it where only a part of the measure was at work. plans, seats: in
    that case, the chains and readers of the part. floor, warnings: as in `Measurement`.
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
    plans: tuple[ChainPlan, ...] | None = None
    seats: tuple[str, ...] | None = None
    floor: float | None = None
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class ChainExcerpt:
    """A chain for the reader.

    marks: generation -> the number that was measured there. failure, failed_at: what stopped it, if
    that was not growing it. remark: what else is to be said of it.
    """

    chain: Chain
    marks: Mapping[int, float]
    failure: Failure | None = None
    failed_at: int | None = None
    remark: str = ""


def _nothing(_: Sample, __: BoundRole) -> str:
    return ""


@dataclass(frozen=True)
class RequiredFeatures:
    """Artifacts of chains that a case depends on, said before there are any.

    plan: of the chains. generations: at which they stand, rising, 0 for the start. seat: who reads
    them; None where it counts only how far the chains go. asks: what that reader is asked about an
    artifact of a sample, as it enters the step's key. ends: whether what cannot be read is the end of
    its chain. inside: not the artifacts are read, but what another reader finds in them.
    """

    plan: ChainPlan
    generations: tuple[int, ...]
    seat: str | None
    asks: Callable[[Sample, BoundRole], str] = _nothing
    ends: bool = True
    inside: bool = False


class Measure(Protocol):
    """One metric of a suite, with its settings.

    Fields are plain, so that a measure can be made without models or data.
    """

    @property
    def name(self) -> str:
        """Its key under [metrics]."""

    @property
    def label(self) -> str:
        """Its name for people."""

    @property
    def higher_is_better(self) -> bool:
        """Its direction."""

    @property
    def identity(self) -> str:
        """Version and settings that decide its numbers, in one line."""

    @property
    def seats(self) -> tuple[str, ...]:
        """The readers (encoders, detector) that it needs."""

    @property
    def plans(self) -> tuple[ChainPlan, ...]:
        """The chains that it reads."""

    @property
    def pool(self) -> Pool:
        """How its categories make a group or the whole."""

    @property
    def parts(self) -> Parts | None:
        """Which parts of the data are its cases; None where only its own are."""

    @property
    def own_parts(self) -> tuple[str, ...]:
        """Further cases over all samples, such as mappings."""

    @property
    def per_sample(self) -> bool:
        """Whether every sample has a score of its own, rather than all of them one together."""

    @property
    def span(self) -> float | None:
        """How far apart its best and its worst value are: 2 for cosines, 1 for shares, None for
        what has no end.
        """

    def readings(self, case: Case) -> tuple[RequiredFeatures, ...]:
        """All that the scores of a case depend on."""

    def read(self, case: Case, samples: Sequence[Sample], evidence: ChainData) -> None:
        """Have everything made that the case needs of these samples and the store does not hold.

        Raises what growing and reading chains raise.
        """

    def measure(self, case: Case, evidence: ChainData) -> Measured:
        """The scores of a case. Raises MeasurementError where there can be none."""

    def show(self, case: Case, sample_id: str, evidence: ChainData, /) -> ChainExcerpt | None:
        """A sample of a case for the reader; None where a score belongs to no single chain."""


@dataclass(frozen=True)
class SuiteContext:
    """What a suite offers its measures. plans: by start. specs: of the readers that are known, by seat."""

    suite: str
    plans: Mapping[Modality, ChainPlan]
    specs: Mapping[str, ModelSpec]

    def plan(self, metric: str, start: Modality | None) -> ChainPlan:
        """The chains of a start, image-first where nothing is said and both are played.

        Raises SuiteError where the suite does not play them.
        """
        chosen = start or ("image" if "image" in self.plans else "text")
        if chosen not in self.plans:
            msg = (
                f"suite {self.suite!r}, metric {metric!r}: there are no {chosen}-first chains "
                f"([chain] start = {' and '.join(self.plans)})"
            )
            raise SuiteError(msg)
        return self.plans[chosen]


def outcome_of(trace: Trace, plan: ChainPlan, seat: str) -> CaseScores:
    """Whose step it was that stopped a chain, growing or reading by the seat."""
    if trace.chain.failure is trace.failure:
        return outcome_of_chain(trace.chain, plan)
    return CaseScores(trace.chain.sample.id, trace.failure, seat)


def outcome_of_chain(chain: Chain, plan: ChainPlan) -> CaseScores:
    """Whose step it was that stopped a chain growing."""
    if chain.failure is None or chain.failed_at is None:
        return CaseScores(chain.sample.id)
    return CaseScores(chain.sample.id, chain.failure, grower(plan, chain.failed_at))


def shown_trace(trace: Trace, generations: Sequence[int]) -> ChainExcerpt:
    """A chain with its similarities."""
    marks = dict(zip(generations, trace.similarities, strict=True))
    return ChainExcerpt(trace.chain, marks, trace.failure, trace.failed_at)


def grower(plan: ChainPlan, generation: int) -> str:
    """The role whose step a generation is."""
    return "describer" if plan.describes(generation) else "generator"


def by_category(case: Case, evidence: ChainData) -> dict[str, tuple[Sample, ...]]:
    """The samples of a case as its scores are pooled: by category, or all once under its own name."""
    return _pooled(case, evidence.dataset)


def population(case: Case, evidence: ChainData) -> tuple[Sample, ...]:
    """All samples that a case is about, also those that are not looked at now."""
    return everyone(_pooled(case, evidence.population))


def _pooled(case: Case, dataset: Dataset) -> dict[str, tuple[Sample, ...]]:
    parts = {name: dataset.in_category(name) for name in case.categories}
    if case.pool == "categories":
        return parts
    return {case.key.part: everyone(parts)}


def everyone(parts: Mapping[str, Sequence[Sample]]) -> tuple[Sample, ...]:
    """Every sample of the parts once, by id."""
    found = {sample.id: sample for part in parts.values() for sample in part}
    return tuple(found[name] for name in sorted(found))
