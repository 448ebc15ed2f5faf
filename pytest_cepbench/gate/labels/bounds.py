"""Bounds of a win rate of which people labelled a random part."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from math import sqrt

from pytest_cepbench.artifacts.outcome import EVEN
from pytest_cepbench.gate.labels.usable import PeopleScores
from pytest_cepbench.gate.statistics.bounds import Bounds
from pytest_cepbench.gate.statistics.prediction_powered import (
    PREDICTION_POWERED,
    LabelledScores,
    PredictionPoweredMean,
    labelled_bounds,
)


def bounds_by_labels(
    scores: Mapping[str, Mapping[str, float]],
    people: PeopleScores,
    clusters: Mapping[str, str],
    alpha: float,
    *,
    unscored: Mapping[str, Collection[str]] = {},
) -> Bounds:
    """Bounds of people's win rate less one half, each at level alpha, in (0, 0.5].

    scores: category -> sample -> the judge's score of the candidate, in [0, 1].
    clusters: sample -> the cluster that it shares with others.
    unscored: category -> samples that the judge did not score. They are taken for one half: what is
    followed where there is no label may be anything, and where there is one people decide.
    Raises ValueError as `LabelledScores`.
    """
    judge = {
        name: dict.fromkeys(unscored.get(name, ()), 0.0)
        | {sample: score - EVEN for sample, score in part.items()}
        for name, part in scores.items()
    }
    labelled = {
        name: {sample: people.scores[sample] - EVEN for sample in part if sample in people.scores}
        for name, part in judge.items()
    }
    bounds, mean = labelled_bounds(
        LabelledScores(judge, labelled, clusters, people.probabilities),
        alpha,
        span=EVEN * people.stretch,
    )
    return replace(
        bounds,
        low=None if bounds.low is None or bounds.low <= -EVEN else bounds.low,
        high=None if bounds.high is None or bounds.high >= EVEN else bounds.high,
        statement=_statement(bounds, mean, scores, people),
        spread=mean.error * sqrt(bounds.units),
    )


def _statement(
    bounds: Bounds,
    mean: PredictionPoweredMean,
    scores: Mapping[str, Mapping[str, float]],
    people: PeopleScores,
) -> str:
    samples = len({sample for part in scores.values() for sample in part})
    judged = sum(sum(part.values()) / len(part) for part in scores.values()) / len(scores)
    start = (
        f"people labelled {people.rated} of {samples} battles{_beside(people)}: their win rate is "
        f"{bounds.mean + EVEN:.3f} (the judge alone says {judged:.3f})"
    )
    if bounds.method != PREDICTION_POWERED:
        why = f"; people count alone: {bounds.statement}" if bounds.statement else ""
        few = "" if why else "; people count alone, the labels are few or most of them alike"
        return f"{start}{why}{few}"
    return (
        f"{start}; the judge is followed by {mean.lam:.2f} (lam), and a label counts as "
        f"{mean.worth:.2f}: the bounds hold for what people would say, whatever the judge gets "
        "wrong"
    )


def _beside(people: PeopleScores) -> str:
    """The drawn battles that no person labelled."""
    parts = []
    if people.decided:
        parts.append(f"{people.decided} drawn ones are decided without them")
    if people.missing:
        parts.append(
            f"{people.missing} have no label, for which the others of their category count"
        )
    return "".join(f", {part}" for part in parts)
