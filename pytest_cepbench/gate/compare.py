"""Comparison of a measurement with its baseline: their samples paired, and the verdict."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from pytest_cepbench.artifacts.outcome import EVEN
from pytest_cepbench.errors import IncomparableError
from pytest_cepbench.gate.baseline import Baseline
from pytest_cepbench.gate.labels.bounds import bounds_by_labels
from pytest_cepbench.gate.measurement import (
    DECIMALS,
    MOST_UNSCORED,
    SAMPLE,
    Measurement,
    Scores,
    mean_of_scores,
    rounded,
)
from pytest_cepbench.gate.policy import BETTING, Pairing, Policy
from pytest_cepbench.gate.sensitivity import (
    blindness_of,
    largest_drop,
    power_remark,
    remarks_on_comparing,
    units_to_decide,
)
from pytest_cepbench.gate.statistics import (
    Bounds,
    Differences,
    Rounds,
    betting_bounds,
    mean_bounds,
    separate_shares,
    sequential_levels,
    smallest_visible,
)
from pytest_cepbench.gate.verdict import Verdict

_NO_SPREAD = 1e-9
"""Scores have six decimals: what is smaller is rounding."""

_SAME = 0.1
"""Of the tolerance: how far each score of the same weights may move, on another machine, say."""

SAMPLE_FIELDS = ("samples", "data", "clauses", "facts")
"""Fields of an identity that differ where there are other samples, and only there."""

_NAMED = 3

_NO_LABELS = (
    "people's labels are not used: they were drawn from all samples, and some were left out"
)

_LABELS_NEEDED = (
    "labels: this suite needs people's labels, which were drawn from all samples, and some were "
    "left out of the comparison: gate on the samples of the baseline, without --cep-pairing=common"
)

_OTHER_ARITHMETIC = "other arithmetic, as of another processor"

_CHECK_IDENTITY = (
    "another processor or library does that; else weights moved behind a python: model or an API's "
    "name, or the baseline was edited"
)

_UNSCORED = (
    "{count} samples without a score, now or in the baseline, are left out of the change; the "
    "bounds have them at the worst and the best that they could be"
)

_UNKNOWN = "the samples without a score could tip the mean change over the tolerance"

_OVERSTATED = "it was decided before all samples were judged, so the change is overstated"


class Loser(NamedTuple):
    """A sample that got worse: its id, then its scores; difference is negative."""

    sample: str
    baseline: float
    candidate: float
    difference: float


@dataclass(frozen=True)
class Judgement:
    """Verdict of the gate, with its numbers and reasons.

    All differences are turned so that positive is better; None where nothing was compared.
    baseline_value: over the samples that were compared.
    difference: mean paired difference.
    low, high: its one-sided confidence bounds, each at level alpha; None where the rule makes none,
    or none can be made.
    upper_alpha: level of high where it is not alpha, in a series of gates.
    spread: standard deviation of a unit's difference; None without bounds.
    method: how they were made.
    units: independent samples.
    visible: the smallest drop that so many units can see with 80 % power, at this spread.
    needed: of an inconclusive comparison, the units that would decide it (`units_to_decide`); None
    where that is not known.
    reasons: why it does not pass, a sentence each.
    statements: what else is to be known of the comparison, a sentence each.
    losers: the samples that got worse, most first.
    since_anchor: the same against the anchor.
    warnings: sentences on what the comparison cannot see, whatever its verdict.
    """

    verdict: Verdict
    baseline_value: float | None = None
    difference: float | None = None
    low: float | None = None
    high: float | None = None
    alpha: float | None = None
    upper_alpha: float | None = None
    spread: float | None = None
    method: str = ""
    units: int = 0
    visible: float | None = None
    needed: int | None = None
    reasons: tuple[str, ...] = ()
    statements: tuple[str, ...] = ()
    losers: tuple[Loser, ...] = ()
    since_anchor: Judgement | None = None
    warnings: tuple[str, ...] = ()


def judge(
    measurement: Measurement,
    baseline: Baseline | None,
    policy: Policy,
    *,
    anchor: Baseline | None = None,
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
        blind = blindness_of(measurement)
        return Judgement(
            Verdict.NO_BASELINE,
            reasons=("no baseline has been accepted for this case",),
            warnings=(blind.reason,) if blind else (),
        )

    shares = policy.series

    def compare(
        scored: Measurement, reference: Baseline, rules: Policy, share: float | None
    ) -> Judgement:
        # In a series the shares are of the whole alpha, and anchor and baseline have one each.
        return _compare(
            scored,
            reference,
            rules,
            upper_alpha=None if share is None else policy.alpha * share,
            pairing=pairing,
            partial=partial,
        )

    of_baseline, of_anchor = (None, None) if shares is None else (shares.baseline, shares.anchor)
    if anchor is None or (anchor.scores, anchor.answers) == (baseline.scores, baseline.answers):
        judgement = compare(measurement, baseline, policy, of_baseline)
    else:
        half = replace(policy, alpha=policy.alpha / 2)
        since_anchor = compare(
            _against_anchor(measurement),
            anchor,
            replace(half, tolerance=policy.since_anchor),
            of_anchor,
        )
        since_baseline = compare(measurement, baseline, half, of_baseline)
        judgement = _both(since_baseline, since_anchor, policy)
    return _limited_by_headroom(judgement, measurement, baseline, policy)


def _against_anchor(measurement: Measurement) -> Measurement:
    """The measurement with the scores of its battles against the anchor's answers, if it has any.

    Without them it cannot be compared with the anchor.
    """
    if not measurement.answers:
        return measurement
    if not measurement.anchor_scores:
        obstacle = "the battles against the anchor's answers were not fought"
        return replace(measurement, obstacles=(*measurement.obstacles, obstacle))
    # Labels are of the battles against the last accepted answers.
    return replace(
        measurement,
        scores=measurement.anchor_scores,
        labels=None,
        blind=measurement.anchor_blind,
    )


def _limited_by_sight(judgement: Judgement, measurement: Measurement, policy: Policy) -> Judgement:
    """The judgement, inconclusive where what decides may hide a larger drop than is tolerated."""
    blind = blindness_of(measurement)
    if blind is None or blind.visible > policy.tolerance:
        return judgement
    passing = judgement.verdict in (Verdict.HELD, Verdict.IMPROVED, Verdict.INCONCLUSIVE)
    if not passing:
        return replace(judgement, warnings=(*judgement.warnings, blind.reason))
    if rounded(blind.hidden) <= policy.tolerance:
        statement = f"{blind.reason}; that hides a drop of {blind.hidden:.4g} at most"
        return _add(judgement, statement)
    reason = (
        f"{blind.reason}; a drop of {blind.hidden:.4g} could hide, and {policy.tolerance:g} is "
        "tolerated"
    )
    reasons = (*judgement.reasons, reason)
    return replace(judgement, verdict=Verdict.INCONCLUSIVE, needed=None, reasons=reasons)


def _limited_by_headroom(
    judgement: Judgement, measurement: Measurement, baseline: Baseline, policy: Policy
) -> Judgement:
    """The judgement, inconclusive where the case cannot lose as much as is tolerated."""
    if judgement.verdict not in (Verdict.HELD, Verdict.IMPROVED, Verdict.INCONCLUSIVE):
        return judgement
    warnings = (*judgement.warnings, *remarks_on_comparing(measurement, baseline))
    judgement = replace(judgement, warnings=warnings)
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


def _both(last: Judgement, first: Judgement, policy: Policy) -> Judgement:
    """The verdict against the last baseline, unless the drop since the anchor says worse."""
    warnings = (*last.warnings, *(f"anchor: {warning}" for warning in first.warnings))
    together = replace(last, since_anchor=first, warnings=warnings)
    if first.verdict in (Verdict.REGRESSED, Verdict.INCOMPARABLE):
        if last.verdict in (Verdict.REGRESSED, Verdict.INCOMPARABLE):
            return together
        added_up = (
            f"the steps since the anchor add up to {first.difference or 0.0:+.4f}, and "
            f"{-policy.since_anchor:+.4f} is tolerated"
        )
        reasons = tuple(f"anchor: {reason}" for reason in first.reasons) or (added_up,)
        return replace(together, verdict=first.verdict, reasons=reasons, losers=first.losers)
    # An inconclusive comparison has reasons where it could see nothing.
    unknown = first.verdict is Verdict.INCONCLUSIVE and (
        policy.gate == "noninferiority" or first.reasons
    )
    if unknown and last.verdict in (Verdict.HELD, Verdict.IMPROVED):
        reasons = tuple(f"anchor: {reason}" for reason in first.reasons) or (
            "a drop since the anchor that is larger than tolerated is not excluded",
        )
        return replace(together, verdict=Verdict.INCONCLUSIVE, reasons=reasons)
    return together


def _compare(
    measurement: Measurement,
    baseline: Baseline,
    policy: Policy,
    *,
    upper_alpha: float | None,
    pairing: Pairing,
    partial: bool,
) -> Judgement:
    """Compare with one baseline.

    upper_alpha: error of the upper bound where it is not alpha, in a series.
    """
    try:
        both = pair(measurement, baseline, pairing, partial=partial)
        _require_labels(measurement, both)
    except IncomparableError as error:
        return Judgement(Verdict.INCOMPARABLE, baseline.value, reasons=error.reasons)
    difference = rounded(both.differences.mean)
    judgement = Judgement(
        Verdict.INCONCLUSIVE,
        both.baseline_value,
        difference,
        units=both.differences.units if both.bounded else 0,
        losers=_losers(both),
    )
    if both.dropped:
        left_out = f"{both.dropped} samples that only one of the two has were left out"
        judgement = _add(judgement, left_out)
        if measurement.labels is not None:
            measurement = replace(measurement, labels=None)
            judgement = _add(judgement, _NO_LABELS)
    judgement = _add(judgement, _UNSCORED.format(count=both.unscored) if both.unscored else None)
    judgement = _two_ways(judgement, measurement, baseline)
    judgement = _decide(
        judgement, both, measurement, baseline, policy, upper_alpha=upper_alpha, partial=partial
    )
    judgement = _told_from_libraries(judgement, both, measurement, baseline, policy)
    return _limited_by_sight(judgement, measurement, policy)


def _told_from_libraries(
    judgement: Judgement, both: Pair, measurement: Measurement, baseline: Baseline, policy: Policy
) -> Judgement:
    """The judgement, which is no drift where accepted weights moved beside other libraries."""
    then, now = (model.get("libraries") for model in (baseline.model, measurement.model))
    moved = both.largest_change > _SAME * policy.tolerance and not measurement.answers
    if not (then and now and then != now and moved and _same_model(measurement, baseline)):
        return judgement
    statement = f"same weights, other library versions: {now}; the baseline's: {then}"
    if judgement.verdict is not Verdict.REGRESSED:
        return _add(judgement, statement)
    reason = f"{statement}. Accept it anew beside these, or gate beside those"
    return replace(judgement, verdict=Verdict.INCOMPARABLE, reasons=(reason,), losers=())


def _decide(
    judgement: Judgement,
    both: Pair,
    measurement: Measurement,
    baseline: Baseline,
    policy: Policy,
    *,
    upper_alpha: float | None,
    partial: bool,
) -> Judgement:
    """The judgement so far with the verdict on a pair, and its bounds."""
    if not policy.statistical:
        return _by_threshold(judgement, both, policy.tolerance)
    judgement = _with_bounds(judgement, both, measurement, policy, upper_alpha)
    difference = judgement.difference or 0.0
    # At a look at a part the answers that are still to come may be others.
    if measurement.answers and not partial and not _other_answers(measurement, baseline):
        statement = "every answer is the one that was accepted"
        redrawn = sum(item in measurement.redrawn for item in baseline.answers.items())
        if redrawn:
            statement += f", {redrawn} but for rounding: {_OTHER_ARITHMETIC}"
        return replace(_add(judgement, statement), verdict=Verdict.HELD)
    # Of battles the answers tell: ties are no sign of the same model.
    same = _same_model(measurement, baseline) and not measurement.answers
    if same and not both.unscored and both.largest_change <= _SAME * policy.tolerance:
        statement = "the same model as the baseline's gave the same scores"
        if both.largest_change:
            statement += f", within {both.largest_change:.6f}: {_OTHER_ARITHMETIC}"
        return replace(_add(judgement, statement), verdict=Verdict.HELD)
    strict = _is_strict(measurement, policy)
    verdict = verdict_of(difference, judgement.low, judgement.high, policy.tolerance, strict=strict)
    if partial and _is_betting(measurement, policy) and verdict is not Verdict.INCONCLUSIVE:
        judgement = _add(judgement, _OVERSTATED)
    if verdict is Verdict.INCONCLUSIVE and not both.blocks:  # of which there are never more
        judgement = _with_needed(judgement, both, measurement, policy)
    return replace(judgement, verdict=verdict)


def _by_threshold(judgement: Judgement, both: Pair, tolerance: float) -> Judgement:
    """The verdict of the mean change alone, inconclusive where it depends on what has no score."""
    at_worst, at_best = (
        rounded((end or both).differences.mean + tolerance) >= 0 for end in (both.worst, both.best)
    )
    if at_worst != at_best:
        return replace(judgement, reasons=(*judgement.reasons, _UNKNOWN))
    return replace(judgement, verdict=Verdict.HELD if at_worst else Verdict.REGRESSED)


def _require_labels(measurement: Measurement, both: Pair) -> None:
    """Raise IncomparableError where people's labels have to decide, and samples are left out."""
    if both.dropped and measurement.labels is not None and measurement.labels.needed:
        raise IncomparableError((_LABELS_NEEDED,))


