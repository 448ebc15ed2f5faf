"""From a measurement and its baseline to a verdict."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from pytest_cepbench.gate.baseline import Baseline
from pytest_cepbench.gate.measurement import DECIMALS, Measurement
from pytest_cepbench.gate.verdict import Verdict
from pytest_cepbench.metrics import mean_of_categories

GateName = Literal["threshold"]

MOST_LOSERS = 5


@dataclass(frozen=True)
class Policy:
    """How a case is judged.

    gate: the rule. tolerance: the drop that does not matter, in the metric's own unit, >= 0.
    Raises ValueError for a tolerance that is negative or not finite.
    """

    gate: GateName = "threshold"
    tolerance: float = 0.01

    def __post_init__(self) -> None:
        if not (self.tolerance >= 0 and np.isfinite(self.tolerance)):
            msg = f"a tolerance is a number of at least 0, got {self.tolerance}"
            raise ValueError(msg)


class Loser(NamedTuple):
    """A sample that got worse: its id, then its scores; difference is negative."""

    sample: str
    baseline: float
    candidate: float
    difference: float


@dataclass(frozen=True)
class Judgement:
    """What the gate says and why.

    difference: mean paired difference to the baseline, turned so that positive is better; None
    where nothing was compared. reasons: sentences for people. losers: the samples that lost most.
    """

    verdict: Verdict
    baseline_value: float | None = None
    difference: float | None = None
    reasons: tuple[str, ...] = ()
    losers: tuple[Loser, ...] = ()


Differences = Mapping[str, Mapping[str, float]]
"""Category -> sample id -> paired difference, positive is better."""


def threshold(differences: Differences, policy: Policy) -> Verdict:
    """Held while the mean difference is at least -tolerance; no statistics.

    A rule sees paired differences and a policy and gives a verdict, so that rules with confidence
    bounds take their place beside this one.
    """
    held = round(_mean(differences) + policy.tolerance, DECIMALS) >= 0
    return Verdict.HELD if held else Verdict.REGRESSED


RULES: Mapping[GateName, Callable[[Differences, Policy], Verdict]] = {"threshold": threshold}


def judge(measurement: Measurement, baseline: Baseline | None, policy: Policy) -> Judgement:
    """Compare a measurement with its baseline, sample by sample.

    Never raises: whatever cannot be compared has a verdict of its own, and none of them passes.
    """
    if baseline is None:
        return Judgement(
            Verdict.NO_BASELINE, reasons=("no baseline has been accepted for this case",)
        )
    reasons = _incomparable(measurement, baseline)
    if reasons:
        return Judgement(Verdict.INCOMPARABLE, baseline.value, reasons=reasons)
    sign = 1.0 if measurement.higher_is_better else -1.0
    differences = {
        category: {
            sample: sign * (score - baseline.scores[category][sample])
            for sample, score in part.items()
        }
        for category, part in measurement.scores.items()
    }
    return Judgement(
        RULES[policy.gate](differences, policy),
        baseline.value,
        round(_mean(differences), DECIMALS),
        losers=_losers(measurement, baseline, differences),
    )


def _mean(differences: Differences) -> float:
    return mean_of_categories({k: np.array(list(v.values())) for k, v in differences.items()})


def _incomparable(measurement: Measurement, baseline: Baseline) -> tuple[str, ...]:
    """One sentence for each thing that makes the two numbers mean different things."""
    reasons = [
        f"{name}: baseline {baseline.identity.get(name, '(none)')}, "
        f"now {measurement.identity.get(name, '(none)')}"
        for name in sorted(baseline.identity.keys() | measurement.identity.keys())
        if baseline.identity.get(name) != measurement.identity.get(name)
    ]
    if baseline.higher_is_better != measurement.higher_is_better:
        reasons.append("direction: the baseline counts the other direction as better")
    for category in sorted(baseline.scores.keys() | measurement.scores.keys()):
        before = baseline.scores.get(category, {}).keys()
        now = measurement.scores.get(category, {}).keys()
        if before != now:
            only = ", ".join(sorted(before ^ now)[:3])
            reasons.append(
                f"samples of {category}: {len(before - now)} only in the baseline, "
                f"{len(now - before)} only now ({only})"
            )
    return tuple(reasons)


def _losers(
    measurement: Measurement, baseline: Baseline, differences: Differences
) -> tuple[Loser, ...]:
    lost = [
        Loser(sample, baseline.scores[category][sample], measurement.scores[category][sample], d)
        for category, part in differences.items()
        for sample, d in part.items()
        if d < 0
    ]
    return tuple(sorted(lost, key=lambda loser: (loser.difference, loser.sample))[:MOST_LOSERS])
