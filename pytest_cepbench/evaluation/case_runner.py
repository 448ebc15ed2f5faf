"""Evaluation of one case of a suite, from its policy to the record that reports read."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from msgspec.structs import replace as replace_fields

from pytest_cepbench.errors import BaselineError, CepError, CheckpointError
from pytest_cepbench.evaluation.case_evaluation import (
    EvaluatedCase,
    References,
    evaluate_case,
    read_references,
)
from pytest_cepbench.evaluation.case_result import measured_case
from pytest_cepbench.evaluation.case_series import SeriesCase, enter_series
from pytest_cepbench.evaluation.evaluator import Evaluator
from pytest_cepbench.evaluation.pooled_verdict import pooled_verdict
from pytest_cepbench.gate import Judgement, Measurement, Policy, Verdict
from pytest_cepbench.gate.baseline import baseline_path
from pytest_cepbench.gate.sensitivity import why_not_accepted
from pytest_cepbench.report import CaseResult, HopShown
from pytest_cepbench.suites import Case
from pytest_cepbench.suites.answer_run import AnswerRun
from pytest_cepbench.suites.attribution import attribute
from pytest_cepbench.suites.cases import PooledCase
from pytest_cepbench.suites.chain_run import ChainRun
from pytest_cepbench.suites.gate_config import Overrides
from pytest_cepbench.suites.part_attribution import attribute_parts

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
        usage_before = evaluator.usage
        damage_before = len(evaluator.damage)
        policy = self._policy(case, nodeid, overrides)
        unmeasured = CaseResult(
            nodeid=nodeid,
            suite=case.key.suite,
            part=case.key.part,
            metric=case.key.metric,
            label=case.label,
            verdict=Verdict.ERROR.value,
            tolerance=policy.tolerance,
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
                self._refuse_idle()
                result = pooled_verdict(evaluator, self.suite_file, case, unmeasured)
            else:
                result = self._evaluate(case, policy, unmeasured)
        except CepError as error:
            result = replace_fields(unmeasured, reasons=[str(error)])
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
        try:
            references = read_references(evaluator, case)
        except BaselineError:
            if not accepting:
                raise
            references = References(None, None)  # they are about to be replaced
        if not accepting:
            accepted = references.baseline, references.anchor
            evaluator.suites.check_policy(self.suite_file, case.key, policy, *accepted)
        series = enter_series(evaluator, self.suite_file, case, policy, references)
        if series is None:
            return self._measure(case, policy, references, unmeasured, accepting=accepting)
        policy = series.adjusted(policy)
        unmeasured = replace_fields(unmeasured, alpha=policy.alpha)
        try:
            return self._measure(
                case, policy, references, unmeasured, accepting=accepting, series=series
            )
        except CepError:
            series.settle(Verdict.ERROR)
            raise

    def _measure(
        self,
        case: Case,
        policy: Policy,
        references: References,
        unmeasured: CaseResult,
        *,
        accepting: bool,
        series: SeriesCase | None = None,
    ) -> CaseResult:
        """Measure and judge a case. series: its place in a series, if the run is in one."""
        evaluator = self.evaluator
        path = baseline_path(evaluator.settings.baselines, case.key)
        if not accepting:
            self._refuse_idle()
        evaluated = evaluate_case(
            evaluator, self.suite_file, case, policy, references, whole=accepting
        )
        if series is not None:
            series.settle(evaluated.judgement.verdict, evaluated)
        measurement = evaluated.measurement
        if accepting:
            evaluator.suites.check_policy(self.suite_file, case.key, policy, measurement)
        self.observe(measurement, path, evaluated.judgement, accepting)
        refused = self._refusal(measurement, policy) if accepting else ""
        result = measured_case(
            unmeasured,
            evaluated,
            evaluator.suite_run(self.suite_file),
            evaluator,
            messages=evaluator.drain_messages(),
            accepted=accepting and not refused,
            refused=refused,
            series=None if series is None else series.shown(evaluated),
        )
        return self._attribute(result, evaluated) if policy.primary and not accepting else result

    def _refuse_idle(self) -> None:
        """Raise CheckpointError where the model under test is its base: nothing would be gated.

        As the first baseline of a training it is right, and accepted with a warning.
        """
        run = self.evaluator.suite_run(self.suite_file)
        gated = () if run.assignments.replay is not None else run.assignments.gated
        found = [run.runner(role).bound.idle() for role in gated]
        if found and all(idle.whole for idle in found):
            raise CheckpointError(
                f"nothing is gated: {'; '.join(dict.fromkeys(r for i in found for r in i.remarks))}"
                ". Give a checkpoint from after its training began; --snapshot-update accepts this "
                "one as the first baseline"
            )

    def _refusal(self, measurement: Measurement, policy: Policy) -> str:
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
        lost = list(dict.fromkeys(loser.sample for loser in judgement.losers))
        if isinstance(run, AnswerRun):
            return _attribute_parts(result, run, case, step, lost[:most])
        assert isinstance(run, ChainRun)
        whole = run.samples(case)
        if not run.per_sample(case) and whole > most:
            text = f"sets are followed through the chain whole: --cep-attribute={whole} does that"
            return replace_fields(result, attribution=text)
        samples = lost[:most] if run.per_sample(case) else []
        try:
            attribution = attribute(run, case, step, samples)
        except CepError as error:  # the verdict stands without it
            text = f"could not be followed through the chain: {error}"
            return replace_fields(result, attribution=text)
        hops = [HopShown(hop.start, hop.role, hop.generation, hop.cost) for hop in attribution.hops]
        return replace_fields(result, attribution=attribution.said, hops=hops)


def _attribute_parts(
    result: CaseResult, run: AnswerRun, case: Case, step: str, samples: Sequence[str]
) -> CaseResult:
    """The result with the parts of a pipeline by which a regressed case lost."""
    try:
        attribution = attribute_parts(run, case, step, samples)
    except CepError as error:  # the verdict stands without it
        return replace_fields(result, attribution=f"could not be divided among its parts: {error}")
    hops = [HopShown("question", role, 0, cost) for role, cost in attribution.costs.items()]
    return replace_fields(result, attribution=attribution.said, hops=hops)
