"""Playing a pair of models through a suite by the gate's own runs, and reading its chains."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from msgspec.structs import replace

from benchmarks.curves.lineups import Pair
from benchmarks.curves.resampling import Draws, draw, recentred
from benchmarks.curves.truth import Array, kept_by_chains
from pytest_cepbench.artifacts import Failure
from pytest_cepbench.chains import Chain, Modality
from pytest_cepbench.datasets.sample import Sample
from pytest_cepbench.measures import KINDS, Measure, read_table
from pytest_cepbench.measures.cases import OVERALL
from pytest_cepbench.measures.chain_data import ChainData
from pytest_cepbench.measures.feature_sets import SetMeasure
from pytest_cepbench.measures.mapping_drift import MappingMeasure, MappingTrack
from pytest_cepbench.measures.set_diversity import DiversityMeasure
from pytest_cepbench.metrics.diversity import mean_pairwise_distance, vendi_score
from pytest_cepbench.metrics.semantic_drift import fit_drift_rate
from pytest_cepbench.metrics.set_distances import frechet_distance, gc_fid_at_t, kernel_distance
from pytest_cepbench.store import Vector
from pytest_cepbench.suites import (
    Case,
    ChainRun,
    ModelPool,
    RoleChoices,
    Suite,
    assign_models,
    list_cases,
    load_data,
    load_suite,
)
from pytest_cepbench.suites.gate_config import Overrides, claim_of

Reach = tuple[tuple[Modality, int], ...]
"""The last artifacts that a metric looks at: start of the chain, generation."""

_FEWEST = 2  # images that a distance of sets needs

_ROUNDING = 2e-6  # scores are kept with six decimals


@dataclass(frozen=True)
class Sampling:
    """How much is played and drawn.

    samples: most of each category, all when None. draws: of the bootstrap. seed: of the draws.
    """

    samples: int | None = None
    draws: int = 1000
    seed: int = 0


@dataclass(frozen=True)
class Metric:
    """A metric of a suite for one pair of models.

    name: its key in the suite, with the mapping where it has one. value: as the gate measures it;
    None where it cannot, and why says so. drawn: (B,) its values over the draws, NaN where there is
    none. scores: (n,) of the samples, where each has its own.
    """

    name: str
    label: str
    higher_is_better: bool
    tolerance: float
    reach: Reach
    value: float | None
    drawn: Array
    scores: Array | None = None
    why: str = ""


@dataclass(frozen=True)
class Played:
    """What one pair of models did in one suite.

    draws: (B, n), equal for every pair. truth: by start, (n, G + 1, aspects). stopped: chains that
    did not reach their end.
    """

    suite: str
    samples: tuple[str, ...]
    draws: Draws
    metrics: tuple[Metric, ...]
    truth: Mapping[Modality, Array]
    stopped: int


def play(
    pair: Pair,
    file: Path,
    roster: ModelPool,
    sampling: Sampling,
    beside: Mapping[str, Mapping[str, object]] | None = None,
) -> Played:
    """Measure every case of the whole suite, then ask of its chains what they kept.

    roster: the models of this process, so that those of one pair are loaded once for all suites.
    beside: tables of metrics, by name, that the suite has not.

    Raises what suites, models and the store raise, and ValueError where categories differ in size.
    """
    suite = load_suite(file)
    more = {name: read_table(name, raw, KINDS) for name, raw in (beside or {}).items()}
    suite = replace(suite, metrics={**suite.metrics, **more})
    roles = {"describer": pair.describer, "generator": pair.generator}
    assignments, measures = assign_models(
        suite,
        RoleChoices(roles=roles),  # type: ignore[arg-type] # they are role names
    )
    dataset = load_data(suite, {}, sampling.samples)
    run = ChainRun(suite, dataset, assignments, measures, roster)
    samples = dataset.samples
    draws = draw([sample.categories[0] for sample in samples], sampling.draws, sampling.seed)
    metrics: list[Metric] = []
    for case in list_cases(measures, suite.name, dataset, suite.table.groups):
        measure = measures[case.key.metric]
        if case.key.part == OVERALL or case.key.part in measure.own_parts:
            metrics.append(_metric(suite, run, case, measure, draws))
    for measure in measures.values():
        if isinstance(measure, MappingMeasure) and not measure.rates:
            metrics += _rates(measure, run.chain_data, samples, draws)
    chains = {start: list(run.chain_data.chains(start, samples).values()) for start in suite.plans}
    return Played(
        suite=suite.name,
        samples=tuple(sample.id for sample in samples),
        draws=draws,
        metrics=tuple(metrics),
        truth={
            start: kept_by_chains(own, suite.plans[start].generations, roster.store)
            for start, own in chains.items()
        },
        stopped=sum(chain.failure is not None for own in chains.values() for chain in own),
    )


def _metric(suite: Suite, run: ChainRun, case: Case, measure: Measure, draws: Draws) -> Metric:
    measured = run.measure(case)
    required_features = measure.required_features(case)
    part = "" if case.key.part == OVERALL else f" {case.key.part}"
    scores: Array | None = None
    if isinstance(measure, SetMeasure):
        drawn = recentred(_distances(measure, run, draws), measured.value)
    elif isinstance(measure, DiversityMeasure):
        drawn = recentred(_diversities(measure, run, draws), measured.value)
    else:
        of_each = {name: x for own in measured.scores.values() for name, x in own.items()}
        scores = np.array([of_each[sample.id] for sample in run.dataset.samples])
        if abs(scores.mean() - measured.value) > _ROUNDING:
            raise ValueError(f"{case.key}: the mean of its categories is not that of its samples")
        drawn = scores[draws].mean(axis=1)
    return Metric(
        name=f"{case.key.metric}{part}",
        label=f"{case.label}{part}",
        higher_is_better=measure.higher_is_better,
        tolerance=claim_of(suite, case.key, Overrides()).policy.tolerance,
        reach=tuple(
            dict.fromkeys(
                (feature.plan.start, feature.generations[-1]) for feature in required_features
            )
        ),
        value=measured.value,
        drawn=drawn,
        scores=scores,
    )


def _distances(measure: SetMeasure, run: ChainRun, draws: Draws) -> Array:
    """(B,) the distance of the drawn samples' images from their starts."""
    first = 1 if measure.kind == "gc_fid" else measure.at
    samples, start = run.dataset.samples, measure.plan.start

    def features(generation: int) -> Array:
        shards = run.chain_data.features(start, measure.encoder, generation, samples)
        return _rows(samples, (pair for shard in shards for pair in shard))

    starts = features(0)
    images = [features(2 * t) for t in range(first, measure.at + 1)]
    distance = kernel_distance if measure.kind == "kid" else frechet_distance
    distances = np.full(len(draws), np.nan)
    for number, drawn in enumerate(draws):
        sets = [_there(rows[drawn]) for rows in (starts, *images)]
        if min(map(len, sets)) >= _FEWEST:
            values = np.array([distance(sets[0], rows) for rows in sets[1:]])
            distances[number] = gc_fid_at_t(values)  # of a single distance, the distance itself
    return distances


