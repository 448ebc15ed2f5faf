"""fid, gc_fid, kid, diversity: how far artifacts taken together are from the starts, or apart."""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NoReturn

import numpy as np
import numpy.typing as npt

from pytest_cepbench.artifacts import Failure, digest_json
from pytest_cepbench.chains import ChainPlan, Modality
from pytest_cepbench.datasets.sample import Sample
from pytest_cepbench.errors import MeasurementError, TooFewError
from pytest_cepbench.gate.measurement import SAMPLE
from pytest_cepbench.measures.base import (
    ENCODER,
    CaseScores,
    Measure,
    Measured,
    MetricTable,
    RequiredFeatures,
    SuiteContext,
    outcome_of_chain,
    parts_of,
)
from pytest_cepbench.measures.blindness import one_vector
from pytest_cepbench.measures.cases import Case
from pytest_cepbench.measures.chain_data import ChainData
from pytest_cepbench.measures.chain_similarity import SimilarityTable, last_iteration, with_encoder
from pytest_cepbench.metrics.diversity import (
    SAME_VECTORS,
    spread_of_directions,
    spread_of_vectors,
    vendi_scores,
)
from pytest_cepbench.metrics.set_distances import frechet_influences, gc_fid_at_t, kernel_distances
from pytest_cepbench.metrics.uncertainty import BLOCKS, FEWEST_UNITS, blocks_of, pseudo_values
from pytest_cepbench.models.binding import features_name, weights_present

FEWEST = 2
"""Artifacts that a set must have; one alone has no spread."""

JACKKNIFE = f"jackknife/1 of {BLOCKS} blocks"
"""Part of the identity of what is scored so: other blocks have other pseudo-values."""

INFLUENCE = "influence/1"
"""The same of what has a score for every sample, its influence on a number of the whole set."""


@dataclass(frozen=True)
class FeatureRows:
    """Features of all artifacts at a generation, in an order that depends on the samples alone.

    features: (n, D) float32.
    units: (n,) the independent sample that each belongs to.
    failed: sample -> why it has none, where that was the encoder's failure.
    different: how many different artifacts they are of.
    """

    features: npt.NDArray[np.float32]
    units: Sequence[str]
    failed: dict[str, Failure]
    different: int

    def numbered(self, places: Mapping[str, int]) -> npt.NDArray[np.intp]:
        """(n,) the number that each row's unit has, 0 where it has none."""
        return np.array([places.get(unit, 0) for unit in self.units], dtype=np.intp)


def _blocks(samples: Sequence[Sample]) -> tuple[dict[str, int], str]:
    """The block of each unit, and why there are none.

    A start and all that became of it are left out together. It depends on names alone, not on what
    became of the chains.
    """
    units = {sample.unit for sample in samples}
    few = f"{len(units)} independent samples make no blocks, at least {FEWEST_UNITS} would"
    return (blocks, "") if (blocks := blocks_of(units)) else ({}, few)


def _pseudo(whole: float, without: Sequence[float]) -> Mapping[str, float]:
    """Block -> pseudo-value; nothing where no block was left out.

    whole: the score of all samples. without: the score without each block, block 0 first, or none.
    """
    values = pseudo_values(whole, without).tolist() if without else []
    return {str(block): value for block, value in enumerate(values)}


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


