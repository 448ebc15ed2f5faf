"""fid, gc_fid, kid, diversity: how far artifacts taken together are from the starts, or apart."""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, NoReturn

import numpy as np
import numpy.typing as npt

from pytest_cepbench.artifacts import Failure, digest_json
from pytest_cepbench.chains import ChainPlan, Modality
from pytest_cepbench.datasets.sample import Sample
from pytest_cepbench.errors import MeasurementError, TooFewError
from pytest_cepbench.gate.measurement import SAMPLE
from pytest_cepbench.measures.base import (
    ENCODER,
    INFLUENCE,
    JACKKNIFE,
    CaseScores,
    Measure,
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
    with_encoder,
)
from pytest_cepbench.measures.cases import Case
from pytest_cepbench.measures.chain_data import ChainData
from pytest_cepbench.measures.chain_similarity import SimilarityTable, last_iteration, one_vector
from pytest_cepbench.metrics.constancy import SAME_VECTORS, spread_of_directions, spread_of_vectors
from pytest_cepbench.metrics.diversity import vendi_scores
from pytest_cepbench.metrics.set_distances import frechet_influences, gc_fid_at_t, kernel_distances
from pytest_cepbench.models.binding import features_name, weights_present

FEWEST = 2
"""Images that a set must have; one alone has no spread."""


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
    whole: the distance, 0 where a set has too few images.
    parts: what bounds are made of, empty where `why` gives the reason: by unit what it adds to the
    distance, times the number of units, or by block the distance of the rest without it.
    failed: as in `FeatureRows`, of both.
    """

    images: tuple[int, int]
    width: int
    whole: float
    parts: Mapping[str, float]
    why: str
    failed: dict[str, Failure]


Distance = Callable[[FeatureRows, FeatureRows, Sequence[str]], tuple[float, Mapping[str, float]]]
"""Starts, images, names of units (empty where there are too few) -> the distance and its parts.

