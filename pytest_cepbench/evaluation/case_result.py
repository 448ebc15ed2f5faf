"""The record of a measured case, as reports read it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import ceil

from msgspec.structs import replace

from pytest_cepbench.evaluation.case_evaluation import EvaluatedCase
from pytest_cepbench.evaluation.evaluator import Evaluator
from pytest_cepbench.evaluation.shown_chains import ShownChains, shown_chains
from pytest_cepbench.evaluation.shown_samples import shown_facts
from pytest_cepbench.files import parse_json
from pytest_cepbench.gate import Baseline, Verdict
from pytest_cepbench.gate.baseline import answers_digest, record_of
from pytest_cepbench.gate.compare import policy_beside
from pytest_cepbench.gate.measurement import rounded
from pytest_cepbench.gate.sensitivity import design_of, power_remark, remarks_on_accepting
from pytest_cepbench.report import (
    AnchorShown,
    AnswerShown,
    BaselineModel,
    CaseResult,
    ModelShown,
    SeriesShown,
)
from pytest_cepbench.suites import SuiteRun
from pytest_cepbench.suites.chain_run import ChainRun
from pytest_cepbench.suites.model_pool import describe_role


def measured_case(
    unmeasured: CaseResult,
    evaluated: EvaluatedCase,
    run: SuiteRun,
    evaluator: Evaluator,
    *,
    messages: Sequence[str],
    accepted: bool,
    refused: str,
    series: SeriesShown | None = None,
) -> CaseResult:
    """The record of a case that was measured.

    unmeasured: the case, and how it is judged.
    run: measured it.
    evaluator: of the process; its store keeps the images that reports show.
    messages: on memory and models, from while it was measured.
    accepted: whether the measurement is to become the baseline.
    refused: why it may not, where that was asked for.
    series: its place in a series of gates.
    """
    measurement, judgement = evaluated.measurement, evaluated.judgement
    baseline, store = evaluated.references.baseline, evaluator.store
    shown = (
        shown_chains(run, evaluated, store, evaluator.settings, unmeasured.nodeid)
        if isinstance(run, ChainRun)
        else ShownChains()
    )
    answers: list[AnswerShown] = []
    if not isinstance(run, ChainRun):
        from pytest_cepbench.evaluation.shown_answers import shown_answers

        answers = shown_answers(
            run, evaluated, store, accepted=accepted, requested=evaluator.settings.show
        )
    judged = replace(
        unmeasured,
        verdict=judgement.verdict.value,
        level=judgement.alpha,
        baseline=judgement.baseline_value,
        baseline_floor=None if baseline is None else baseline.floor,
        difference=judgement.difference,
        p=judgement.p,
        low=judgement.low,
        high=judgement.high,
        method=judgement.method,
        units=judgement.units,
        visible=judgement.visible,
        needed=_samples_needed(evaluated),
        reasons=list(judgement.reasons),
        anchor=_anchor(evaluated),
        chains=shown.chains,
        median=shown.median,
        requested=shown.requested,
        reference=evaluated.reference_name,
        reference_chains=shown.reference_chains,
        curve_now=shown.curve_now,
        curve_reference=shown.curve_reference,
        differences=evaluated.differences,
        opponents=_opponents(evaluated),
        answers=answers,
        looks=list(evaluated.looks),
        partial=evaluated.partial,
        accepted=accepted,
        refused=refused,
        series=series,
        baseline_model=None if baseline is None else _baseline_model(baseline),
    )
    remarks = remarks_on_accepting(measurement) if accepted else ()
    return replace(
        judged,
        higher_is_better=measurement.higher_is_better,
        value=_value(evaluated),
        n=measurement.n,
        failures=dict(measurement.failures),
        curve=list(measurement.curve),
        floor=measurement.floor,
        model=dict(measurement.model),
        identity=dict(measurement.identity),
        measured=record_of(measurement),
        judge=measurement.judge,
        facts=None if measurement.facts is None else shown_facts(measurement.facts),
        models=[
            ModelShown(role, bound.spec, bound.fingerprint, describe_role(bound))
            for role, bound in run.models(measurement).items()
        ],
        notes=[
            *messages,
            *measurement.notes,
            *judgement.statements,
            *_calibration_notes(evaluated),
            *_partial_notes(evaluated),
        ],
        warnings=[*measurement.warnings, *run.warnings(measurement), *judgement.warnings, *remarks],
    )


def _value(evaluated: EvaluatedCase) -> float:
    """The case's number: people's win rate where labels made the bounds, as its change is."""
    judgement, measurement = evaluated.judgement, evaluated.measurement
    baseline, difference = judgement.baseline_value, judgement.difference
    if measurement.labels is None or baseline is None or difference is None:
        return measurement.value
    return rounded(baseline + difference) if judgement.method else measurement.value


def _opponents(evaluated: EvaluatedCase) -> str:
    """Digest of the answers that were battled; empty where none were."""
    reference = evaluated.reference
    return "" if reference is None or not evaluated.differences else answers_digest(reference)


def _baseline_model(baseline: Baseline) -> BaselineModel:
    model = baseline.model
    return BaselineModel(
        role=model.get("role", ""),
        spec=model.get("spec", ""),
        identity=model.get("identity", ""),
        fingerprint=" + ".join(_fingerprints(model.get("step", ""))),
        reason=baseline.accepted.get("reason", ""),
    )


def _fingerprints(step: str) -> Iterator[str]:
    """Fingerprints of the roles in a baseline's record of their steps; none in one by hand."""
    try:
        steps = parse_json(step)
    except ValueError:
        return
    for record in steps if isinstance(steps, list) else [steps]:
        fingerprint = record.get("fingerprint") if isinstance(record, dict) else None
        if isinstance(fingerprint, str):
            yield fingerprint


def _samples_needed(evaluated: EvaluatedCase) -> int | None:
    """The samples that would decide an inconclusive case, as many to a unit as it has now."""
    judgement, n = evaluated.judgement, evaluated.measurement.n
    if judgement.verdict is not Verdict.INCONCLUSIVE or not (judgement.needed and judgement.units):
        return None
    return ceil(judgement.needed * max(n, judgement.units) / judgement.units)


def _anchor(evaluated: EvaluatedCase) -> AnchorShown | None:
    since = evaluated.judgement.since_anchor
    if since is None:
        return None
    return AnchorShown(
        value=since.baseline_value,
        difference=since.difference,
        low=since.low,
        high=since.high,
        tolerance=evaluated.policy.since_anchor,
        verdict=since.verdict.value,
        p=since.p,
        method=since.method,
    )


def _partial_notes(evaluated: EvaluatedCase) -> Iterator[str]:
    """A note that a case without statistics was judged by its first samples alone."""
    if evaluated.partial and not evaluated.policy.statistical:
        yield f"judged on the first {evaluated.looks[-1]} samples: see --cep-inconclusive=more"


def _calibration_notes(evaluated: EvaluatedCase) -> Iterator[str]:
    """What the calibration of the baseline's model says of the tolerance."""
    baseline, anchor = evaluated.references.baseline, evaluated.references.anchor
    units = evaluated.judgement.units
    if baseline is None or baseline.noise is None or not units:
        return
    design = design_of(baseline.noise, units)
    policy = policy_beside(anchor, baseline, evaluated.policy)
    remark = None if design is None else power_remark(design, policy)
    yield from () if remark is None else (f"by this model's own noise, {remark}",)