class SetsMeasure(Measure):
    """A number of what many chains have become together, in the features of one encoder.

    A chain that stopped has no artifact in a set: the sets shrink, their sizes are part of what was
    measured, and the gate compares no sets of different sizes.
    generations: the start, and the iterations that count.
    what: sets are of; a score has the name of all of them in the place of a sample's id.
    """

    plan: ChainPlan
    generations: tuple[int, ...]
    encoder: str
    what: str
    per_sample = False
    span = None

    @abstractmethod
    def _measure_category(
        self, name: str, samples: Sequence[Sample], data: ChainData
    ) -> CategorySets:
        """Raises MeasurementError for an encoder that cannot see."""

    def _refuse(self, count: int, kind: str, data: ChainData) -> NoReturn:
        """Raise MeasurementError: the encoder gives one vector for so many that differ."""
        raise MeasurementError(one_vector(data.runner(self.encoder).bound.spec, count, kind))

    def _rows(self, samples: Sequence[Sample], generation: int, data: ChainData) -> FeatureRows:
        """The features of the samples' artifacts at a generation."""
        features: list[npt.NDArray[np.float32]] = []
        units: list[str] = []
        failed: dict[str, Failure] = {}
        digests: set[str] = set()
        for shard in data.features(self.plan.start, self.encoder, generation, samples):
            able = []
            for chain, vector in shard:
                if isinstance(vector, Failure):
                    failed[chain.sample.id] = vector
                else:
                    able.append(vector)
                    digests.add(chain.links[generation].digest)
                    units.append(chain.sample.unit)
            if able:
                features.append(np.stack(able))
        rows = np.concatenate(features) if features else np.empty((0, 1), dtype=np.float32)
        return FeatureRows(rows, units, failed, len(digests))

    def required_features(self, case: Case | None) -> tuple[RequiredFeatures, ...]:
        """The starts, and the artifacts of the iterations that count."""
        return (RequiredFeatures(self.plan, self.generations, self.encoder, stops_chain=False),)

    def read(self, case: Case, samples: Sequence[Sample], data: ChainData) -> None:
        """The features, which only the store keeps: all of them at once are needed once."""
        data.store_features(self.plan.start, self.encoder, self.generations, samples)

    def measure(self, case: Case, data: ChainData) -> Measured:
        """One number per category, or one over all samples, and what bounds are made of.

        Raises MeasurementError for too few artifacts, and for an encoder that cannot see.
        """
        parts, every_sample = parts_of(case, data.dataset)
        found: dict[str, CategorySets] = {}
        outcomes: list[CaseScores] = []
        for name, samples in parts.items():
            own = found[name] = self._measure_category(name, samples, data)
            ended = [
                outcome_of_chain(chain, self.plan)
                if chain.failure is not None or sample not in own.failed
                else CaseScores(sample, own.failed[sample], self.encoder)
                for sample, chain in data.chains(self.plan.start, samples).items()
            ]
            if min(own.sizes) < FEWEST:
                stopped = Counter(o.failure.kind for o in ended if o.failure is not None)
                raise MeasurementError(
                    f"{self.label} needs at least {FEWEST} {self.what} in every set, and there are "
                    f"{', '.join(map(str, own.sizes))}"
                    + (f" (chains that stopped: {dict(stopped)})" if stopped else "")
                )
            outcomes += ended
        return Measured(
            scores={name: {f"all {self.what}": own.value} for name, own in found.items()},
            samples=every_sample,
            outcomes=outcomes,
            curve=tuple(np.mean([own.curve for own in found.values()], axis=0).tolist()),
            sizes={name: own.sizes[0] for name, own in found.items()},
            blocks={name: own.blocks for name, own in found.items() if own.blocks},
            notes=(
                *(own.note for own in found.values()),
                *(f"no bounds for {name}: {own.why}" for name, own in found.items() if own.why),
            ),
            identity={"sets": "; ".join(f"{name} {own.sets}" for name, own in found.items())},
        )

    def show(self, case: Case, sample_id: str, data: ChainData) -> None:
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


@dataclass(frozen=True)
class SetStep:
    """The images of one generation against the starts.

    sizes: how many starts, how many images.
    width: D.
    whole: the distance, 0 where a set has too few images.
    parts: what bounds are made of, empty where `why` gives the reason: by unit what it adds to the
    distance, times the number of units, or by block the distance of the rest without it.
    failed: as in `FeatureRows`, of both.
    """

    sizes: tuple[int, int]
    width: int
    whole: float
    parts: Mapping[str, float]
    why: str
    failed: dict[str, Failure]