Raises TooFewError where nothing is left without a part."""


@dataclass(frozen=True)
class ImageSets:
    """Sets of images that some samples' chains have at each generation, as an encoder sees them.

    encoder: its role. Blocks leave out a sample's start and all of its images together.
    """

    plan: ChainPlan
    encoder: str
    samples: Sequence[Sample]
    chain_data: ChainData

    def step(self, generation: int, distance: Distance) -> SetStep:
        """The images of a generation against the starts, kept for every metric that needs them."""
        key = (distance, self.plan.start, self.encoder, generation)
        units = digest_json([[sample.id, sample.unit] for sample in self.samples])
        return self.chain_data.cached(key, units, lambda: self._measure(generation, distance))

    def _measure(self, generation: int, distance: Distance) -> SetStep:
        starts, images = self._starts, self.rows(generation)
        sizes = (len(starts.features), len(images.features))
        failed = starts.failed | images.failed
        width = starts.features.shape[1]
        if min(sizes) < FEWEST:
            return SetStep(sizes, width, 0.0, {}, "", failed)
        if starts.different >= FEWEST and spread_of_vectors(starts.features) <= SAME_VECTORS:
            both = np.concatenate([starts.features[:1], images.features])
            if spread_of_vectors(both) <= SAME_VECTORS:  # no distance sees what differs
                self.refuse(max(starts.different, images.different), "image")
        units = list(self._unit_numbers) if self.block_of_each else []
        why = "" if units else too_few_units(self.samples)
        try:
            whole, parts = distance(starts, images, units)
        except TooFewError as error:
            why = str(error)
            whole, parts = distance(starts, images, [])
        return SetStep(sizes, width, whole, parts, why, failed)

    def refuse(self, count: int, kind: str) -> NoReturn:
        """Raise MeasurementError: the encoder gives one vector for so many that differ."""
        raise MeasurementError(
            one_vector(self.chain_data.runner(self.encoder).bound.spec, count, kind)
        )

    @cached_property
    def block_of_each(self) -> dict[str, int]:
        """As of `block_of_each`."""
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
                    blocks.append(self.block_of_each.get(chain.sample.id, 0))
            if able:
                features.append(np.stack(able))
        rows = np.concatenate(features) if features else np.empty((0, 1), dtype=np.float32)
        in_units, in_blocks = (np.array(own, dtype=np.intp) for own in (units, blocks))
        return FeatureRows(rows, in_units, in_blocks, failed, len(digests))


@dataclass(frozen=True)
class CategorySets:
    """What was measured of the sets of one category.

    value: its score.
    curve: the number of each iteration that counts.
    blocks: what bounds are made of; empty where `why` gives the reason.
    sizes: how many starts, and how many artifacts of each iteration.
    sets: the sizes, in words.
    note: what a reader should know of them.
    failed: sample -> the encoder's failure.
    """

    value: float
    curve: Sequence[float]
    blocks: Mapping[str, float]
    why: str
    sizes: Sequence[int]
    sets: str
    note: str
    failed: Mapping[str, Failure]


@dataclass(frozen=True, kw_only=True)
class SetsMeasure(Measure):
    """A number of what many chains have become together, in the features of one encoder.

    A chain that stopped has no artifact in a set: the sets shrink, their sizes are part of what was
    measured, and the gate compares no sets of different sizes.
    generations: the start, and the iterations that count.
    """

    plan: ChainPlan
    generations: tuple[int, ...]
    encoder: str
    per_sample: bool = False
    span: float | None = None

    what: ClassVar[str] = "images"
    """What sets are of; a score has the name of all of them in the place of a sample's id."""

    @abstractmethod
    def _measure_category(self, name: str, sets: ImageSets) -> CategorySets:
        """Raises MeasurementError for an encoder that cannot see."""

    def required_features(self, case: Case | None) -> tuple[RequiredFeatures, ...]:
        """The starts, and the artifacts of the iterations that count."""
        return (RequiredFeatures(self.plan, self.generations, self.encoder, stops_chain=False),)

    def read(self, case: Case, samples: Sequence[Sample], chain_data: ChainData) -> None:
        """The features, which only the store keeps: all of them at once are needed once."""
        chain_data.store_features(self.plan.start, self.encoder, self.generations, samples)

    def measure(self, case: Case, chain_data: ChainData) -> Measured:
        """One number per category, or one over all samples, and what bounds are made of.

        Raises MeasurementError for too few artifacts, and for an encoder that cannot see.
        """
        parts = by_category(case, chain_data)
        found: dict[str, CategorySets] = {}
        outcomes: list[CaseScores] = []
        for name, samples in parts.items():
            own = self._measure_category(
                name, ImageSets(self.plan, self.encoder, samples, chain_data)
            )
            ended = [
                outcome_of_chain(chain, self.plan)
                if chain.failure is not None or sample not in own.failed
                else CaseScores(sample, own.failed[sample], self.encoder)
                for sample, chain in chain_data.chains(self.plan.start, samples).items()
            ]
            if min(own.sizes) < FEWEST:
                stopped = Counter(o.failure.kind for o in ended if o.failure is not None)
                raise MeasurementError(
                    f"{self.label} needs at least {FEWEST} {self.what} in every set, and there are "
                    f"{', '.join(map(str, own.sizes))}"
                    + (f" (chains that stopped: {dict(stopped)})" if stopped else "")
                )
            found[name] = own
            outcomes += ended
        return Measured(
            scores={name: {f"all {self.what}": own.value} for name, own in found.items()},
            samples=everyone(parts),
            outcomes=outcomes,
            curve=tuple(np.mean([own.curve for own in found.values()], axis=0).tolist()),
            sizes={name: own.sizes[0] for name, own in found.items()},
            blocks={name: own.blocks for name, own in found.items() if own.blocks},
            notes=(
                *(own.note for own in found.values()),
                *(unbounded(name, own.why) for name, own in found.items() if own.why),
            ),
            identity={"sets": "; ".join(f"{name} {own.sets}" for name, own in found.items())},
        )

    def show(self, case: Case, sample_id: str, chain_data: ChainData) -> None:
        """A number of sets belongs to no chain."""


LABELS = {"fid": "FID", "gc_fid": "GC_FID@{T}", "kid": "KID"}
"""Fréchet distance at one iteration (MMGenBench, Eq. 5), its weighted mean over iterations
(GenCeption, Eq. 4), kernel distance at one iteration."""


class SetTable(MetricTable, frozen=True, kw_only=True):
    """fid, gc_fid, kid: distance of all artifacts at an iteration from all starts.

    at, start: as in `SimilarityTable`. encoder: a role, or several in order of preference: the
    first whose weights are on this machine is taken, and the metric's label says which.
    """

    at: int | None = None
    encoder: str | list[str] = ENCODER
    start: Modality | None = None


@dataclass(frozen=True, kw_only=True)
class DistanceMeasure(SetsMeasure):
    """A distance between sets of images in the features of one encoder.

    Groups and wholes are, by default, the unweighted mean of their categories' distances, as in
    GenCeption's Table 2. Bounds of Frechet distances are made of the influence of every sample;
    those of KID of ten blocks, which are left out in turn: its influences erred up to twice as
    often as stated where a checkpoint had drifted.
    """

    kind: str
    higher_is_better: bool = False

    def _value(self, distances: Sequence[float]) -> float:
        """The value that the distances at the iterations that count make."""
        return gc_fid_at_t(np.array(distances)) if self.kind == "gc_fid" else distances[-1]

    def _measure_category(self, name: str, sets: ImageSets) -> CategorySets:
        distance = _kernel if self.kind == "kid" else _frechet
        steps = [sets.step(generation, distance) for generation in self.generations[1:]]
        distances = [step.whole for step in steps]
        whole, why = self._value(distances), next((step.why for step in steps if step.why), "")
        sizes = [steps[0].images[0], *(step.images[1] for step in steps)]
        blocks: Mapping[str, float] = {}
        if not why and min(sizes) >= FEWEST:
            # A mean over iterations is linear: it makes of influences and of distances the same.
            values = {n: self._value([step.parts[n] for step in steps]) for n in steps[0].parts}
            if self.kind == "kid":
                blocks = scored_blocks(whole, list(values.values()))
            else:  # the mean of the scores is the whole, since the parts of all units sum to 0
                blocks = {f"{SAMPLE}{unit}": whole + value for unit, value in values.items()}
        shown = f"{sizes[0]} against {', '.join(map(str, sizes[1:]))} (D = {steps[0].width})"
        failed = {sample: own for step in steps for sample, own in step.failed.items()}
        note = f"images of {name}: {shown}"
        return CategorySets(whole, distances, blocks, why, sizes, shown, note, failed)


