"""diversity: how different the artifacts of an iteration are from each other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from pytest_cepbench.chains import ChainPlan, Modality
from pytest_cepbench.datasets.sample import Sample
from pytest_cepbench.errors import MeasurementError, TooFewError
from pytest_cepbench.measures.base import (
    ENCODER,
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
    scored_blocks,
    too_few_units,
    unbounded,
)
from pytest_cepbench.measures.cases import Case
from pytest_cepbench.measures.chain_data import ChainData
from pytest_cepbench.measures.chain_similarity import last_iteration
from pytest_cepbench.measures.feature_sets import (
    FEWEST,
    FeatureRows,
    ImageSets,
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

DiversityScore = Literal["vendi", "distance"]

_ALL = "all artifacts"


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


class DiversityTable(MetricTable, frozen=True, kw_only=True):
    """diversity: how different the artifacts of an iteration are from each other.

    at, encoder, start: as in `SimilarityTable`.
    score: "vendi", the effective number of different ones, or "distance", the mean pairwise cosine
    distance.
    """

    at: int | None = None
    encoder: str = ENCODER
    start: Modality | None = None
    score: DiversityScore = "vendi"


@dataclass(frozen=True)
class _CategoryDiversity:
    """The diversity of one category.

    values: of the starts, then of each iteration that counts.
    without: of the last iteration without each block; empty where `why` gives the reason.
    sizes: the number of starts, then of artifacts at each iteration.
    """

    values: tuple[float, ...]
    without: tuple[float, ...]
    why: str
    sizes: tuple[int, ...]
    width: int
    outcomes: tuple[CaseScores, ...]

    def __str__(self) -> str:
        later = ", ".join(map(str, self.sizes[1:]))
        return f"{self.sizes[0]}, then {later} (D = {self.width})"


@dataclass(frozen=True, kw_only=True)
class DiversityMeasure(MeasureBase):
    """The diversity of the artifacts that different starts became; see `Measure`.

    A chain that stopped has no artifact in the set, as with distances of sets: the sets shrink, and
    the gate compares no sets of other sizes.
    """

    score: DiversityScore
    plan: ChainPlan
    at: int
    encoder: str
    per_sample: bool = False

    @property
    def label(self) -> str:
        """The name for people, such as Vendi(3), with the encoder where it is a further one."""
        label = FORMULAS[self.score].label.format(T=self.at)
        return label if self.encoder == ENCODER else f"{label} [{self.encoder}]"

    @property
    def identity(self) -> str:
        """Formula, iteration, and how blocks are left out."""
        return f"diversity/1 {self.score} at {self.at}, over {self.pool}, {JACKKNIFE}"

    @property
    def generations(self) -> tuple[int, ...]:
        """The start, and where the chain is back at its modality."""
        return tuple(range(0, 2 * self.at + 1, 2))

    def required_features(self, _: Case | None) -> tuple[RequiredFeatures, ...]:
        """The starts, and the artifacts of every iteration up to the last that counts."""
        return (RequiredFeatures(self.plan, self.generations, self.encoder, stops_chain=False),)

    def read(self, _: Case, samples: Sequence[Sample], chain_data: ChainData) -> None:
        """The features, which only the store keeps."""
        chain_data.store_features(self.plan.start, self.encoder, self.generations, samples)

    def measure(self, case: Case, chain_data: ChainData) -> Measured:
        """One number per category, or one over all samples, and its pseudo-values by block."""
        parts = by_category(case, chain_data)
        found = {name: self._diversity(part, chain_data) for name, part in parts.items()}
        blocks = {name: scored_blocks(own.values[-1], own.without) for name, own in found.items()}
        return Measured(
            scores={name: {_ALL: own.values[-1]} for name, own in found.items()},
            samples=everyone(parts),
            outcomes=[outcome for own in found.values() for outcome in own.outcomes],
            curve=tuple(np.mean([own.values[1:] for own in found.values()], axis=0).tolist()),
            sizes={name: own.sizes[0] for name, own in found.items()},
            blocks={name: scored for name, scored in blocks.items() if scored},
            notes=(
                *(
                    f"{name}: {own.values[0]:.4g} among the starts, "
                    f"{', '.join(f'{value:.4g}' for value in own.values[1:])} after"
                    f"{' each iteration' if self.at > 1 else ' the iteration'}; sets of {own}"
                    for name, own in found.items()
                ),
                *(unbounded(name, own.why) for name, own in found.items() if own.why),
            ),
            identity={"sets": "; ".join(f"{name} {own}" for name, own in found.items())},
        )

    def show(self, _: Case, __: str, ___: ChainData) -> None:
        """The diversity of a set belongs to no chain."""

    def _diversity(self, samples: Sequence[Sample], chain_data: ChainData) -> _CategoryDiversity:
        """Raises MeasurementError for too few artifacts, and for an encoder that cannot see."""
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
        outcomes = set_outcomes(self.plan, self.encoder, samples, failed, chain_data)
        width = rows.features.shape[1]
        return _CategoryDiversity(tuple(values), tuple(without), why, tuple(sizes), width, outcomes)

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
        name=name,
        score=table.score,
        plan=plan,
        at=last_iteration(kind, name, table.at, plan, context),
        encoder=table.encoder,
        pool=table.pool or "samples",
        parts=table.parts or "overall",
        span=FORMULAS[table.score].span,
    )