def _is_strict(measurement: Measurement, policy: Policy) -> bool:
    """Whether only a drop that is larger than the tolerance beyond doubt is a regression."""
    betting = _is_betting(measurement, policy)
    return policy.series is not None or (betting and policy.looks == "betting-strict")


def _is_betting(measurement: Measurement, policy: Policy) -> bool:
    """Whether bets decide: on answers alone, whose scores are won or lost."""
    return policy.bets and bool(measurement.answers)


def _with_needed(
    judgement: Judgement, both: Pair, measurement: Measurement, policy: Policy
) -> Judgement:
    """With how much more it takes to decide an inconclusive comparison."""
    spread = both.differences.sd if judgement.spread is None else judgement.spread
    if measurement.labels is not None:
        remark = power_remark(spread, judgement.units, policy, what="labelled battles")
        return _add(judgement, remark)
    judgement = _add(judgement, power_remark(spread, judgement.units, policy))
    needed = units_to_decide(
        spread,
        judgement.units,
        judgement.difference or 0.0,
        policy,
        exact="exact" in judgement.method,
        span=EVEN if measurement.answers else 1.0,
    )
    return replace(judgement, needed=needed)


def _add(judgement: Judgement, statement: str | None) -> Judgement:
    """With one more statement, where there is one."""
    if not statement:
        return judgement
    return replace(judgement, statements=(*judgement.statements, statement))


