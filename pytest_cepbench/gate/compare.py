"""From a measurement and its baseline to a verdict."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

from pytest_cepbench.errors import IncomparableError
from pytest_cepbench.gate.baseline import Baseline
from pytest_cepbench.gate.measurement import DECIMALS, Measurement
from pytest_cepbench.gate.pairing import Pair, pair
from pytest_cepbench.gate.policy import Pairing, Policy
from pytest_cepbench.gate.sensitivity import largest_drop, power_remark, remarks_on_comparing
from pytest_cepbench.gate.statistics import Bounds, mean_bounds, smallest_visible
from pytest_cepbench.gate.verdict import Verdict

_NO_SPREAD = 1e-9
"""Scores have six decimals: what is smaller is rounding."""

_SAME = 0.1
"""Of the tolerance: how far each score of the same weights may move, on another machine, say."""


class Loser(NamedTuple):
    """A sample that got worse: its id, then its scores; difference is negative."""

    sample: str
    baseline: float
    candidate: float
    difference: float


@dataclass(frozen=True)
class Judgement:
    """What the gate says and why.

    All differences are turned so that positive is better; None where nothing was compared.
    baseline_value: over the samples that were compared. difference: mean paired difference.
    low, high: its one-sided confidence bounds, each at level alpha; None where the rule makes none,
    or none can be made. method: how they were made. units: independent samples. visible: the
    smallest drop that so many units can see with 80 % power, at this spread.
    reasons: sentences for people, why it does not pass. statements: what else they should know of
    the comparison. losers: the samples that got worse, most first. since_anchor: the same against the anchor.
    warnings: sentences on what the comparison cannot see, whatever its verdict.
    """

    verdict: Verdict
    baseline_value: float | None = None
    difference: float | None = None
    low: float | None = None
    high: float | None = None
    alpha: float | None = None
    method: str = ""
    units: int = 0
    visible: float | None = None
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
    """Compare a measurement with its baseline, sample by sample, and with the anchor if there is one.

    Beside an anchor each of the two comparisons has half of alpha, so that the promise on it holds
    for both together. pairing, partial: see `pair`.
    Never raises: whatever cannot be compared has a verdict of its own, and none of them passes.
    """
    if baseline is None:
        return Judgement(
            Verdict.NO_BASELINE, reasons=("no baseline has been accepted for this case",)
        )
    judgement = _judge(measurement, baseline, policy, anchor, pairing, partial=partial)
    return _as_far_as_seen(judgement, measurement, baseline, policy)


def _as_far_as_seen(
    judgement: Judgement, measurement: Measurement, baseline: Baseline, policy: Policy
) -> Judgement:
    """The same, but what cannot lose as much as is tolerated does not hold: nothing was excluded."""
    if judgement.verdict not in (Verdict.HELD, Verdict.IMPROVED, Verdict.INCONCLUSIVE):
        return judgement
    warnings = (*judgement.warnings, *remarks_on_comparing(measurement, baseline))
    judgement = replace(judgement, warnings=warnings)
    floor = measurement.floor if baseline.floor is None else baseline.floor
    value = baseline.value if judgement.baseline_value is None else judgement.baseline_value
    most = largest_drop(value, baseline, floor)
    if judgement.verdict is not Verdict.HELD or most is None or most > policy.tolerance:
        return judgement
    end = "what chance gives" if not baseline.shares else "the worst there is"
    reason = (
        f"the baseline of {value:.4g} can lose {most:.4g} down to {end}, and {policy.tolerance:g} is "
        "tolerated: a regression could not be seen"
    )
    reasons = (*judgement.reasons, reason)
    return replace(judgement, verdict=Verdict.INCONCLUSIVE, reasons=reasons)


def _judge(
    measurement: Measurement,
    baseline: Baseline,
    policy: Policy,
    anchor: Baseline | None,
    pairing: Pairing,
    *,
    partial: bool,
) -> Judgement:
    """Against both, as far as their numbers tell."""
    if anchor is None or anchor.scores == baseline.scores:
        return _compare(measurement, baseline, policy, pairing, partial=partial)
    half = replace(policy, alpha=policy.alpha / 2)
    last = _compare(measurement, baseline, half, pairing, partial=partial)
    allowed = replace(half, tolerance=policy.since_anchor)
    first = _compare(measurement, anchor, allowed, pairing, partial=partial)
    return _both(last, first, policy)


def _both(last: Judgement, first: Judgement, policy: Policy) -> Judgement:
    """The verdict against the last baseline, unless the drop since the anchor says worse."""
    together = replace(last, since_anchor=first)
    if first.verdict in (Verdict.REGRESSED, Verdict.INCOMPARABLE):
        if last.verdict in (Verdict.REGRESSED, Verdict.INCOMPARABLE):
            return together
        added_up = (
            f"the steps since the anchor add up to {first.difference or 0.0:+.4f}, and "
            f"{-policy.since_anchor:+.4f} is tolerated"
        )
        reasons = tuple(f"anchor: {reason}" for reason in first.reasons) or (added_up,)
        return replace(together, verdict=first.verdict, reasons=reasons, losers=first.losers)
    unknown = first.verdict is Verdict.INCONCLUSIVE and policy.gate == "noninferiority"
    if unknown and last.verdict in (Verdict.HELD, Verdict.IMPROVED):
        reasons = ("a drop since the anchor that is larger than tolerated is not excluded",)
        return replace(together, verdict=Verdict.INCONCLUSIVE, reasons=reasons)
    return together


def _compare(
    measurement: Measurement,
    baseline: Baseline,
    policy: Policy,
    pairing: Pairing,
    *,
    partial: bool,
) -> Judgement:
    try:
        both = pair(measurement, baseline, pairing, partial=partial)
    except IncomparableError as error:
        return Judgement(Verdict.INCOMPARABLE, baseline.value, reasons=error.reasons)
    difference = _rounded(both.differences.mean)
    judgement = Judgement(
        Verdict.INCONCLUSIVE,
        both.baseline_value,
        difference,
        units=both.differences.units if both.bounded else 0,
        statements=_dropped(both),
        losers=_losers(both),
    )
    if not policy.statistical:
        return replace(judgement, verdict=_by_threshold(difference, policy.tolerance))
    judgement = _with_bounds(judgement, both, measurement, policy)
    if _same_model(measurement, baseline) and both.largest_change <= _SAME * policy.tolerance:
        said = "the same model as the baseline's gave the same scores"
        if both.largest_change:
            said += f", within {both.largest_change:.6f}: other arithmetic, as of another processor"
        return replace(judgement, verdict=Verdict.HELD, statements=(*judgement.statements, said))
    verdict = verdict_of(difference, judgement.low, judgement.high, policy.tolerance)
    if verdict is Verdict.INCONCLUSIVE and not both.blocks:  # of which there are never more
        remark = power_remark(both.differences.sd, judgement.units, policy)
        judgement = replace(judgement, statements=(*judgement.statements, *filter(None, [remark])))
    return replace(judgement, verdict=verdict)


def _by_threshold(difference: float, tolerance: float) -> Verdict:
    held = round(difference + tolerance, DECIMALS) >= 0
    return Verdict.HELD if held else Verdict.REGRESSED


def verdict_of(
    difference: float, low: float | None, high: float | None, tolerance: float
) -> Verdict:
    """What bounds say of a mean difference; all rounded as scores are, so that equal stays equal.

    low, high: None where there are no bounds. tolerance: at least 0.
    """
    if low is None or high is None:
        return Verdict.INCONCLUSIVE
    if _rounded(low) > tolerance:
        return Verdict.IMPROVED
    if _rounded(low) > -tolerance:
        return Verdict.HELD
    if _rounded(difference) < -tolerance and _rounded(high) < 0:
        return Verdict.REGRESSED
    return Verdict.INCONCLUSIVE


def _with_bounds(
    judgement: Judgement, both: Pair, measurement: Measurement, policy: Policy
) -> Judgement:
    if not both.bounded:
        said = "no blocks of samples were left out of both sets alike: there are no bounds"
        return replace(judgement, alpha=policy.alpha, statements=(*judgement.statements, said))
    bounds: Bounds = mean_bounds(
        both.differences,
        policy.alpha,
        method=policy.bounds,
        shares=measurement.shares,
        blocks=both.blocks,
    )
    visible, spread = None, both.differences.sd
    if spread > _NO_SPREAD and bounds.units > 1:
        visible = smallest_visible(spread, bounds.units, policy.alpha, policy.tolerance)
    statements = (*judgement.statements, *([bounds.statement] if bounds.statement else []))
    return replace(
        judgement,
        low=_known(bounds.low),
        high=_known(bounds.high),
        alpha=policy.alpha,
        method=bounds.method,
        units=bounds.units,
        visible=_known(visible),
        statements=statements,
    )


def _rounded(value: float) -> float:
    return round(value, DECIMALS) + 0.0  # + 0.0 turns -0.0 into 0.0


def _known(value: float | None) -> float | None:
    return None if value is None else _rounded(value)


def _same_model(measurement: Measurement, baseline: Baseline) -> bool:
    """Whether the weights and settings are the baseline's own."""
    ours, theirs = measurement.model.get("identity"), baseline.model.get("identity")
    return ours is not None and ours == theirs


def _dropped(both: Pair) -> tuple[str, ...]:
    if not both.dropped:
        return ()
    return (f"{both.dropped} samples that only one of the two has were left out",)


def _losers(both: Pair) -> tuple[Loser, ...]:
    lost = [
        Loser(sample, both.before[category][sample], score, difference)
        for category, part in both.now.items()
        for sample, score in part.items()
        if (difference := both.sign * (score - both.before[category][sample])) < 0
    ]
    return tuple(sorted(lost, key=lambda loser: (loser.difference, loser.sample)))
