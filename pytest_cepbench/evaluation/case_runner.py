"""A case of a suite, from its policy to the record that reports read; the verdict of a suite."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Literal, cast

from msgspec.structs import replace as replace_fields

from pytest_cepbench.errors import BaselineError, CepError, CheckpointError, UnscoredError
from pytest_cepbench.evaluation.evaluator import EvaluatedCase, Evaluator
from pytest_cepbench.evaluation.run_context import interrupted
from pytest_cepbench.evaluation.shown_samples import shown_of_case
from pytest_cepbench.evaluation.suite_cache import AssignedCase
from pytest_cepbench.gate import CaseKey, Judgement, Measurement, Verdict
from pytest_cepbench.gate.baseline import baseline_path
from pytest_cepbench.gate.compare import policy_beside
from pytest_cepbench.gate.policy import Pairing
from pytest_cepbench.gate.sensitivity import (
    design_of,
    power_remark,
    remarks_on_accepting,
    why_not_accepted,
)
from pytest_cepbench.gate.series import Entry
from pytest_cepbench.gate.statistics.constants import MOST_UNSCORED
from pytest_cepbench.gate.statistics.error_budget import holm, look_shares, look_sizes
from pytest_cepbench.measures.cases import PooledCase
from pytest_cepbench.report.result import CaseResult, SeriesShown
from pytest_cepbench.suites import Case
from pytest_cepbench.suites.gate_config import Overrides
from pytest_cepbench.suites.shards import WorkQueue

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
    policy, _ = evaluator.suites.claim(suite_file, case.key, overrides)
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
    refused, place, since = "", policy.series, judgement.since_anchor
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
        shown=shown_of_case(evaluator, run, evaluated, accepting=accepting, accepted=accepted),
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
            alpha=policy.alpha * place.share,
            level=judgement.upper_alpha,
            anchor_level=None if since is None else since.upper_alpha,
            baseline=place.baseline,
        ),
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


# -- measured as far as the verdict needs, and judged ----------------------------------------------


def evaluate_case(
    evaluator: Evaluator, own: AssignedCase, *, accepting: bool = False
) -> EvaluatedCase:
    """Measure and judge a case, which is entered in the series of the run first.

    accepting: whether the measurement is to become the baseline: it is measured whole then, and
    files that are about to be replaced need not be readable.
    Raises what reading baselines, measuring and the record of the series raise;
    CheckpointError where the model under test is its base: nothing would be gated.
    """
    case, policy = own.case, own.policy
    baseline = anchor = None
    try:
        baseline, anchor = evaluator.suites.references(case.key)
    except BaselineError:
        if not accepting:
            raise
    evaluator.suites.check_policy(own, *(() if accepting else (baseline, anchor)))
    run, file = evaluator.suite_run(own.suite_file), evaluator.series
    # A case that cannot fail the run, or is judged without statistics, has no part in a series.
    if file is not None and policy.primary and policy.statistical:
        record = run.model_record()
        first, model = (
            None if accepted is None else accepted.model.get("identity")
            for accepted in (anchor, baseline)
        )
        place = file.enter(
            Entry(
                look=0,
                run=evaluator.context.run_id,
                case=str(case.key),
                model=record["identity"],
                spec=record.get("spec", ""),
                alpha=policy.alpha,
                reference=model or "",
            ),
            first,
        )
        policy = replace(policy, alpha=place.alpha, series=place)
    # As the first baseline of a training an idle model is right, and accepted with a warning.
    gated = () if accepting or run.assignments.replay is not None else run.assignments.gated
    found = [run.runner(role).bound.idle() for role in gated]
    if found and all(idle.whole for idle in found):
        raise CheckpointError(
            f"nothing is gated: {'; '.join(dict.fromkeys(r for i in found for r in i.remarks))}"
            ". Give a checkpoint from after its training began; --snapshot-update accepts this "
            "one as the first baseline"
        )
    evaluated = _look(evaluator, replace(own, policy=policy), baseline, anchor, accepting=accepting)
    if accepting:
        evaluator.suites.check_policy(own, evaluated.measurement)
    return evaluated


def _look(
    evaluator: Evaluator,
    own: AssignedCase,
    baseline: Measurement | None,
    anchor: Measurement | None,
    *,
    accepting: bool,
) -> EvaluatedCase:
    """Measure a case and judge it, looking at more samples while it is undecided."""
    case, policy, settings = own.case, own.policy, evaluator.settings
    run, shards = evaluator.suite_run(own.suite_file), prepared_shards(evaluator)
    pairing = cast("Pairing", settings.pairing)
    sizes = [run.samples(case)] if accepting else planned_looks(evaluator, own)
    looks: list[int] = []
    evaluated: EvaluatedCase | None = None
    unscored: UnscoredError | None = None
    for number, (size, share) in enumerate(zip(sizes, look_shares(len(sizes)), strict=True)):
        seconds = settings.budget.seconds
        if number and seconds is not None and time.time() - evaluator.context.started > seconds:
            break
        depth = run.depth(case, size)
        evaluator.offer(own.suite_file, case, depth)
        shards.compute(own.suite_file, case, depth)
        try:
            measurement = run.measure(case, depth)
        except UnscoredError as error:
            # One of the few samples of an early look is a large share, of all maybe a small one.
            if error.samples > MOST_UNSCORED * run.samples(case):
                raise
            unscored = error
            continue
        unscored, partial = None, depth is not None
        looks.append(measurement.n)
        evaluated = EvaluatedCase(
            case, policy, measurement, baseline, anchor, pairing, tuple(looks), partial, share
        )
        if evaluated.judgement.verdict is not Verdict.INCONCLUSIVE:
            break
    if unscored is not None:
        raise unscored
    assert evaluated is not None  # the first look is always taken
    return evaluated


def prepared_shards(evaluator: Evaluator) -> WorkQueue:
    """The shards of the run, with those of every collected case."""
    shards = evaluator.shards
    if not shards.cases:
        for own in evaluator.assigned.values():
            first = planned_looks(evaluator, own)[0]
            depth = evaluator.suite_run(own.suite_file).depth(own.case, first)
            shards.add(own.suite_file, own.case, depth)
            evaluator.offer(own.suite_file, own.case, depth)
    return shards


def help_others(evaluator: Evaluator) -> None:
    """Grow and read shards that no process has, until none is left or the run is to stop."""
    try:
        # The process that judges the case meets the same error and reports it; here it would end
        # the worker.
        with suppress(Exception), interrupted(evaluator.stopped):
            prepared_shards(evaluator).compute_others()
    except KeyboardInterrupt:
        if not evaluator.stopped():
            raise  # the engineer's own


def planned_looks(evaluator: Evaluator, own: AssignedCase) -> list[int]:
    """Samples at each look that a case may take; categories add to them alike.

    More than one look is for what is decided by statistics and can fail the run. What can fail it
    otherwise is measured whole: by a few samples a threshold would be decided by chance. So is what
    has a score of a whole set.
    """
    run, policy = evaluator.suite_run(own.suite_file), own.policy
    every, budget = run.samples(own.case), evaluator.settings.budget.samples
    if evaluator.settings.inconclusive != "more" or not run.per_sample(own.case):
        return [every]
    most = every if budget is None else min(every, budget)
    if not policy.primary:
        return [look_sizes(most)[0]]
    return list(look_sizes(most)) if policy.statistical else [most]


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
    members: Mapping[str, EvaluatedCase], weights: Mapping[str, float], alpha: float
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