def verdict_of(
    difference: float,
    low: float | None,
    high: float | None,
    tolerance: float,
    *,
    strict: bool = False,
) -> Verdict:
    """Verdict from the bounds of a mean difference.

    All are rounded as scores are, so that equal stays equal.

    low, high: None where there are no bounds.
    tolerance: at least 0.
    strict: whether only a drop that is larger than the tolerance beyond doubt is a regression.
    """
    if low is None or high is None:
        return Verdict.INCONCLUSIVE
    if rounded(low) > tolerance:
        return Verdict.IMPROVED
    if rounded(low) > -tolerance:
        return Verdict.HELD
    if rounded(difference) < -tolerance and rounded(high) < (-tolerance if strict else 0):
        return Verdict.REGRESSED
    return Verdict.INCONCLUSIVE


def _with_bounds(
    judgement: Judgement,
    both: Pair,
    measurement: Measurement,
    policy: Policy,
    upper_alpha: float | None,
) -> Judgement:
    if not both.bounded:
        judgement = replace(judgement, alpha=policy.alpha, upper_alpha=upper_alpha)
        reason = "no blocks of samples were left out of both sets alike: there are no bounds"
        return _add(judgement, reason)
    bounds = _bounds_with_unscored(both, measurement, policy, policy.alpha)
    judgement = replace(judgement, alpha=bounds.alpha)
    if upper_alpha is not None:
        upper = _bounds_with_unscored(both, measurement, policy, upper_alpha)
        upper_alpha = upper.alpha
        judgement = replace(judgement, upper_alpha=upper_alpha)
        bounds = replace(bounds, high=upper.high)
    visible = None
    spread = both.differences.sd if bounds.spread is None else bounds.spread
    if spread > _NO_SPREAD and bounds.units > 1:
        visible = rounded(
            smallest_visible(
                spread,
                bounds.units,
                bounds.alpha if upper_alpha is None else upper_alpha,
                policy.tolerance,
                strict=policy.series is not None,
            )
        )
    return replace(
        _add(judgement, bounds.statement),
        difference=rounded(bounds.mean),
        low=None if bounds.low is None else rounded(bounds.low),
        high=None if bounds.high is None else rounded(bounds.high),
        method=bounds.method,
        units=bounds.units,
        visible=visible,
        spread=spread,
    )


