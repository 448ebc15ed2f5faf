"""fid, gc_fid, kid, diversity: how far artifacts taken together are from the starts, or from
each other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from pytest_cepbench.chains import Modality
from pytest_cepbench.datasets.sample import Sample
from pytest_cepbench.errors import MeasurementError, TooFewError
from pytest_cepbench.gate.measurement import SAMPLE
from pytest_cepbench.measures.base import (
    ENCODER,
    INFLUENCE,
    JACKKNIFE,
    MetricTable,
    SuiteContext,
    block_of_each,
    scored_blocks,
    too_few_units,
    with_encoder,
)
from pytest_cepbench.measures.chain_data import ChainData
from pytest_cepbench.measures.chain_similarity import SimilarityTable, last_iteration
from pytest_cepbench.measures.feature_sets import (
    FEWEST,
    CategorySets,
    FeatureRows,
    ImageSets,
    SetsMeasure,
    set_outcomes,
    too_few,
)
from pytest_cepbench.measures.sanity_checks import one_vector
from pytest_cepbench.metrics.constancy import SAME_VECTORS, spread_of_directions
from pytest_cepbench.metrics.diversity import (
    FloatArray,
    Labels,
    mean_pairwise_distances,
    vendi_scores,
)
from pytest_cepbench.metrics.set_distances import frechet_influences, gc_fid_at_t, kernel_distances
from pytest_cepbench.models.binding import features_name, weights_present

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

    features: names the encoder in the label. Groups and wholes are, by default, the unweighted mean
    of their categories' distances, as in GenCeption's Table 2. Bounds of Frechet distances are made
    of the influence of every sample; those of KID of ten blocks, which are left out in turn: its
    influences erred up to twice as often as stated where a checkpoint had drifted.
    """

    kind: str
    features: str
    higher_is_better: bool = False
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

    @property
    def generations(self) -> tuple[int, ...]:
        """The start, and the images of the iterations that count."""
        first = 1 if self.kind == "gc_fid" else self.at
        return (0, *range(2 * first, 2 * self.at + 1, 2))

    def _value(self, distances: Sequence[float]) -> float:
        """The value that the distances at the iterations that count make."""
        return gc_fid_at_t(np.array(distances)) if self.kind == "gc_fid" else distances[-1]

    def _measure_category(
        self, name: str, samples: Sequence[Sample], chain_data: ChainData
    ) -> CategorySets:
        sets = ImageSets(self.plan, self.encoder, samples, chain_data)
        distance = _kernel if self.kind == "kid" else _frechet
        steps = [sets.step(generation, distance) for generation in self.generations[1:]]
        failed = {name: why for step in steps for name, why in step.failed.items()}
        outcomes = set_outcomes(self.plan, self.encoder, samples, failed, chain_data)
        images = [steps[0].images[0], *(step.images[1] for step in steps)]
        if min(images) < FEWEST:
            raise MeasurementError(too_few(self.label, "images", images, outcomes))
        distances = [step.whole for step in steps if step.whole is not None]
        whole, why = self._value(distances), next((step.why for step in steps if step.why), "")
        later = ", ".join(map(str, images[1:]))
        shown = f"{images[0]} against {later} (D = {steps[0].width})"
        return CategorySets(
            value=whole,
            curve=tuple(distances),
            blocks={} if why else self._blocks(whole, [step.parts for step in steps]),
            why=why,
            sets=shown,
            note=f"images of {name}: {shown}",
            starts=images[0],
            outcomes=outcomes,
        )

    def _blocks(self, whole: float, by_step: Sequence[Mapping[str, float]]) -> Mapping[str, float]:
        # A mean over iterations is linear: it makes of influences and of distances the same.
        parts = {name: self._value([step[name] for step in by_step]) for name in by_step[0]}
        if self.kind == "kid":
            return scored_blocks(whole, list(parts.values()))
        # The mean of the scores is the whole, since the parts of all units sum to 0.
        return {f"{SAMPLE}{unit}": whole + part for unit, part in parts.items()}


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
    return DistanceMeasure(
        **table.shared(name),
        kind=kind,
        plan=plan,
        at=last_iteration(kind, name, table.at, plan, context),
        encoder=encoder,
        features=features_name(context.specs[encoder]) if encoder in context.specs else encoder,
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


# -- how different the artifacts of an iteration are from each other ------------------------------


DiversityScore = Literal["vendi", "distance"]


@dataclass(frozen=True)
class _Formula:
    """A score of a set. scores: vectors, block of each, number of blocks -> the score of the whole
    set, and of it without each block.
    """

    label: str
    span: float | None
    scores: Callable[[FloatArray, Labels, int], tuple[float, list[float]]]


FORMULAS: dict[DiversityScore, _Formula] = {
    "vendi": _Formula("Vendi({T})", None, vendi_scores),
    "distance": _Formula("pairwise distance({T})", 2.0, mean_pairwise_distances),
}


class DiversityTable(SimilarityTable, frozen=True, kw_only=True):
    """diversity: how different the artifacts of an iteration are from each other.

    score: "vendi", the effective number of different ones, or "distance", the mean pairwise cosine
    distance.
    """

    score: DiversityScore = "vendi"


@dataclass(frozen=True, kw_only=True)
class DiversityMeasure(SetsMeasure):
    """The diversity of the artifacts that different starts became."""

    score: DiversityScore

    together: ClassVar[str] = "all artifacts"

    @property
    def label(self) -> str:
        """The name for people, such as Vendi(3), with the encoder where it is a further one."""
        return with_encoder(FORMULAS[self.score].label.format(T=self.at), self.encoder)

    @property
    def identity(self) -> str:
        """Formula, iteration, and how blocks are left out."""
        return f"diversity/1 {self.score} at {self.at}, over {self.pool}, {JACKKNIFE}"

    @property
    def generations(self) -> tuple[int, ...]:
        """The start, and where the chain is back at its modality."""
        return tuple(range(0, 2 * self.at + 1, 2))

    def _measure_category(
        self, name: str, samples: Sequence[Sample], chain_data: ChainData
    ) -> CategorySets:
        formula = FORMULAS[self.score]
        sets = ImageSets(self.plan, self.encoder, samples, chain_data)
        blocks = block_of_each(samples)
        values: list[float] = []
        sizes: list[int] = []
        without: list[float] = []
        why = "" if blocks else too_few_units(samples)
        failed = {}
        for generation in self.generations:
            rows = sets.rows(generation)
            failed.update(rows.failed)
            sizes.append(len(rows.features))
            if len(rows.features) < FEWEST:
                outcomes = set_outcomes(self.plan, self.encoder, samples, failed, chain_data)
                raise MeasurementError(too_few(self.label, "artifacts", sizes, outcomes))
            if generation == 0:
                self._refuse_one_vector(rows, chain_data)
            count = max(blocks.values()) + 1 if blocks and generation == self.generations[-1] else 0
            try:
                value, without = formula.scores(rows.features, rows.blocks, count)
            except TooFewError as error:
                why = str(error)
                value, without = formula.scores(rows.features, rows.blocks, 0)
            values.append(value)
        later = ", ".join(map(str, sizes[1:]))
        shown = f"{sizes[0]}, then {later} (D = {rows.features.shape[1]})"
        after = ", ".join(f"{value:.4g}" for value in values[1:])
        each = "each iteration" if self.at > 1 else "the iteration"
        return CategorySets(
            value=values[-1],
            curve=tuple(values[1:]),
            blocks=scored_blocks(values[-1], without),
            why=why,
            sets=shown,
            note=f"{name}: {values[0]:.4g} among the starts, {after} after {each}; sets of {shown}",
            starts=sizes[0],
            outcomes=set_outcomes(self.plan, self.encoder, samples, failed, chain_data),
        )

    def _refuse_one_vector(self, starts: FeatureRows, chain_data: ChainData) -> None:
        """Raise MeasurementError if starts that differ have one vector: no collapse would show.

        Of the starts alone: artifacts that have become one are what this measures.
        """
        if starts.different >= FEWEST and spread_of_directions(starts.features) <= SAME_VECTORS:
            spec = chain_data.runner(self.encoder).bound.spec
            raise MeasurementError(one_vector(spec, starts.different, self.plan.start))


def make_diversity(
    kind: str, name: str, table: DiversityTable, context: SuiteContext
) -> DiversityMeasure:
    """The measure of a table.

    Raises SuiteError for an iteration that the chains do not reach.
    """
    plan = context.plan(name, table.start)
    return DiversityMeasure(
        **table.shared(name, "samples", "overall"),
        score=table.score,
        plan=plan,
        at=last_iteration(kind, name, table.at, plan, context),
        encoder=table.encoder,
        span=FORMULAS[table.score].span,
    )
