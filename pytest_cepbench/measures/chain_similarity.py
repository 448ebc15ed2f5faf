"""gc, s, sim, mcd, retrieval: how similar artifacts are to their start, and how near among all."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import fsum

import numpy as np
import numpy.typing as npt

from pytest_cepbench.artifacts import Failure, digest_json
from pytest_cepbench.chains import ChainPlan, Modality, Trace
from pytest_cepbench.chains.features import vectors
from pytest_cepbench.datasets.sample import Sample
from pytest_cepbench.errors import MeasurementError, unknown_name
from pytest_cepbench.gate.statistics.bounds import gaffke_lower
from pytest_cepbench.gate.statistics.differences import Differences
from pytest_cepbench.measures.base import (
    ENCODER,
    CaseScores,
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
)
from pytest_cepbench.measures.blindness import (
    NO_FLOOR,
    floor_by_exchange,
    refuse_one_vector,
    refuse_same,
)
from pytest_cepbench.measures.cases import Case
from pytest_cepbench.measures.chain_data import ChainData
from pytest_cepbench.metrics.diversity import Gallery
from pytest_cepbench.metrics.gc import chance_similarities, gc_at_t, mean_similarity
from pytest_cepbench.metrics.semantic_drift import (
    fit_drift_rate,
    mapping_generations,
    mcd_average,
    mcd_of_mapping,
)
from pytest_cepbench.store import Vector

FloatArray = npt.NDArray[np.float64]


def _chance(
    traces: Mapping[str, Trace],
    score: Callable[[FloatArray], FloatArray],
    ids: Sequence[str],
    homes: Sequence[str],
) -> FloatArray | None:
    """As of `floor_by_exchange`, by a score (n, T) -> (n,) that is linear in the similarities."""
    own = [traces[name] for name in ids]
    width = next((len(v) for trace in own for v in trace.vectors if v is not None), None)
    if width is None:
        return None
    compared = np.zeros((len(own), len(own[0].vectors), width), dtype=np.float32)
    for row, trace in zip(compared, own, strict=True):
        for place, vector in enumerate(trace.vectors):
            if vector is not None:
                row[place] = vector
    starts = [trace.chain.links[0].digest for trace in own]
    chance = chance_similarities(compared[:, 0], compared[:, 1:], starts, homes)
    return None if chance is None else score(chance)


MAPPINGS: Mapping[str, tuple[Modality, Modality]] = {
    "text-to-text": ("text", "text"),
    "text-to-image": ("text", "image"),
    "image-to-image": ("image", "image"),
    "image-to-text": ("image", "text"),
    "text-to-sound": ("text", "sound"),
    "sound-to-sound": ("sound", "sound"),
    "sound-to-text": ("sound", "text"),
}
"""Name -> (start of the chain, modality of the artifacts compared with it). Source: the Telephone
Game, section 3.1 and Figure 6, which has those of images."""


class SimilarityTable(MetricTable, frozen=True, kw_only=True):
    """gc, s, sim, retrieval, diversity: similarity of one modality's artifacts to their start.

    at: T, the last iteration that counts; the chain's when left out. encoder: the role whose
    vectors are compared. start: which chains, where the suite plays both.
    """

    at: int | None = None
    encoder: str = ENCODER
    start: Modality | None = None


class MappingTable(MetricTable, frozen=True, kw_only=True):
    """mcd: similarity to the start over all generations, by mapping.

    mappings: name (text-to-text, text-to-image, image-to-image, image-to-text, and of sounds in the
    place of images) -> role of the encoder that compares; all that the suite's chains have, with
    `encoder`, when left out.
    """

    mappings: dict[str, str] | None = None


FORMULAS: Mapping[str, tuple[str, Pool, Callable[[FloatArray], FloatArray]]] = {
    "gc": ("GC@{T}", "categories", gc_at_t),
    "s": ("s({T})", "categories", lambda similarities: similarities[:, -1]),
    "sim": ("SIM", "samples", lambda similarities: similarities[:, -1]),
    "mcd": ("MCD", "samples", mcd_of_mapping),
}
"""Kind -> label, pool by default, score (n, T) -> (n,) of similarities: GenCeption's Eq. 3; its
ablation without weights (Table 3); MMGenBench's Eq. 4, in which a sample in several patterns counts
in each of them, and once in the whole; the Telephone Game's Eq. 2."""