def _bounds_with_unscored(
    both: Pair, measurement: Measurement, policy: Policy, alpha: float
) -> Bounds:
    """The bounds, the lower one with all samples without a score at their worst, the upper one at
    their best: what a model that measures failed at can make no verdict more favourable.
    """
    bounds = _bounds_of_look(both, measurement, policy, alpha)
    if both.worst is None or both.best is None:
        return bounds
    low = _bounds_of_look(both.worst, measurement, policy, alpha).low
    high = _bounds_of_look(both.best, measurement, policy, alpha).high
    return replace(
        bounds,
        low=None if low is None else min(low, bounds.mean),
        high=None if high is None else max(high, bounds.mean),
    )


def _bounds_of_look(both: Pair, measurement: Measurement, policy: Policy, alpha: float) -> Bounds:
    """Bounds at the level that the look has of an alpha, where looks know of each other.

    What makes looks alike is the bell shape of their means. Exact bounds are for differences
    without one, so theirs have shares of alpha that add up to it, by Bonferroni's inequality.
    """
    if not policy.sizes:
        return _bounds(both, measurement, policy, alpha)
    level = sequential_levels(policy.sizes, alpha)[policy.look]
    bounds = _bounds(both, measurement, policy, level)
    if "exact" not in bounds.method:
        return bounds
    return _bounds(both, measurement, policy, alpha * separate_shares(policy.sizes)[policy.look])


