"""The verdict of a suite as a whole: sharper tests over what its cases left undecided."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pytest_cepbench.gate import Judgement, Policy, Verdict
from pytest_cepbench.gate.statistics import holm
from pytest_cepbench.plugin.evaluate import EvaluatedCase, examine, read_references
from pytest_cepbench.plugin.evaluator import AssignedCase, Evaluator
from pytest_cepbench.suites.cases import Case, PooledCase

_GOOD = (Verdict.HELD, Verdict.IMPROVED)

_NO_COMPARISON = (Verdict.INCOMPARABLE, Verdict.NO_BASELINE)


@dataclass(frozen=True)
class _Member:
    """A case of the suite. policy: with its own share of alpha."""

    case: Case
    policy: Policy
    examined: EvaluatedCase

    @property
    def name(self) -> str:
        return self.case.key.within

    def judged(self, alpha: float) -> Judgement:
        """At another level; that of its last look where it took several."""
        policy = replace(self.policy, alpha=min(0.5, alpha * self.examined.share))
        return self.examined.judge(policy)


def judge_pooled(process: Evaluator, suite_file: Path, case: PooledCase) -> dict[str, Any]:
    """The fields of a suite's own verdict.

    Regressed where Holm's procedure finds a case that is, at the alpha that the suite's cases have
    together: it finds all that the cases found at their shares and maybe more, without a further
    error. Held where every case excludes its tolerated drop at that whole alpha: all of them being
    true at once is an intersection-union test (Berger 1982) and needs no division.
    Raises what measuring and reading baselines raise.
    """
    members = [_member(process, one) for one in _collected(process, suite_file, case)]
    alpha = sum(one.policy.alpha for one in members if one.policy.statistical)
    fields: dict[str, Any] = {
        "alpha": alpha or None,
        "method": "Holm; intersection-union",
        "model": dict(members[0].examined.measurement.model) if members else {},
    }
    found = {one.name: one for one in members}
    broken = [one for one in members if one.examined.judgement.verdict in _NO_COMPARISON]
    if not members or broken:
        verdict = broken[0].examined.judgement.verdict if broken else Verdict.ERROR
        reasons = [f"{one.name}: {one.examined.judgement.verdict}" for one in broken]
        return fields | {
            "verdict": verdict.value,
            "reasons": reasons or ["none of the suite's primary cases is in this run"],
        }
    regressed = _regressed(found, alpha)
    if regressed:
        return fields | {
            "verdict": Verdict.REGRESSED.value,
            "reasons": list(_told(found, regressed)),
        }
    undecided = [one.name for one in members if not _holds(one, alpha)]
    if undecided:
        shown = ", ".join(undecided[:5]) + (", ..." if len(undecided) > 5 else "")
        reasons = [f"a drop larger than tolerated is not excluded in {len(undecided)}: {shown}"]
        return fields | {"verdict": Verdict.INCONCLUSIVE.value, "reasons": reasons}
    note = f"each of {len(members)} cases excludes its tolerated drop at alpha {alpha:.4g}"
    return fields | {"verdict": Verdict.HELD.value, "notes": [note]}


def _collected(process: Evaluator, suite_file: Path, case: PooledCase) -> Iterator[AssignedCase]:
    """The suite's primary cases that this run judges."""
    keys = {member.key for member in case.members}
    for one in process.assigned.values():
        if one.suite_file == suite_file and one.case.key in keys:
            yield one


def _member(process: Evaluator, one: AssignedCase) -> _Member:
    references = read_references(process, one.case)
    examined = examine(process, one.suite_file, one.case, one.policy, references, whole=False)
    return _Member(one.case, one.policy, examined)


def _regressed(found: Mapping[str, _Member], alpha: float) -> set[str]:
    """The cases that regressed: by Holm's procedure, and those that are judged without statistics."""
    plain = {
        name
        for name, one in found.items()
        if not one.policy.statistical and one.examined.judgement.verdict is Verdict.REGRESSED
    }
    weights = {name: one.policy.alpha for name, one in found.items() if one.policy.statistical}
    if not weights:
        return plain

    def rejects(name: str, level: float) -> bool:
        return found[name].judged(level).verdict is Verdict.REGRESSED

    return plain | holm(rejects, weights, alpha)


def _told(found: Mapping[str, _Member], regressed: set[str]) -> Iterator[str]:
    for name in sorted(regressed):
        judgement = found[name].examined.judgement
        also = "" if judgement.verdict is Verdict.REGRESSED else " (not seen by the case alone)"
        yield f"{name}: {judgement.difference:+.4f}{also}"


def _holds(one: _Member, alpha: float) -> bool:
    if not one.policy.statistical or one.examined.judgement.verdict in _GOOD:
        return one.examined.judgement.verdict in _GOOD
    return one.judged(alpha).verdict in _GOOD
