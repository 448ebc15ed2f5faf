"""fid, gc_fid, kid: how far the images of an iteration, taken together, are from the starts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from pytest_cepbench.artifacts import Failure, digest_json
from pytest_cepbench.chains import ChainPlan, Modality
from pytest_cepbench.datasets.sample import Sample
from pytest_cepbench.errors import MeasurementError, SuiteError, TooFewError
from pytest_cepbench.gate.measurement import SAMPLE
from pytest_cepbench.measures.base import (
    ENCODER,
    INFLUENCE,
    JACKKNIFE,
    CaseScores,
    MeasureBase,
    Measured,
    MetricTable,
    RequiredFeatures,
    SuiteContext,
    block_of_each,
    by_category,
    everyone,
    outcome_of_chain,
    scored_blocks,
    too_few_units,
    unbounded,
)
from pytest_cepbench.measures.cases import Case
from pytest_cepbench.measures.chain_data import ChainData
from pytest_cepbench.measures.chain_similarity import last_iteration
from pytest_cepbench.measures.sanity_checks import one_vector
from pytest_cepbench.metrics.constancy import SAME_VECTORS, spread_of_vectors
from pytest_cepbench.metrics.set_distances import frechet_influences, gc_fid_at_t, kernel_distances
from pytest_cepbench.models.binding import features_name, weights_present

Array = npt.NDArray[np.float64]

_ALL = "all images"

LABELS = {"fid": "FID", "gc_fid": "GC_FID@{T}", "kid": "KID"}
"""Fréchet distance at one iteration (MMGenBench, Eq. 5), its weighted mean over iterations
(GenCeption, Eq. 4), kernel distance at one iteration."""

FEWEST = 2
"""Images that a set must have; one alone has no spread."""


class SetTable(MetricTable, frozen=True, kw_only=True):
    """fid, gc_fid, kid: distance of all artifacts at an iteration from all starts.

    at, start: as in `SimilarityTable`. encoder: a role, or several in order of preference: the
    first whose weights are on this machine is taken, and the metric's label says which.
    """

    at: int | None = None
    encoder: str | list[str] = ENCODER
    start: Modality | None = None


@dataclass(frozen=True)
class _CategoryDistances:
    """The distances of one category.

    steps: one for each iteration that counts.
    outcomes: of every chain.
    """

    steps: tuple[SetStep, ...]
    outcomes: tuple[CaseScores, ...]

    @property
    def distances(self) -> list[float]:
        """One for each step that has any."""
        return [step.whole for step in self.steps if step.whole is not None]

    @property
    def images(self) -> tuple[int, ...]:
        """The number of starts, then of images at each step."""
        return (self.steps[0].images[0], *(step.images[1] for step in self.steps))

    @property
    def why(self) -> str:
        """The reason why there can be no bounds; empty where there is none."""
        return next((step.why for step in self.steps if step.why), "")

    def __str__(self) -> str:
        later = ", ".join(map(str, self.images[1:]))
        return f"{self.images[0]} against {later} (D = {self.steps[0].width})"


@dataclass(frozen=True, kw_only=True)
class SetMeasure(MeasureBase):
    """A distance between sets of images in the features of one encoder; see `Measure`.

    features: names the encoder in the label. Groups and wholes are, by default, the unweighted mean
    of their categories' distances, as in GenCeption's Table 2. Bounds of Frechet distances are made
    of the influence of every sample; those of KID of ten blocks, which are left out in turn: its
    influences erred up to twice as often as stated where a checkpoint had drifted.
    """

    kind: str
    plan: ChainPlan
    at: int
    encoder: str
    features: str
    higher_is_better: bool = False
    per_sample: bool = False
    span: float | None = None

    @property
    def label(self) -> str:
        """The name for people, such as GC_FID@3 [Inception]."""
        return f"{LABELS[self.kind].format(T=self.at)} [{self.features}]"

    @property
    def identity(self) -> str:
        """Formula, iteration, and what bounds are made of."""
        made = JACKKNIFE if self.kind == "kid" else INFLUENCE
        return f"{self.kind}/2 at {self.at}, over {self.pool}, {made}"

    def required_features(self, _: Case | None) -> tuple[RequiredFeatures, ...]:
        """The starts, and the images of the iterations that count."""
        return (RequiredFeatures(self.plan, self._generations, self.encoder, stops_chain=False),)

    def read(self, _: Case, samples: Sequence[Sample], chain_data: ChainData) -> None:
        """The features, which only the store keeps: all of them at once are needed once."""
        chain_data.store_features(self.plan.start, self.encoder, self._generations, samples)

    def measure(self, case: Case, chain_data: ChainData) -> Measured:
        """One distance per category, or one over all samples, and what bounds are made of.

        A chain that stopped has no image to enter the set: the sets shrink, their sizes are part of
        what was measured, and the gate compares no sets of different sizes.
        """
        parts = by_category(case, chain_data)
        distances = {name: self._distances(part, chain_data) for name, part in parts.items()}
        blocks = {name: self._blocks(category) for name, category in distances.items()}
        return Measured(
            scores={
                name: {_ALL: self._value(category.distances)}
                for name, category in distances.items()
            },
            samples=everyone(parts),
            outcomes=[outcome for category in distances.values() for outcome in category.outcomes],
            curve=tuple(
                np.mean([category.distances for category in distances.values()], axis=0).tolist()
            ),
            sizes={name: category.images[0] for name, category in distances.items()},
            blocks={name: scored for name, scored in blocks.items() if scored},
            notes=(
                *(f"images of {name}: {category}" for name, category in distances.items()),
                *(
                    unbounded(name, category.why)
                    for name, category in distances.items()
                    if category.why
                ),
            ),
            identity={
                "sets": "; ".join(f"{name} {category}" for name, category in distances.items())
            },
        )

    def show(self, _: Case, __: str, ___: ChainData) -> None:
        """A distance of sets belongs to no chain."""

    @property
    def _generations(self) -> tuple[int, ...]:
        first = 1 if self.kind == "gc_fid" else self.at
        return (0, *range(2 * first, 2 * self.at + 1, 2))

    def _value(self, distances: Sequence[float]) -> float:
        """The value that the distances at the iterations that count make."""
        return gc_fid_at_t(np.array(distances)) if self.kind == "gc_fid" else distances[-1]

    def _blocks(self, category: _CategoryDistances) -> Mapping[str, float]:
        if category.why:
            return {}
        by_step = [step.parts for step in category.steps]
        whole = self._value(category.distances)
        # A mean over iterations is linear: it makes of influences and of distances the same.
        parts = {name: self._value([step[name] for step in by_step]) for name in by_step[0]}
        if self.kind == "kid":
            return scored_blocks(whole, list(parts.values()))
        # The mean of the scores is the whole, since the parts of all units sum to 0.
        return {f"{SAMPLE}{unit}": whole + part for unit, part in parts.items()}

    def _distances(self, samples: Sequence[Sample], chain_data: ChainData) -> _CategoryDistances:
        """Raises MeasurementError for a set of too few images, counting what stopped the chains."""
        sets = ImageSets(self.plan, self.encoder, samples, chain_data)
        distance = _kernel if self.kind == "kid" else _frechet
        steps = tuple(sets.step(generation, distance) for generation in self._generations[1:])
        failed = {name: why for set_step in steps for name, why in set_step.failed.items()}
        outcomes = set_outcomes(self.plan, self.encoder, samples, failed, chain_data)
        category = _CategoryDistances(steps, outcomes)
        if min(category.images) < FEWEST:
            raise MeasurementError(too_few(self.label, "images", category.images, outcomes))
        return category


def make_sets(kind: str, name: str, table: SetTable, context: SuiteContext) -> SetMeasure:
    """The measure of a table.

    Of several encoders the first is taken that is known and whose weights are on this machine; the
    last one where none is, so that what is missing is named. Raises SuiteError for an iteration
    that the chains do not reach.
    """
    plan = context.plan(name, table.start)
    wanted = [table.encoder] if isinstance(table.encoder, str) else table.encoder
    if not wanted:
        raise SuiteError(f"suite {context.suite!r}, metric {name!r}: encoder = [] names none")
    here = [
        name for name in wanted if name in context.specs and weights_present(context.specs[name])
    ]
    encoder = here[0] if here else wanted[-1]
    return SetMeasure(
        name=name,
        kind=kind,
        plan=plan,
        at=last_iteration(kind, name, table.at, plan, context),
        encoder=encoder,
        features=features_name(context.specs[encoder]) if encoder in context.specs else encoder,
        pool=table.pool or "categories",
        parts=table.parts or "all",
    )


# -- sets of images, and the distances between them ------------------------------------------------


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
        return self.chain_data.once(key, units, lambda: self._measure(generation, distance))

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


def _frechet(
    starts: FeatureRows, images: FeatureRows, units: Sequence[str]
) -> tuple[float, Mapping[str, float]]:
    result = frechet_influences(starts.features, images.features)
    if not units:
        return result.distance, {}
    added = np.zeros(len(units))
    for rows, influences in ((starts, result.x), (images, result.y)):
        added += np.bincount(rows.units, influences / len(influences), len(units))
    return result.distance, dict(zip(units, (len(units) * added).tolist(), strict=True))


def _kernel(
    starts: FeatureRows, images: FeatureRows, units: Sequence[str]
) -> tuple[float, Mapping[str, float]]:
    count = 1 + int(max(starts.blocks.max(), images.blocks.max())) if units else 0
    whole, without = kernel_distances(
        starts.features, images.features, starts.blocks, images.blocks, count
    )
    return whole, {str(block): distance for block, distance in enumerate(without)}
