"""mcd and sdr: similarity to the start over all generations, by mapping."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
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
from pytest_cepbench.measures.sanity_checks import NO_FLOOR, floor_of, refuse_one_vector
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
}
"""Name -> (start of the chain, modality of the artifacts compared with it). Source: the Telephone
Game, section 3.1 and Figure 6."""


class MappingTable(MetricTable, frozen=True, kw_only=True):
    """mcd, sdr: similarity to the start over all generations, by mapping.

    mappings: name (text-to-text, text-to-image, image-to-image, image-to-text) -> role of the
    encoder that compares; all that the suite's chains have, with `encoder`, when left out.
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

    def traces(self, chain_data: ChainData, samples: Sequence[Sample]) -> dict[str, Trace]:
        """The similarities of each sample at the mapping's generations."""
        return chain_data.traces(self.plan.start, self.encoder, self.generations, samples)


@dataclass(frozen=True, kw_only=True)
class MappingMeasure(Measure):
    """MCD: mean similarity to the start over the generations of each mapping.

    The whole suite's value is the mean over the mappings. rates: measure SDR instead, the rate at
    which the mean curve of each mapping decays.
    """

    tracks: Mapping[str, MappingTrack]
    rates: bool = False

    @property
    def label(self) -> str:
        """MCD or SDR, and the metric's own name where a suite has it as another."""
        kind = "SDR" if self.rates else "MCD"
        return kind if self.name == kind.lower() else f"{kind} [{self.name}]"

    @property
    def identity(self) -> str:
        """Which mapping is compared by whom, and of a rate how blocks are left out."""
        mappings = ", ".join(f"{name} by {track.encoder}" for name, track in self.tracks.items())
        return f"sdr/2 {mappings}, {JACKKNIFE}" if self.rates else f"mcd/1 {mappings}"

    def required_features(self, case: Case | None) -> tuple[RequiredFeatures, ...]:
        """The starts, and the artifacts of each mapping that the case is about."""
        return tuple(
            RequiredFeatures(track.plan, (0, *track.generations), track.encoder)
            for track in self._tracks_of(case).values()
        )

    def read(self, case: Case, samples: Sequence[Sample], chain_data: ChainData) -> None:
        """The traces of the mappings that the case is about."""
        for track in self._tracks_of(case).values():
            track.traces(chain_data, samples)

    def measure(self, case: Case, chain_data: ChainData) -> Measured:
        """Scores per sample: the mean over a mapping's generations, or over the mappings' means."""
        (samples,) = by_category(case, chain_data).values()
        own = replace(self, tracks=self._tracks_of(case))
        traces = {name: track.traces(chain_data, samples) for name, track in own.tracks.items()}
        for name, track in own.tracks.items():
            spec = chain_data.runner(track.encoder).bound.spec
            refuse_one_vector(list(traces[name].values()), track.generations, spec)
        readable = {
            name: chain_data.readable(traces[name], track.encoder)
            for name, track in own.tracks.items()
        }
        curves = {
            name: np.array([trace.similarities for trace in own_traces.values()])
            for name, own_traces in readable.items()
        }
        rates = {
            name: fit_drift_rate(own.tracks[name].generations, curve.mean(axis=0).tolist())
            for name, curve in curves.items()
        }
        first = next(iter(curves))
        measured = Measured(
            scores={},
            samples=samples,
            outcomes=[
                outcome_of(trace, track.plan, track.encoder)
                for name, track in own.tracks.items()
                for trace in traces[name].values()
            ],
            curve=tuple(curves[first].mean(axis=0).tolist()) if len(curves) == 1 else (),
            notes=(
                *(f"SDR {name}: {rate}" for name, rate in rates.items()),
                *_cuts(own.tracks, samples, chain_data),
            ),
            identity={"metric": own.identity},
        )
        part = case.key.part
        if self.rates:
            read = [sample for sample in samples if sample.id in readable[first]]
            return _with_rate(measured, case, own.tracks[first], read, curves[first], rates[first])
        every = {
            name: np.array([trace.similarities for trace in own_traces.values()])
            for name, own_traces in traces.items()
        }
        means = mcd_average({name: mcd_of_mapping(curve) for name, curve in every.items()})
        scores = dict(zip([sample.id for sample in samples], means.tolist(), strict=True))
        floor = _floor(case, samples, readable)
        notes = (*measured.notes, *([NO_FLOOR] if floor is None else []))
        return replace(measured, scores={part: scores}, floor=floor, notes=notes)

    def show(self, case: Case, sample_id: str, chain_data: ChainData) -> ChainExcerpt:
        """The chain of the mapping, or of the first one for the mean, with its similarities."""
        track = next(iter(self._tracks_of(case).values()))
        trace = track.traces(chain_data, chain_data.named(sample_id))[sample_id]
        return shown_trace(trace, track.generations)

    def _tracks_of(self, case: Case | None) -> dict[str, MappingTrack]:
        """The mapping that the case is about, or all of them."""
        part = "" if case is None else case.key.part
        return {part: self.tracks[part]} if part in self.tracks else dict(self.tracks)