def _diversities(measure: DiversityMeasure, run: ChainRun, draws: Draws) -> Array:
    """(B,) the diversity of the drawn samples' ends."""
    samples, start = run.dataset.samples, measure.plan.start
    shards = run.chain_data.features(start, measure.encoder, measure.generations[-1], samples)
    ends = _rows(samples, (pair for shard in shards for pair in shard))
    score = vendi_score if measure.score == "vendi" else mean_pairwise_distance
    sets = (_there(ends[drawn]) for drawn in draws)
    return np.array([score(rows) if len(rows) >= _FEWEST else np.nan for rows in sets])


def _rows(samples: Sequence[Sample], features: Iterator[tuple[Chain, Vector | Failure]]) -> Array:
    """(n, D) features in the order of the samples, NaN where a chain has none."""
    of_each = {
        chain.sample.id: vector for chain, vector in features if not isinstance(vector, Failure)
    }
    width = len(next(iter(of_each.values()), np.zeros(1)))
    rows = np.full((len(samples), width), np.nan)
    for row, sample in zip(rows, samples, strict=True):
        row[:] = of_each.get(sample.id, np.nan)
    return rows


def _there(rows: Array) -> Array:
    return rows[np.isfinite(rows).all(axis=1)]


def _rates(
    measure: MappingMeasure, chain_data: ChainData, samples: Sequence[Sample], draws: Draws
) -> Iterator[Metric]:
    """SDR of each mapping, from the traces that MCD was made of."""
    for name, track in measure.tracks.items():
        traces = track.traces(chain_data, samples)
        curves = np.array([traces[sample.id].similarities for sample in samples])
        rate = fit_drift_rate(track.generations, curves.mean(axis=0).tolist())
        yield Metric(
            name=f"sdr {name}",
            label=f"SDR {name}",
            higher_is_better=False,
            tolerance=0.0,
            reach=((track.plan.start, track.generations[-1]),),
            value=rate.b,
            drawn=_drawn_rates(track, curves, draws),
            why=rate.reason,
        )


def _drawn_rates(track: MappingTrack, curves: Array, draws: Draws) -> Array:
    means = (curves[drawn].mean(axis=0) for drawn in draws)
    rates = (fit_drift_rate(track.generations, mean.tolist()).b for mean in means)
    return np.array([np.nan if rate is None else rate for rate in rates])
