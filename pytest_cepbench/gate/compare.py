"""Comparison of a measurement with its baseline: bounds of their difference, and the verdict."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import ceil, inf

from msgspec.structs import replace as altered

from pytest_cepbench.artifacts.outcome import EVEN
from pytest_cepbench.errors import IncomparableError
from pytest_cepbench.gate.measurement import (
    FreshMeasurement,
    Measurement,
    Scores,
    rounded,
    value_of,
)
from pytest_cepbench.gate.pairing import Pair, pair
from pytest_cepbench.gate.policy import Pairing, Policy
from pytest_cepbench.gate.sensitivity import largest_drop, power_remark, range_of, units_to_decide
from pytest_cepbench.gate.statistics.bounds import GAFFKE, Bounds, mean_bounds
from pytest_cepbench.gate.statistics.constants import SAME_SCORE, SMALLEST_SHARE
from pytest_cepbench.gate.statistics.power import Design, smallest_visible
from pytest_cepbench.gate.verdict import Verdict

_NO_SPREAD = 1e-9
"""Scores have six decimals: what is smaller is rounding."""

SAME_MODEL, SAME_ANSWERS = "same model", "same answers"
"""Method of a verdict that needs no bounds."""

_OTHER_ARITHMETIC = "other arithmetic, as of another processor"

_CHECK_IDENTITY = (
    "another processor or library does that; else weights moved behind a python: model or an API's "
    "name, or the baseline was edited"
)

_OPEN = (Verdict.HELD, Verdict.IMPROVED, Verdict.INCONCLUSIVE)


@dataclass(frozen=True)
class Judgement:
    """Verdict of the gate, with its numbers and reasons.

    Differences are turned so that positive is better; None where nothing was compared. Each bound
    is wrong with probability at most its level: they are bounds of the change at 1 - level, and say
    how large it may be. A case is `regressed` where `difference` is beyond the tolerance and `p` is
    at most `alpha`; its bounds may reach to either side of the tolerance.

    verdict: of the comparison.
    baseline_value: the baseline's value, over the samples that were compared.
    difference: mean paired difference to the baseline.
    p: of the sign-flip test, by which a drop is told from noise; None where a series
    decides, and where the rule makes no test.
    low, high: one-sided confidence bounds of the difference, each at level `alpha`; None where the
    rule makes none, or nothing can be excluded.
    alpha: level of each bound: the case's share of the run's error, divided among its looks and the
    comparisons with baseline and anchor; None where there are no bounds.
    upper_alpha: level of `high` where it is another one, in a series of gates.
    design: how unit differences scatter; None without bounds.
    method: of the bounds: `Hall` or `Gaffke`; `same model` or `same answers` where there are none
    because nothing changed; otherwise empty.
    units: independent samples, or blocks of samples, that were compared.
    visible: the smallest drop that so many units fail in 80 % of runs, at this spread.
    needed: samples that would decide an inconclusive case in 80 % of runs; None for other cases,
    and where that is not known.
    reasons: why it does not pass, a sentence each.
    statements: what else is to be known of the comparison, a sentence each.
    since_anchor: the comparison with the anchor, where there is one besides the baseline.
    warnings: what the comparison cannot see, whatever its verdict, a sentence each.
    reference: with which of the two the verdict came about: `baseline`, or `anchor` where the case
    lost since then.
    baseline_floor: what chance alone gave the baseline, where its file has it.
    """

    verdict: Verdict
    baseline_value: float | None = None
    difference: float | None = None
    p: float | None = None
    low: float | None = None
    high: float | None = None
    alpha: float | None = None
    upper_alpha: float | None = None
    design: Design | None = None
    method: str = ""
    units: int = 0
    visible: float | None = None
    needed: int | None = None
    reasons: tuple[str, ...] = ()
    statements: tuple[str, ...] = ()
    since_anchor: Judgement | None = None
    warnings: tuple[str, ...] = ()
    reference: str = "baseline"
    baseline_floor: float | None = None


def judge(
    measurement: FreshMeasurement,
    baseline: Measurement | None,
    policy: Policy,
    *,
    anchor: Measurement | None = None,
    pairing: Pairing = "exact",
    partial: bool = False,
) -> Judgement:
    """Compare a measurement with its baseline and its anchor, if it has one, sample by sample.

    Beside an anchor each of the two comparisons has half of alpha, so that the promise on it holds
    for both together. In a series the upper bounds have their own shares instead.
    pairing, partial: see `pair`.
    Never raises: whatever cannot be compared has a verdict of its own, and none of them passes.
    """
    if baseline is None:
        return Judgement(
            Verdict.NO_BASELINE,
            reasons=("no baseline has been accepted for this case",),
            warnings=(measurement.blind.reason,) if measurement.blind else (),
        )
    half, place = policy_beside(anchor, baseline, policy), policy.series
    # In a series the shares are of the whole alpha, and anchor and baseline have one each.
    upper_alpha = None if place is None else policy.alpha * place.share_beside(place.baseline)
    judgement = _compare(measurement, baseline, half, upper_alpha, pairing, partial=partial)
    if anchor is not None and half is not policy:
        scored = measurement
        if measurement.answers and not measurement.anchor_scores:
            obstacle = "the battles against the anchor's answers were not fought"
            scored = altered(measurement, obstacles=(*measurement.obstacles, obstacle))
        elif measurement.answers:
            scores = measurement.anchor_scores
            scored = altered(
                measurement,
                value=value_of(scores),
                n=sum(map(len, scores.values())),
                scores=scores,
                blind=measurement.anchor_blind,
            )
        upper_alpha = None if place is None else policy.alpha * place.share_beside(place.anchor)
        half = replace(half, tolerance=policy.since_anchor)
        since = _compare(scored, anchor, half, upper_alpha, pairing, partial=partial)
        judgement = _both(judgement, since, policy)
    return _limited_by_headroom(judgement, measurement, baseline, policy)


def policy_beside(anchor: Measurement | None, baseline: Measurement, policy: Policy) -> Policy:
    """The policy of the comparison with the baseline: half of alpha beside an anchor that differs.

    The policy itself where there is none.
    """
    if anchor is None or (anchor.scores, anchor.answers) == (baseline.scores, baseline.answers):
        return policy
    return replace(policy, alpha=policy.alpha / 2)


def _compare(
    measurement: FreshMeasurement,
    baseline: Measurement,
    policy: Policy,
    upper_alpha: float | None,
    pairing: Pairing,
    *,
    partial: bool,
) -> Judgement:
    """Compare with one baseline.

    upper_alpha: error of the upper bound where it is not alpha, in a series.
    """
    statements, warnings, blind = [], [], measurement.blind
    try:
        both = pair(measurement, baseline, pairing, partial=partial)
    except IncomparableError as error:
        return Judgement(
            Verdict.INCOMPARABLE,
            baseline.value,
            reasons=error.reasons,
            baseline_floor=baseline.floor,
        )
    if both.dropped:
        statements.append(f"{both.dropped} samples that only one of the two has were left out")
    if both.unscored:
        statements.append(
            f"{both.unscored} samples without a score, now or in the baseline, are left out of the "
            "change; the bounds have them at the worst and the best that they could be"
        )
    if both.other_answers and both.same_model:
        warnings.append(
            f"one identity answered in two ways: {both.other_answers} of "
            f"{len(measurement.answers)} answers are not the accepted ones, and the model is the "
            f"accepted one by its identity, {measurement.model['identity']}: {_CHECK_IDENTITY}"
        )
    judgement = _decide(both, policy, upper_alpha, partial=partial)
    statements += judgement.statements
    then, now = (model.get("libraries") for model in (baseline.model, measurement.model))
    moved = both.largest_change > SAME_SCORE * policy.tolerance and not measurement.answers
    # Accepted weights that moved beside other libraries are no drift.
    if then and now and then != now and moved and both.same_model:
        statement = f"same weights, other library versions: {now}; the baseline's: {then}"
        if judgement.verdict is Verdict.REGRESSED:
            reason = f"{statement}. Accept it anew beside these, or gate beside those"
            judgement = replace(judgement, verdict=Verdict.INCOMPARABLE, reasons=(reason,))
        else:
            statements.append(statement)
    # What decides may hide a larger drop than is tolerated.
    if blind is not None and judgement.verdict not in _OPEN:
        warnings.append(blind.reason)
    elif blind is not None and rounded(blind.hidden) <= policy.tolerance:
        statements.append(f"{blind.reason}; that hides a drop of {blind.hidden:.4g} at most")
    elif blind is not None:
        reason = (
            f"{blind.reason}; a drop of {blind.hidden:.4g} could hide, and {policy.tolerance:g} is "
            "tolerated"
        )
        reasons = (*judgement.reasons, reason)
        judgement = replace(judgement, verdict=Verdict.INCONCLUSIVE, needed=None, reasons=reasons)
    return replace(judgement, statements=tuple(statements), warnings=tuple(warnings))


def _decide(both: Pair, policy: Policy, upper_alpha: float | None, *, partial: bool) -> Judgement:
    """The verdict on a pair, by the mean change alone, by what is the same, or by bounds."""
    measurement, baseline = both.now, both.before
    judgement = Judgement(
        Verdict.INCONCLUSIVE,
        both.baseline_value,
        rounded(both.differences.mean),
        units=both.differences.units if both.bounded else 0,
        baseline_floor=baseline.floor,
    )
    if not policy.statistical:
        at_worst, at_best = (
            rounded((end or both).differences.mean + policy.tolerance) >= 0
            for end in (both.worst, both.best)
        )
        if at_worst != at_best:  # it depends on what has no score
            reason = "the samples without a score could tip the mean change over the tolerance"
            return replace(judgement, reasons=(reason,))
        return replace(judgement, verdict=Verdict.HELD if at_worst else Verdict.REGRESSED)
    # Where nothing was compared that could differ, bounds would say what other samples could have
    # lost, and the model has not changed for any. At a look at a part the answers that are still
    # to come may be others. Of battles the answers tell: ties are no sign of the same model.
    if measurement.answers and not partial and not both.other_answers:
        statement = "every answer is the one that was accepted"
        redrawn = sum(item in measurement.redrawn for item in baseline.answers.items())
        if redrawn:
            statement += f", {redrawn} but for rounding: {_OTHER_ARITHMETIC}"
        return replace(
            judgement, verdict=Verdict.HELD, method=SAME_ANSWERS, statements=(statement,)
        )
    near = both.largest_change <= SAME_SCORE * policy.tolerance
    if near and both.same_model and not (measurement.answers or both.unscored):
        statement = "the same model as the baseline's gave the same scores"
        if both.largest_change:
            statement += f", within {both.largest_change:.6f}: {_OTHER_ARITHMETIC}"
        return replace(judgement, verdict=Verdict.HELD, method=SAME_MODEL, statements=(statement,))
    if not both.bounded:
        reason = "no blocks of samples were left out of both sets alike: there are no bounds"
        return replace(judgement, alpha=policy.alpha, upper_alpha=upper_alpha, statements=(reason,))
    return _by_bounds(judgement, both, policy, upper_alpha)


def _by_bounds(
    judgement: Judgement, both: Pair, policy: Policy, upper_alpha: float | None
) -> Judgement:
    """The judgement with bounds, the verdict that they make, and what they can see."""
    bounds = _bounds(both, policy.alpha)
    if upper_alpha is not None:
        bounds = replace(bounds, high=_bounds(both, upper_alpha).high, p=None)
    in_series = policy.series is not None
    verdict = verdict_of(bounds, policy.tolerance, strict=in_series)
    remark, needed, visible, design = None, None, inf, None
    # Power is computed of a design: there is none of a single unit, and of Hall's without spread.
    exact, worst = bounds.method == GAFFKE, EVEN if both.now.answers else 1.0
    if bounds.units >= 2 and (exact or both.differences.sd > _NO_SPREAD):
        design = Design.of(both.differences, worst if exact else None)
        level = upper_alpha or bounds.alpha
        if design.sd > _NO_SPREAD:
            visible = smallest_visible(design, level, policy.tolerance, strict=in_series)
        # Of the blocks of a set there are never more.
        if verdict is Verdict.INCONCLUSIVE and not both.now.sizes:
            remark = power_remark(design, policy)
            needed = units_to_decide(design, rounded(bounds.mean), policy)
            if needed:  # as many samples to a unit as there are now
                needed = ceil(needed * max(both.now.n, bounds.units) / bounds.units)
    return replace(
        judgement,
        verdict=verdict,
        difference=rounded(bounds.mean),
        p=bounds.p,
        low=None if bounds.low is None else rounded(bounds.low),
        high=None if bounds.high is None else rounded(bounds.high),
        alpha=bounds.alpha,
        upper_alpha=upper_alpha,
        design=design,
        method=bounds.method,
        units=bounds.units,
        visible=rounded(visible) if visible < inf else None,
        needed=needed,
        statements=tuple(filter(None, (bounds.statement, remark))),
    )


def verdict_of(bounds: Bounds, tolerance: float, *, strict: bool = False) -> Verdict:
    """Verdict from the bounds of a mean difference and the test of a drop.

    All are rounded as scores are, so that equal stays equal.

    tolerance: at least 0.
    strict: whether only a drop that is larger than the tolerance beyond doubt is a regression.
    """
    low = -inf if bounds.low is None else rounded(bounds.low)
    high = inf if bounds.high is None else rounded(bounds.high)
    if low > tolerance:
        return Verdict.IMPROVED
    if low > -tolerance:
        return Verdict.HELD
    if strict:
        lost = high < -tolerance
    else:
        lost = high < 0 if bounds.p is None else bounds.p <= bounds.alpha
    if lost and rounded(bounds.mean) < -tolerance:
        return Verdict.REGRESSED
    return Verdict.INCONCLUSIVE


def _bounds(both: Pair, alpha: float) -> Bounds:
    """Bounds of the mean difference, each at an alpha.

    The lower one has all samples without a score at their worst, the upper one at their best: what
    a model that measures failed at can make no verdict more favourable.
    """
    ends = [
        mean_bounds(
            end.differences,
            alpha,
            shares=both.now.shares,
            blocks=bool(both.now.sizes),
            span=EVEN if both.now.answers else 1.0,
        )
        for end in (both, both.worst, both.best)
        if end is not None
    ]
    bounds, worst, best = ends[0], ends[-2:][0], ends[-1]
    if both.unscored:
        low = None if worst.low is None else min(worst.low, bounds.mean)
        high = None if best.high is None else max(best.high, bounds.mean)
        bounds = replace(bounds, low=low, high=high, p=best.p)
    return bounds


# -- limits of a judgement -------------------------------------------------------------------------


def _both(last: Judgement, first: Judgement, policy: Policy) -> Judgement:
    """The verdict against the last baseline, unless the drop since the anchor says worse."""
    warnings = (*last.warnings, *(f"anchor: {warning}" for warning in first.warnings))
    together = replace(last, since_anchor=first, warnings=warnings)
    lost = (Verdict.REGRESSED, Verdict.INCOMPARABLE)
    reasons = tuple(f"anchor: {reason}" for reason in first.reasons)
    if first.verdict in lost:
        if last.verdict in lost:
            return together
        added_up = (
            f"the steps since the anchor add up to {first.difference or 0.0:+.4f}, and "
            f"{-policy.since_anchor:+.4f} is tolerated"
        )
        return replace(
            together,
            verdict=first.verdict,
            reasons=reasons or (added_up,),
            needed=None,
            reference="anchor",
        )
    # An inconclusive comparison has reasons where it could see nothing.
    unknown = first.verdict is Verdict.INCONCLUSIVE and (policy.gate == "noninferiority" or reasons)
    if unknown and last.verdict in (Verdict.HELD, Verdict.IMPROVED):
        reason = "a drop since the anchor that is larger than tolerated is not excluded"
        return replace(together, verdict=Verdict.INCONCLUSIVE, reasons=reasons or (reason,))
    return together


def _limited_by_headroom(
    judgement: Judgement, measurement: FreshMeasurement, baseline: Measurement, policy: Policy
) -> Judgement:
    """The judgement, inconclusive where the case cannot lose as much as is tolerated."""
    if judgement.verdict not in _OPEN:
        return judgement
    warnings = list(judgement.warnings)
    # A baseline of before floors were kept is seen with the floor of the measurement.
    for name, record in (("baseline", baseline), ("measurement", measurement)):
        span = range_of(record, measurement.floor)
        if span is not None and span.share < SMALLEST_SHARE:
            warnings.append(f"the {name} is close to what chance gives: {span}")
    judgement = replace(judgement, warnings=tuple(warnings))
    floor = measurement.floor if baseline.floor is None else baseline.floor
    value = baseline.value if judgement.baseline_value is None else judgement.baseline_value
    most = known = largest_drop(value, baseline, floor)
    # What chance gives rises where an encoder grows dull.
    if floor is not None and measurement.floor is not None and measurement.floor > floor:
        most = largest_drop(value, baseline, measurement.floor)
    if most is None or most > policy.tolerance:
        return judgement
    risen = known is not None and known > policy.tolerance
    judgement = replace(judgement, needed=None)  # more samples show no drop that cannot be there
    if judgement.verdict is not Verdict.HELD and not risen:
        return judgement
    end = "the worst there is" if baseline.shares else "what chance gives"
    end += " now" if risen else ""
    reason = (
        f"the baseline of {value:.4g} can lose {max(most, 0.0):.4g} down to {end}, and "
        f"{policy.tolerance:g} is tolerated: a regression could not be seen"
    )
    reasons = (*judgement.reasons, reason)
    return replace(judgement, verdict=Verdict.INCONCLUSIVE, reasons=reasons)


def differences_of(scores: Scores, reference: Measurement) -> dict[str, float]:
    """Sample id -> its paired difference to the reference, turned so that positive is better.

    scores: of a measurement that can be compared with it; samples of only one of both are left out.
    """
    sign = 1.0 if reference.higher_is_better else -1.0
    return {
        sample: rounded(sign * (score - reference.scores[category][sample]))
        for category, part in scores.items()
        for sample, score in part.items()
        if sample in reference.scores.get(category, {})
    }


def losers_of(differences: Mapping[str, float]) -> list[str]:
    """The samples that got worse, most first."""
    lost = sorted((difference, sample) for sample, difference in differences.items())
    return [sample for difference, sample in lost if difference < 0]