def _bounds(both: Pair, measurement: Measurement, policy: Policy, alpha: float) -> Bounds:
    """Bounds of the mean difference, each at an alpha, as the policy wants them made."""
    exchangeable = not _is_strict(measurement, policy)
    if measurement.labels is not None:
        return bounds_by_labels(
            both.now,
            measurement.labels,
            measurement.clusters,
            alpha,
            exchangeable=exchangeable,
            unscored=measurement.unscored,
        )
    if _is_betting(measurement, policy):
        return _bounds_by_betting(both, measurement, alpha)
    return mean_bounds(
        both.differences,
        alpha,
        method=policy.bounds,
        shares=measurement.shares,
        blocks=both.blocks,
        span=EVEN if measurement.answers else 1.0,
        exchangeable=exchangeable,
        early=both.early,
    )


def _bounds_by_betting(both: Pair, measurement: Measurement, alpha: float) -> Bounds:
    """Bounds of a win rate, less one half, that hold at every look."""
    strata = measurement.strata or {name: tuple(part) for name, part in both.now.items()}
    by_sample = {sample: score for part in both.now.values() for sample, score in part.items()}
    scores = {
        name: {sample: by_sample[sample] for sample in samples if sample in by_sample}
        for name, samples in strata.items()
    }
    pooled = strata.keys() != both.now.keys()
    rounds = Rounds.deal(strata, scores, measurement.clusters, pooled=pooled)
    mean, units = both.differences.mean, both.differences.units
    if rounds is None:
        statement = "no round of all categories is complete: no bet was made"
        return Bounds(mean, -EVEN, EVEN, alpha, BETTING, units, statement)
    low, high = betting_bounds(rounds, alpha)
    return Bounds(mean, min(low - EVEN, mean), max(high - EVEN, mean), alpha, BETTING, units)


def _same_model(measurement: Measurement, baseline: Baseline) -> bool:
    """True where weights and settings say that they are those of the baseline."""
    ours, theirs = measurement.model.get("identity"), baseline.model.get("identity")
    return ours is not None and ours == theirs


def _other_answers(measurement: Measurement, baseline: Baseline) -> list[str]:
    """Samples of both whose answers are not the accepted ones, not even but for rounding."""
    return [
        name
        for name, own in measurement.answers.items()
        if (other := baseline.answers.get(name, own)) != own
        and (name, other) not in measurement.redrawn
    ]


