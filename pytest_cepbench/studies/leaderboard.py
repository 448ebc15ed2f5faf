"""Leaderboards of any suite: which of several checkpoints is best, and which are not told apart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import sqrt

import numpy as np
import numpy.typing as npt

from pytest_cepbench.errors import IncomparableError, SpecError, did_you_mean
from pytest_cepbench.gate import Baseline, CaseKey
from pytest_cepbench.gate.baseline import contradiction, measurement_of
from pytest_cepbench.gate.measurement import SAMPLE, Scores
from pytest_cepbench.gate.pairing import blocks_apart, pair
from pytest_cepbench.gate.statistics.differences import Differences
from pytest_cepbench.measures.cases import OVERALL
from pytest_cepbench.metrics.pair_models import RankInterval, ranks_of
from pytest_cepbench.metrics.uncertainty import t_upper_quantile

FloatArray = npt.NDArray[np.float64]

_EACH_SIDE = 0.025  # error of each end of a case's intervals, all of them together


@dataclass(frozen=True)
class RankedModel:
    """One model in one case.

    value: its score.
    difference: to the best model, 0 or below, whichever direction of the metric is better.
    low, high: ends of the difference's simultaneous 95 % interval; None for the best model, and
    where the case has no intervals.
    rank_low, rank_high: the ranks that it may have.
    """

    model: str
    value: float
    difference: float
    low: float | None
    high: float | None
    rank_low: int
    rank_high: int


@dataclass(frozen=True)
class CaseLeaderboard:
    """The models in one case, the best first.

    case: SUITE/PART/METRIC.
    label: the metric's name for people.
    blocks: whether differences are of blocks of samples, because scores are of whole sets.
    units: independent samples, or blocks of samples; 0 where they are too few, or where the sets of
    a model have no blocks, so that nothing is told apart.
    """

    case: str
    label: str
    higher_is_better: bool
    blocks: bool
    units: int
    models: tuple[RankedModel, ...]


def rank_case(records: Mapping[str, Baseline]) -> CaseLeaderboard:
    """Rank models in one case by paired differences over the samples that they all have.

    records: model -> what was measured.
    The error of a difference is the gate's (`Differences`): that of the mean of the categories'
    means, category by category and clustered as the samples are. Intervals are Student's at
    Bonferroni's level: each pair has its own spread and degrees of freedom, of which a common
    simulation would have to know too much.
    Raises SpecError where a record contradicts itself, or the records are not of the same thing.
    """
    names = list(records)
    first = records[names[0]]
    refuse_unsound(records, CaseKey.parse(first.case))
    for name in names[1:]:
        refuse_difference(names[0], first, name, records[name])
    sign = 1 if first.higher_is_better else -1
    values = np.array([sign * records[name].value for name in names])
    scores = [_unit_scores(record) for record in records.values()]
    half, units = _half_intervals(scores, first.clusters)
    ranks = (RankInterval(1, len(names)),) * len(names)
    if half is not None:
        ranks = ranks_of(values, half)
    order = sorted(range(len(names)), key=lambda i: -values[i])
    best = order[0]
    return CaseLeaderboard(
        case=first.case,
        label=first.metric,
        higher_is_better=first.higher_is_better,
        blocks=bool(first.sizes) and not _of_samples(first.blocks),
        units=units,
        models=tuple(
            RankedModel(
                model=names[i],
                value=records[names[i]].value,
                difference=float(values[i] - values[best]),
                low=None if half is None or i == best else _end(values, half, i, best, -1),
                high=None if half is None or i == best else _end(values, half, i, best, 1),
                rank_low=ranks[i].low,
                rank_high=ranks[i].high,
            )
            for i in order
        ),
    )


def _of_samples(blocks: Mapping[str, Mapping[str, float]]) -> bool:
    """Whether the parts of a score of a whole set are of single samples."""
    names = [name for part in blocks.values() for name in part]
    return bool(names) and all(name.startswith(SAMPLE) for name in names)


def _half_intervals(
    scores: Sequence[Scores], clusters: Mapping[str, str]
) -> tuple[FloatArray | None, int]:
    """Half of the simultaneous 95 % intervals of all differences, (M, M), and the units compared.

    scores: of each model, in the same units; None and 0 where there are no two of them.
    """
    if not all(scores):
        return None, 0
    models = [Differences.of(own, clusters) for own in scores]
    if models[0].units < 2:
        return None, 0
    half = np.zeros((len(models), len(models)))
    pairs = list(combinations(range(len(models)), 2))
    for i, j in pairs:
        apart = Differences(
            models[i].values - models[j].values, models[i].categories, models[i].clusters
        )
        t = t_upper_quantile(_EACH_SIDE / len(pairs), apart.degrees)
        half[i, j] = half[j, i] = t * apart.sd / sqrt(apart.units)
    return half, models[0].units


def _end(values: FloatArray, half: FloatArray, i: int, best: int, side: int) -> float:
    return float(values[i] - values[best] + side * half[i, best])


def refuse_unsound(records: Mapping[str, Baseline], key: CaseKey) -> None:
    """Raise SpecError unless every record is a measurement of the case."""
    for name, record in records.items():
        wrong = contradiction(record, key)
        if wrong is not None:
            raise SpecError(f"{key}: the measurement of {name} {wrong}: run it again")


def refuse_difference(first_name: str, first: Baseline, name: str, record: Baseline) -> None:
    """Raise SpecError unless the gate would compare both, by the same units."""
    different = _differing_fields(first, record)
    if different:
        raise SpecError(
            f"{record.case}: {first_name} and {name} were not measured alike "
            f"({', '.join(different)} differ): run both with the same suite"
        )


def _differing_fields(first: Baseline, record: Baseline) -> tuple[str, ...]:
    """What the gate finds different, or else clusters, sizes and blocks.

    The gate takes the clusters and sizes of one side, since the same samples have the same.
    """
    try:
        pair(measurement_of(record, CaseKey.parse(record.case)), first)
    except IncomparableError as error:
        return error.fields
    different = [f for f in ("clusters", "sizes") if getattr(first, f) != getattr(record, f)]
    if different:
        return tuple(different)
    parts, others = _unit_scores(first), _unit_scores(record)
    alike = all(parts[name].keys() == others[name].keys() for name in parts.keys() & others.keys())
    return () if alike else ("blocks",)


def _unit_scores(record: Baseline) -> Scores:
    """Scores of samples, or of the blocks of whole sets; empty where a set has no blocks."""
    if not record.sizes:
        return record.scores
    if not all(record.blocks.get(category) for category in record.scores):
        return {}
    return blocks_apart({category: record.blocks[category] for category in record.scores})


def rank_runs(
    suite: str, runs: Mapping[str, Sequence[Baseline]], cases: Sequence[str] = ()
) -> list[CaseLeaderboard]:
    """Leaderboards of a suite's cases that all runs have measured.

    suite: its name.
    runs: model -> the measurements of its run, which may be of other suites too.
    cases: PART/METRIC; the whole of the suite in each metric where empty.
    Raises SpecError for fewer than two runs, and for a suite or a case that a run has not measured.
    """
    if len(runs) < 2:
        raise SpecError("expected the reports of two or more runs")
    measured = {name: {record.case: record for record in records} for name, records in runs.items()}
    for name, records in measured.items():
        suites = sorted({CaseKey.parse(case).suite for case in records})
        if suite not in suites:
            msg = f"the run of {name} measured {', '.join(suites) or 'nothing'}, not {suite!r}."
            raise SpecError(msg + did_you_mean(suite, suites))
    first = [case for case in measured[next(iter(runs))] if CaseKey.parse(case).suite == suite]
    whole = [case for case in first if CaseKey.parse(case).part == OVERALL]
    wanted = [f"{suite}/{case}" for case in cases] or whole or first
    for case in wanted:
        lacking = [name for name, records in measured.items() if case not in records]
        if lacking:
            msg = f"{case} was not measured in the run of {lacking[0]}."
            raise SpecError(msg + did_you_mean(case, first))
    return [
        rank_case({name: records[case] for name, records in measured.items()}) for case in wanted
    ]
