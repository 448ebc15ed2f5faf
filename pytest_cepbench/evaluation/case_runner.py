"""Evaluation of one case of a suite, from its policy to the record that reports read."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from msgspec.structs import replace as replace_fields

from pytest_cepbench.errors import BaselineError, CepError
from pytest_cepbench.evaluation.case_evaluation import (
    EvaluatedCase,
    References,
    evaluate_case,
    read_references,
)
from pytest_cepbench.evaluation.case_result import Attribution, CaseHeader, CaseVerdict
from pytest_cepbench.evaluation.evaluator import Evaluator
from pytest_cepbench.evaluation.pooled_verdict import pooled_verdict
from pytest_cepbench.gate import Judgement, Measurement, Policy, Verdict
from pytest_cepbench.gate.baseline import baseline_path
from pytest_cepbench.gate.sensitivity import why_not_accepted
from pytest_cepbench.report import CaseResult, HopShown
from pytest_cepbench.suites import Case
from pytest_cepbench.suites.attribution import attribute
from pytest_cepbench.suites.cases import PooledCase
from pytest_cepbench.suites.gate_config import Overrides

Acceptance = Literal["none", "new", "all"]
"""Measurements that are to become baselines: none, those of cases without one, or all."""

Observer = Callable[[Measurement, Path, Judgement, bool], None]
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
        usage_before = evaluator.usage.total
        damage_before = len(evaluator.damage)
        policy = self._policy(case, nodeid, overrides)
        header = CaseHeader(
            nodeid=nodeid,
            key=case.key,
            label=case.label,
            of=len(evaluator.suites.get(self.suite_file).cases),
            policy=policy,
            strict=policy.gate == "noninferiority" or evaluator.settings.inconclusive == "fail",
        )
        try:
            evaluator.suites.check_policy(self.suite_file, case.key, policy)
            if isinstance(case, PooledCase):
                verdict = pooled_verdict(evaluator, self.suite_file, case)
                result = header.without_measurement(verdict)
            else:
                result = self._evaluate(case, header)
        except CepError as error:
            verdict = CaseVerdict(Verdict.ERROR, reasons=[str(error)], alpha=header.alpha)
            result = header.without_measurement(verdict)
        return replace_fields(
            result,
            effort=evaluator.usage.charge(usage_before, time.perf_counter() - started),
            damage=evaluator.damage[damage_before:],
        )

    def _policy(self, case: Case | PooledCase, nodeid: str, overrides: Overrides) -> Policy:
        """How a case is judged by run, test and suite, with its own share of alpha."""
        policy = self.evaluator.suites.claim(self.suite_file, case.key, overrides).policy
        if isinstance(case, PooledCase):
            return replace(policy, primary=True)
        assigned = self.evaluator.assigned
        if not policy.primary or not assigned:
            return policy
        if nodeid in assigned:
            return replace(policy, alpha=assigned[nodeid].policy.alpha)
        # The whole alpha for a case that was not collected under this id would break the promise.
        return replace(policy, alpha=min(other.policy.alpha for other in assigned.values()))

    def _evaluate(self, case: Case, header: CaseHeader) -> CaseResult:
        evaluator, policy = self.evaluator, header.policy
        path = baseline_path(evaluator.settings.baselines, case.key)
        accepting = self.acceptance == "all" or (self.acceptance == "new" and not path.exists())
        try:
            references = read_references(evaluator, case)
        except BaselineError:
            if not accepting:
                raise
            references = References(None, None)  # they are about to be replaced
        evaluated = evaluate_case(
            evaluator, self.suite_file, case, policy, references, whole=accepting
        )
        measurement = evaluated.measurement
        self.observe(measurement, path, evaluated.judgement, accepting)
        refused = self._refusal(measurement, policy) if accepting else ""
        messages = evaluator.drain_messages()
        followed = policy.primary and not accepting
        return header.with_measurement(
            evaluated,
            evaluator.suite_run(self.suite_file),
            case,
            evaluator.store,
            messages=messages,
            accepted=accepting and not refused,
            refused=refused,
            attribution=self._attribution(case, evaluated) if followed else Attribution(),
        )

    def _refusal(self, measurement: Measurement, policy: Policy) -> str:
        """Why a measurement may not become the baseline of its case; empty where it may.

        A case that cannot fail a run cannot let a worse checkpoint pass either.
        """
        if self.evaluator.settings.accept_insensitive or not policy.primary:
            return ""
        return why_not_accepted(measurement) or ""

    def _attribution(self, case: Case, evaluated: EvaluatedCase) -> Attribution:
        """The hop of the chain at which a regressed case lost."""
        most = self.evaluator.settings.attribute
        judgement, references = evaluated.judgement, evaluated.references
        if judgement.verdict is not Verdict.REGRESSED or not most:
            return Attribution()
        since = judgement.since_anchor
        by_anchor = since is not None and judgement.losers == since.losers
        reference = references.anchor if by_anchor else references.baseline
        if reference is None:
            return Attribution()
        run = self.evaluator.suite_run(self.suite_file)
        whole = run.samples(case)
        if not run.per_sample(case) and whole > most:
            return Attribution(
                f"sets are followed through the chain whole: --cep-attribute={whole} does that"
            )
        lost = list(dict.fromkeys(loser.sample for loser in judgement.losers))
        samples = lost[:most] if run.per_sample(case) else []
        try:
            found = attribute(run, case, reference.model.get("step", ""), samples)
        except CepError as error:  # the verdict stands without it
            return Attribution(f"could not be followed through the chain: {error}")
        hops = [HopShown(hop.start, hop.role, hop.generation, hop.cost) for hop in found.hops]
        return Attribution(found.said, hops)
