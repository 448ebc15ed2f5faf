"""Two runs of the same cases, compared as the gate compares a run with accepted baselines.

Scores of the same samples are paired. Where reports keep no scores that belong together, the two
values stand beside each other, without a difference.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from math import sqrt

import msgspec
import numpy as np
import numpy.typing as npt

from pytest_cepbench.artifacts.outcome import EVEN
from pytest_cepbench.errors import IncomparableError, SpecError, few_of
from pytest_cepbench.gate import CaseKey, Measurement, Policy
from pytest_cepbench.gate.baseline import answers_digest, contradiction
from pytest_cepbench.gate.compare import Judgement, differences_of, judge
from pytest_cepbench.gate.measurement import SAMPLE, Scores, mean_of_scores, rounded
from pytest_cepbench.gate.pairing import blocks_apart, pair
from pytest_cepbench.gate.statistics.differences import Differences
from pytest_cepbench.gate.verdict import Verdict
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


def rank_case(records: Mapping[str, Measurement]) -> CaseLeaderboard:
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
    half, units = _half_intervals(
        [_unit_scores(record) for record in records.values()], first.clusters
    )
    ranks = (RankInterval(1, len(names)),) * len(names) if half is None else ranks_of(values, half)
    order = sorted(range(len(names)), key=lambda i: -values[i])
    best = order[0]
    models = []
    for i in order:
        name, rank = names[i], ranks[i]
        difference = float(values[i] - values[best])
        low = high = None
        if half is not None and i != best:
            low, high = difference - float(half[i, best]), difference + float(half[i, best])
        models.append(
            RankedModel(name, records[name].value, difference, low, high, rank.low, rank.high)
        )
    units_of = [name for part in first.blocks.values() for name in part]
    of_samples = bool(units_of) and all(name.startswith(SAMPLE) for name in units_of)
    return CaseLeaderboard(
        case=first.case,
        label=first.metric,
        higher_is_better=first.higher_is_better,
        blocks=bool(first.sizes) and not of_samples,
        units=units,
        models=tuple(models),
    )


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


def refuse_unsound(records: Mapping[str, Measurement], key: CaseKey) -> None:
    """Raise SpecError unless every record is a measurement of the case."""
    for name, record in records.items():
        wrong = contradiction(record, key)
        if wrong is not None:
            raise SpecError(f"{key}: the measurement of {name} {wrong}: run it again")


def refuse_difference(first_name: str, first: Measurement, name: str, record: Measurement) -> None:
    """Raise SpecError unless the gate would compare both, by the same units.

    The gate takes the clusters and sizes of one side, since the same samples have the same.
    """
    try:
        pair(record.fresh, first)
        different = [f for f in ("clusters", "sizes") if getattr(first, f) != getattr(record, f)]
    except IncomparableError as error:
        different = list(error.fields)
    if not different:
        parts, others = _unit_scores(first), _unit_scores(record)
        both = parts.keys() & others.keys()
        different = [] if all(parts[n].keys() == others[n].keys() for n in both) else ["blocks"]
    if different:
        raise SpecError(
            f"{record.case}: {first_name} and {name} were not measured alike "
            f"({', '.join(different)} differ): run both with the same suite"
        )


def _unit_scores(record: Measurement) -> Scores:
    """Scores of samples, or of the blocks of whole sets; empty where a set has no blocks."""
    if not record.sizes:
        return record.scores
    if not all(record.blocks.get(category) for category in record.scores):
        return {}
    return blocks_apart({category: record.blocks[category] for category in record.scores})


_UNMEASURED = "one of the two has no measurement"

_BATTLES = (
    "the answers battled others in each run: measure both against the same accepted answers, with "
    "this version"
)


@dataclass(frozen=True)
class RunCase:
    """A case as a run measured it.

    case: SUITE/PART/METRIC.
    value: None where it could not be measured.
    tolerance: drop that does not matter, in the metric's unit.
    primary: whether it could fail the run.
    record: the measurement; None where there is none.
    opponents: digest of the answers that its own battled; empty where none did.
    won: score of each question in these battles, one half being a draw; empty where none was.
    gate: by which the run judged it.
    """

    case: str
    value: float | None
    tolerance: float
    primary: bool
    record: Measurement | None
    opponents: str = ""
    won: Mapping[str, float] = field(default_factory=dict)
    gate: str = "regression"


@dataclass(frozen=True)
class MeasuredRun:
    """A run that is compared.

    name: what it is called here.
    model: the specs of its models under test.
    cases: by name, in the order of collection.
    """

    name: str
    model: str
    cases: Mapping[str, RunCase]


@dataclass(frozen=True)
class ComparedCase:
    """A case of two runs.

    first, second: as each measured it.
    judgement: of the second against the first; None where they are not paired.
    obstacle: why they are not; empty where they are.
    differences: of each sample, positive where the second run is better; none where one score
    stands for a whole set.
    """

    first: RunCase
    second: RunCase
    judgement: Judgement | None
    obstacle: str = ""
    differences: Mapping[str, float] = field(default_factory=dict)

    @property
    def verdict(self) -> str:
        """As of the gate, or `incomparable` where the samples are not paired."""
        if self.judgement is not None:
            return str(self.judgement.verdict)
        missing = self.first.record is None or self.second.record is None
        return str(Verdict.ERROR if missing else Verdict.INCOMPARABLE)


@dataclass(frozen=True)
class RunComparison:
    """A run against the first one.

    cases: that both have, in the order of the first run.
    only_first, only_second: names of those that one of them has.
    """

    first: MeasuredRun
    second: MeasuredRun
    cases: tuple[ComparedCase, ...]
    only_first: tuple[str, ...]
    only_second: tuple[str, ...]


def compare_runs(first: MeasuredRun, second: MeasuredRun, alpha: float) -> RunComparison:
    """Compare the cases that two runs have in common.

    alpha: error of all bounds together, in each direction; divided equally among the cases.
    Raises SpecError where they have no case in common, where one was not measured alike (other
    samples, prompts, lengths, encoders or fixed models), or where a report contradicts itself.
    """
    common = [case for case in first.cases if case in second.cases]
    if not common:
        known = [few_of({CaseKey.parse(c).suite for c in run.cases}) for run in (first, second)]
        raise SpecError(
            f"{first.name} and {second.name} have no case in common: {first.name} measured "
            f"{known[0]}, {second.name} {known[1]}"
        )
    pairs = [(first.cases[case], second.cases[case]) for case in common]
    for before, now in pairs:
        if before.record is not None and now.record is not None:
            records = {first.name: before.record, second.name: now.record}
            refuse_unsound(records, CaseKey.parse(before.case))
            refuse_difference(first.name, before.record, second.name, now.record)
    paired = [_paired_records(before, now) for before, now in pairs]
    share = alpha / max(1, sum(records is not None for records in paired))
    return RunComparison(
        first=first,
        second=second,
        cases=tuple(
            _compare(before, now, records, share)
            for (before, now), records in zip(pairs, paired, strict=True)
        ),
        only_first=tuple(case for case in first.cases if case not in second.cases),
        only_second=tuple(case for case in second.cases if case not in first.cases),
    )


def _compare(
    before: RunCase, now: RunCase, records: tuple[Measurement, Measurement] | None, alpha: float
) -> ComparedCase:
    """records: of both over the same samples; None where they are not paired."""
    if records is None:
        measured = before.record is not None and now.record is not None
        return ComparedCase(before, now, None, _BATTLES if measured else _UNMEASURED)
    measurement = records[1].fresh
    policy = Policy(tolerance=now.tolerance, alpha=alpha)
    judgement = judge(measurement, records[0], policy)
    if now.gate == "threshold":  # which decides by the mean; the bounds stand beside its verdict
        plain = judge(measurement, records[0], replace(policy, gate="threshold"))
        judgement = replace(judgement, verdict=plain.verdict, needed=None, reasons=plain.reasons)
    compared = judgement.verdict is not Verdict.INCOMPARABLE and not measurement.sizes
    differences = differences_of(measurement.scores, records[0]) if compared else {}
    return ComparedCase(before, now, judgement, differences=differences)


def _paired_records(before: RunCase, now: RunCase) -> tuple[Measurement, Measurement] | None:
    """The records with a score of each sample; None where there are none that belong together.

    Battles have them where both runs battled the same answers: the run whose answers the other one
    battled drew with them, as it would with itself.
    """
    if before.record is None or now.record is None:
        return None
    if not now.record.answers:
        return before.record, now.record
    for opponents in filter(None, (before.opponents, now.opponents)):
        first, second = (_with_scores(case, opponents) for case in (before, now))
        if first is not None and second is not None:
            return first, second
    return None


def _with_scores(case: RunCase, opponents: str) -> Measurement | None:
    """The record with the scores of its battles; None where they were against other answers."""
    record = case.record
    assert record is not None
    if case.opponents == opponents:
        scores = case.won
    elif answers_digest(record) == opponents:
        scores = dict.fromkeys(record.answers, EVEN)
    else:
        return None
    if scores.keys() != record.answers.keys():
        return None
    own = {name: {s: scores[s] for s in part} for name, part in record.scores.items()}
    value = rounded(mean_of_scores(own))
    return msgspec.structs.replace(record, answers={}, scores=own, value=value)


def rank_common_cases(runs: Sequence[MeasuredRun]) -> Iterator[CaseLeaderboard]:
    """Leaderboards of several runs that were compared: of whole suites, else of all their cases.

    Cases without a score for each sample in every run, such as win rates, are left out.
    """
    ranked = []
    for case in runs[0].cases:
        known = {run.name: run.cases[case].record for run in runs if case in run.cases}
        records = {
            name: record
            for name, record in known.items()
            if record is not None and not record.answers
        }
        if len(records) == len(runs):
            ranked.append((CaseKey.parse(case), records))
    whole = {key.suite for key, _ in ranked if key.part == OVERALL}
    for key, records in ranked:
        if key.part == OVERALL or key.suite not in whole:
            yield rank_case(records)
