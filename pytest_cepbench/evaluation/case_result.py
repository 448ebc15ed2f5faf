"""The record of a measured case, as reports read it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from msgspec.structs import replace as replace_fields

from pytest_cepbench.evaluation.case_evaluation import EvaluatedCase
from pytest_cepbench.evaluation.evaluator import Evaluator
from pytest_cepbench.evaluation.shown_chains import ShownChains, shown_chains, shown_facts
from pytest_cepbench.files import parse_json
from pytest_cepbench.gate import Measurement
from pytest_cepbench.gate.baseline import answers_digest
from pytest_cepbench.gate.compare import policy_beside
from pytest_cepbench.gate.sensitivity import design_of, power_remark, remarks_on_accepting
from pytest_cepbench.gate.series import delays_of
from pytest_cepbench.report import (
    AnswerShown,
    BaselineModel,
    CaseResult,
    ModelShown,
    SeriesShown,
    Shown,
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
) -> CaseResult:
    """The record of a case that was measured.

    unmeasured: the case, and how it is judged.
    run: measured it.
    evaluator: of the process; its store keeps the images that reports show.
    messages: on memory and models, from while it was measured.
    accepted: whether the measurement is to become the baseline.
    refused: why it may not, where that was asked for.
    """
    measurement, judgement = evaluated.measurement, evaluated.judgement
    chains = ShownChains()
    if isinstance(run, ChainRun):
        chains = shown_chains(
            run, evaluated, evaluator.store, evaluator.settings, unmeasured.nodeid
        )
    remarks = remarks_on_accepting(measurement) if accepted else ()
    notes = [*_calibration_notes(evaluated), *_partial_notes(evaluated)]
    return replace_fields(
        unmeasured,
        measurement=measurement.record,
        judgement=replace(
            judgement,
            statements=(*judgement.statements, *notes),
            warnings=(*judgement.warnings, *remarks),
        ),
        shown=_shown(evaluated, run, evaluator, chains, messages=messages, accepted=accepted),
        looks=list(evaluated.looks),
        partial=evaluated.partial,
        accepted=accepted,
        refused=refused,
        series=_series_shown(evaluated),
    )


def _shown(
    evaluated: EvaluatedCase,
    run: SuiteRun,
    evaluator: Evaluator,
    chains: ShownChains,
    *,
    messages: Sequence[str],
    accepted: bool,
) -> Shown:
    measurement, baseline = evaluated.measurement, evaluated.references.baseline
    answers: list[AnswerShown] = []
    if not isinstance(run, ChainRun):
        from pytest_cepbench.evaluation.shown_answers import shown_answers

        requested = evaluator.settings.show
        answers = shown_answers(
            run, evaluated, evaluator.store, accepted=accepted, requested=requested
        )
    return Shown(
        notes=[*messages, *measurement.notes],
        warnings=[*measurement.warnings, *run.warnings(measurement)],
        curve=list(measurement.curve),
        judge=measurement.judge,
        models=[
            ModelShown(role, bound.spec, bound.fingerprint, describe_role(bound))
            for role, bound in run.models(measurement).items()
        ],
        baseline_model=None if baseline is None else _baseline_model(baseline),
        chains=chains.chains,
        answers=answers,
        median=chains.median,
        requested=chains.requested,
        reference_chains=chains.reference_chains,
        curve_now=chains.curve_now,
        curve_reference=chains.curve_reference,
        differences=evaluated.differences,
        opponents=_opponents(evaluated),
        facts=None if measurement.facts is None else shown_facts(measurement.facts),
    )


def _series_shown(evaluated: EvaluatedCase) -> SeriesShown | None:
    """The place in a series for reports, and how soon drops would be found."""
    if evaluated.series is None:
        return None
    judgement, place = evaluated.judgement, evaluated.series.place
    since = judgement.since_anchor
    delays = None
    if judgement.design is not None:
        delays = delays_of(place, judgement.design, evaluated.policy)
    return SeriesShown(
        name=place.series,
        look=place.look,
        expected=place.expected,
        alpha=place.alpha * place.share,
        level=judgement.upper_alpha,
        anchor_level=None if since is None else since.upper_alpha,
        baseline=place.baseline,
        delays=[] if delays is None else list(delays.drops),
        decline=None if delays is None else delays.decline,
    )


def _opponents(evaluated: EvaluatedCase) -> str:
    """Digest of the answers that were battled; empty where none were."""
    reference = evaluated.reference
    return "" if reference is None or not evaluated.differences else answers_digest(reference)


def _baseline_model(baseline: Measurement) -> BaselineModel:
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
