"""A suite that was measured for the checks, its models, and which encoder compares what."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import ceil, isfinite

import numpy as np
import numpy.typing as npt

from pytest_cepbench.artifacts import Failure
from pytest_cepbench.chains import ChainPlan, Modality, RoleRunner, Step
from pytest_cepbench.datasets.sample import Dataset, Sample
from pytest_cepbench.gate import Policy
from pytest_cepbench.store import Store
from pytest_cepbench.studies.calibration import Calibrated
from pytest_cepbench.studies.doctor.diagnosis import Status
from pytest_cepbench.suites import Case, ModelPool, SuiteRun
from pytest_cepbench.suites.measures.chain_similarity import SimilarityMeasure
from pytest_cepbench.suites.measures.mapping_drift import MappingMeasure

Vectors = npt.NDArray[np.float64]

Finding = tuple[Status, str, str]
"""Status, what was found, advice (empty where there is none)."""

STARTS = 24
"""About how many starts are distorted, or drawn from."""


@dataclass(frozen=True)
class Comparison:
    """An encoder that compares artifacts with starts.

    plan: of the chains.
    encoder: name of its role.
    generations: those that are compared with the start.
    policy: of the case that looks for the smallest drop.
    visible: the smallest drop that any of its cases sees; None where that is not known.
    """

    plan: ChainPlan
    encoder: str
    generations: tuple[int, ...]
    policy: Policy
    visible: float | None

    @property
    def kind(self) -> Modality:
        """The modality of the starts."""
        return self.plan.start

    @property
    def modalities(self) -> frozenset[Modality]:
        """The modalities that the encoder reads."""
        return frozenset(self.plan.modality(g) for g in (0, *self.generations))


@dataclass(frozen=True)
class MeasuredSuite:
    """A suite as it is set up, measured once under its own seed.

    run: the measuring.
    cases: its cases.
    found: the calibration of each case.
    model_pool: its models.
    second_store: an empty store, for inputs that a model is given a second time.
    """

    run: SuiteRun
    cases: tuple[Case, ...]
    found: tuple[Calibrated, ...]
    model_pool: ModelPool
    second_store: Store

    @property
    def dataset(self) -> Dataset:
        """Its samples."""
        return self.run.dataset

    def runner(self, role: str) -> RoleRunner:
        """The runner of a role, by its name."""
        return self.model_pool.runner(self.run.assignments.roles[role])

    def second(self, role: str) -> RoleRunner:
        """The same model, which is called even where the store has the result."""
        runner = self.runner(role)
        return RoleRunner(runner.bound, self.second_store, runner.holding, tally=runner.tally)

    def comparisons(self) -> list[Comparison]:
        """One for each start and encoder that a similarity of the suite needs."""
        grouped: dict[
            tuple[Modality, str], list[tuple[ChainPlan, tuple[int, ...], Calibrated]]
        ] = {}
        for case, calibrated in zip(self.cases, self.found, strict=True):
            measure = self.run.measures[case.key.metric]
            if not isinstance(measure, SimilarityMeasure | MappingMeasure):
                continue
            if isinstance(measure, MappingMeasure) and measure.rates:
                continue
            for required in measure.required_features(case):
                if required.reader is not None:
                    grouped.setdefault((required.plan.start, required.reader), []).append(
                        (required.plan, required.generations[1:], calibrated)
                    )
        return [_comparison(role, uses) for (_, role), uses in grouped.items()]

    def chosen(self, start: Modality, most: int) -> tuple[Sample, ...]:
        """About so many samples, the same in every run, from all categories alike.

        Further seeds of a sample start where it does, and are left out.
        """
        depth = max(1, ceil(most / len(self.dataset.categories)))
        samples = self.dataset.limited(depth).samples
        return tuple(sample for sample in samples if sample.replicate == 0 and _has(sample, start))


def _comparison(
    role: str, uses: Sequence[tuple[ChainPlan, tuple[int, ...], Calibrated]]
) -> Comparison:
    policy = min(
        (calibrated.policy for *_, calibrated in uses), key=lambda policy: policy.tolerance
    )
    known = [calibrated.reach.visible for *_, calibrated in uses if calibrated.reach is not None]
    seen = [visible for visible in known if isfinite(visible)]
    generations = sorted({g for _, own, _ in uses for g in own})
    return Comparison(uses[0][0], role, tuple(generations), policy, min(seen, default=None))


def _has(sample: Sample, start: Modality) -> bool:
    return (sample.image if start == "image" else sample.text) is not None


def encode(
    runner: RoleRunner, kind: Modality, inputs: Sequence[tuple[str, object]]
) -> list[Vectors | None]:
    """The vector of each artifact, unit length; None for one that the encoder cannot read.

    inputs: (digest, what the role takes), so that equal ones are asked once, and what the store
    knows is not asked at all.
    Raises what encoding raises.
    """
    steps = [
        Step(runner.key("", 0, kind, digest), 0, _constant(artifact)) for digest, artifact in inputs
    ]
    return [_unit(result) for result in runner.encode(kind, steps)]


def _constant(artifact: object) -> Callable[[], object]:
    return lambda: artifact


def _unit(result: object) -> Vectors | None:
    if isinstance(result, Failure):
        return None
    vector = np.asarray(result, dtype=np.float64)
    return vector / np.linalg.norm(vector)


def distance_of(vector: Vectors, other: Vectors) -> float:
    """1 - the cosine of two vectors of unit length; at least 0 in spite of rounding."""
    return max(0.0, 1.0 - float(vector @ other))


def cosines_apart(vectors: Vectors, digests: Sequence[str]) -> Iterator[float]:
    """Similarities of each two of different artifacts. vectors: (n, d), unit length."""
    similar = vectors @ vectors.T
    for i in range(len(digests)):
        for j in range(i):
            if digests[i] != digests[j]:
                yield float(similar[i, j])
