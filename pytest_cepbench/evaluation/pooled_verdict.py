"""The verdict of a suite as a whole: sharper tests over what its cases left undecided."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from pytest_cepbench.evaluation.case_evaluation import (
    EvaluatedCase,
    evaluate_case,
    read_references,
)
from pytest_cepbench.evaluation.case_result import CaseVerdict
from pytest_cepbench.evaluation.evaluator import AssignedCase, Evaluator
from pytest_cepbench.gate import Judgement, Policy, Verdict
from pytest_cepbench.gate.statistics import holm
from pytest_cepbench.suites.cases import Case, PooledCase

_GOOD = (Verdict.HELD, Verdict.IMPROVED)

_NO_COMPARISON = (Verdict.INCOMPARABLE, Verdict.NO_BASELINE)


@dataclass(frozen=True)
class _Member:
    """A case of the suite. policy: with its own share of alpha."""

    case: Case
    policy: Policy
    evaluated: EvaluatedCase

    @property
    def name(self) -> str:
        return self.case.key.within

    @property
    def verdict(self) -> Verdict:
        return self.evaluated.judgement.verdict

    def judged(self, alpha: float) -> Judgement:
        """At another level; that of its last look where it took several."""
        policy = replace(self.policy, alpha=min(0.5, alpha * self.evaluated.share))
        return self.evaluated.judge(policy)

    def holds(self, alpha: float) -> bool:
        """Whether the case excludes its tolerated drop at another level."""
        if not self.policy.statistical or self.verdict in _GOOD:
            return self.verdict in _GOOD
        return self.judged(alpha).verdict in _GOOD


def pooled_verdict(evaluator: Evaluator, suite_file: Path, case: PooledCase) -> CaseVerdict:
    """The verdict of a suite.

    Regressed where Holm's procedure finds a case that is, at the alpha that the suite's cases have
    together: it finds all that the cases found at their shares and maybe more, without a further
    error. Held where every case excludes its tolerated drop at that whole alpha: all of them being
    true at once is an intersection-union test (Berger 1982) and needs no division.
    Raises what measuring and reading baselines raise.
    """
    members = [_member(evaluator, assigned) for assigned in _collected(evaluator, suite_file, case)]
    alpha = sum(member.policy.alpha for member in members if member.policy.statistical)
    pooled = CaseVerdict(
        Verdict.HELD,
        alpha=alpha or None,
        method="Holm; intersection-union",
        model=members[0].evaluated.measurement.model if members else {},
    )
    uncompared = [member for member in members if member.verdict in _NO_COMPARISON]
    if uncompared:
        reasons = [f"{member.name}: {member.verdict}" for member in uncompared]
        return replace(pooled, verdict=uncompared[0].verdict, reasons=reasons)
    if not members:
        reasons = ["none of the suite's primary cases is in this run"]
        return replace(pooled, verdict=Verdict.ERROR, reasons=reasons)
    by_name = {member.name: member for member in members}  # two tests may gate the same case
    regressed = _regressed(by_name, alpha)
    if regressed:
        reasons = [_lost(by_name[name]) for name in sorted(regressed)]
        return replace(pooled, verdict=Verdict.REGRESSED, reasons=reasons)
    undecided = [member.name for member in members if not member.holds(alpha)]
    if undecided:
        names = ", ".join(undecided[:5]) + (", ..." if len(undecided) > 5 else "")
        reasons = [f"a drop larger than tolerated is not excluded in {len(undecided)}: {names}"]
        return replace(pooled, verdict=Verdict.INCONCLUSIVE, reasons=reasons)
    note = f"each of {len(members)} cases excludes its tolerated drop at alpha {alpha:.4g}"
    return replace(pooled, notes=[note])


def _collected(evaluator: Evaluator, suite_file: Path, case: PooledCase) -> Iterator[AssignedCase]:
    """The suite's primary cases that this run judges."""
    keys = {member.key for member in case.members}
    for assigned in evaluator.assigned.values():
        if assigned.suite_file == suite_file and assigned.case.key in keys:
            yield assigned


def _member(evaluator: Evaluator, assigned: AssignedCase) -> _Member:
    path, case, policy = assigned.suite_file, assigned.case, assigned.policy
    references = read_references(evaluator, case)
    evaluated = evaluate_case(evaluator, path, case, policy, references, whole=False)
    return _Member(case, policy, evaluated)


def _regressed(members: Mapping[str, _Member], alpha: float) -> set[str]:
    """The cases that regressed: by Holm's procedure, and those that are judged without statistics."""
    plain = {
        name
        for name, member in members.items()
        if not member.policy.statistical and member.verdict is Verdict.REGRESSED
    }
    weights = {
        name: member.policy.alpha for name, member in members.items() if member.policy.statistical
    }
    if not weights:
        return plain

    def rejects(name: str, level: float) -> bool:
        return members[name].judged(level).verdict is Verdict.REGRESSED

    return plain | holm(rejects, weights, alpha)


def _lost(member: _Member) -> str:
    also = "" if member.verdict is Verdict.REGRESSED else " (not seen by the case alone)"
    return f"{member.name}: {member.evaluated.judgement.difference:+.4f}{also}"
