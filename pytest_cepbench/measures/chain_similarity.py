"""gc, s, sim, retrieval: how similar artifacts are to their start, and how near among all starts.

Beside them are checks that a case can see: its chance floor, encoders with one vector for all,
constant answers. They are of digests and vectors made for the scores: nothing is read again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pytest_cepbench.artifacts import digest_json
from pytest_cepbench.chains import Chain, ChainPlan, Modality, Trace
from pytest_cepbench.datasets.sample import Sample
from pytest_cepbench.errors import MeasurementError
from pytest_cepbench.gate.statistics.bounds import gaffke_lower
from pytest_cepbench.gate.statistics.differences import Differences
from pytest_cepbench.measures.base import (
    ENCODER,
    ChainExcerpt,
    Measure,
    Measured,
    MetricTable,
    Pool,
    RequiredFeatures,
    SuiteContext,
    by_part,
    outcome_of,
    parts_of,
    shown_trace,
    with_encoder,
)
from pytest_cepbench.measures.cases import Case
from pytest_cepbench.measures.chain_data import ChainData
from pytest_cepbench.metrics.constancy import SAME_VECTORS, most_common, spread_of_directions
from pytest_cepbench.metrics.diversity import Gallery
from pytest_cepbench.metrics.gc import (
    chance_similarities,
    gc_at_t,
    mean_of_categories,
    mean_similarity,
)
from pytest_cepbench.store import Vector

FloatArray = npt.NDArray[np.float64]

_LONGEST = 60  # characters of an answer that is quoted

NO_FLOOR = "no floor by chance: no two samples start differently, so none can stand for another"
"""The note on a case without one."""


def floor_of(
    case: Case,
    parts: Mapping[str, Sequence[Sample]],
    traces: Mapping[str, Trace],
    score: Callable[[FloatArray], FloatArray],
) -> float | None:
    """The value of a case if every sample's outputs were those of another sample of its category.

    parts: the samples as the case's scores are pooled, as from `by_category`. traces: of samples by
    id; others have no part in it. score: (n, T) -> (n,), linear in the similarities. A sample is
    exchanged within its category: the part's, or, where a case pools the samples of several, its
    first one among them; where it has no other sample, within the whole case.
    None where all starts are equal, and where no artifact has a vector.
    """
    rows = [(name, s) for name, part in parts.items() for s in part if s.id in traces]
    own = [traces[sample.id] for _, sample in rows]
    width = next((len(v) for trace in own for v in trace.vectors if v is not None), None)
    if width is None:
        return None
    steps = len(own[0].similarities)
    compared = np.zeros((len(rows), steps + 1, width), dtype=np.float32)
    for row, trace in zip(compared, own, strict=True):
        for place, vector in enumerate(trace.vectors):
            if vector is not None:
                row[place] = vector
    pooled = len(parts) < len(case.categories)
    homes = [
        next(own for own in sample.categories if own in case.categories) if pooled else name
        for name, sample in rows
    ]
    starts = [trace.chain.links[0].digest for trace in own]
    chance = chance_similarities(compared[:, 0], compared[:, 1:], starts, homes)
    if chance is None:
        return None
    values = score(chance)
    names = np.array([name for name, _ in rows])
    return mean_of_categories({name: values[names == name] for name in dict.fromkeys(names)})


def refuse_one_vector(traces: Sequence[Trace], generations: Sequence[int], encoder: str) -> None:
    """Raise MeasurementError where an encoder gives one vector for artifacts that differ.

    generations: those compared with the starts. encoder: names it in the message. Texts and images
    are looked at apart: an encoder of both can be blind to one. Artifacts of equal digests count
    once. Where all samples start alike nothing is said: what they become may be all but the same.
    """
    if len({trace.chain.links[0].digest for trace in traces}) < 2:
        return
    seen: dict[str, dict[str, Vector]] = {}
    for trace in traces:
        for generation, vector in zip((0, *generations), trace.vectors, strict=True):
            if vector is not None:
                link = trace.chain.links[generation]
                seen.setdefault(link.kind, {})[link.digest] = vector
    for kind, vectors in seen.items():
        refuse_same(encoder, kind, vectors)


def refuse_same(encoder: str, kind: str, vectors: Mapping[str, Vector], fewest: int = 2) -> None:
    """Raise MeasurementError where all vectors of artifacts that differ are one.

    encoder, kind: for the message. vectors: by what tells the artifacts apart.
    fewest: of which one vector is too much.
    """
    if len(vectors) < fewest:
        return
    if spread_of_directions(np.stack(list(vectors.values()))) <= SAME_VECTORS:
        raise MeasurementError(one_vector(encoder, len(vectors), kind))


def one_vector(encoder: str, count: int, kind: str) -> str:
    """Says that an encoder cannot see. count: of artifacts of the kind, which all differ."""
    return (
        f"{encoder} gives one vector for {count} {kind}s that differ (none is farther from the "
        f"first than {SAME_VECTORS:g} of its length): it cannot see what this case measures. Check "
        f"its weights and preprocessing, and whether the {kind}s are all but the same to the eye"
    )


def same_answers(plan: ChainPlan, chains: Collection[Chain]) -> Iterator[str]:
    """A sentence for each role of which nearly all answers are one, to inputs that differ.

    Of the first description and the first drawing of every chain: later ones may agree because the
    chains have come to agree. Known from digests, so nothing is read.
    """
    for generation in range(1, min(2, plan.generations) + 1):
        links = [c.links[generation - 1 : generation + 1] for c in chains if c.has(generation)]
        pairs = [(before.digest, after.digest) for before, after in links if before.recorded]
        common = most_common(pairs)
        if common is None or not common.constant:
            continue
        if plan.describes(generation):
            texts = (after.text for _, after in links if after.digest == common.answer)
            text = " ".join((next(texts) or "").split())
            shown = text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."
            yield f"{common} descriptions are the same, of images that differ: {shown!r}"
        else:
            yield f"{common} drawings are the same, of descriptions that differ"


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

    label: for people.
    pool: of wholes, by default.
    score: (n, T) -> (n,).
    """

    label: str
    pool: Pool
    score: Callable[[FloatArray], FloatArray]


def _last(similarities: FloatArray) -> FloatArray:
    column: FloatArray = similarities[:, -1]
    return column


FORMULAS = {
    "gc": _Formula("GC@{T}", "categories", gc_at_t),
    "s": _Formula("s({T})", "categories", _last),
    "sim": _Formula("SIM", "samples", _last),
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
        parts, samples = parts_of(case, chain_data)
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
        identity=f"{kind}/1 at {at}, over {shared['pool']}",
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


_EACH_SIDE = 0.025
"""Error of each of the two bounds that a note states: 95 % confidence together."""


class RetrievalTable(SimilarityTable, frozen=True, kw_only=True):
    """retrieval: whether artifacts are still nearest to their own start, among all starts."""


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
    at = last_iteration(kind, name, table.at, plan, context)
    shared = table.shared(name)
    return RetrievalMeasure(
        **shared,
        label=with_encoder(f"retrieval@{at}", table.encoder),
        identity=f"retrieval/1 of generation {2 * at}, over {shared['pool']}",
        plan=plan,
        generations=tuple(range(2, 2 * at + 1, 2)),
        encoder=table.encoder,
    )