@dataclass(frozen=True)
class Track:
    """Artifacts of chains that are compared with their starts.

    generations: at which they stand.
    encoder: the role that compares.
    """

    plan: ChainPlan
    generations: tuple[int, ...]
    encoder: str


Traces = dict[str, dict[str, Trace]]
"""The traces of samples by track and id."""


class TraceMeasure(Measure):
    """A metric of what an encoder says of artifacts and their starts.

    tracks: what is compared, by mapping; of a metric without mappings one, named "".
    """

    tracks: Mapping[str, Track]

    def required_features(self, case: Case | None) -> tuple[RequiredFeatures, ...]:
        """The starts, and what is compared with them."""
        return tuple(
            RequiredFeatures(track.plan, (0, *track.generations), track.encoder)
            for track in self._tracks_of(case).values()
        )

    def read(self, case: Case, samples: Sequence[Sample], data: ChainData) -> Traces:
        """The traces."""
        return {
            name: data.traces(track.plan.start, track.encoder, track.generations, samples)
            for name, track in self._tracks_of(case).items()
        }

    def show(self, case: Case, sample_id: str, data: ChainData) -> ChainExcerpt:
        """The chain of the first track, with the numbers of its generations."""
        name, track = next(iter(self._tracks_of(case).items()))
        trace = self.read(case, data.named(sample_id), data)[name][sample_id]
        marks = dict(zip(track.generations, self._marks(trace, data), strict=True))
        return ChainExcerpt(trace.chain, marks, trace.failure, trace.failed_at)

    def _marks(self, trace: Trace, data: ChainData) -> Sequence[float]:
        return trace.similarities

    def _tracks_of(self, case: Case | None) -> dict[str, Track]:
        """The mapping that the case is about, or all of them."""
        part = "" if case is None else case.key.part
        return {part: self.tracks[part]} if part in self.tracks else dict(self.tracks)

    def _outcomes(self, traces: Traces) -> list[CaseScores]:
        return [
            outcome_of(trace, self.tracks[name].plan, self.tracks[name].encoder)
            for name, own in traces.items()
            for trace in own.values()
        ]


