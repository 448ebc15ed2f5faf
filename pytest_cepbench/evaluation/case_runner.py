"""Evaluation of one case of a suite, from its policy to the record that reports read."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import msgspec
from msgspec.structs import replace as replace_fields

from pytest_cepbench.errors import CepError
from pytest_cepbench.evaluation.case_evaluation import (
    EvaluatedCase,
    evaluate_case,
)
from pytest_cepbench.evaluation.case_result import measured_case
from pytest_cepbench.evaluation.evaluator import AssignedCase, Evaluator
from pytest_cepbench.gate import CaseKey, Judgement, Policy, Verdict
from pytest_cepbench.gate.baseline import baseline_path
from pytest_cepbench.gate.sensitivity import why_not_accepted
from pytest_cepbench.gate.statistics import holm
from pytest_cepbench.measures.cases import PooledCase
from pytest_cepbench.report import CaseResult, HopShown
from pytest_cepbench.suites import Case
from pytest_cepbench.suites.gate_config import Overrides
from pytest_cepbench.suites.suite_run import CaseMeasurement

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
    Each case is settled in the series of the run, once, whether here or by its own test.
    unmeasured: the record so far.
    Raises what `evaluate_case` raises.
    """
    members: dict[str, EvaluatedCase] = {
        assigned.case.key.within: (
            evaluator.judged.get(nodeid)
            or evaluate_case(evaluator, suite_file, assigned.case, assigned.policy)
        )
        for nodeid, assigned in _collected(evaluator, suite_file, case).items()
    }
    weights = {
        name: member.policy.alpha for name, member in members.items() if member.policy.statistical
    }
    alpha = sum(weights.values())
    verdict, reasons = _decide(members, weights, alpha)
    note = f"each of {len(members)} cases excludes its tolerated drop at alpha {alpha:.4g}"
    judgement = Judgement(
        verdict,
        method="Holm; intersection-union",
        reasons=tuple(reasons),
        statements=(note,) if verdict is Verdict.HELD else (),
    )
    return msgspec.structs.replace(unmeasured, alpha=alpha or None, judgement=judgement)


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


def _collected(evaluator: Evaluator, suite_file: Path, case: PooledCase) -> dict[str, AssignedCase]:
    """The suite's primary cases that this run judges, by node id.

    Two tests may gate one case; it counts once, by the smaller tolerance, which fails where the
    other one does.
    """
    keys = {member.key for member in case.members}
    collected: dict[CaseKey, str] = {}
    for nodeid, assigned in evaluator.assigned.items():
        key = assigned.case.key
        if assigned.suite_file == suite_file and key in keys:
            other = collected.get(key, nodeid)
            smaller = assigned.policy.tolerance < evaluator.assigned[other].policy.tolerance
            collected[key] = nodeid if smaller else other
    return {nodeid: evaluator.assigned[nodeid] for nodeid in collected.values()}


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


Acceptance = Literal["none", "new", "all"]
"""Measurements that are to become baselines: none, those of cases without one, or all."""

Observer = Callable[[CaseMeasurement, Path, Judgement, bool], None]
"""Called with a measurement, its baseline's path, how it was judged, and whether it is accepted."""


