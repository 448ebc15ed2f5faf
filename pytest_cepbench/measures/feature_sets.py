"""Sets of artifacts that chains have become, as an encoder sees them."""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from pytest_cepbench.artifacts import Failure, digest_json
from pytest_cepbench.chains import ChainPlan
from pytest_cepbench.datasets.sample import Sample
from pytest_cepbench.errors import MeasurementError, TooFewError
from pytest_cepbench.measures.base import (
    CaseScores,
    Measure,
    Measured,
    RequiredFeatures,
    block_of_each,
    by_category,
    everyone,
    outcome_of_chain,
    too_few_units,
    unbounded,
)
from pytest_cepbench.measures.cases import Case
from pytest_cepbench.measures.chain_data import ChainData
from pytest_cepbench.measures.sanity_checks import one_vector
from pytest_cepbench.metrics.constancy import SAME_VECTORS, spread_of_vectors

FEWEST = 2
"""Images that a set must have; one alone has no spread."""


@dataclass(frozen=True)
class CategorySets:
    """What was measured of the sets of one category.

    value: its score.
    curve: the number of each iteration that counts.
    blocks: what bounds are made of; empty where `why` gives the reason.
    sets: how large they are, in words.
    note: what a reader should know of them.
    starts: how many there are.
    """

    value: float
    curve: tuple[float, ...]
    blocks: Mapping[str, float]
    why: str
    sets: str
    note: str
    starts: int
    outcomes: tuple[CaseScores, ...]


@dataclass(frozen=True, kw_only=True)
class SetsMeasure(Measure):
    """A number of what many chains have become together, in the features of one encoder.

    A chain that stopped has no artifact in a set: the sets shrink, their sizes are part of what was
    measured, and the gate compares no sets of different sizes.
    """

    plan: ChainPlan
    at: int
    encoder: str
    per_sample: bool = False

    together: ClassVar[str] = "all images"
    """What a score is of, in the place of a sample's id."""

    @property
    @abstractmethod
    def generations(self) -> tuple[int, ...]:
        """The start, and the iterations that count."""

    @abstractmethod
    def _measure_category(
        self, name: str, samples: Sequence[Sample], chain_data: ChainData
    ) -> CategorySets:
        """Raises MeasurementError for too few artifacts, and for an encoder that cannot see."""

    def required_features(self, case: Case | None) -> tuple[RequiredFeatures, ...]:
        """The starts, and the artifacts of the iterations that count."""
        return (RequiredFeatures(self.plan, self.generations, self.encoder, stops_chain=False),)

    def read(self, case: Case, samples: Sequence[Sample], chain_data: ChainData) -> None:
        """The features, which only the store keeps: all of them at once are needed once."""
        chain_data.store_features(self.plan.start, self.encoder, self.generations, samples)

    def measure(self, case: Case, chain_data: ChainData) -> Measured:
        """One number per category, or one over all samples, and what bounds are made of."""
        parts = by_category(case, chain_data)
        found = {
            name: self._measure_category(name, part, chain_data) for name, part in parts.items()
        }
        return Measured(
            scores={name: {self.together: own.value} for name, own in found.items()},
            samples=everyone(parts),
            outcomes=[outcome for own in found.values() for outcome in own.outcomes],
            curve=tuple(np.mean([own.curve for own in found.values()], axis=0).tolist()),
            sizes={name: own.starts for name, own in found.items()},
            blocks={name: own.blocks for name, own in found.items() if own.blocks},
            notes=(
                *(own.note for own in found.values()),
                *(unbounded(name, own.why) for name, own in found.items() if own.why),
            ),
            identity={"sets": "; ".join(f"{name} {own.sets}" for name, own in found.items())},
        )

    def show(self, case: Case, sample_id: str, chain_data: ChainData) -> None:
        """A number of sets belongs to no chain."""


def set_outcomes(
    plan: ChainPlan,
    encoder: str,
    samples: Sequence[Sample],
    failed: Mapping[str, Failure],
    chain_data: ChainData,
) -> tuple[CaseScores, ...]:
    """What became of every chain whose artifacts make sets. failed: the encoder's, by sample."""
    return tuple(
        outcome_of_chain(chain, plan)
        if chain.failure is not None or name not in failed
        else CaseScores(name, failed[name], encoder)
        for name, chain in chain_data.chains(plan.start, samples).items()
    )


def too_few(label: str, what: str, sizes: Sequence[int], outcomes: Sequence[CaseScores]) -> str:
    """Says that a set is too small, and what stopped the chains. what: it is of."""
    stopped = Counter(o.failure.kind for o in outcomes if o.failure is not None)
    return (
        f"{label} needs at least {FEWEST} {what} in every set, and there are "
        f"{', '.join(map(str, sizes))}"
        + (f" (chains that stopped: {dict(stopped)})" if stopped else "")
    )


