"""Leaderboards of any suite: which of several checkpoints is best, and which are not told apart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pytest_cepbench.errors import IncomparableError, SpecError, did_you_mean
from pytest_cepbench.gate import Baseline, CaseKey
from pytest_cepbench.gate.baseline import contradiction, measurement_of
from pytest_cepbench.gate.compare import blocks_apart, pair
from pytest_cepbench.gate.measurement import SAMPLE, Scores
from pytest_cepbench.metrics.rank_intervals import RankInterval, rank_intervals
from pytest_cepbench.suites.cases import OVERALL

FloatArray = npt.NDArray[np.float64]


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
    The errors are those of the mean of the categories' means, clustered as the samples are.
    Raises SpecError where a record contradicts itself, or the records are not of the same thing.
    """
    names = list(records)
    first = records[names[0]]
    refuse_unsound(records, CaseKey.parse(first.case))
    for name in names[1:]:
        refuse_difference(names[0], first, name, records[name])
    sign = 1 if first.higher_is_better else -1
    values = np.array([sign * records[name].value for name in names])
    influences = [_influences(record) for record in records.values()]
    units = list(influences[0]) if all(influences) else []
    categories = len(first.scores)
    degrees = len(units) - categories
    if degrees > 0:
        matrix = np.array([[influence[unit] for unit in units] for influence in influences])
        covariance = matrix @ matrix.T * len(units) / degrees
        simultaneous = rank_intervals(values, covariance, degrees=degrees)
        ranks = simultaneous.ranks
        half = simultaneous.critical * simultaneous.errors
    else:
        ranks = (RankInterval(1, len(names)),) * len(names)
        half = None
    order = sorted(range(len(names)), key=lambda i: -values[i])
    best = order[0]
    return CaseLeaderboard(
        case=first.case,
        label=first.metric,
        higher_is_better=first.higher_is_better,
        blocks=bool(first.sizes) and not _of_samples(first.blocks),
        units=len(units) if degrees > 0 else 0,
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


def _end(values: FloatArray, half: FloatArray, i: int, best: int, side: int) -> float:
    return float(values[i] - values[best] + side * half[i, best])


def refuse_unsound(records: Mapping[str, Baseline], key: CaseKey) -> None:
    """Raise SpecError unless every record is a measurement of the case."""
    for name, record in records.items():
        wrong = contradiction(record, key)
        if wrong is not None:
            msg = f"{key}: the measurement of {name} {wrong}: run it again"
            raise SpecError(msg)


def refuse_difference(first_name: str, first: Baseline, name: str, record: Baseline) -> None:
    """Raise SpecError unless the gate would compare both, by the same units."""
    different = _differing_fields(first, record)
    if different:
        msg = (
            f"{record.case}: {first_name} and {name} were not measured alike "
            f"({', '.join(different)} differ): run both with the same suite"
        )
        raise SpecError(msg)


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
    units, others = _influences(first).keys(), _influences(record).keys()
    return ("blocks",) if units and others and units != others else ()


def _unit_scores(record: Baseline) -> Scores:
    """Scores of samples, or of the blocks of whole sets; empty where a set has no blocks."""
    if not record.sizes:
        return record.scores
    if not all(record.blocks.get(category) for category in record.scores):
        return {}
    return blocks_apart({category: record.blocks[category] for category in record.scores})


def _influences(record: Baseline) -> dict[str, float]:
    """How much each unit moves the value: independent, with mean 0; empty without units."""
    influences: dict[str, float] = {}
    parts = _unit_scores(record)
    for part in parts.values():
        mean = sum(part.values()) / len(part)
        for name, score in part.items():
            unit = record.clusters.get(name, name)
            influence = (score - mean) / (len(part) * len(parts))
            influences[unit] = influences.get(unit, 0.0) + influence
    return influences


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
        msg = "expected the reports of two or more runs"
        raise SpecError(msg)
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
