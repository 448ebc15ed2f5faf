"""The metrics of suites that ask for interleaved answers, and the measures made of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pytest_cepbench.errors import SuiteError, unknown_name
from pytest_cepbench.suites.measures.answer_base import Against, AnswerMeasure
from pytest_cepbench.suites.measures.answer_contents import (
    AnswerFailuresTable,
    CountMeasure,
    LackTable,
    StepGapTable,
    TruthMeasure,
    TruthTable,
    count_gap,
    count_lacks,
    count_lost,
)
from pytest_cepbench.suites.measures.base import MetricTable
from pytest_cepbench.suites.measures.battle_measures import (
    JudgeFailuresMeasure,
    JudgeFailuresTable,
    WinRateMeasure,
    WinRateTable,
)
from pytest_cepbench.suites.measures.criteria_measures import CriteriaMeasure, CriteriaTable
from pytest_cepbench.suites.measures.judge_agreement import AgreementMeasure, AgreementTable

ANSWER_KINDS: Mapping[str, type[MetricTable]] = {
    "win_rate": WinRateTable,
    "no_image": LackTable,
    "no_text": LackTable,
    "failures": AnswerFailuresTable,
    "step_gap": StepGapTable,
    "truth": TruthTable,
    "judge_failures": JudgeFailuresTable,
    "criteria": CriteriaTable,
    "agreement": AgreementTable,
}
"""Kind of metric -> its settings, in suites that ask for interleaved answers."""


def make_answer_measures(
    tables: Mapping[str, MetricTable], suite: str, against: Against
) -> dict[str, AnswerMeasure]:
    """The measures of a suite of answers by name, in the order of its file. Raises SuiteError."""
    win_rates = [name for name, table in tables.items() if isinstance(table, WinRateTable)]
    counting = [name for name, table in tables.items() if isinstance(table, JudgeFailuresTable)]
    scored = any(isinstance(table, CriteriaTable) for table in tables.values())
    if against == "accepted" and counting and not win_rates and not scored:
        raise SuiteError(
            f"suite {suite!r}: {counting[0]} counts the verdicts of a win_rate and the scores of "
            "criteria: add [metrics.win_rate] or [metrics.criteria]"
        )
    _check_agreement(tables, suite, against)
    win_rate = win_rates[0] if against == "accepted" and win_rates else ""
    # Reference answers were battled for judge_failures alone before there were scores.
    judged = bool(win_rates) or (against == "gold" and not scored)
    asked = _JudgeUse(win_rate, judged=judged, scored=scored)
    return {name: _make(name, table, suite, against, asked) for name, table in tables.items()}


def tests_judges(tables: Mapping[str, MetricTable]) -> bool:
    """Whether a suite of these metrics has judges under test, on answers that are there."""
    return any(isinstance(table, AgreementTable) for table in tables.values())


def _check_agreement(tables: Mapping[str, MetricTable], suite: str, against: Against) -> None:
    """Raise SuiteError where judges are under test together with what makes answers."""
    if not tests_judges(tables):
        return
    allowed = AgreementTable | JudgeFailuresTable
    wrong = [name for name, table in tables.items() if not isinstance(table, allowed)]
    if wrong:
        raise SuiteError(
            f"suite {suite!r}: with agreement the judge is under test, and {wrong[0]} is of models "
            "that answer: leave one of them out"
        )
    if against != "gold":
        raise SuiteError(f'suite {suite!r}: agreement needs against = "gold" under [arena]')


@dataclass(frozen=True)
class _JudgeUse:
    """What a suite asks its judge.

    win_rate: the metric whose accepted answers are battled; empty where none are.
    judged: whether there are battles. scored: whether answers are scored by criteria.
    """

    win_rate: str
    judged: bool
    scored: bool


def _make(
    name: str, table: MetricTable, suite: str, against: Against, asked: _JudgeUse
) -> AnswerMeasure:
    pool = table.pool or "categories"
    if isinstance(table, WinRateTable | AgreementTable):
        every = table.parts or "all"
        if isinstance(table, WinRateTable):
            made: AnswerMeasure = WinRateMeasure(name, against, pool, every)
        else:
            made = AgreementMeasure(name, table.ties, pool, every)
        return made
    parts = table.parts or "overall"
    if isinstance(table, TruthTable | CriteriaTable):
        by_criterion = TruthMeasure if isinstance(table, TruthTable) else CriteriaMeasure
        return by_criterion(name, table.criterion, pool, parts)
    if isinstance(table, JudgeFailuresTable):
        return JudgeFailuresMeasure(
            name, against, asked.win_rate, pool, parts, judged=asked.judged, scored=asked.scored
        )
    if isinstance(table, LackTable):
        kind = table.kind or name
        lacks = "images" if kind == "no_image" else "texts"
        steps = "a step" if table.of == "any" else "every step"
        return CountMeasure(
            name, f"answers without {lacks} in {steps}", f"{kind}/1 of {table.of}",
            count_lacks(kind, table.of), 1.0, shares=True, span=1.0, pool=pool, parts=parts,
        )  # fmt: skip
    if isinstance(table, AnswerFailuresTable):
        return CountMeasure(
            name, "failure rate", "answer-failures/1",
            count_lost, 1.0, shares=True, span=1.0, pool=pool, parts=parts,
        )  # fmt: skip
    if isinstance(table, StepGapTable):
        return CountMeasure(
            name, "gap in steps", "step_gap/1",
            count_gap, 1.0, shares=False, span=None, pool=pool, parts=parts,
        )  # fmt: skip
    raise SuiteError(f"suite {suite!r}: {unknown_name('metric', name, ANSWER_KINDS)}")