@dataclass(frozen=True)
class FeatureRows:
    """Features of all images at a generation, in an order that depends on the samples alone.

    features: (n, D) float32.
    units: (n,) which independent sample each belongs to, numbered in the order of their names.
    blocks: (n,) the block of each.
    failed: sample -> why it has none, where that was the encoder's failure.
    different: how many different images they are of.
    """

    features: npt.NDArray[np.float32]
    units: npt.NDArray[np.intp]
    blocks: npt.NDArray[np.intp]
    failed: dict[str, Failure]
    different: int


@dataclass(frozen=True)
class SetStep:
    """The images of one generation against the starts.

    images: how many starts, how many images.
    width: D.
    whole: the distance, None where a set has too few images.
    parts: what bounds are made of, empty where `why` gives the reason: by unit what it adds to the
    distance, times the number of units, or by block the distance of the rest without it.
    failed: as in `FeatureRows`, of both.
    """

    images: tuple[int, int]
    width: int
    whole: float | None
    parts: Mapping[str, float]
    why: str
    failed: dict[str, Failure]


Distance = Callable[[FeatureRows, FeatureRows, Sequence[str]], tuple[float, Mapping[str, float]]]
"""Starts, images, names of units (empty where there are too few) -> the distance and its parts.

Raises TooFewError where nothing is left without a part."""


@dataclass(frozen=True)
class ImageSets:
    """Sets of images that some samples' chains have at each generation, as an encoder sees them.

    encoder: its role. Blocks leave out a sample's start and all of its images together. The
    distances of a generation are kept in the chain data, for every metric that needs them.
    """

    plan: ChainPlan
    encoder: str
    samples: Sequence[Sample]
    chain_data: ChainData

    def step(self, generation: int, distance: Distance) -> SetStep:
        """The images of a generation against the starts."""
        key = (distance, self.plan.start, self.encoder, generation)
        units = digest_json([[sample.id, sample.unit] for sample in self.samples])
        return self.chain_data.cached(key, units, lambda: self._measure(generation, distance))

    def _measure(self, generation: int, distance: Distance) -> SetStep:
        starts, images = self._starts, self.rows(generation)
        sizes = (len(starts.features), len(images.features))
        failed = starts.failed | images.failed
        width = starts.features.shape[1]
        if min(sizes) < FEWEST:
            return SetStep(sizes, width, None, {}, "", failed)
        self._refuse_one_vector(starts, images)
        units = list(self._unit_numbers) if self._block_of_each else []
        why = "" if units else too_few_units(self.samples)
        try:
            whole, parts = distance(starts, images, units)
        except TooFewError as error:
            why = str(error)
            whole, parts = distance(starts, images, [])
        return SetStep(sizes, width, whole, parts, why, failed)

    def _refuse_one_vector(self, starts: FeatureRows, images: FeatureRows) -> None:
        """Raise MeasurementError if images that differ have one vector: no distance sees them."""
        if starts.different < FEWEST or spread_of_vectors(starts.features) > SAME_VECTORS:
            return
        both = np.concatenate([starts.features[:1], images.features])
        if spread_of_vectors(both) <= SAME_VECTORS:
            count = max(starts.different, images.different)
            spec = self.chain_data.runner(self.encoder).bound.spec
            raise MeasurementError(one_vector(spec, count, "image"))

    @cached_property
    def _block_of_each(self) -> dict[str, int]:
        return block_of_each(self.samples)

    @cached_property
    def _unit_numbers(self) -> dict[str, int]:
        return {unit: n for n, unit in enumerate(sorted({s.unit for s in self.samples}))}

    @cached_property
    def _starts(self) -> FeatureRows:
        return self.rows(0)

    def rows(self, generation: int) -> FeatureRows:
        """The features of a generation."""
        features: list[npt.NDArray[np.float32]] = []
        units: list[int] = []
        blocks: list[int] = []
        failed: dict[str, Failure] = {}
        digests: set[str] = set()
        shards = self.chain_data.features(self.plan.start, self.encoder, generation, self.samples)
        for shard in shards:
            able = []
            for chain, vector in shard:
                if isinstance(vector, Failure):
                    failed[chain.sample.id] = vector
                else:
                    able.append(vector)
                    digests.add(chain.links[generation].digest)
                    units.append(self._unit_numbers[chain.sample.unit])
                    blocks.append(self._block_of_each.get(chain.sample.id, 0))
            if able:
                features.append(np.stack(able))
        rows = np.concatenate(features) if features else np.empty((0, 1), dtype=np.float32)
        in_units, in_blocks = (np.array(own, dtype=np.intp) for own in (units, blocks))
        return FeatureRows(rows, in_units, in_blocks, failed, len(digests))