class SimilarityMeasure(TraceMeasure):
    """One number per chain out of its similarities, or the mean of those of several mappings."""

    span = 2.0

    def __init__(
        self, kind: str, name: str, table: SimilarityTable | MappingTable, context: SuiteContext
    ) -> None:
        """Raises SuiteError for an iteration or a mapping that the suite's chains lack."""
        label, self.pool, self.score = FORMULAS[kind]
        if isinstance(table, MappingTable):
            if table.pool == "categories":
                raise context.error(
                    name, "pool = 'categories': MCD is of samples, 'samples' is expected"
                )
            self.parts = "overall"
            super().__init__(kind, name, table, context)
            self.tracks = _mappings(name, table, context)
            self.own_parts = tuple(self.tracks)
            self.label = label if name == kind else f"{label} [{name}]"
            self.identity = _mcd_identity(self.tracks)
            return
        super().__init__(kind, name, table, context)
        plan = context.plan(name, table.start)
        at = last_iteration(kind, name, table.at, plan, context)
        self.tracks = {"": Track(plan, tuple(range(2, 2 * at + 1, 2)), table.encoder)}
        self.label = with_encoder(label.format(T=at), table.encoder)
        self.identity = f"{kind}/1 at {at}, over {self.pool}"

    @property
    def compares(self) -> Iterable[tuple[Modality, str]]:
        """Of the tracks that are back at the modality of their start."""
        return [
            (track.plan.start, track.encoder)
            for track in self.tracks.values()
            if track.generations[0] % 2 == 0
        ]

    def measure(self, case: Case, data: ChainData) -> Measured:
        """One score per chain: of several mappings the mean of theirs."""
        parts, samples = parts_of(case, data.dataset)
        tracks, traces = self._tracks_of(case), self.read(case, samples, data)
        curves, floors, rates, cut = [], [], [], []
        for name, track in tracks.items():
            own, spec = traces[name], data.runner(track.encoder).bound.spec
            refuse_one_vector(list(own.values()), track.generations, spec)
            readable = data.readable(own, track.encoder)
            curve = mean_similarity(np.array([t.similarities for t in readable.values()]))
            curves.append(curve.tolist())
            if self.kind == "mcd":
                rates.append(f"SDR {name}: {fit_drift_rate(track.generations, curves[-1])}")
            chance = partial(_chance, readable, self.score)
            floors.append(floor_by_exchange(case, parts, readable.keys(), chance))
            compared = (0, *track.generations)
            if note := data.cut_texts(track.plan, track.encoder, compared, samples):
                cut.append(f"{name}: {note}" if name else note)
        scores = {}
        for part, members in parts.items():
            ids = [sample.id for sample in members]
            means = mcd_average(
                {
                    name: self.score(np.array([own[sample].similarities for sample in ids]))
                    for name, own in traces.items()
                }
            )
            scores[part] = dict(zip(ids, means.tolist(), strict=True))
        # The mean over the mappings of what chance gives in each; none where one has none.
        known = [floor for floor in floors if floor is not None]
        floor = fsum(known) / len(known) if len(known) == len(floors) else None
        return Measured(
            scores=scores,
            samples=samples,
            outcomes=self._outcomes(traces),
            curve=tuple(curves[0]) if len(curves) == 1 else (),
            notes=(*rates, *cut, *([NO_FLOOR] if floor is None else [])),
            identity={"metric": _mcd_identity(tracks)} if self.kind == "mcd" else {},
            floor=floor,
        )


def _mappings(name: str, table: MappingTable, context: SuiteContext) -> dict[str, Track]:
    """The mappings of a table, or all that the suite's chains have."""
    named = table.mappings
    if named is None:
        named = {
            mapping: ENCODER
            for mapping, (start, compares) in MAPPINGS.items()
            if start in context.plans and compares in ("text", context.plans[start].makes)
        }
    tracks = {}
    for mapping, encoder in named.items():
        if mapping not in MAPPINGS:
            raise context.error(name, f"{unknown_name('mapping', mapping, MAPPINGS)}")
        start, modality = MAPPINGS[mapping]
        plan = context.plan(name, start)
        if modality not in ("text", plan.makes):
            raise context.error(name, f"mapping {mapping!r}: its chains make {plan.makes}s")
        generations = mapping_generations(start, modality, plan.generations)
        if not generations:
            raise context.error(
                name, f"mapping {mapping!r} has no generation in chains of {plan.generations}"
            )
        tracks[mapping] = Track(plan, generations, encoder)
    return tracks


def _mcd_identity(tracks: Mapping[str, Track]) -> str:
    return f"mcd/1 {', '.join(f'{name} by {track.encoder}' for name, track in tracks.items())}"


def with_encoder(label: str, encoder: str) -> str:
    """The label of a metric, with its encoder where it is a further one."""
    return label if encoder == ENCODER else f"{label} [{encoder}]"


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