def _two_ways(judgement: Judgement, measurement: Measurement, baseline: Baseline) -> Judgement:
    """The judgement, with a warning where a model of the accepted identity answers otherwise."""
    other = len(_other_answers(measurement, baseline))
    if not other or not _same_model(measurement, baseline):
        return judgement
    warning = (
        f"one identity answered in two ways: {other} of {len(measurement.answers)} answers are not "
        "the accepted ones, and the model is the accepted one by its identity, "
        f"{measurement.model['identity']}: {_CHECK_IDENTITY}"
    )
    return replace(judgement, warnings=(*judgement.warnings, warning))


def _losers(both: Pair) -> tuple[Loser, ...]:
    lost = [
        Loser(sample, both.before[category][sample], score, difference)
        for category, part in both.now.items()
        for sample, score in part.items()
        if (difference := both.sign * (score - both.before[category][sample])) < 0
    ]
    return tuple(sorted(lost, key=lambda loser: (loser.difference, loser.sample)))


@dataclass(frozen=True)
class Pair:
    """A measurement and its baseline over the same samples.

    before, now: scores by category and sample.
    sign: 1 where higher is better, else -1.
    differences: what statistics are made of.
    blocks: whether the scores are of whole sets, and the differences of jackknife blocks.
    bounded: whether bounds can be made.
    dropped: how many samples only one of the two has.
    early: whether there are more samples to look at.
    unscored: how many samples have no score, in one of the two or both, and so no part in this.
    worst, best: the same with these too, at the worst and the best that they could be; None where
    every sample has a score.
    """

    before: Scores
    now: Scores
    sign: float
    differences: Differences
    blocks: bool
    bounded: bool
    dropped: int = 0
    early: bool = False
    unscored: int = 0
    worst: Pair | None = None
    best: Pair | None = None

    @property
    def largest_change(self) -> float:
        """Largest change of a score, in either direction; 0.0 where none has changed."""
        return max(
            abs(round(score - self.before[category][sample], DECIMALS))
            for category, part in self.now.items()
            for sample, score in part.items()
        )

    @property
    def baseline_value(self) -> float:
        """The baseline's value over these samples."""
        return round(mean_of_scores(self.before), DECIMALS)


def pair(
    measurement: Measurement,
    baseline: Baseline,
    pairing: Pairing = "exact",
    *,
    partial: bool = False,
) -> Pair:
    """A measurement and its baseline, sample by sample.

    pairing: whether samples that only one of them has make them incomparable, or are left out.
    partial: whether the measurement is known to be of a part of its samples (a look that is not the
    last); the baseline has all of them then.
    Raises IncomparableError with everything that differs.
    """
    differing = [*_differing(measurement, baseline, pairing)]
    differing += [("answers", obstacle) for obstacle in measurement.obstacles]
    shared: dict[str, list[str]] = {}
    unscored: dict[str, set[str]] = {}
    dropped = 0
    lacking = _unscored_before(measurement, baseline)
    for category in sorted(baseline.scores.keys() | measurement.scores.keys()):
        before = baseline.scores.get(category, {}).keys()
        now = measurement.scores.get(category, {}).keys()
        common = before & now
        unscored[category] = {*measurement.unscored.get(category, ()), *(now & lacking)}
        gone, new = before - now - unscored[category], now - before - unscored[category]
        if partial and common:
            gone = set()
        if not common or ((gone or new) and (pairing == "exact" or measurement.sizes)):
            differing.append(("samples", _unpaired(category, gone, new, len(common))))
        dropped += len(gone) + len(new)
        shared[category] = sorted(common)
    if differing:
        fields = dict.fromkeys(field for field, _ in differing)
        raise IncomparableError(tuple(reason for _, reason in differing), tuple(fields))
    before_scores = {c: {s: baseline.scores[c][s] for s in ids} for c, ids in shared.items()}
    now_scores = {c: {s: measurement.scores[c][s] for s in ids} for c, ids in shared.items()}
    sign = 1.0 if measurement.higher_is_better else -1.0
    blocks = bool(measurement.sizes)
    differences, bounded = _differences(measurement, baseline, before_scores, now_scores, sign)
    both = Pair(
        before_scores, now_scores, sign, differences, blocks, bounded, dropped, early=partial
    )
    if any(unscored.values()):
        low, high = measurement.ends[:: int(sign)]
        return replace(
            both,
            unscored=len(set().union(*unscored.values())),
            worst=_completed(both, measurement, baseline, unscored, now=low, before=high),
            best=_completed(both, measurement, baseline, unscored, now=high, before=low),
        )
    return both


