"""A case of a suite, from its policy to the record that reports read; the verdict of a suite."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Literal

from msgspec.structs import replace as replace_fields

from pytest_cepbench.errors import CepError
from pytest_cepbench.evaluation.case_evaluation import EvaluatedCase, evaluate_case
from pytest_cepbench.evaluation.evaluator import AssignedCase, Evaluator
from pytest_cepbench.evaluation.shown_samples import shown_answers, shown_chains
from pytest_cepbench.files import parse_json
from pytest_cepbench.gate import CaseKey, Judgement, Measurement, Verdict
from pytest_cepbench.gate.baseline import answers_digest, baseline_path
from pytest_cepbench.gate.compare import policy_beside
from pytest_cepbench.gate.sensitivity import (
    design_of,
    power_remark,
    remarks_on_accepting,
    why_not_accepted,
)
from pytest_cepbench.gate.statistics import holm
from pytest_cepbench.measures.cases import PooledCase
from pytest_cepbench.report import (
    BaselineModel,
    CaseResult,
    HopShown,
    ModelShown,
    SeriesShown,
    Shown,
)
from pytest_cepbench.suites import Case
from pytest_cepbench.suites.chain_run import ChainRun
from pytest_cepbench.suites.gate_config import Overrides
from pytest_cepbench.suites.model_pool import describe_role
from pytest_cepbench.suites.stored_chains import attribute
from pytest_cepbench.suites.suite_run import SuiteRun

Acceptance = Literal["none", "new", "all"]
"""Measurements that are to become baselines: none, those of cases without one, or all."""


def judge_case(
    evaluator: Evaluator,
    suite_file: Path,
    case: Case | PooledCase,
    nodeid: str,
    overrides: Overrides,
    acceptance: Acceptance = "none",
) -> CaseResult:
    """Measure and judge a case of a suite. Every CepError on the way is the verdict `error`.

    nodeid: of the case's test.
    overrides: what the test says of how it is judged.
    acceptance: which measurements are to become baselines.
    """
    started = time.perf_counter()
    usage_before, damage_before = evaluator.usage, len(evaluator.damage)
    policy = evaluator.suites.claim(suite_file, case.key, overrides).policy
    alphas = {name: own.policy.alpha for name, own in evaluator.assigned.items()}
    if isinstance(case, PooledCase):
        policy = replace(policy, primary=True)
    elif policy.primary and alphas:
        # The whole alpha for a case that was not collected under this id would break the promise.
        policy = replace(policy, alpha=alphas.get(nodeid, min(alphas.values())))
    unmeasured = CaseResult(
        nodeid=nodeid,
        suite=case.key.suite,
        part=case.key.part,
        metric=case.key.metric,
        label=case.label,
        tolerance=policy.tolerance,
        anchor_tolerance=policy.since_anchor,
        judgement=Judgement(Verdict.ERROR),
        of=len(evaluator.suites.get(suite_file).cases),
        gate=policy.gate,
        alpha=policy.alpha if policy.statistical else None,
        primary=policy.primary,
        strict=policy.gate == "noninferiority" or evaluator.settings.inconclusive == "fail",
        origins=dict(policy.origins),
    )
    try:
        evaluator.suites.check_policy(suite_file, case.key, policy)
        if isinstance(case, PooledCase):
            result = pooled_verdict(evaluator, suite_file, case, unmeasured)
        else:
            exists = baseline_path(evaluator.settings.baselines, case.key).exists()
            accepting = acceptance == "all" or (acceptance == "new" and not exists)
            own = AssignedCase(suite_file, case, policy)
            evaluated = evaluate_case(evaluator, own, accepting=accepting)
            result = _result(evaluator, suite_file, evaluated, unmeasured, accepting=accepting)
    except CepError as error:
        judgement = Judgement(Verdict.ERROR, reasons=(str(error),))
        result = replace_fields(unmeasured, judgement=judgement)
    return replace_fields(
        result,
        effort=evaluator.charge(usage_before, time.perf_counter() - started),
        damage=evaluator.damage[damage_before:],
    )


def _result(
    evaluator: Evaluator,
    suite_file: Path,
    evaluated: EvaluatedCase,
    unmeasured: CaseResult,
    *,
    accepting: bool,
) -> CaseResult:
    """The record of an evaluated case. unmeasured: the record so far."""
    measurement, judgement, policy = evaluated.measurement, evaluated.judgement, evaluated.policy
    refused, place, since = "", evaluated.place, judgement.since_anchor
    # A case that cannot fail a run cannot let a worse checkpoint pass either.
    if accepting and policy.primary and not evaluator.settings.accept_insensitive:
        refused = why_not_accepted(measurement) or ""
    accepted = accepting and not refused
    if not accepting:
        evaluator.judged[unmeasured.nodeid] = evaluated
    run = evaluator.suite_run(suite_file)
    remarks = remarks_on_accepting(measurement) if accepted else ()
    return replace_fields(
        unmeasured,
        alpha=unmeasured.alpha if place is None else policy.alpha,
        measurement=measurement.record,
        judgement=replace(
            judgement,
            statements=(*judgement.statements, *_notes(evaluated)),
            warnings=(*judgement.warnings, *remarks),
        ),
        shown=_shown(evaluator, run, evaluated, accepting=accepting, accepted=accepted),
        looks=list(evaluated.looks),
        partial=evaluated.partial,
        accepted=accepted,
        refused=refused,
        series=None
        if place is None
        else SeriesShown(
            name=place.series,
            look=place.look,
            expected=place.expected,
            alpha=place.alpha * place.share,
            level=judgement.upper_alpha,
            anchor_level=None if since is None else since.upper_alpha,
            baseline=place.baseline,
        ),
    )


def _shown(
    evaluator: Evaluator,
    run: SuiteRun,
    evaluated: EvaluatedCase,
    *,
    accepting: bool,
    accepted: bool,
) -> Shown:
    """What reports show of a case beside its numbers.

    Of a regressed case of chains the hops at which it lost its score, too.
    """
    measurement, settings, case = evaluated.measurement, evaluator.settings, evaluated.case
    reference, messages = evaluated.reference, evaluator.drain_messages()
    if isinstance(run, ChainRun):
        shown = shown_chains(run, evaluated, evaluator.store, settings.show)
    else:
        answers = shown_answers(
            run, evaluated, evaluator.store, accepted=accepted, requested=settings.show
        )
        shown = Shown(answers=answers)
    most, attribution, hops = settings.attribute, "", []
    regressed = evaluated.judgement.verdict is Verdict.REGRESSED and evaluated.policy.primary
    if regressed and most and not accepting and reference and isinstance(run, ChainRun):
        whole = run.samples(case)
        if not run.per_sample(case) and whole > most:
            attribution = (
                f"sets are followed through the chain whole: --cep-attribute={whole} does that"
            )
        else:
            losers = dict.fromkeys(loser.sample for loser in evaluated.losers)
            samples = list(losers)[:most] if run.per_sample(case) else []
            found = attribute(run, case, reference.model.get("step", ""), samples)
            attribution = found.said
            hops = [HopShown(hop.start, hop.role, hop.generation, hop.cost) for hop in found.hops]
    compared = reference is not None and evaluated.differences
    return replace_fields(
        shown,
        notes=[*messages, *measurement.notes],
        warnings=[*measurement.warnings, *run.warnings(measurement)],
        curve=list(measurement.curve),
        judge=measurement.judge,
        models=[
            ModelShown(role, bound.spec, bound.fingerprint, describe_role(bound))
            for role, bound in run.models(measurement).items()
        ],
        baseline_model=_baseline_model(evaluated.baseline),
        attribution=attribution,
        hops=hops,
        differences=evaluated.differences,
        opponents=answers_digest(reference) if reference is not None and compared else "",
        facts=measurement.facts,
    )


def _notes(evaluated: EvaluatedCase) -> Iterator[str]:
    """What the calibration of the baseline's model says of the tolerance, and of a part judged."""
    baseline, units = evaluated.baseline, evaluated.judgement.units
    if baseline is not None and baseline.noise is not None and units:
        design = design_of(baseline.noise, units)
        policy = policy_beside(evaluated.anchor, baseline, evaluated.policy)
        remark = None if design is None else power_remark(design, policy)
        yield from () if remark is None else (f"by this model's own noise, {remark}",)
    if evaluated.partial and not evaluated.policy.statistical:
        yield f"judged on the first {evaluated.looks[-1]} samples: see --cep-inconclusive=more"


