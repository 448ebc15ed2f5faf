"""Totals of a run: cases by verdict, and what is promised of errors."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from math import fsum

from pytest_cepbench.gate import Verdict
from pytest_cepbench.report.formatting import counted, percent
from pytest_cepbench.report.result import CaseResult
from pytest_cepbench.suites.cases import POOLED

ACCEPTED, REFUSED, INFORMATIONAL = "accepted", "refused", "informational"

_ORDER = (
    ACCEPTED,
    REFUSED,
    Verdict.HELD,
    Verdict.IMPROVED,
    Verdict.INCONCLUSIVE,
    Verdict.REGRESSED,
    Verdict.NO_BASELINE,
    Verdict.INCOMPARABLE,
    Verdict.ERROR,
    Verdict.INCOMPLETE,
    INFORMATIONAL,
)

_PROMISES = {
    "regression": "false failures at most {alpha} per run of checkpoints exchangeable with the "
    "baseline, over {cases}",
    "noninferiority": "a drop larger than tolerated passes in at most {alpha} of runs, over {cases}",
}


def count_verdicts(results: Sequence[CaseResult]) -> dict[str, int]:
    """Number of cases of each verdict, each case once; verdicts without a case are left out.

    A case that was accepted counts as "accepted", one that may not be as "refused", one that cannot
    fail the run as "informational", whatever its verdict is.
    """
    counts = Counter(_counts_as(result) for result in results)
    return {str(name): counts[name] for name in _ORDER if counts[name]}


def _counts_as(result: CaseResult) -> str:
    if result.accepted:
        return ACCEPTED
    if result.refused:
        return REFUSED
    return result.verdict if result.primary else INFORMATIONAL


def counts_line(results: Sequence[CaseResult]) -> str:
    """The counts in one line."""
    return ", ".join(f"{count} {name}" for name, count in count_verdicts(results).items())


def run_alpha(results: Sequence[CaseResult]) -> float | None:
    """The error that a run may make: the sum of alpha over the cases that could have failed it.

    By Bonferroni's inequality, whatever the cases have to do with each other. A suite's own verdict
    adds nothing: it is reached at the alpha that its cases have together. None where no case is
    judged by statistics.
    """
    return _sum(_promising(results))


def _promising(results: Sequence[CaseResult]) -> list[CaseResult]:
    return [
        result
        for result in results
        if result.gates and result.alpha is not None and (result.part, result.metric) != POOLED
    ]


def _sum(results: Sequence[CaseResult]) -> float | None:
    """Rounded, so that shares of 0.05 add up to it again."""
    return round(fsum(result.alpha or 0.0 for result in results), 12) if results else None


def error_lines(results: Sequence[CaseResult]) -> list[str]:
    """Promises on the run's errors, a line for each gate that its cases have."""
    lines = []
    for gate, wording in _PROMISES.items():
        own = [result for result in _promising(results) if result.gate == gate]
        alpha = _sum(own)
        if alpha is None:
            continue
        line = wording.format(alpha=percent(alpha), cases=counted(len(own), "case"))
        if gate == "regression" and any(result.strict for result in own):
            line += "; inconclusive cases fail besides"
        lines.append(line)
    plain = sum(result.gates and result.gate == "threshold" for result in results)
    if plain:
        lines.append(f"no promise on error: {counted(plain, 'case')} judged by threshold alone")
    return lines


def improvement_line(results: Sequence[CaseResult]) -> str | None:
    """Advice to raise baselines, where cases improved."""
    improved = sum(result.verdict == Verdict.IMPROVED and not result.accepted for result in results)
    if not improved:
        return None
    return (
        f"{counted(improved, 'case')} improved: --snapshot-update raises the baseline, so that a "
        "later drop is seen from there"
    )
