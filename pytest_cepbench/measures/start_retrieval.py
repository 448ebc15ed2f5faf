"""retrieval: whether a chain's artifact is still nearest to its own start, among all starts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from pytest_cepbench.artifacts import digest_json
from pytest_cepbench.chains import ChainPlan, Modality, Trace
from pytest_cepbench.datasets.sample import Sample
from pytest_cepbench.errors import MeasurementError
from pytest_cepbench.gate.statistics.bounds import gaffke_lower
from pytest_cepbench.gate.statistics.differences import Differences
from pytest_cepbench.measures.base import (
    ChainExcerpt,
    Measure,
    Measured,
    RequiredFeatures,
    SuiteContext,
    by_part,
    outcome_of,
    parts_of,
    with_encoder,
)
from pytest_cepbench.measures.cases import Case
from pytest_cepbench.measures.chain_data import ChainData
from pytest_cepbench.measures.chain_similarity import SimilarityTable, last_iteration, refuse_same
from pytest_cepbench.metrics.diversity import Gallery

_EACH_SIDE = 0.025
"""Error of each of the two bounds that a note states: 95 % confidence together."""


class RetrievalTable(SimilarityTable, frozen=True, kw_only=True):
    """retrieval: whether artifacts are still nearest to their own start, among all starts.

    modality: of the artifacts that are looked up; the start's own when left out. The other one
    needs an encoder of both.
    """

    modality: Modality | None = None


@dataclass(frozen=True)
class _Starts:
    """The gallery of a suite.

    gallery: of different starts.
    samples: that have a start in it.
    tied: how many different starts share their direction with another one.
    ceiling: mean score of the starts themselves.
    identity: their number, and a digest of them.
    """

    gallery: Gallery
    samples: int
    tied: int
    ceiling: float
    identity: str


@dataclass(frozen=True, kw_only=True)
class RetrievalMeasure(Measure):
    """Top-1 retrieval of each chain's own start by its artifacts.

    generations: that are looked up, the last of which is the score. The gallery holds the starts of
    all samples of the suite, whatever part of them a case is about or a look takes, so that chance
    and scores do not depend on it. A chain that stopped is not retrieved.
    """

    plan: ChainPlan
    generations: tuple[int, ...]
    encoder: str

    def required_features(self, case: Case | None) -> tuple[RequiredFeatures, ...]:
        """The starts, and what is looked up."""
        return (RequiredFeatures(self.plan, (0, *self.generations), self.encoder),)

    def read(
        self, case: Case, samples: Sequence[Sample], chain_data: ChainData
    ) -> dict[str, Trace]:
        """The traces."""
        return chain_data.traces(self.plan.start, self.encoder, self.generations, samples)

    def measure(self, case: Case, chain_data: ChainData) -> Measured:
        """1 for each chain whose last artifact finds its start, 0 for others, shared by ties."""
        parts, samples = parts_of(case, chain_data)
        traces = self.read(case, samples, chain_data)
        starts = self._starts(chain_data)
        hits = self._hits(starts.gallery, list(traces.values()))
        rows = dict(zip(traces, hits, strict=True))
        last = {sample.id: float(rows[sample.id][-1]) for sample in samples}
        readable = chain_data.readable(traces, self.encoder)
        found = np.array([rows[name] for name in readable])
        return Measured(
            scores=by_part(parts, last),
            samples=samples,
            outcomes=[outcome_of(trace, self.plan, self.encoder) for trace in traces.values()],
            curve=tuple(found.mean(axis=0).tolist()),
            shares=True,
            notes=tuple(_notes(starts, samples, {name: last[name] for name in readable})),
            floor=starts.gallery.chance,
            identity={"gallery": starts.identity},
        )

    def show(self, case: Case, sample_id: str, chain_data: ChainData) -> ChainExcerpt:
        """The chain, with 1 where its artifact finds its start."""
        trace = self.read(case, chain_data.named(sample_id), chain_data)[sample_id]
        hits = self._hits(self._starts(chain_data).gallery, [trace])[0]
        marks = dict(zip(self.generations, hits.tolist(), strict=True))
        return ChainExcerpt(trace.chain, marks, trace.failure, trace.failed_at)

    def _hits(
        self, gallery: Gallery, traces: Sequence[Trace]
    ) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
        """(n, generations) score of each chain at each generation."""
        hits = np.zeros((len(traces), len(self.generations)))
        names = [trace.chain.links[0].digest for trace in traces]
        for column in range(len(self.generations)):
            able = [
                (row, vector)
                for row, trace in enumerate(traces)
                if (vector := trace.vectors[column + 1]) is not None
            ]
            if able:
                found = [row for row, _ in able]
                outputs = np.stack([vector for _, vector in able])
                hits[found, column] = gallery.top_1(outputs, [names[row] for row in found])
        return hits

    def _starts(self, chain_data: ChainData) -> _Starts:
        whole = chain_data.origin
        key = ("gallery", self.encoder)
        return whole.cached(key, self.plan.start, lambda: self._look_up(whole))

    def _look_up(self, chain_data: ChainData) -> _Starts:
        """Raises MeasurementError for an encoder that cannot see, and for starts that are one."""
        digests, encoded = chain_data.start_vectors(self.plan.start, self.encoder)
        spec = chain_data.runner(self.encoder).bound.spec
        if not digests:
            raise MeasurementError(
                f"{self.name}: the {self.encoder} ({spec}) gave no vector of any start"
            )
        different = len(set(digests))
        if different < 2:
            raise MeasurementError(
                f"{self.name}: retrieval needs at least 2 different starts, and the suite's "
                f"{len(digests)} samples have {different}: use more samples"
            )
        refuse_same(spec, self.plan.start, dict(zip(digests, encoded, strict=True)))
        gallery = Gallery.of(np.stack(encoded), digests)
        ceiling = gallery.ceiling()
        return _Starts(
            gallery=gallery,
            samples=len(digests),
            tied=int((ceiling < 1.0).sum()),
            ceiling=float(ceiling.mean()),
            identity=f"{different} {digest_json(sorted(set(digests)))[:16]}",
        )


def _notes(
    starts: _Starts, samples: Sequence[Sample], scores: Mapping[str, float]
) -> Iterator[str]:
    """Of the scores of samples by id. The chains of one unit count as one in the bounds."""
    count = len(starts.gallery.vectors)
    units = Differences.of({"": scores}, {sample.id: sample.unit for sample in samples})
    values, heaviest = units.weighted(), float(units.weights().max())
    low = gaffke_lower(values, 0.0, _EACH_SIDE)
    high = min(-gaffke_lower(-values, -heaviest, _EACH_SIDE), 1.0)
    yield (
        f"{units.mean:.3f} of {len(scores)} chains end nearest to their own start (exact 95 % "
        f"bounds {low:.3f} to {high:.3f}); chance gives 1 of {count}, {starts.gallery.chance:.4f}"
    )
    if starts.samples > count:
        yield (
            f"{starts.samples} samples have {count} different starts: equal starts count as one "
            "that either sample may find"
        )
    if starts.tied:
        yield (
            f"the encoder gives {starts.tied} of {count} starts the direction of another one: such "
            f"ties are shared, and no chain can score more than {starts.ceiling:.3f} on average"
        )


def make_retrieval(
    kind: str, name: str, table: RetrievalTable, context: SuiteContext
) -> RetrievalMeasure:
    """The measure of a table. Raises SuiteError for an iteration that the chains do not reach."""
    plan = context.plan(name, table.start)
    returns = table.modality in (None, plan.start)
    if returns:
        at = last_iteration(kind, name, table.at, plan, context)
        generations = tuple(range(2, 2 * at + 1, 2))
    else:
        reached = (plan.generations + 1) // 2
        at = reached if table.at is None else table.at
        if not 1 <= at <= reached:
            raise context.error(
                name,
                f"at = {at}, and the chains have {reached} generations that are a {table.modality}",
            )
        generations = tuple(range(1, 2 * at, 2))
    shared = table.shared(name)
    return RetrievalMeasure(
        **shared,
        label=with_encoder(f"retrieval@{len(generations)}", table.encoder),
        identity=f"retrieval/1 of generation {generations[-1]}, over {shared['pool']}",
        plan=plan,
        generations=generations,
        encoder=table.encoder,
    )