class RetrievalMeasure(TraceMeasure):
    """Top-1 retrieval of each chain's own start by its artifacts, of which the last is the score.

    The gallery holds the starts of all samples of the suite, whatever part of them a case is about
    or a look takes, so that chance and scores do not depend on it. A chain that stopped is not
    retrieved.
    """

    def __init__(self, kind: str, name: str, table: SimilarityTable, context: SuiteContext) -> None:
        """Raises SuiteError for an iteration that the chains do not reach."""
        super().__init__(kind, name, table, context)
        plan = context.plan(name, table.start)
        at = last_iteration(kind, name, table.at, plan, context)
        self.track = Track(plan, tuple(range(2, 2 * at + 1, 2)), table.encoder)
        self.tracks = {"": self.track}
        self.label = with_encoder(f"retrieval@{at}", table.encoder)
        self.identity = f"retrieval/1 of generation {2 * at}, over {self.pool}"

    def measure(self, case: Case, data: ChainData) -> Measured:
        """1 for each chain whose last artifact finds its start, 0 for others, shared by ties."""
        parts, samples = parts_of(case, data.dataset)
        traces = self.read(case, samples, data)
        starts = self._starts(data)
        hits = self._hits(starts.gallery, list(traces[""].values()))
        rows = dict(zip(traces[""], hits, strict=True))
        last = {sample.id: float(rows[sample.id][-1]) for sample in samples}
        readable = data.readable(traces[""], self.track.encoder)
        return Measured(
            scores=by_part(parts, last),
            samples=samples,
            outcomes=self._outcomes(traces),
            curve=tuple(np.array([rows[name] for name in readable]).mean(axis=0).tolist()),
            shares=True,
            notes=tuple(_notes(starts, samples, {name: last[name] for name in readable})),
            floor=starts.gallery.chance,
            identity={"gallery": starts.identity},
        )

    def _marks(self, trace: Trace, data: ChainData) -> Sequence[float]:
        """1 where the artifact finds its start."""
        marks: list[float] = self._hits(self._starts(data).gallery, [trace])[0].tolist()
        return marks

    def _hits(self, gallery: Gallery, traces: Sequence[Trace]) -> FloatArray:
        """(n, generations) score of each chain at each generation."""
        hits = np.zeros((len(traces), len(self.track.generations)))
        names = [trace.chain.links[0].digest for trace in traces]
        for column in range(hits.shape[1]):
            later = [trace.vectors[column + 1] for trace in traces]
            able = [(row, vector) for row, vector in enumerate(later) if vector is not None]
            if able:
                found = [row for row, _ in able]
                outputs = np.stack([vector for _, vector in able])
                hits[found, column] = gallery.top_1(outputs, [names[row] for row in found])
        return hits

    def _starts(self, data: ChainData) -> _Starts:
        """Raises MeasurementError for an encoder that cannot see, and for starts that are one."""
        whole, encoder, start = data.origin, self.track.encoder, self.track.plan.start

        def look_up() -> _Starts:
            runner = whole.runner(encoder)
            spec = runner.bound.spec
            digests: list[str] = []
            encoded: list[Vector] = []
            for chains in whole.start_chains(start, whole.population.samples):
                found = vectors(chains, 0, runner, whole.store)
                for chain, vector in zip(chains, found, strict=True):
                    if not isinstance(vector, Failure):
                        digests.append(chain.links[0].digest)
                        encoded.append(vector)
            if not digests:
                raise MeasurementError(
                    f"{self.name}: the {encoder} ({spec}) gave no vector of any start"
                )
            different = len(set(digests))
            if different < 2:
                raise MeasurementError(
                    f"{self.name}: retrieval needs at least 2 different starts, and the suite's "
                    f"{len(digests)} samples have {different}: use more samples"
                )
            refuse_same(spec, start, dict(zip(digests, encoded, strict=True)))
            gallery = Gallery.of(np.stack(encoded), digests)
            ceiling = gallery.ceiling()
            return _Starts(
                gallery=gallery,
                samples=len(digests),
                tied=int((ceiling < 1.0).sum()),
                ceiling=float(ceiling.mean()),
                identity=f"{different} {digest_json(sorted(set(digests)))[:16]}",
            )

        return whole.cached(("gallery", encoder), start, look_up)


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