def _floor(
    case: Case, samples: Sequence[Sample], traces: Mapping[str, Mapping[str, Trace]]
) -> float | None:
    """The mean over the mappings of what chance gives in each; None where one has none."""
    parts = {case.key.part: samples}
    floors = [floor_of(case, parts, own_traces, mcd_of_mapping) for own_traces in traces.values()]
    known = [floor for floor in floors if floor is not None]
    return fsum(known) / len(known) if len(known) == len(floors) else None


def _cuts(
    tracks: Mapping[str, MappingTrack], samples: Sequence[Sample], chain_data: ChainData
) -> Iterator[str]:
    for name, track in tracks.items():
        compared = (0, *track.generations)
        note = chain_data.cut_texts(track.plan.start, track.encoder, compared, samples)
        if note:
            yield f"{name}: {note}"


def _with_rate(
    measured: Measured,
    case: Case,
    track: MappingTrack,
    samples: Sequence[Sample],
    curves: npt.NDArray[np.float64],
    rate: DriftRate,
) -> Measured:
    """One score for all samples, with its pseudo-values by block.

    samples: those that could be read.
    curves: (n, k) of each. Raises MeasurementError where their mean tells no rate.
    """
    if rate.b is None:
        raise MeasurementError(f"{case.key}: the curve does not tell a drift rate: {rate.reason}")
    part = case.key.part
    without, why = _rates_without(track, samples, curves)
    return replace(
        measured,
        scores={part: {_ALL: rate.b}},
        sizes={part: len(samples)},
        blocks={} if why else {part: scored_blocks(rate.b, without)},
        notes=(*measured.notes, *([unbounded(part, why)] if why else [])),
    )


def _rates_without(
    track: MappingTrack, samples: Sequence[Sample], curves: npt.NDArray[np.float64]
) -> tuple[list[float], str]:
    """The rate without each block of samples, or why there are none."""
    of_each = block_of_each(samples)
    if not of_each:
        return [], too_few_units(samples)
    blocks = np.array([of_each[sample.id] for sample in samples])
    rates = []
    for block in range(int(blocks.max()) + 1):
        rest = curves[blocks != block].mean(axis=0)
        rate = fit_drift_rate(track.generations, rest.tolist())
        if rate.b is None:
            return [], f"without block {block} the curve does not tell a drift rate: {rate.reason}"
        rates.append(rate.b)
    return rates, ""


def make_mapping(
    kind: str, name: str, table: MappingTable, context: SuiteContext
) -> MappingMeasure:
    """The measure of a table. Raises SuiteError for a mapping that the suite's chains lack."""
    named = table.mappings
    if named is None:
        named = {m: ENCODER for m, (start, _) in MAPPINGS.items() if start in context.plans}
    tracks = {}
    for mapping, encoder in named.items():
        if mapping not in MAPPINGS:
            raise context.error(name, f"{unknown_name('mapping', mapping, MAPPINGS)}")
        start, modality = MAPPINGS[mapping]
        plan = context.plan(name, start)
        generations = mapping_generations(start, modality, plan.generations)
        if not generations:
            raise context.error(
                name, f"mapping {mapping!r} has no generation in chains of {plan.generations}"
            )
        tracks[mapping] = MappingTrack(plan, generations, encoder)
    rates = kind == "sdr"
    return MappingMeasure(
        name=name,
        pool="samples",
        parts=None if rates else table.parts or "overall",  # rates of mappings have no mean
        higher_is_better=not rates,
        own_parts=tuple(tracks),
        per_sample=not rates,
        span=None if rates else 2.0,
        tracks=tracks,
        rates=rates,
    )
