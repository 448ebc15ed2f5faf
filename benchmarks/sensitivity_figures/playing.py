"""A model played through a suite at one seed, and the values of its metrics on draws of samples."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from benchmarks.sensitivity_figures.worlds import Sampling, Setting
from pytest_cepbench.artifacts import Failure
from pytest_cepbench.chains import Chain, ChainPlan, Modality
from pytest_cepbench.datasets.sample import Dataset, Sample
from pytest_cepbench.errors import CepError, MeasurementError, TooFewError
from pytest_cepbench.measures.cases import OVERALL
from pytest_cepbench.measures.chain_data import ChainData
from pytest_cepbench.store import Store, Vector
from pytest_cepbench.suites import (
    Case,
    ChainRun,
    ModelPool,
    RoleChoices,
    load_data,
    prepare_suite,
)

Array = npt.NDArray[np.float64]

_ROUNDING = 2e-6  # scores are kept with six decimals

Read = tuple[Chain, Vector | Failure]
"""A chain, and the features of one of its artifacts."""

Draws = Mapping[int, npt.NDArray[np.int64]]
"""Number of samples -> (draws, samples) places of the starts that are drawn."""


@dataclass(frozen=True)
class MetricRun:
    """One metric of one model at one seed.

    calls: of describer and generator for a sample, where this metric alone is wanted.
    values: number of samples -> (draws,) its values on the draws; NaN where a draw has none.
    """

    name: str
    label: str
    higher_is_better: bool
    calls: int
    values: Mapping[int, Array]


@dataclass(frozen=True)
class Played:
    """One model at one seed.

    samples: of the suite. refused: why nothing could be measured; empty where it could.
    """

    samples: int
    metrics: Mapping[str, MetricRun] = field(default_factory=dict)
    refused: str = ""


def play(setting: Setting, seed: int, sampling: Sampling, store: Path) -> Played:
    """Every overall case of the suite, and of its mappings, through the project's own measures."""
    with tempfile.TemporaryDirectory() as folder, Store(store) as opened:
        suite = setting.load(Path(folder), sampling.samples, seed)
        dataset = load_data(suite, {})
        prepared = prepare_suite(suite, dataset, RoleChoices())
        run = prepared.run(ModelPool(opened, threads=1))
        assert isinstance(run, ChainRun)
        draws = draw(dataset, sampling)
        runs: dict[str, MetricRun] = {}
        for case in prepared.cases:
            if case.key.part in (OVERALL, *prepared.measures[case.key.metric].own_parts):
                try:
                    measured = _measure(run, case, draws)
                except CepError as error:
                    return Played(len(dataset.samples), refused=" ".join(str(error).split()))
                runs[measured.name] = measured
        return Played(len(dataset.samples), runs)


def draw(dataset: Dataset, sampling: Sampling) -> Draws:
    """The same draws for every model: without replacement, as many of each category.

    Raises ValueError where a category has fewer samples than are drawn.
    """
    places: dict[str, list[int]] = {}
    for place, sample in enumerate(dataset.samples):
        places.setdefault(sample.categories[0], []).append(place)
    if min(map(len, places.values())) < max(sampling.sizes):
        raise ValueError(f"{dataset.name}: a category has fewer samples than {max(sampling.sizes)}")
    drawn = {}
    for size in sampling.sizes:
        generator = np.random.default_rng([sampling.seed, size])
        rows = np.stack(
            [
                np.concatenate(
                    [generator.choice(own, size, replace=False) for own in places.values()]
                )
                for _ in range(sampling.draws)
            ]
        )
        drawn[size * len(places)] = np.sort(rows, axis=1)
    return drawn


