"""From measurements to the tables of a study, with their statistics."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from pytest_cepbench.gate import Measurement
from pytest_cepbench.metrics.correlation import Method
from pytest_cepbench.studies.preparation import PreparedStudy
from pytest_cepbench.studies.spec import StudyName
from pytest_cepbench.studies.study_result import ChainAgreement, Grid, StudyCell, Weighting
from pytest_cepbench.studies.summary_statistics import (
    FEWEST,
    agreements,
    chain_agreement,
    correlate,
    mean_spread,
    spread_over,
)
from pytest_cepbench.studies.variants import LAST
from pytest_cepbench.suites import Case

Found = Mapping[tuple[str, str, str, str], Measurement | str]
"""(model, variant, part, metric) -> what was measured, or why it could not be."""

_PEARSON: Method = "pearson"

_RANKS: tuple[Method, ...] = ("spearman", "kendall")


def make_grids(prepared: PreparedStudy, found: Found) -> Iterator[Grid]:
    """A table for every case, with statistics where there is more than one variant."""
    models = [model.name for model in prepared.question.models]
    variants = [variant.name for variant in prepared.variants]
    for case in prepared.plays[0].cases:
        part, metric = case.key.part, case.key.metric
        rows = {m: [_cell(m, v, found[m, v, part, metric]) for v in variants] for m in models}
        labels = {play.measures[metric].label for play in prepared.plays}
        grid = Grid(
            part=part,
            metric=metric,
            label=case.label if len(labels) == 1 else metric,  # some labels name the encoder
            higher_is_better=prepared.plays[0].measures[metric].higher_is_better,
            cells=tuple(cell for row in rows.values() for cell in row),
        )
        yield _summed_up(grid, rows, prepared.question.study) if len(variants) > 1 else grid


def _cell(model: str, variant: str, one: Measurement | str) -> StudyCell:
    if isinstance(one, str):
        return StudyCell(model, variant, error=one)
    return StudyCell(
        model,
        variant,
        value=one.value,
        n=one.n,
        failures=dict(one.failures),
        identity=dict(one.identity),
        notes=(*one.notes, *one.warnings),
    )


def _summed_up(grid: Grid, rows: Mapping[str, Sequence[StudyCell]], study: StudyName) -> Grid:
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
    if len(whole) < FEWEST or len(left) < 2:
        return replace(grid, undefined=_why_no_agreement(len(whole), len(left), study))
    return replace(grid, agreements=agreements(columns, _RANKS if seeds else (_PEARSON, *_RANKS)))


def _why_no_agreement(models: int, variants: int, study: StudyName) -> str:
    return (
        f"correlation between {study} is not defined: it needs {FEWEST} models that were measured "
        f"under the same 2 {study} or more, here are {models} under {variants}"
    )


def make_weightings(prepared: PreparedStudy, found: Found) -> Iterator[Weighting]:
    """GC@T against s(T) for each metric and part; none in the other studies."""
    if prepared.question.study != "weighting":
        return
    cases = {(case.key.part, case.key.metric): case for case in prepared.plays[0].cases}
    for (part, metric), case in cases.items():
        last = cases.get((part, LAST.format(metric)))
        if last is not None:
            yield _weighting(prepared, found, case, last)


def _weighting(prepared: PreparedStudy, found: Found, weighted: Case, last: Case) -> Weighting:
    (variant,) = prepared.variants
    rows = []
    for model in prepared.question.models:
        part = model.name, variant.name, weighted.key.part
        both = found[*part, weighted.key.metric], found[*part, last.key.metric]
        rows.append(_row(model.name, *both))
    known = [(r.weighted, r.last) for r in rows if r.weighted is not None and r.last is not None]
    columns = [pair[0] for pair in known], [pair[1] for pair in known]
    methods = (_PEARSON, *_RANKS)
    over_models = [correlate(*columns, method) for method in methods]
    return Weighting(
        part=weighted.key.part,
        metric=weighted.key.metric,
        weighted=weighted.label,
        last=last.label,
        rows=tuple(rows),
        models=tuple(one for one in over_models if one is not None),
        undefined=_why_none(len(known)) if None in over_models else None,
    )


def _row(model: str, weighted: Measurement | str, last: Measurement | str) -> ChainAgreement:
    if isinstance(weighted, str) or isinstance(last, str):
        return ChainAgreement(model, error=weighted if isinstance(weighted, str) else str(last))
    return chain_agreement(model, weighted, last)


def _why_none(models: int) -> str:
    if models < FEWEST:
        return (
            f"correlation over models is not defined: it needs at least {FEWEST}, here are {models}"
        )
    return "correlation over models is not defined: all of them score the same"
