"""Pairs of a measurement and its baseline, sample by sample, or why there can be none."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace

from pytest_cepbench.errors import IncomparableError
from pytest_cepbench.gate.measurement import (
    DECIMALS,
    SAMPLE,
    FreshMeasurement,
    Measurement,
    Scores,
    differing_fields,
    mean_of_scores,
)
from pytest_cepbench.gate.policy import Pairing
from pytest_cepbench.gate.statistics.constants import MOST_UNSCORED
from pytest_cepbench.gate.statistics.differences import Differences

SAMPLE_FIELDS = ("samples", "references", "data", "clauses", "facts")
"""Fields of an identity that differ where there are other samples, and only there."""

_NAMED = 3

_REJUDGE = "; cepbench arena rejudge SUITE --judge=SPEC has the accepted answers judged by another"


@dataclass(frozen=True)
class Pair:
    """A measurement and its baseline over the same samples.

    now, before: the two.
    scores_now, scores_before: by category and sample, of the samples that both have.
    differences: what statistics are made of.
    bounded: whether bounds can be made: scores of whole sets need blocks that were left out alike.
    dropped: how many samples only one of the two has.
    unscored: how many samples have no score, in one of the two or both, and so no part in this.
    worst, best: the same with these too, at the worst and the best that they could be; None where
    every sample has a score.
    """

    now: FreshMeasurement
    before: Measurement
    scores_now: Scores
    scores_before: Scores
    differences: Differences
    bounded: bool
    dropped: int = 0
    unscored: int = 0
    worst: Pair | None = None
    best: Pair | None = None

    @property
    def largest_change(self) -> float:
        """Largest change of a score, in either direction; 0.0 where none has changed."""
        return max(
            abs(round(score - self.scores_before[category][sample], DECIMALS))
            for category, part in self.scores_now.items()
            for sample, score in part.items()
        )

    @property
    def baseline_value(self) -> float:
        """The baseline's value over these samples."""
        return round(mean_of_scores(self.scores_before), DECIMALS)

    @property
    def same_model(self) -> bool:
        """Whether weights and settings say that they are those of the baseline."""
        ours = self.now.model.get("identity")
        return ours is not None and ours == self.before.model.get("identity")

    @property
    def other_answers(self) -> int:
        """Samples of both whose answers are not the accepted ones, not even but for rounding."""
        return sum(
            (other := self.before.answers.get(name, own)) != own
            and (name, other) not in self.now.redrawn
            for name, own in self.now.answers.items()
        )


def pair(
    measurement: FreshMeasurement,
    baseline: Measurement,
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
            only = ", ".join(sorted(gone | new)[:_NAMED])
            rest = "not one is in both"
            if common:
                rest = f"the other {len(common)} alone are compared with --cep-pairing=common"
            reason = (
                f"samples of {category}: {len(gone)} only in the baseline, {len(new)} only now "
                f"({only}); {rest}"
            )
            differing.append(("samples", reason))
        dropped += len(gone) + len(new)
        shared[category] = sorted(common)
    if differing:
        fields = dict.fromkeys(field for field, _ in differing)
        raise IncomparableError(tuple(reason for _, reason in differing), tuple(fields))
    before_scores = {c: {s: baseline.scores[c][s] for s in ids} for c, ids in shared.items()}
    now_scores = {c: {s: measurement.scores[c][s] for s in ids} for c, ids in shared.items()}
    sign = 1.0 if measurement.higher_is_better else -1.0
    signed, bounded, center = _signed(before_scores, now_scores, sign), True, None
    if measurement.sizes:
        pseudo = _signed(baseline.blocks, measurement.blocks, sign)
        bounded = all(
            pseudo.get(name) and baseline.blocks[name].keys() == measurement.blocks[name].keys()
            for name in signed
        )
        if bounded:
            center = sign * (mean_of_scores(now_scores) - mean_of_scores(before_scores))
            signed = blocks_apart({name: pseudo[name] for name in signed})
    clusters = {} if measurement.sizes else measurement.clusters
    differences = Differences.of(signed, clusters, center)
    both = Pair(measurement, baseline, now_scores, before_scores, differences, bounded, dropped)
    if any(unscored.values()):
        low, high = measurement.ends[:: int(sign)]
        return replace(
            both,
            unscored=len(set().union(*unscored.values())),
            worst=_completed(both, unscored, sign, now=low, before=high),
            best=_completed(both, unscored, sign, now=high, before=low),
        )
    return both


def _unscored_before(measurement: FreshMeasurement, baseline: Measurement) -> set[str]:
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
    both: Pair, unscored: Mapping[str, Collection[str]], sign: float, *, now: float, before: float
) -> Pair:
    """The pair with the samples that lack a score in one of the two: it has such a one there."""
    before_scores, now_scores = (
        {
            name: {**part, **{s: scores[name].get(s, end) for s in unscored[name]}}
            for name, part in kept.items()
        }
        for kept, scores, end in (
            (both.scores_before, both.before.scores, before),
            (both.scores_now, both.now.scores, now),
        )
    )
    signed = _signed(before_scores, now_scores, sign)
    differences = Differences.of(signed, both.now.clusters)
    return replace(
        both, scores_before=before_scores, scores_now=now_scores, differences=differences
    )


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


def _signed(before: Scores, now: Scores, sign: float) -> dict[str, dict[str, float]]:
    return {
        name: {
            sample: round(sign * (value - before[name][sample]), DECIMALS)
            for sample, value in part.items()
            if sample in before[name]
        }
        for name, part in now.items()
        if name in before
    }


def _differing(
    measurement: FreshMeasurement, baseline: Measurement, pairing: Pairing
) -> Iterator[tuple[str, str]]:
    """The name and a sentence for each field of the identity that differs, and the direction."""
    left_out = SAMPLE_FIELDS if pairing == "common" and not measurement.sizes else ()
    for name in differing_fields(baseline.identity, measurement.identity):
        if name not in left_out:
            before = baseline.identity.get(name, "(none)")
            reason = f"{name}: baseline {before}, now {measurement.identity.get(name, '(none)')}"
            yield name, f"{reason}{_REJUDGE}" if name == "judge" and baseline.answers else reason
    if bool(baseline.answers) != bool(measurement.answers):
        yield "answers", "answers: one of the two has no answers to battle against"
    if baseline.higher_is_better != measurement.higher_is_better:
        yield "direction", "direction: the baseline counts the other direction as better"