def _baseline_model(baseline: Measurement | None) -> BaselineModel | None:
    if baseline is None:
        return None
    model, fingerprints = baseline.model, []
    with suppress(ValueError):  # a baseline by hand has no record of its steps
        steps = parse_json(model.get("step", ""))
        for record in steps if isinstance(steps, list) else [steps]:
            fingerprint = record.get("fingerprint") if isinstance(record, dict) else None
            if isinstance(fingerprint, str):
                fingerprints.append(fingerprint)
    return BaselineModel(
        role=model.get("role", ""),
        spec=model.get("spec", ""),
        identity=model.get("identity", ""),
        fingerprint=" + ".join(fingerprints),
        reason=baseline.accepted.get("reason", ""),
    )


# -- the verdict of a suite ------------------------------------------------------------------------

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
    Raises what `evaluate_case` raises.
    """
    # Two tests may gate one case; it counts once, by the smaller tolerance, which fails where the
    # other one does.
    keys, collected = {member.key for member in case.members}, dict[CaseKey, str]()
    for nodeid, own in evaluator.assigned.items():
        key = own.case.key
        if own.suite_file == suite_file and key in keys:
            other = evaluator.assigned[collected.setdefault(key, nodeid)]
            if own.policy.tolerance < other.policy.tolerance:
                collected[key] = nodeid
    members: dict[str, EvaluatedCase] = {
        key.within: evaluator.judged.get(nodeid)
        or evaluate_case(evaluator, evaluator.assigned[nodeid])
        for key, nodeid in collected.items()
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
    return replace_fields(unmeasured, alpha=alpha or None, judgement=judgement)


def _decide(
    members: Mapping[str, EvaluatedCase],
    weights: Mapping[str, float],
    alpha: float,
) -> tuple[Verdict, list[str]]:
    """The verdict on all cases, and why it is none that passes."""

    def regresses(name: str, level: float) -> bool:
        return members[name].judge_at(level).verdict is Verdict.REGRESSED

    alone = {name: member.judgement.verdict for name, member in members.items()}
    uncompared = {name: verdict for name, verdict in alone.items() if verdict in _NO_COMPARISON}
    if uncompared:
        first = next(iter(uncompared.values()))
        return first, [f"{name}: {verdict}" for name, verdict in uncompared.items()]
    if not members:
        return Verdict.ERROR, ["none of the suite's primary cases is in this run"]
    regressed = {
        name
        for name, verdict in alone.items()
        if name not in weights and verdict is Verdict.REGRESSED
    }
    regressed |= holm(regresses, weights, alpha) if weights else set()
    if regressed:
        return Verdict.REGRESSED, [
            f"{name}: {members[name].judgement.difference:+.4f}"
            + ("" if alone[name] is Verdict.REGRESSED else " (not seen by the case alone)")
            for name in sorted(regressed)
        ]
    undecided = [
        name
        for name, member in members.items()
        if alone[name] not in _GOOD
        and not (member.policy.statistical and member.judge_at(alpha).verdict in _GOOD)
    ]
    if undecided:
        names = ", ".join(undecided[:5]) + (", ..." if len(undecided) > 5 else "")
        reason = f"a drop larger than tolerated is not excluded in {len(undecided)}: {names}"
        unseen = [
            f"{name}: {why}" for name in undecided for why in members[name].judgement.reasons[:1]
        ]
        return Verdict.INCONCLUSIVE, [*unseen, reason]
    return Verdict.HELD, []
