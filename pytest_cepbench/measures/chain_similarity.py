"""gc, s, sim: how similar the artifacts of the start's own modality still are to it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pytest_cepbench.chains import ChainPlan, Modality, Trace
from pytest_cepbench.datasets.sample import Sample
from pytest_cepbench.measures.base import (
    ENCODER,
    ChainExcerpt,
    Measure,
    Measured,
    MetricTable,
    Pool,
    RequiredFeatures,
    SuiteContext,
    by_category,
    everyone,
    outcome_of,
    shown_trace,
    with_encoder,
)
from pytest_cepbench.measures.cases import Case
from pytest_cepbench.measures.chain_data import ChainData
from pytest_cepbench.measures.sanity_checks import NO_FLOOR, floor_of, refuse_one_vector
from pytest_cepbench.metrics.gc import gc_at_t, mean_similarity

FloatArray = npt.NDArray[np.float64]


class SimilarityTable(MetricTable, frozen=True, kw_only=True):
    """gc, s, sim: similarity of one modality's artifacts to their start.

    at: T, the last iteration that counts; the chain's when left out. encoder: the role whose
    vectors are compared. start: which chains, where the suite plays both.
    """

    at: int | None = None
    encoder: str = ENCODER
    start: Modality | None = None


@dataclass(frozen=True)
class _Formula:
    """The formula that makes one score of similarities.

    version: part of the identity.
    label: for people.
    pool: of wholes, by default.
    score: (n, T) -> (n,).
    """

    version: int
    label: str
    pool: Pool
    score: Callable[[FloatArray], FloatArray]


def _last(similarities: FloatArray) -> FloatArray:
    column: FloatArray = similarities[:, -1]
    return column


FORMULAS = {
    "gc": _Formula(1, "GC@{T}", "categories", gc_at_t),
    "s": _Formula(1, "s({T})", "categories", _last),
    "sim": _Formula(1, "SIM", "samples", _last),
}
"""GenCeption's Eq. 3; its ablation without weights (Table 3); MMGenBench's Eq. 4, in which a sample
in several patterns counts in each of them, and once in the whole."""


@dataclass(frozen=True, kw_only=True)
class SimilarityMeasure(Measure):
    """One number per chain out of its similarities s(1..at), by one encoder."""

    kind: str
    plan: ChainPlan
    at: int
    encoder: str
    span: float | None = 2.0

    def required_features(self, case: Case | None) -> tuple[RequiredFeatures, ...]:
        """The starts, and what came back to their modality."""
        return (RequiredFeatures(self.plan, (0, *self._generations), self.encoder),)

    def read(
        self, case: Case, samples: Sequence[Sample], chain_data: ChainData
    ) -> dict[str, Trace]:
        """The traces."""
        return chain_data.traces(self.plan.start, self.encoder, self._generations, samples)

    def measure(self, case: Case, chain_data: ChainData) -> Measured:
        """One score per chain."""
        parts = by_category(case, chain_data)
        samples = everyone(parts)
        traces = self.read(case, samples, chain_data)
        spec = chain_data.runner(self.encoder).bound.spec
        refuse_one_vector(list(traces.values()), self._generations, spec)
        scores = {}
        for name, part in parts.items():
            similarities = np.array([traces[sample.id].similarities for sample in part])
            values = FORMULAS[self.kind].score(similarities).tolist()
            scores[name] = dict(zip([sample.id for sample in part], values, strict=True))
        compared = (0, *self._generations)
        note = chain_data.cut_texts(self.plan.start, self.encoder, compared, samples)
        readable = chain_data.readable(traces, self.encoder)
        curve = mean_similarity(np.array([trace.similarities for trace in readable.values()]))
        floor = floor_of(case, parts, readable, FORMULAS[self.kind].score)
        return Measured(
            scores=scores,
            samples=samples,
            outcomes=[outcome_of(trace, self.plan, self.encoder) for trace in traces.values()],
            curve=tuple(curve.tolist()),
            notes=tuple(filter(None, (note, NO_FLOOR if floor is None else ""))),
            floor=floor,
        )

    def show(self, case: Case, sample_id: str, chain_data: ChainData) -> ChainExcerpt:
        """The chain with its similarities."""
        trace = self.read(case, chain_data.named(sample_id), chain_data)[sample_id]
        return shown_trace(trace, self._generations)

    @property
    def _generations(self) -> tuple[int, ...]:
        return tuple(range(2, 2 * self.at + 1, 2))


def make_similarity(
    kind: str, name: str, table: SimilarityTable, context: SuiteContext
) -> SimilarityMeasure:
    """The measure of a table. Raises SuiteError for an iteration that the chains do not reach."""
    plan = context.plan(name, table.start)
    at = last_iteration(kind, name, table.at, plan, context)
    formula = FORMULAS[kind]
    shared = table.shared(name, formula.pool)
    return SimilarityMeasure(
        **shared,
        label=with_encoder(formula.label.format(T=at), table.encoder),
        identity=f"{kind}/{formula.version} at {at}, over {shared['pool']}",
        kind=kind,
        plan=plan,
        at=at,
        encoder=table.encoder,
    )


def last_iteration(
    kind: str, name: str, iteration: int | None, plan: ChainPlan, context: SuiteContext
) -> int:
    """T of a metric: what was asked, 1 for SIM, else the whole chain's.

    Raises SuiteError for one that the chains do not reach.
    """
    whole = 1 if kind in ("sim", "fid", "kid") else plan.iterations
    at = whole if iteration is None else iteration
    if not 1 <= at <= plan.iterations:
        raise context.error(name, f"at = {at}, and the chains have {plan.iterations} iterations")
    return at
