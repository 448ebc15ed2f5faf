"""The verdict of a suite as a whole: sharper tests over what its cases left undecided."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from msgspec.structs import replace

from pytest_cepbench.evaluation.case_evaluation import (
    EvaluatedCase,
    evaluate_case,
    read_references,
)
from pytest_cepbench.evaluation.case_series import enter_series
from pytest_cepbench.evaluation.evaluator import AssignedCase, Evaluator
from pytest_cepbench.gate import CaseKey, Verdict
from pytest_cepbench.gate.statistics import holm
from pytest_cepbench.report import CaseResult
from pytest_cepbench.suites.cases import PooledCase

_GOOD = (Verdict.HELD, Verdict.IMPROVED)

_NO_COMPARISON = (Verdict.INCOMPARABLE, Verdict.NO_BASELINE)


def pooled_verdict(
    evaluator: Evaluator, suite_file: Path, case: PooledCase, unmeasured: CaseResult
) -> CaseResult:
    """The verdict of a suite, as the record of a case that has no measurement of its own.

    Regressed where Holm's procedure finds a case that is, at the alpha that the suite's cases have
    together: it finds all that the cases found at their shares and maybe more, without a further
    error. Held where every case excludes its tolerated drop at that whole alpha: all of them being
    true at once is an intersection-union test (Berger 1982) and needs no division.
    unmeasured: the record so far.
    Raises what measuring and reading baselines raise.
    """
    members: dict[str, EvaluatedCase] = {
        assigned.case.key.within: _evaluate(evaluator, assigned)
        for assigned in _collected(evaluator, suite_file, case)
    }
    weights = {
        name: member.policy.alpha for name, member in members.items() if member.policy.statistical
    }
    alpha = sum(weights.values())
    model = next((dict(member.measurement.model) for member in members.values()), {})
    method = "Holm; intersection-union"
    pooled = replace(unmeasured, alpha=alpha or None, method=method, model=model)
    verdict, reasons = _decide(members, weights, alpha)
    note = f"each of {len(members)} cases excludes its tolerated drop at alpha {alpha:.4g}"
    notes = [note] if verdict is Verdict.HELD else []
    return replace(pooled, verdict=verdict.value, reasons=reasons, notes=notes)


def _decide(
    members: Mapping[str, EvaluatedCase],
    weights: Mapping[str, float],
    alpha: float,
) -> tuple[Verdict, list[str]]:
    """The verdict on all cases, and why it is none that passes."""
    uncompared = {
        name: member.judgement.verdict
        for name, member in members.items()
        if member.judgement.verdict in _NO_COMPARISON
    }
    if uncompared:
        first = next(iter(uncompared.values()))
        return first, [f"{name}: {verdict}" for name, verdict in uncompared.items()]
    if not members:
        return Verdict.ERROR, ["none of the suite's primary cases is in this run"]
    regressed = _regressed(members, weights, alpha)
    if regressed:
        return Verdict.REGRESSED, [_lost(name, members[name]) for name in sorted(regressed)]
    undecided = [name for name, member in members.items() if not _holds(member, alpha)]
    if undecided:
        names = ", ".join(undecided[:5]) + (", ..." if len(undecided) > 5 else "")
        reason = f"a drop larger than tolerated is not excluded in {len(undecided)}: {names}"
        unseen = [
            f"{name}: {why}" for name in undecided for why in members[name].judgement.reasons[:1]
        ]
        return Verdict.INCONCLUSIVE, [*unseen, reason]
    return Verdict.HELD, []


def _collected(evaluator: Evaluator, suite_file: Path, case: PooledCase) -> list[AssignedCase]:
    """The suite's primary cases that this run judges.

    Two tests may gate one case; it counts once, by the smaller tolerance, which fails where the
    other one does.
    """
    keys = {member.key for member in case.members}
    collected: dict[CaseKey, AssignedCase] = {}
    for assigned in evaluator.assigned.values():
        key = assigned.case.key
        if assigned.suite_file == suite_file and key in keys:
            other = collected.get(key, assigned)
            collected[key] = min(other, assigned, key=lambda a: a.policy.tolerance)
    return list(collected.values())


def _evaluate(evaluator: Evaluator, assigned: AssignedCase) -> EvaluatedCase:
    path, case, policy = assigned.suite_file, assigned.case, assigned.policy
    references = read_references(evaluator, case)
    series = enter_series(evaluator, path, case, policy, references)
    policy = policy if series is None else series.adjusted(policy)
    return evaluate_case(evaluator, path, case, policy, references, whole=False)


def _holds(member: EvaluatedCase, alpha: float) -> bool:
    """Whether a case excludes its tolerated drop, if need be at another level."""
    good = member.judgement.verdict in _GOOD
    return good or (member.policy.statistical and member.judge_at(alpha).verdict in _GOOD)


def _regressed(
    members: Mapping[str, EvaluatedCase],
    weights: Mapping[str, float],
    alpha: float,
) -> set[str]:
    """The cases that regressed: by Holm's procedure, and those judged without statistics."""

    def rejects(name: str, level: float) -> bool:
        return members[name].judge_at(level).verdict is Verdict.REGRESSED

    plain = {
        name
        for name, member in members.items()
        if name not in weights and member.judgement.verdict is Verdict.REGRESSED
    }
    return plain | (holm(rejects, weights, alpha) if weights else set())


def _lost(name: str, member: EvaluatedCase) -> str:
    alone = member.judgement.verdict is Verdict.REGRESSED
    also = "" if alone else " (not seen by the case alone)"
    return f"{name}: {member.judgement.difference:+.4f}{also}"
