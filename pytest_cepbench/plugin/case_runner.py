"""Judging one case in a test: measure, compare with the baseline, put the result on the item."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pytest_cepbench.errors import BaselineError, CepError
from pytest_cepbench.gate import Judgement, Measurement, Policy, Verdict
from pytest_cepbench.gate.baseline import baseline_path, record_of
from pytest_cepbench.gate.sensitivity import (
    remarks_on_accepting,
    tolerance_remark,
    why_not_accepted,
)
from pytest_cepbench.gate.snapshot import BaselineExtension
from pytest_cepbench.plugin.evaluate import EvaluatedCase, References, examine, read_references
from pytest_cepbench.plugin.evaluator import Evaluator
from pytest_cepbench.plugin.excerpts import show_chains
from pytest_cepbench.plugin.pooled import judge_pooled
from pytest_cepbench.report import AnchorShown, CaseResult, HopShown, ModelShown
from pytest_cepbench.suites import Case
from pytest_cepbench.suites.attribution import attribute
from pytest_cepbench.suites.cases import PooledCase
from pytest_cepbench.suites.gate_config import Overrides
from pytest_cepbench.suites.model_pool import describe_role

MOST_LOSERS = 5
"""Samples that are shown of a case that got worse."""


@dataclass(frozen=True)
class CaseRunner:
    """Judges the cases of one suite in one process.

    suite_file: the suite. snapshot: syrupy's assertion of the running test.
    """

    process: Evaluator
    suite_file: Path
    snapshot: Any

    def __call__(self, case: Case | PooledCase, nodeid: str, test: Overrides) -> CaseResult:
        """Measure and judge a case. Whatever goes wrong in a known way is the verdict `error`."""
        started = time.perf_counter()
        before = self.process.effort
        damage_before = len(self.process.damage)
        policy = self._policy(case, nodeid, test)
        try:
            self.process.suites.check_policy(self.suite_file, case.key, policy)
            if isinstance(case, PooledCase):
                fields = judge_pooled(self.process, self.suite_file, case)
            else:
                fields = self._judge(case, policy)
        except CepError as error:
            fields = {"verdict": Verdict.ERROR.value, "reasons": [str(error)]}
        spent = self.process.charge(before, time.perf_counter() - started)
        strict = policy.gate == "noninferiority" or self.process.settings.inconclusive == "fail"
        shared: dict[str, Any] = {
            "nodeid": nodeid,
            "suite": case.key.suite,
            "part": case.key.part,
            "metric": case.key.metric,
            "label": case.label,
            "of": len(self.process.suites.get(self.suite_file).cases),
            "gate": policy.gate,
            "tolerance": policy.tolerance,
            "alpha": policy.alpha if policy.statistical else None,
            "primary": policy.primary,
            "strict": strict,
            "origins": dict(policy.origins),
            "damage": self.process.damage[damage_before:],
            "effort": spent,
        }
        return CaseResult(**(shared | fields))

    def _policy(self, case: Case | PooledCase, nodeid: str, test: Overrides) -> Policy:
        """What run, test and suite say, with the case's own share of alpha."""
        policy = self.process.suites.claim(self.suite_file, case.key, test).policy
        if isinstance(case, PooledCase):
            return replace(policy, primary=True)
        assigned = self.process.assigned
        if not policy.primary or not assigned:
            return policy
        if nodeid in assigned:
            return replace(policy, alpha=assigned[nodeid].policy.alpha)
        # The whole alpha for a case that was not collected under this id would break the promise.
        return replace(policy, alpha=min(one.policy.alpha for one in assigned.values()))

    def _judge(self, case: Case, policy: Policy) -> dict[str, Any]:
        path = baseline_path(self.process.settings.baselines, case.key)
        accepting = self.snapshot.update_snapshots or (
            self.snapshot.update_new_snapshots_only and not path.exists()
        )
        try:
            references = read_references(self.process, case)
        except BaselineError:
            if not accepting:
                raise
            references = References(None, None)  # they are about to be replaced
        examined = examine(self.process, self.suite_file, case, policy, references, whole=accepting)
        measurement, judgement = examined.measurement, examined.judgement
        self._tell_syrupy(measurement, path, judgement, accepting=accepting)
        refused = self._refusal(measurement, policy) if accepting else ""
        run = self.process.run(self.suite_file)
        shown = judgement.losers[:MOST_LOSERS]
        return {
            "verdict": judgement.verdict.value,
            "higher_is_better": measurement.higher_is_better,
            "value": measurement.value,
            "baseline": judgement.baseline_value,
            "difference": judgement.difference,
            "level": judgement.alpha,
            "low": judgement.low,
            "high": judgement.high,
            "method": judgement.method,
            "units": judgement.units,
            "visible": judgement.visible,
            "looks": list(examined.looks),
            "partial": examined.partial,
            "n": measurement.n,
            "accepted": accepting and not refused,
            "refused": refused,
            "failures": dict(measurement.failures),
            "curve": list(measurement.curve),
            "notes": [
                *self.process.told(),
                *measurement.notes,
                *judgement.statements,
                *_calibrated(examined, policy),
                *_beginnings(examined, policy),
            ],
            "floor": measurement.floor,
            "baseline_floor": None if references.baseline is None else references.baseline.floor,
            "warnings": [
                *measurement.warnings,
                *run.warnings(measurement),
                *judgement.warnings,
                *(remarks_on_accepting(measurement) if accepting and not refused else ()),
            ],
            "reasons": list(judgement.reasons),
            "model": dict(measurement.model),
            "identity": dict(measurement.identity),
            "anchor": _anchor(examined, policy),
            "chains": show_chains(run, case, shown, self.process.store),
            "measured": record_of(measurement),
            "models": [
                ModelShown(seat, bound.spec, bound.fingerprint, describe_role(bound))
                for seat, bound in run.models(measurement).items()
            ],
            **(self._attributed(case, examined) if policy.primary and not accepting else {}),
        }

    def _refusal(self, measurement: Measurement, policy: Policy) -> str:
        """Why a measurement may not become the baseline of its case; empty where it may.

        A case that cannot fail a run cannot let a worse checkpoint pass either.
        """
        if self.process.settings.accept_insensitive or not policy.primary:
            return ""
        return why_not_accepted(measurement) or ""

    def _attributed(self, case: Case, examined: EvaluatedCase) -> dict[str, Any]:
        """At which hop of the chain a regressed case lost."""
        most = self.process.settings.attribute
        judgement, references = examined.judgement, examined.references
        if judgement.verdict is not Verdict.REGRESSED or not most:
            return {}
        since = judgement.since_anchor
        by_anchor = since is not None and judgement.losers == since.losers
        reference = references.anchor if by_anchor else references.baseline
        if reference is None:
            return {}
        run = self.process.run(self.suite_file)
        whole = run.samples(case)
        if not run.per_sample(case) and whole > most:
            said = f"sets are followed through the chain whole: --cep-attribute={whole} does that"
            return {"attribution": said}
        lost = list(dict.fromkeys(loser.sample for loser in judgement.losers))
        chosen = lost[:most] if run.per_sample(case) else []
        try:
            found = attribute(run, case, reference.model.get("step", ""), chosen)
        except CepError as error:  # the verdict stands without it
            return {"attribution": f"could not be followed through the chain: {error}"}
        hops = [HopShown(hop.start, hop.role, hop.generation, hop.cost) for hop in found.hops]
        return {"attribution": found.said, "hops": hops}

    def _tell_syrupy(
        self, measurement: Measurement, path: Path, judgement: Judgement, *, accepting: bool
    ) -> None:
        """Let syrupy count the comparison and stage an update; the verdict is the gate's.

        Raises BaselineError when nothing was staged that should have been: syrupy keeps to itself
        what goes wrong while it compares and writes.
        """
        passes = judgement.verdict in (Verdict.HELD, Verdict.IMPROVED, Verdict.INCONCLUSIVE)
        staged = self.process.staged / path.relative_to(self.process.settings.baselines)
        extension = BaselineExtension.bind(path, staged, passes=None if accepting else passes)
        assertion = self.snapshot.use_extension(extension)
        agreed = bool(assertion(name=str(measurement.key)) == measurement)
        if accepting and not (agreed and (staged.exists() or path.exists())):
            errors = [one.exception for one in assertion.executions.values() if one.exception]
            why = f" ({errors[-1]})" if errors else ""
            msg = f"the new baseline {path.name} could not be written to {staged.parent}{why}"
            raise BaselineError(msg)


def _anchor(examined: EvaluatedCase, policy: Policy) -> AnchorShown | None:
    since = examined.judgement.since_anchor
    if since is None:
        return None
    return AnchorShown(
        value=since.baseline_value,
        difference=since.difference,
        low=since.low,
        high=since.high,
        tolerance=policy.since_anchor,
        verdict=since.verdict.value,
    )


def _beginnings(examined: EvaluatedCase, policy: Policy) -> Sequence[str]:
    """That a case without statistics was judged by its first samples alone."""
    if not examined.partial or policy.statistical:
        return ()
    return (f"judged on the first {examined.looks[-1]} samples: see --cep-inconclusive=more",)


def _calibrated(examined: EvaluatedCase, policy: Policy) -> Sequence[str]:
    """What the calibration of the baseline's model says of the tolerance."""
    baseline, units = examined.references.baseline, examined.judgement.units
    if baseline is None or baseline.noise is None or not policy.statistical or not units:
        return ()
    remark = tolerance_remark(baseline.noise, units, policy)
    return () if remark is None else (remark,)
