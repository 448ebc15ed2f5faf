"""Two runs of the same cases, compared as the gate compares a run with accepted baselines.

Scores of the same samples are paired. Where reports keep no scores that belong together, the two
values stand beside each other, without a difference.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from pytest_cepbench.artifacts.outcome import EVEN
from pytest_cepbench.errors import SpecError, few_of
from pytest_cepbench.gate import Baseline, CaseKey, Policy
from pytest_cepbench.gate.baseline import answers_digest, measurement_of
from pytest_cepbench.gate.compare import Judgement, Loser, judge
from pytest_cepbench.gate.measurement import mean_of_scores, rounded
from pytest_cepbench.gate.verdict import Verdict
from pytest_cepbench.measures.cases import OVERALL
from pytest_cepbench.studies.leaderboard import (
    CaseLeaderboard,
    rank_case,
    refuse_difference,
    refuse_unsound,
)

ALPHA = 0.05
"""Error of all bounds of a comparison together, in each direction."""

_UNMEASURED = "one of the two has no measurement"

_BATTLES = (
    "the answers battled others in each run: measure both against the same accepted answers, with "
    "this version"
)


@dataclass(frozen=True)
class RunCase:
    """A case as a run measured it.

    case: SUITE/PART/METRIC.
    label: its metric's name for people.
    value: None where it could not be measured.
    tolerance: drop that does not matter, in the metric's unit.
    primary: whether it could fail the run.
    record: the measurement; None where there is none.
    opponents: digest of the answers that its own battled; empty where none did.
    won: score of each question in these battles, one half being a draw; empty where none was.
    """

    case: str
    label: str
    value: float | None
    tolerance: float
    primary: bool
    record: Baseline | None
    opponents: str = ""
    won: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class MeasuredRun:
    """A run that is compared.

    name: what it is called here.
    model: the specs of its models under test.
    report: path of its report.
    cases: by name, in the order of collection.
    """

    name: str
    model: str
    report: str
    cases: Mapping[str, RunCase]


@dataclass(frozen=True)
class ComparedCase:
    """A case of two runs.

    first, second: as each measured it.
    judgement: of the second against the first; None where they are not paired.
    obstacle: why they are not; empty where they are.
    """

    first: RunCase
    second: RunCase
    judgement: Judgement | None
    obstacle: str = ""

    @property
    def verdict(self) -> str:
        """As of the gate, or `incomparable` where the samples are not paired."""
        if self.judgement is not None:
            return str(self.judgement.verdict)
        missing = self.first.record is None or self.second.record is None
        return str(Verdict.ERROR if missing else Verdict.INCOMPARABLE)

    @property
    def losers(self) -> tuple[Loser, ...]:
        """The samples that got worse, most first; none where one score stands for a whole set."""
        if self.judgement is None or self.second.record is None or self.second.record.sizes:
            return ()
        return self.judgement.losers


@dataclass(frozen=True)
class Comparison:
    """A run against the first one.

    cases: that both have, in the order of the first run.
    only_first, only_second: names of those that one of them has.
    alpha: share of the error that each bound has.
    """

    first: MeasuredRun
    second: MeasuredRun
    cases: tuple[ComparedCase, ...]
    only_first: tuple[str, ...]
    only_second: tuple[str, ...]
    alpha: float

    def of_verdict(self, verdict: Verdict) -> list[ComparedCase]:
        """The cases with a verdict that could have failed a run."""
        return [case for case in self.cases if case.verdict == verdict and case.second.primary]


def compare_runs(first: MeasuredRun, second: MeasuredRun, alpha: float = ALPHA) -> Comparison:
    """Compare the cases that two runs have in common.

    alpha: error of all bounds together, in each direction; divided equally among the cases.
    Raises SpecError where they have no case in common, where one was not measured alike (other
    samples, prompts, lengths, encoders or fixed models), or where a report contradicts itself.
    """
    common = [case for case in first.cases if case in second.cases]
    if not common:
        raise SpecError(
            f"{first.name} and {second.name} have no case in common: {first.name} measured "
            f"{_suites(first)}, {second.name} {_suites(second)}"
        )
    pairs = [(first.cases[case], second.cases[case]) for case in common]
    for before, now in pairs:
        if before.record is not None and now.record is not None:
            records = {first.name: before.record, second.name: now.record}
            refuse_unsound(records, CaseKey.parse(before.case))
            refuse_difference(first.name, before.record, second.name, now.record)
    paired = [_paired_records(before, now) for before, now in pairs]
    share = alpha / max(1, sum(records is not None for records in paired))
    return Comparison(
        first=first,
        second=second,
        cases=tuple(
            _compare(before, now, records, share)
            for (before, now), records in zip(pairs, paired, strict=True)
        ),
        only_first=tuple(case for case in first.cases if case not in second.cases),
        only_second=tuple(case for case in second.cases if case not in first.cases),
        alpha=share,
    )


def _compare(
    before: RunCase, now: RunCase, records: tuple[Baseline, Baseline] | None, alpha: float
) -> ComparedCase:
    """records: of both over the same samples; None where they are not paired."""
    if records is None:
        missing = before.record is None or now.record is None
        return ComparedCase(before, now, None, _UNMEASURED if missing else _BATTLES)
    measurement = measurement_of(records[1], CaseKey.parse(now.case))
    policy = Policy(tolerance=now.tolerance, alpha=alpha)
    return ComparedCase(before, now, judge(measurement, records[0], policy))


def _paired_records(before: RunCase, now: RunCase) -> tuple[Baseline, Baseline] | None:
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


def _with_scores(case: RunCase, opponents: str) -> Baseline | None:
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


def _suites(run: MeasuredRun) -> str:
    return few_of({CaseKey.parse(case).suite for case in run.cases}) or "nothing"


def rank_common_cases(runs: Sequence[MeasuredRun]) -> Iterator[CaseLeaderboard]:
    """Leaderboards of several runs that were compared: of whole suites, else of all their cases.

    Cases without a score for each sample in every run, such as win rates, are left out.
    """
    ranked = []
    for case in runs[0].cases:
        records = {run.name: _record(run, case) for run in runs}
        known = {name: record for name, record in records.items() if record is not None}
        if len(known) == len(runs):
            ranked.append((CaseKey.parse(case), known))
    whole = {key.suite for key, _ in ranked if key.part == OVERALL}
    for key, known in ranked:
        if key.part == OVERALL or key.suite not in whole:
            yield rank_case(known)


def _record(run: MeasuredRun, case: str) -> Baseline | None:
    known = run.cases.get(case)
    if known is None or known.record is None or known.record.answers:
        return None
    return known.record
