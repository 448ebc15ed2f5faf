"""The figures of a study: spreads of models over variants, agreement of variants on models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import fsum, sqrt

import numpy as np

from pytest_cepbench.gate import Measurement
from pytest_cepbench.metrics.correlation import (
    Correlation,
    Method,
    correlation,
    correlation_matrix,
    mean_of_pairs,
)
from pytest_cepbench.metrics.student_t import t_quantile
from pytest_cepbench.metrics.variability import spread_of
from pytest_cepbench.studies.study_result import (
    ChainAgreement,
    ModelSpread,
    StudyCell,
    VariantAgreement,
)

CONFIDENCE = 0.95
"""Level of every interval of a study."""

FEWEST = 3
"""Least models, or chains, that are correlated: two always lie on a line."""

Columns = Mapping[str, Sequence[float]]
"""Variant -> one value per model, the models in the same order in each."""


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
    half = t_quantile(CONFIDENCE, spread.runs - 1) * spread.std / sqrt(spread.runs)
    return ModelSpread(model, spread, spread.mean - half, spread.mean + half)


def mean_spread(spreads: Sequence[ModelSpread]) -> tuple[float | None, float | None]:
    """Means over the models of standard deviation and range; None where there is no model.

    Source: MMGenBench, Table 15.
    """
    known = [one.spread for one in spreads if one.spread is not None]
    if not known:
        return None, None
    return fsum(s.std for s in known) / len(known), fsum(s.range for s in known) / len(known)


def agreements(columns: Columns, methods: Sequence[Method]) -> tuple[VariantAgreement, ...]:
    """How far the variants agree on the models, by several coefficients.

    columns: of at least `FEWEST` models. Source: MMGenBench, Tables 9-13 (generators) and 16-19
    (encoders), by Spearman and Kendall.
    """
    arrays = {name: np.array(values) for name, values in columns.items()}
    found = []
    for method in methods:
        matrix = correlation_matrix(arrays, method, CONFIDENCE)
        values = [[cell.value if cell else None for cell in row] for row in matrix.cells]
        found.append(VariantAgreement(method, matrix.names, matrix.cells, mean_of_pairs(values)))
    return tuple(found)


def chain_agreement(model: str, weighted: Measurement, last: Measurement) -> ChainAgreement:
    """GC@T against s(T) over the chains of one model.

    A sample in several categories counts once. A chain that stopped has zeros from there on in
    both, so failures alone make the two agree. Source: the ablation of GenCeption (Table 3), which
    correlates over models only.
    """
    first, second = _by_chain(weighted), _by_chain(last)
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
    """Correlation of two columns; None for fewer than `FEWEST` rows or a constant column."""
    if len(first) < FEWEST:
        return None
    return correlation(np.array(first), np.array(second), method, CONFIDENCE)


def _by_chain(measurement: Measurement) -> dict[str, float]:
    return {name: score for part in measurement.scores.values() for name, score in part.items()}
