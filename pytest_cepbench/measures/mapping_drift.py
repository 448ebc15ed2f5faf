"""mcd and sdr: similarity to the start over all generations, by mapping."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import fsum

import numpy as np
import numpy.typing as npt

from pytest_cepbench.chains import ChainPlan, Modality, Trace
from pytest_cepbench.datasets.sample import Sample
from pytest_cepbench.errors import MeasurementError, unknown_name
from pytest_cepbench.measures.base import (
    ENCODER,
    JACKKNIFE,
    ChainExcerpt,
    Measure,
    Measured,
    MetricTable,
    RequiredFeatures,
    SuiteContext,
    block_of_each,
    by_category,
    outcome_of,
    scored_blocks,
    shown_trace,
    too_few_units,
    unbounded,
)
from pytest_cepbench.measures.cases import Case
from pytest_cepbench.measures.chain_data import ChainData
from pytest_cepbench.measures.chain_similarity import NO_FLOOR, floor_of, refuse_one_vector
from pytest_cepbench.metrics.semantic_drift import (
    DriftRate,
    fit_drift_rate,
    mapping_generations,
    mcd_average,
    mcd_of_mapping,
)

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


class MappingTable(MetricTable, frozen=True, kw_only=True):
    """mcd, sdr: similarity to the start over all generations, by mapping.

    mappings: name (text-to-text, text-to-image, image-to-image, image-to-text, and of sounds in the
    place of images) -> role of the encoder that compares; all that the suite's chains have, with
    `encoder`, when left out.
    """

    mappings: dict[str, str] | None = None


_ALL = "all chains"


@dataclass(frozen=True)
class MappingTrack:
    """One mapping of a suite.

    generations: those of its modality.
    encoder: the role that compares.
    """

    plan: ChainPlan
    generations: tuple[int, ...]
    encoder: str


@dataclass(frozen=True, kw_only=True)
class MappingMeasure(Measure):
    """MCD: mean similarity to the start over the generations of each mapping.

    The whole suite's value is the mean over the mappings. rates: measure SDR instead, the rate at
    which the mean curve of each mapping decays.
    """

    tracks: Mapping[str, MappingTrack]
    rates: bool = False

    def required_features(self, case: Case | None) -> tuple[RequiredFeatures, ...]:
        """The starts, and the artifacts of each mapping that the case is about."""
        return tuple(
            RequiredFeatures(track.plan, (0, *track.generations), track.encoder)
            for track in self._tracks_of(case).values()
        )

    def read(
        self, case: Case, samples: Sequence[Sample], chain_data: ChainData
    ) -> dict[str, dict[str, Trace]]:
        """The traces of the mappings that the case is about, by mapping and sample."""
        return {
            name: chain_data.traces(track.plan.start, track.encoder, track.generations, samples)
            for name, track in self._tracks_of(case).items()
        }

    def measure(self, case: Case, chain_data: ChainData) -> Measured:
        """Scores per sample: the mean over a mapping's generations, or over the mappings' means."""
        (samples,) = by_category(case, chain_data).values()
        tracks, part = self._tracks_of(case), case.key.part
        traces = self.read(case, samples, chain_data)
        readable = {}
        for name, track in tracks.items():
            spec = chain_data.runner(track.encoder).bound.spec
            refuse_one_vector(list(traces[name].values()), track.generations, spec)
            readable[name] = chain_data.readable(traces[name], track.encoder)
        curves = {name: _similarities(own) for name, own in readable.items()}
        rates = {
            name: fit_drift_rate(tracks[name].generations, curve.mean(axis=0).tolist())
            for name, curve in curves.items()
        }
        notes = [f"SDR {name}: {rate}" for name, rate in rates.items()]
        for name, track in tracks.items():
            compared = (0, *track.generations)
            note = chain_data.cut_texts(track.plan.start, track.encoder, compared, samples)
            if note:
                notes.append(f"{name}: {note}")
        first = next(iter(curves))
        measured = Measured(
            scores={},
            samples=samples,
            outcomes=[
                outcome_of(trace, track.plan, track.encoder)
                for name, track in tracks.items()
                for trace in traces[name].values()
            ],
            curve=tuple(curves[first].mean(axis=0).tolist()) if len(curves) == 1 else (),
            identity={"metric": _identity(tracks, rates=self.rates)},
        )
        if not self.rates:
            means = mcd_average(
                {n: mcd_of_mapping(_similarities(own)) for n, own in traces.items()}
            )
            scores = dict(zip([sample.id for sample in samples], means.tolist(), strict=True))
            # The mean over the mappings of what chance gives in each; none where one has none.
            floors = [
                floor_of(case, {part: samples}, own, mcd_of_mapping) for own in readable.values()
            ]
            known = [floor for floor in floors if floor is not None]
            floor = fsum(known) / len(known) if len(known) == len(floors) else None
            notes += [NO_FLOOR] if floor is None else []
            return replace(measured, scores={part: scores}, floor=floor, notes=tuple(notes))
        read = [sample for sample in samples if sample.id in readable[first]]
        measured = replace(measured, notes=tuple(notes))
        return _with_rate(measured, case, tracks[first], read, curves[first], rates[first])

    def show(self, case: Case, sample_id: str, chain_data: ChainData) -> ChainExcerpt:
        """The chain of the mapping, or of the first one for the mean, with its similarities."""
        track = next(iter(self._tracks_of(case).values()))
        traces = self.read(case, chain_data.named(sample_id), chain_data)
        trace = next(iter(traces.values()))[sample_id]
        return shown_trace(trace, track.generations)

    def _tracks_of(self, case: Case | None) -> dict[str, MappingTrack]:
        """The mapping that the case is about, or all of them."""
        part = "" if case is None else case.key.part
        return {part: self.tracks[part]} if part in self.tracks else dict(self.tracks)


def _identity(tracks: Mapping[str, MappingTrack], *, rates: bool) -> str:
    """Which mapping is compared by whom, and of a rate how blocks are left out."""
    mappings = ", ".join(f"{name} by {track.encoder}" for name, track in tracks.items())
    return f"sdr/2 {mappings}, {JACKKNIFE}" if rates else f"mcd/1 {mappings}"


def _similarities(traces: Mapping[str, Trace]) -> npt.NDArray[np.float64]:
    """(n, k) of each chain."""
    return np.array([trace.similarities for trace in traces.values()])


def _with_rate(
    measured: Measured,
    case: Case,
    track: MappingTrack,
    samples: Sequence[Sample],
    curves: npt.NDArray[np.float64],
    rate: DriftRate,
) -> Measured:
    """One score for all samples, with its pseudo-values by block.

    samples: those that could be read. curves: (n, k) of each. Raises MeasurementError where their
    mean tells no rate.
    """
    if rate.b is None:
        raise MeasurementError(f"{case.key}: the curve does not tell a drift rate: {rate.reason}")
    part, of_each = case.key.part, block_of_each(samples)
    why = "" if of_each else too_few_units(samples)
    blocks = np.array([of_each.get(sample.id, 0) for sample in samples])
    without: list[float] = []
    for block in range(int(blocks.max()) + 1 if of_each else 0):
        rest = curves[blocks != block].mean(axis=0)
        left = fit_drift_rate(track.generations, rest.tolist())
        if left.b is None:
            why = f"without block {block} the curve does not tell a drift rate: {left.reason}"
            break
        without.append(left.b)
    return replace(
        measured,
        scores={part: {_ALL: rate.b}},
        sizes={part: len(samples)},
        blocks={} if why else {part: scored_blocks(rate.b, without)},
        notes=(*measured.notes, *([unbounded(part, why)] if why else [])),
    )


def make_mapping(
    kind: str, name: str, table: MappingTable, context: SuiteContext
) -> MappingMeasure:
    """The measure of a table. Raises SuiteError for a mapping that the suite's chains lack."""
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
        tracks[mapping] = MappingTrack(plan, generations, encoder)
    rates = kind == "sdr"
    return MappingMeasure(
        name=name,
        label=kind.upper() if name == kind else f"{kind.upper()} [{name}]",
        identity=_identity(tracks, rates=rates),
        pool="samples",
        parts=None if rates else table.parts or "overall",  # rates of mappings have no mean
        higher_is_better=not rates,
        own_parts=tuple(tracks),
        per_sample=not rates,
        span=None if rates else 2.0,
        tracks=tracks,
        rates=rates,
    )