def _measure(run: ChainRun, case: Case, draws: Draws) -> MetricRun:
    measure = run.measures[case.key.metric]
    measured = run.measure(case)
    part = "" if case.key.part == OVERALL else f" {case.key.part}"
    if measure.per_sample:
        scores = _scores(run.dataset, measured.scores)
        everything = np.arange(scores.shape[1])[None]
        if abs(_means(scores, everything)[0] - measured.value) > _ROUNDING:
            raise ValueError(f"{case.key}: the mean of its samples is not its value")
        values = {size: _means(scores, rows) for size, rows in draws.items()}
    else:
        values = {size: _anew(run, case, rows) for size, rows in draws.items()}
    return MetricRun(
        name=f"{case.key.metric}{part}",
        label=f"{case.label}{part}",
        higher_is_better=measure.higher_is_better,
        calls=calls_of(run, case),
        values=values,
    )


def _scores(dataset: Dataset, by_part: Mapping[str, Mapping[str, float]]) -> Array:
    """(categories, starts) scores, NaN where a start has none in a category."""
    places = {sample.id: place for place, sample in enumerate(dataset.samples)}
    scores = np.full((len(by_part), len(places)), np.nan)
    for row, own in zip(scores, by_part.values(), strict=True):
        for name, score in own.items():
            row[places[name]] = score
    return scores


def _means(scores: Array, rows: npt.NDArray[np.int64]) -> Array:
    """(draws,) the mean of the parts' means over the drawn starts; parts without any are left out.

    scores: (parts, starts). rows: (draws, drawn).
    """
    drawn = scores[:, rows]  # (parts, draws, drawn)
    there = np.isfinite(drawn)
    counts = there.sum(axis=2)
    with np.errstate(invalid="ignore"):
        means = np.where(there, drawn, 0.0).sum(axis=2) / counts
    return np.asarray(np.nanmean(means, axis=0))


def as_one_cluster(sample: Sample) -> Sample:
    """The sample, no more independent of others: sets of such have a value, and need no bounds."""
    return replace(sample, cluster="all")


class RememberedFeatures(ChainData):
    """Chains whose features are read from the store once, however many draws ask for them."""

    def __init__(self, chain_data: ChainData) -> None:
        self.__dict__.update(chain_data.__dict__)  # the same chains, and all that is known of them
        self._every = chain_data.dataset.samples
        self._read: dict[tuple[Modality, str, int], list[Read]] = {}

    def features(
        self, start: Modality, role: str, generation: int, samples: Sequence[Sample]
    ) -> Iterator[list[Read]]:
        """As of `ChainData`, all samples in one shard."""
        key = (start, role, generation)
        if key not in self._read:
            shards = super().features(start, role, generation, self._every)
            self._read[key] = [
                (replace(chain, sample=as_one_cluster(chain.sample)), vector)
                for shard in shards
                for chain, vector in shard
            ]
        wanted = {sample.id for sample in samples}
        yield [pair for pair in self._read[key] if pair[0].sample.id in wanted]


def _anew(run: ChainRun, case: Case, rows: npt.NDArray[np.int64]) -> Array:
    """(draws,) the case measured again on the chains of each draw's samples alone."""
    measure, samples = run.measures[case.key.metric], run.dataset.samples
    remembered = RememberedFeatures(run.data)
    values = np.full(len(rows), np.nan)
    for number, places in enumerate(rows):
        drawn = tuple(as_one_cluster(samples[place]) for place in places)
        look = copy(remembered)
        look.dataset = look.population = replace(run.dataset, samples=drawn)
        try:
            measured = measure.measure(case, look)
        except (MeasurementError, TooFewError):
            continue
        parts = [np.mean(list(scores.values())) for scores in measured.scores.values()]
        values[number] = np.mean(parts)
    return values


def calls_of(run: ChainRun, case: Case) -> int:
    """Calls of describer and generator that one sample of this case takes, and no other case.

    Chains are grown as far as the case reads them, a call a generation. Encoders and detectors,
    which cost little, are left out.
    """
    last: dict[ChainPlan, int] = {}
    for features in run.measures[case.key.metric].required_features(case):
        last[features.plan] = max(last.get(features.plan, 0), *features.generations)
    return sum(last.values())