def make_sets(kind: str, name: str, table: SetTable, context: SuiteContext) -> DistanceMeasure:
    """The measure of a table.

    Of several encoders the first is taken that is known and whose weights are on this machine; the
    last one where none is, so that what is missing is named. Raises SuiteError for an iteration
    that the chains do not reach.
    """
    plan = context.plan(name, table.start)
    wanted = [table.encoder] if isinstance(table.encoder, str) else table.encoder
    if not wanted:
        raise context.error(name, "encoder = [] names none")
    here = [
        name for name in wanted if name in context.specs and weights_present(context.specs[name])
    ]
    encoder = here[0] if here else wanted[-1]
    features = features_name(context.specs[encoder]) if encoder in context.specs else encoder
    at = last_iteration(kind, name, table.at, plan, context)
    made = JACKKNIFE if kind == "kid" else INFLUENCE
    shared = table.shared(name)
    return DistanceMeasure(
        **shared,
        label=f"{LABELS[kind].format(T=at)} [{features}]",
        identity=f"{kind}/2 at {at}, over {shared['pool']}, {made}",
        kind=kind,
        plan=plan,
        generations=(0, *range(2 if kind == "gc_fid" else 2 * at, 2 * at + 1, 2)),
        encoder=encoder,
    )


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


class DiversityTable(SimilarityTable, frozen=True, kw_only=True):
    """diversity: how different the artifacts of an iteration are from each other."""


@dataclass(frozen=True, kw_only=True)
class DiversityMeasure(SetsMeasure):
    """The effective number of different artifacts that different starts became."""

    what: ClassVar[str] = "artifacts"

    def _measure_category(self, name: str, sets: ImageSets) -> CategorySets:
        blocks = sets.block_of_each
        values: list[float] = []
        sizes: list[int] = []
        without: list[float] = []
        why = "" if blocks else too_few_units(sets.samples)
        failed: dict[str, Failure] = {}
        for generation in self.generations:
            rows = sets.rows(generation)
            failed.update(rows.failed)
            sizes.append(len(rows.features))
            if sizes[-1] < FEWEST:
                return CategorySets(0.0, (), {}, why, sizes, "", "", failed)
            # Of the starts alone: artifacts that have become one are what this measures.
            if (
                generation == 0
                and rows.different >= FEWEST
                and spread_of_directions(rows.features) <= SAME_VECTORS
            ):
                sets.refuse(rows.different, self.plan.start)
            count = max(blocks.values()) + 1 if blocks and generation == self.generations[-1] else 0
            try:
                value, without = vendi_scores(rows.features, rows.blocks, count)
            except TooFewError as error:
                why = str(error)
                value, without = vendi_scores(rows.features, rows.blocks, 0)
            values.append(value)
        later = ", ".join(map(str, sizes[1:]))
        shown = f"{sizes[0]}, then {later} (D = {rows.features.shape[1]})"
        after = ", ".join(f"{value:.4g}" for value in values[1:])
        each = "each iteration" if len(values) > 2 else "the iteration"
        note = f"{name}: {values[0]:.4g} among the starts, {after} after {each}; sets of {shown}"
        parts = scored_blocks(values[-1], without)
        return CategorySets(values[-1], values[1:], parts, why, sizes, shown, note, failed)


def make_diversity(
    kind: str, name: str, table: DiversityTable, context: SuiteContext
) -> DiversityMeasure:
    """The measure of a table.

    Raises SuiteError for an iteration that the chains do not reach.
    """
    plan = context.plan(name, table.start)
    at = last_iteration(kind, name, table.at, plan, context)
    shared = table.shared(name, "samples", "overall")
    return DiversityMeasure(
        **shared,
        label=with_encoder(f"Vendi({at})", table.encoder),
        identity=f"diversity/1 vendi at {at}, over {shared['pool']}, {JACKKNIFE}",
        plan=plan,
        generations=tuple(range(0, 2 * at + 1, 2)),
        encoder=table.encoder,
    )