class DistanceMeasure(SetsMeasure):
    """A distance between sets of images in the features of one encoder.

    Groups and wholes are, by default, the unweighted mean of their categories' distances, as in
    GenCeption's Table 2. Bounds of Frechet distances are made of the influence of every sample;
    those of KID of ten blocks, which are left out in turn: its influences erred up to twice as
    often as stated where a checkpoint had drifted.
    """

    what = "images"
    higher_is_better = False

    def __init__(self, kind: str, name: str, table: SetTable, context: SuiteContext) -> None:
        """Of several encoders the first is taken that is known and whose weights are here; the last
        one where none is, so that what is missing is named.

        Raises SuiteError for an iteration that the chains do not reach.
        """
        super().__init__(kind, name, table, context)
        self.plan = context.plan(name, table.start)
        wanted = [table.encoder] if isinstance(table.encoder, str) else table.encoder
        if not wanted:
            raise context.error(name, "encoder = [] names none")
        specs = context.specs
        here = [own for own in wanted if own in specs and weights_present(specs[own])]
        self.encoder = here[0] if here else wanted[-1]
        features = features_name(specs[self.encoder]) if self.encoder in specs else self.encoder
        at = last_iteration(kind, name, table.at, self.plan, context)
        self.generations = (0, *range(2 if kind == "gc_fid" else 2 * at, 2 * at + 1, 2))
        self.label = f"{LABELS[kind].format(T=at)} [{features}]"
        made = JACKKNIFE if kind == "kid" else INFLUENCE
        self.identity = f"{kind}/2 at {at}, over {self.pool}, {made}"

    def _measure_category(
        self, name: str, samples: Sequence[Sample], data: ChainData
    ) -> CategorySets:
        # Of the starts against one generation every metric of the suite needs the same.
        kernel, digest = self.kind == "kid", digest_json([[own.id, own.unit] for own in samples])
        starts: list[FeatureRows] = []  # read once, and only where a step is not known

        def step(generation: int) -> SetStep:
            starts.extend([] if starts else [self._rows(samples, 0, data)])
            first, images = starts[0], self._rows(samples, generation, data)
            sizes = (len(first.features), len(images.features))
            failed, width = first.failed | images.failed, first.features.shape[1]
            if min(sizes) < FEWEST:
                return SetStep(sizes, width, 0.0, {}, "", failed)
            if first.different >= FEWEST and spread_of_vectors(first.features) <= SAME_VECTORS:
                both = np.concatenate([first.features[:1], images.features])
                if spread_of_vectors(both) <= SAME_VECTORS:  # no distance sees what differs
                    self._refuse(max(first.different, images.different), "image", data)
            distance = _kernel if kernel else _frechet
            blocks, why = _blocks(samples)
            try:
                whole, parts = distance(first, images, blocks)
            except TooFewError as error:
                why = str(error)
                whole, parts = distance(first, images, {})
            return SetStep(sizes, width, whole, parts, why, failed)

        steps = [
            data.cached(
                (kernel, self.plan.start, self.encoder, generation),
                digest,
                partial(step, generation),
            )
            for generation in self.generations[1:]
        ]
        distances = [step.whole for step in steps]
        whole, why = self._value(distances), next((step.why for step in steps if step.why), "")
        sizes = [steps[0].sizes[0], *(step.sizes[1] for step in steps)]
        blocks: Mapping[str, float] = {}
        if not why and min(sizes) >= FEWEST:
            # A mean over iterations is linear: it makes of influences and of distances the same.
            values = {n: self._value([step.parts[n] for step in steps]) for n in steps[0].parts}
            if kernel:
                blocks = _pseudo(whole, list(values.values()))
            else:  # the mean of the scores is the whole, since the parts of all units sum to 0
                blocks = {f"{SAMPLE}{unit}": whole + value for unit, value in values.items()}
        shown = f"{sizes[0]} against {', '.join(map(str, sizes[1:]))} (D = {steps[0].width})"
        failed = {sample: own for step in steps for sample, own in step.failed.items()}
        note = f"images of {name}: {shown}"
        return CategorySets(whole, distances, blocks, why, sizes, shown, note, failed)

    def _value(self, distances: Sequence[float]) -> float:
        """The value that the distances at the iterations that count make."""
        return gc_fid_at_t(np.array(distances)) if self.kind == "gc_fid" else distances[-1]