def _unscored_before(measurement: Measurement, baseline: Baseline) -> set[str]:
    """Samples of which the baseline has no score, though it is of the same samples.

    A model that measures failed at them then. None where there are more than can be so.
    """
    if not measurement.identity.get("samples") == baseline.identity.get("samples") is not None:
        return set()
    before, now = (
        {sample for part in scores.values() for sample in part}
        for scores in (baseline.scores, measurement.scores)
    )
    return now - before if len(now - before) <= MOST_UNSCORED * len(now) else set()


def _completed(
    both: Pair,
    measurement: Measurement,
    baseline: Baseline,
    unscored: Mapping[str, Collection[str]],
    *,
    now: float,
    before: float,
) -> Pair:
    """The pair with the samples that lack a score in one of the two: it has such a one there."""
    before_scores, now_scores = (
        {
            name: {**part, **{s: scores[name].get(s, end) for s in unscored[name]}}
            for name, part in kept.items()
        }
        for kept, scores, end in (
            (both.before, baseline.scores, before),
            (both.now, measurement.scores, now),
        )
    )
    signed = _signed_differences(before_scores, now_scores, both.sign)
    differences = Differences.of(signed, measurement.clusters)
    return replace(both, before=before_scores, now=now_scores, differences=differences)


def _differences(
    measurement: Measurement, baseline: Baseline, before: Scores, now: Scores, sign: float
) -> tuple[Differences, bool]:
    """Differences that bounds are made of, and True where bounds can be made."""
    signed = _signed_differences(before, now, sign)
    if not measurement.sizes:
        return Differences.of(signed, measurement.clusters), True
    pseudo = _signed_differences(baseline.blocks, measurement.blocks, sign)
    alike = all(
        pseudo.get(name) and baseline.blocks[name].keys() == measurement.blocks[name].keys()
        for name in signed
    )
    if not alike:
        return Differences.of(signed), False
    center = sign * (mean_of_scores(now) - mean_of_scores(before))
    return Differences.of(
        blocks_apart({name: pseudo[name] for name in signed}), center=center
    ), True


def blocks_apart(parts: Scores) -> dict[str, dict[str, float]]:
    """The same under names of their own: a block's name says nothing beyond its category.

    Samples keep theirs: one in two categories is one.
    """
    return {
        category: {
            block if block.startswith(SAMPLE) else f"{category}\0{block}": value
            for block, value in part.items()
        }
        for category, part in parts.items()
    }


def _signed_differences(before: Scores, now: Scores, sign: float) -> dict[str, dict[str, float]]:
    return {
        name: {
            sample: round(sign * (value - before[name][sample]), DECIMALS)
            for sample, value in part.items()
            if sample in before[name]
        }
        for name, part in now.items()
        if name in before
    }


_REJUDGE = "; cepbench arena rejudge SUITE --judge=SPEC has the accepted answers judged by another"


def _differing(
    measurement: Measurement, baseline: Baseline, pairing: Pairing
) -> Iterator[tuple[str, str]]:
    """The name and a sentence for each field of the identity that differs, and the direction."""
    left_out = SAMPLE_FIELDS if pairing == "common" and not measurement.sizes else ()
    for name in sorted(baseline.identity.keys() | measurement.identity.keys()):
        before = baseline.identity.get(name, "(none)")
        now = measurement.identity.get(name, "(none)")
        if before != now and name not in left_out:
            reason = f"{name}: baseline {before}, now {now}"
            yield name, f"{reason}{_REJUDGE}" if name == "judge" and baseline.answers else reason
    if bool(baseline.answers) != bool(measurement.answers):
        yield "answers", "answers: one of the two has no answers to battle against"
    if baseline.higher_is_better != measurement.higher_is_better:
        yield "direction", "direction: the baseline counts the other direction as better"


def _unpaired(category: str, gone: set[str], new: set[str], common: int) -> str:
    only = ", ".join(sorted(gone | new)[:_NAMED])
    reason = (
        f"samples of {category}: {len(gone)} only in the baseline, {len(new)} only now ({only})"
    )
    if not common:
        return f"{reason}; not one is in both"
    return f"{reason}; the other {common} alone are compared with --cep-pairing=common"