@dataclass(frozen=True)
class CaseRunner:
    """Evaluates the cases of one suite in one process.

    suite_file: the suite.
    acceptance: which measurements are to become baselines.
    observe: called when a case was judged; may raise BaselineError.
    """

    evaluator: Evaluator
    suite_file: Path
    acceptance: Acceptance = "none"
    observe: Observer = lambda *_: None

    def __call__(self, case: Case | PooledCase, nodeid: str, overrides: Overrides) -> CaseResult:
        """Measure and judge a case. Every CepError on the way is the verdict `error`.

        nodeid: of the case's test.
        overrides: what the test says of how it is judged.
        """
        evaluator = self.evaluator
        started = time.perf_counter()
        usage_before = evaluator.usage
        damage_before = len(evaluator.damage)
        policy = self._policy(case, nodeid, overrides)
        unmeasured = CaseResult(
            nodeid=nodeid,
            suite=case.key.suite,
            part=case.key.part,
            metric=case.key.metric,
            label=case.label,
            tolerance=policy.tolerance,
            anchor_tolerance=policy.since_anchor,
            judgement=Judgement(Verdict.ERROR),
            of=len(evaluator.suites.get(self.suite_file).cases),
            gate=policy.gate,
            alpha=policy.alpha if policy.statistical else None,
            primary=policy.primary,
            strict=policy.gate == "noninferiority" or evaluator.settings.inconclusive == "fail",
            origins=dict(policy.origins),
        )
        try:
            evaluator.suites.check_policy(self.suite_file, case.key, policy)
            if isinstance(case, PooledCase):
                result = pooled_verdict(evaluator, self.suite_file, case, unmeasured)
            else:
                result = self._evaluate(case, policy, unmeasured)
        except CepError as error:
            judgement = Judgement(Verdict.ERROR, reasons=(str(error),))
            result = replace_fields(unmeasured, judgement=judgement)
        return replace_fields(
            result,
            effort=evaluator.charge(usage_before, time.perf_counter() - started),
            damage=evaluator.damage[damage_before:],
        )

    def _policy(self, case: Case | PooledCase, nodeid: str, overrides: Overrides) -> Policy:
        """How a case is judged by run, test and suite, with its own share of alpha."""
        policy = self.evaluator.suites.claim(self.suite_file, case.key, overrides).policy
        if isinstance(case, PooledCase):
            return replace(policy, primary=True)
        assigned = self.evaluator.assigned
        alphas = {name: case.policy.alpha for name, case in assigned.items()}
        if not policy.primary or not alphas:
            return policy
        # The whole alpha for a case that was not collected under this id would break the promise.
        return replace(policy, alpha=alphas.get(nodeid, min(alphas.values())))

    def _evaluate(self, case: Case, policy: Policy, unmeasured: CaseResult) -> CaseResult:
        evaluator = self.evaluator
        path = baseline_path(evaluator.settings.baselines, case.key)
        accepting = self.acceptance == "all" or (self.acceptance == "new" and not path.exists())
        evaluated = evaluate_case(evaluator, self.suite_file, case, policy, accepting=accepting)
        measurement, series = evaluated.measurement, evaluated.series
        try:
            if accepting:
                evaluator.suites.check_policy(self.suite_file, case.key, policy, measurement)
            self.observe(measurement, path, evaluated.judgement, accepting)
        except CepError:
            if series is not None:
                series.settle(Verdict.ERROR)
            raise
        if not accepting:
            evaluator.judged[unmeasured.nodeid] = evaluated
        if series is not None:
            unmeasured = replace_fields(unmeasured, alpha=evaluated.policy.alpha)
        refused = self._refusal(measurement, policy) if accepting else ""
        result = measured_case(
            unmeasured,
            evaluated,
            evaluator.suite_run(self.suite_file),
            evaluator,
            messages=evaluator.drain_messages(),
            accepted=accepting and not refused,
            refused=refused,
        )
        return self._attribute(result, evaluated) if policy.primary and not accepting else result

    def _refusal(self, measurement: CaseMeasurement, policy: Policy) -> str:
        """Why a measurement may not become the baseline of its case; empty where it may.

        A case that cannot fail a run cannot let a worse checkpoint pass either.
        """
        if self.evaluator.settings.accept_insensitive or not policy.primary:
            return ""
        return why_not_accepted(measurement) or ""

    def _attribute(self, result: CaseResult, evaluated: EvaluatedCase) -> CaseResult:
        """The result with the hops or parts of a pipeline by which a regressed case lost."""
        most = self.evaluator.settings.attribute
        judgement, reference = evaluated.judgement, evaluated.reference
        if judgement.verdict is not Verdict.REGRESSED or not most:
            return result
        if reference is None:
            return result
        case, run = evaluated.case, self.evaluator.suite_run(self.suite_file)
        step = reference.model.get("step", "")
        lost = list(dict.fromkeys(loser.sample for loser in evaluated.losers))
        whole = run.samples(case)
        if not run.per_sample(case) and whole > most:
            text = f"sets are followed through the chain whole: --cep-attribute={whole} does that"
            return _with_attribution(result, text)
        samples = lost[:most] if run.per_sample(case) else []
        attribution = run.attribute(case, step, samples)
        hops = [HopShown(hop.start, hop.role, hop.generation, hop.cost) for hop in attribution.hops]
        return _with_attribution(result, attribution.said, hops)


def _with_attribution(result: CaseResult, text: str, hops: Sequence[HopShown] = ()) -> CaseResult:
    shown = replace_fields(result.shown, attribution=text, hops=list(hops))
    return replace_fields(result, shown=shown)
