"""Run a study, and tell from its results how far each metric moves."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from math import fsum, sqrt

import msgspec
import numpy as np

from pytest_cepbench.chains import CallCounts, Modality, total
from pytest_cepbench.errors import CepError, MeasurementError, StoreError
from pytest_cepbench.metrics.correlation import (
    FEWEST_CORRELATED,
    Correlation,
    Method,
    correlation,
    correlation_matrix,
    mean_of_pairs,
)
from pytest_cepbench.metrics.diversity import word_statistics
from pytest_cepbench.metrics.uncertainty import spread_of, t_upper_quantile
from pytest_cepbench.models.torch_runtime import release_memory
from pytest_cepbench.studies.calibration import Announce
from pytest_cepbench.studies.prepared_study import LAST, PreparedStudy
from pytest_cepbench.studies.study_data import (
    ChainAgreement,
    Column,
    FinishedStudy,
    Grid,
    LengthStatistics,
    ModelSpread,
    StudyCell,
    StudyName,
    StudyUsage,
    VariantAgreement,
    Weighting,
)
from pytest_cepbench.suites import Case, ModelPool
from pytest_cepbench.suites.chain_run import require_chains
from pytest_cepbench.suites.suite_run import CaseMeasurement, SuiteRun

Results = Mapping[tuple[str, str, str, str], CaseMeasurement | str]
"""(model, variant, part, metric) -> what was measured, or why it could not be."""

_PEARSON: Method = "pearson"

_RANKS: tuple[Method, ...] = ("spearman", "kendall")

CONFIDENCE = 0.95
"""Level of every interval of a study."""

Columns = Mapping[str, Sequence[float]]
"""Variant -> one value per model, the models in the same order in each."""


def make_grids(prepared: PreparedStudy, results: Results) -> Iterator[Grid]:
    """A table for every case, with statistics where there is more than one variant."""
    models = [model.name for model in prepared.spec.models]
    variants = [variant.name for variant in prepared.variants]
    for case in prepared.runs[0].cases:
        part, metric = case.key.part, case.key.metric
        rows: dict[str, list[StudyCell]] = {model: [] for model in models}
        for model, variant in product(models, variants):
            result = results[model, variant, part, metric]
            rows[model].append(
                StudyCell(model, variant, error=result)
                if isinstance(result, str)
                else StudyCell(
                    model,
                    variant,
                    value=result.value,
                    n=result.n,
                    failures=dict(result.failures),
                    identity=dict(result.identity),
                    notes=(*result.notes, *result.warnings),
                )
            )
        labels = {run.prepared.measures[metric].label for run in prepared.runs}
        grid = Grid(
            part=part,
            metric=metric,
            label=case.label if len(labels) == 1 else metric,  # some labels name the encoder
            higher_is_better=prepared.runs[0].prepared.measures[metric].higher_is_better,
            cells=tuple(cell for row in rows.values() for cell in row),
        )
        yield _with_statistics(grid, rows, prepared.spec.study) if len(variants) > 1 else grid


def _with_statistics(grid: Grid, rows: Mapping[str, Sequence[StudyCell]], study: StudyName) -> Grid:
    """With spreads and agreements; a variant under which nothing could be measured is left out."""
    seeds = study == "seeds"
    left = {cell.variant for cell in grid.cells if cell.value is not None}
    columns: dict[str, list[float]] = {}
    whole = []
    for model, row in rows.items():
        values = {c.variant: c.value for c in row if c.value is not None}
        if values and len(values) == len(left):
            whole.append(model)
            for variant, value in values.items():
                columns.setdefault(variant, []).append(value)
    spreads = {model: spread_over(row, sampled=seeds) for model, row in rows.items()}
    mean_std, mean_range = mean_spread([spreads[model] for model in whole])
    grid = replace(
        grid,
        spreads=tuple(spreads.values()),
        complete=tuple(whole),
        mean_std=mean_std,
        mean_range=mean_range,
    )
    if len(whole) >= FEWEST_CORRELATED and len(left) > 1:
        methods = _RANKS if seeds else (_PEARSON, *_RANKS)
        return replace(grid, agreements=agreements(columns, methods))
    undefined = (
        f"correlation between {study} is not defined: it needs {FEWEST_CORRELATED} models that "
        f"were measured under the same 2 {study} or more, here are {len(whole)} under {len(left)}"
    )
    return replace(grid, undefined=undefined)


def make_weightings(prepared: PreparedStudy, results: Results) -> Iterator[Weighting]:
    """GC@T against s(T) for each metric and part; none in the other studies."""
    if prepared.spec.study != "weighting":
        return
    (variant,) = prepared.variants
    cases = {(case.key.part, case.key.metric): case for case in prepared.runs[0].cases}
    for (part, metric), weighted in cases.items():
        last = cases.get((part, LAST.format(metric)))
        if last is None:
            continue
        rows = []
        for model in prepared.spec.models:
            own = results[model.name, variant.name, part, metric]
            other = results[model.name, variant.name, part, last.key.metric]
            if isinstance(own, str) or isinstance(other, str):
                error = own if isinstance(own, str) else str(other)
                rows.append(ChainAgreement(model.name, error=error))
            else:
                rows.append(chain_agreement(model.name, own, other))
        known = [
            (r.weighted, r.last) for r in rows if r.weighted is not None and r.last is not None
        ]
        columns = [pair[0] for pair in known], [pair[1] for pair in known]
        over_models = [correlate(*columns, method) for method in (_PEARSON, *_RANKS)]
        undefined = None
        if None in over_models and len(known) < FEWEST_CORRELATED:
            undefined = f"it needs at least {FEWEST_CORRELATED}, here are {len(known)}"
        elif None in over_models:
            undefined = "all of them score the same"
        yield Weighting(
            part=part,
            metric=metric,
            weighted=weighted.label,
            last=last.label,
            rows=tuple(rows),
            models=tuple(over_all for over_all in over_models if over_all is not None),
            undefined=undefined and f"correlation over models is not defined: {undefined}",
        )


# -- statistics: spreads of models over variants, agreement of variants on models ------------------


def spread_over(cells: Sequence[StudyCell], *, sampled: bool) -> ModelSpread:
    """The spread of one model over the variants that could be measured; see `spread_of`.

    sampled: whether the variants are drawn at random, as seeds are. Only then the mean has a
    confidence interval: mean -+ t * std / sqrt(runs), t of Student with runs - 1 degrees of
    freedom. Generators and encoders are picked by hand and estimate the mean of no population.
    """
    values = [cell.value for cell in cells if cell.value is not None]
    model = cells[0].model
    if len(values) < 2:
        return ModelSpread(model, None)
    spread = spread_of(np.array(values))
    if not sampled or spread.std == 0:
        return ModelSpread(model, spread)
    t = t_upper_quantile((1 - CONFIDENCE) / 2, spread.runs - 1)
    half = t * spread.std / sqrt(spread.runs)
    return ModelSpread(model, spread, spread.mean - half, spread.mean + half)


def mean_spread(spreads: Sequence[ModelSpread]) -> tuple[float | None, float | None]:
    """Means over the models of standard deviation and range; None where there is no model.

    Source: MMGenBench, Table 15.
    """
    known = [spread.spread for spread in spreads if spread.spread is not None]
    if not known:
        return None, None
    return fsum(s.std for s in known) / len(known), fsum(s.range for s in known) / len(known)


def agreements(columns: Columns, methods: Sequence[Method]) -> tuple[VariantAgreement, ...]:
    """The agreement of the variants on the models, by several coefficients.

    columns: of at least `FEWEST_CORRELATED` models.
    Source: MMGenBench, Tables 9-13 (generators) and 16-19 (encoders), by Spearman and Kendall.
    """
    arrays = {name: np.array(values) for name, values in columns.items()}
    results = []
    for method in methods:
        matrix = correlation_matrix(arrays, method, CONFIDENCE)
        values = [[cell.value if cell else None for cell in row] for row in matrix.cells]
        results.append(VariantAgreement(method, matrix.names, matrix.cells, mean_of_pairs(values)))
    return tuple(results)


def chain_agreement(model: str, weighted: CaseMeasurement, last: CaseMeasurement) -> ChainAgreement:
    """GC@T against s(T) over the chains of one model.

    A sample in several categories counts once. A chain that stopped has zeros from there on in
    both, so failures alone make the two agree. Source: the ablation of GenCeption (Table 3), which
    correlates over models only.
    """
    first, second = (
        {name: score for part in measured.scores.values() for name, score in part.items()}
        for measured in (weighted, last)
    )
    chains = sorted(first)
    pairs = [first[name] for name in chains], [second[name] for name in chains]
    return ChainAgreement(
        model,
        weighted.value,
        last.value,
        len(chains),
        correlate(*pairs, "pearson"),
        correlate(*pairs, "spearman"),
    )


def correlate(
    first: Sequence[float], second: Sequence[float], method: Method
) -> Correlation | None:
    """Correlation of two columns; None for too few rows or a constant column."""
    if len(first) < FEWEST_CORRELATED:
        return None
    return correlation(np.array(first), np.array(second), method, CONFIDENCE)


def run_study(prepared: PreparedStudy, model_pool: ModelPool, announce: Announce) -> FinishedStudy:
    """Measure every cell and sum up.

    announce: is given one line for each run that begins. The cells of a model hold its errors.
    Raises StoreError, which concerns all cells.
    """
    results: dict[tuple[str, str, str, str], CaseMeasurement | str] = {}
    words: list[LengthStatistics] = []
    tallies: list[CallCounts] = []
    for number, study_run in enumerate(prepared.runs, 1):
        model, variant = study_run.model, study_run.variant
        announce(f"{number} of {len(prepared.runs)}: {model.name}, {variant.setting}")
        # A study names more models than the gate does, and they need not fit into memory together.
        needed = {(own.role, own.spec) for own in study_run.prepared.assignments.roles.values()}
        loaded = [place for place, runner in model_pool.runners.items() if runner.tally.loads]
        unloaded = [model_pool.dismiss(place) for place in loaded if place not in needed]
        tallies += unloaded
        if unloaded:
            release_memory()
        own_run = study_run.prepared.run(model_pool)
        measured = _measure_cases(own_run, study_run.cases)
        for case, result in zip(study_run.cases, measured, strict=True):
            results[model.name, variant.name, case.key.part, case.key.metric] = result
        if variant.band and any(isinstance(result, CaseMeasurement) for result in measured):
            run = require_chains(own_run, "a study of lengths")
            read = {
                required.plan.start
                for measure in run.measures.values()
                for required in measure.required_features(None)
            }
            start: Modality = min(read, key=lambda own: own == "text")
            generation = 2 if start == "text" else 1
            chains = run.chain_data.chains(start, run.dataset.samples).values()
            texts = [c.links[generation].text or "" for c in chains if c.has(generation)]
            statistics = word_statistics(texts, variant.band)
            words.append(LengthStatistics(model.name, variant.name, statistics))
    tallies += [runner.tally for runner in model_pool.runners.values()]
    spec, suite = prepared.spec, prepared.suite
    return FinishedStudy(
        study=spec.study,
        suite=suite.name,
        version=suite.table.version,
        file=str(spec.suite),
        data={name: str(value) for name, value in prepared.dataset.identity.items()},
        samples=len(prepared.dataset.samples),
        confidence=CONFIDENCE,
        under_test=prepared.runs[0].prepared.assignments.under_test,
        models=spec.models,
        variants=tuple(Column(variant.name, variant.setting) for variant in prepared.variants),
        players=prepared.models,
        grids=tuple(make_grids(prepared, results)),
        words=tuple(words),
        weightings=tuple(make_weightings(prepared, results)),
        notes=prepared.notes,
        damage=tuple(model_pool.store.damage),
        effort=StudyUsage.of(total(tallies)),
    )


def _measure_cases(run: SuiteRun, cases: Sequence[Case]) -> list[CaseMeasurement | str]:
    results: list[CaseMeasurement | str] = []
    broken: str | None = None
    for case in cases:
        if broken is not None:
            results.append(broken)
            continue
        try:
            measured = run.measure(case)
            warnings = (*measured.warnings, *run.warnings(measured))
            results.append(msgspec.structs.replace(measured, warnings=warnings))
        except MeasurementError as error:
            results.append(str(error))
        except StoreError:
            raise
        except CepError as error:  # a model that does not load does so for no case
            broken = str(error)
            results.append(broken)
    return results
