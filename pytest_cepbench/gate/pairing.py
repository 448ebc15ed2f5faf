"""Putting a measurement beside its baseline: what makes them incomparable, else their differences."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from pytest_cepbench.errors import IncomparableError
from pytest_cepbench.gate.baseline import Baseline
from pytest_cepbench.gate.measurement import DECIMALS, Measurement, mean_of_scores
from pytest_cepbench.gate.policy import Pairing
from pytest_cepbench.gate.statistics import Differences

_SAID_BY_SAMPLES = ("samples", "data", "clauses")
"""Fields of an identity that differ where there are other samples, and only there."""

_NAMED = 3

Scores = Mapping[str, Mapping[str, float]]


@dataclass(frozen=True)
class Pair:
    """A measurement and its baseline over the same samples.

    before, now: scores by category and sample. sign: 1 where higher is better, else -1.
    differences: what statistics are made of. blocks: whether the scores are of whole sets, and the
    differences of jackknife blocks. bounded: whether bounds can be made. dropped: how many samples only one of the two has.
    """

    before: Scores
    now: Scores
    sign: float
    differences: Differences
    blocks: bool
    bounded: bool
    dropped: int = 0

    @property
    def largest_change(self) -> float:
        """How far the score that moved most has moved, in either direction; 0.0 if none did."""
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
    """The two, sample by sample.

    pairing: whether samples that only one of them has make them incomparable, or are left out.
    partial: whether the measurement is known to be of a part of its samples (a look that is not the
    last); the baseline has all of them then.
    Raises IncomparableError with everything that differs.
    """
    reasons = [*_differing(measurement, baseline, pairing)]
    shared: dict[str, list[str]] = {}
    dropped = 0
    for category in sorted(baseline.scores.keys() | measurement.scores.keys()):
        before = baseline.scores.get(category, {}).keys()
        now = measurement.scores.get(category, {}).keys()
        common = before & now
        gone, new = (set() if partial and common else before - now), now - before
        if (gone or new) and (pairing == "exact" or not common or measurement.sizes):
            reasons.append(_unpaired(category, gone, new, len(common)))
        dropped += len(gone) + len(new)
        shared[category] = sorted(common)
    if reasons:
        raise IncomparableError(tuple(reasons))
    before_scores = {c: {s: baseline.scores[c][s] for s in ids} for c, ids in shared.items()}
    now_scores = {c: {s: measurement.scores[c][s] for s in ids} for c, ids in shared.items()}
    sign = 1.0 if measurement.higher_is_better else -1.0
    blocks = bool(measurement.sizes)
    differences, bounded = _differences(measurement, baseline, before_scores, now_scores, sign)
    return Pair(before_scores, now_scores, sign, differences, blocks, bounded, dropped)


def _differences(
    measurement: Measurement, baseline: Baseline, before: Scores, now: Scores, sign: float
) -> tuple[Differences, bool]:
    """What bounds are made of, and whether any can be made."""
    turned = _turned(before, now, sign)
    if not measurement.sizes:
        return Differences.of(turned, measurement.clusters), True
    pseudo = _turned(baseline.blocks, measurement.blocks, sign)
    whole = {name for name in turned if name in pseudo}
    same = all(baseline.blocks[n].keys() == measurement.blocks[n].keys() for n in whole)
    if whole != turned.keys() or not same:
        return Differences.of(turned), False
    center = sign * (mean_of_scores(now) - mean_of_scores(before))
    return Differences.of(blocks_apart({name: pseudo[name] for name in whole}), center=center), True


def blocks_apart(parts: Scores) -> dict[str, dict[str, float]]:
    """The same under names of their own: a block's name says nothing beyond its category."""
    return {
        category: {f"{category}\0{block}": value for block, value in part.items()}
        for category, part in parts.items()
    }


def _turned(before: Scores, now: Scores, sign: float) -> dict[str, dict[str, float]]:
    return {
        name: {
            one: round(sign * (value - before[name][one]), DECIMALS)
            for one, value in part.items()
            if one in before[name]
        }
        for name, part in now.items()
        if name in before
    }


def _differing(measurement: Measurement, baseline: Baseline, pairing: Pairing) -> Iterator[str]:
    """One sentence for each field of the identity that differs."""
    left_out = _SAID_BY_SAMPLES if pairing == "common" and not measurement.sizes else ()
    for name in sorted(baseline.identity.keys() | measurement.identity.keys()):
        before = baseline.identity.get(name, "(none)")
        now = measurement.identity.get(name, "(none)")
        if before != now and name not in left_out:
            yield f"{name}: baseline {before}, now {now}"
    if baseline.higher_is_better != measurement.higher_is_better:
        yield "direction: the baseline counts the other direction as better"


def _unpaired(category: str, gone: set[str], new: set[str], common: int) -> str:
    only = ", ".join(sorted(gone | new)[:_NAMED])
    reason = (
        f"samples of {category}: {len(gone)} only in the baseline, {len(new)} only now ({only})"
    )
    if not common:
        return f"{reason}; not one is in both"
    return f"{reason}; the other {common} alone are compared with --cep-pairing=common"