def _frechet(
    starts: FeatureRows, images: FeatureRows, blocks: Mapping[str, int]
) -> tuple[float, Mapping[str, float]]:
    """The distance, and its parts of units, by name; no parts where there are no blocks."""
    result = frechet_influences(starts.features, images.features)
    if not blocks:
        return result.distance, {}
    units = sorted(blocks)
    places = {unit: number for number, unit in enumerate(units)}
    added = np.zeros(len(units))
    for rows, influences in ((starts, result.x), (images, result.y)):
        added += np.bincount(rows.numbered(places), influences / len(influences), len(units))
    return result.distance, dict(zip(units, (len(units) * added).tolist(), strict=True))


def _kernel(
    starts: FeatureRows, images: FeatureRows, blocks: Mapping[str, int]
) -> tuple[float, Mapping[str, float]]:
    """The same, of blocks. Raises TooFewError where nothing is left without one."""
    of_starts, of_images = starts.numbered(blocks), images.numbered(blocks)
    count = 1 + int(max(of_starts.max(), of_images.max())) if blocks else 0
    whole, without = kernel_distances(starts.features, images.features, of_starts, of_images, count)
    return whole, {str(block): distance for block, distance in enumerate(without)}


class DiversityMeasure(SetsMeasure):
    """The effective number of different artifacts that different starts became."""

    what = "artifacts"
    pool = "samples"
    parts = "overall"

    def __init__(self, kind: str, name: str, table: SimilarityTable, context: SuiteContext) -> None:
        """Raises SuiteError for an iteration that the chains do not reach."""
        super().__init__(kind, name, table, context)
        self.plan = context.plan(name, table.start)
        self.encoder = table.encoder
        at = last_iteration(kind, name, table.at, self.plan, context)
        self.generations = tuple(range(0, 2 * at + 1, 2))
        self.label = with_encoder(f"Vendi({at})", table.encoder)
        self.identity = f"diversity/1 vendi at {at}, over {self.pool}, {JACKKNIFE}"

    def _measure_category(
        self, name: str, samples: Sequence[Sample], data: ChainData
    ) -> CategorySets:
        values: list[float] = []
        sizes: list[int] = []
        without: list[float] = []
        blocks, why = _blocks(samples)
        failed: dict[str, Failure] = {}
        for generation in self.generations:
            rows = self._rows(samples, generation, data)
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
                self._refuse(rows.different, self.plan.start, data)
            last, in_blocks = generation == self.generations[-1], rows.numbered(blocks)
            count = max(blocks.values(), default=-1) + 1 if last else 0
            try:
                value, without = vendi_scores(rows.features, in_blocks, count)
            except TooFewError as error:
                why = str(error)
                value, without = vendi_scores(rows.features, in_blocks, 0)
            values.append(value)
        later = ", ".join(map(str, sizes[1:]))
        shown = f"{sizes[0]}, then {later} (D = {rows.features.shape[1]})"
        after = ", ".join(f"{value:.4g}" for value in values[1:])
        each = "each iteration" if len(values) > 2 else "the iteration"
        note = f"{name}: {values[0]:.4g} among the starts, {after} after {each}; sets of {shown}"
        parts = _pseudo(values[-1], without)
        return CategorySets(values[-1], values[1:], parts, why, sizes, shown, note, failed)
