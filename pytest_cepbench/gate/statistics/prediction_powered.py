"""Prediction-powered mean: a few scores of people, and a judge's scores of all samples.

The judge's scores of the samples without a label say where the mean lies, and the labels say by how
much the judge is off: the mean is unbiased whatever the judge gets wrong, as long as the labelled
samples are drawn at random. How far the judge is followed (lam) is tuned to the smallest spread; at
lam = 0 people count alone.
Sources: Angelopoulos et al., Prediction-powered inference, 2023; Angelopoulos, Duchi and Zrnic,
PPI++: efficient prediction-powered inference, 2023; Zrnic and Candes, Cross-prediction-powered
inference, 2024 (folds).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from math import floor, sqrt

import numpy as np

from pytest_cepbench.artifacts import digest_text
from pytest_cepbench.gate.statistics.bounds import Bounds, hall_step, mean_bounds
from pytest_cepbench.gate.statistics.constants import LABEL_FOLDS, LEAST_LABELLED, LEAST_UNLIKE
from pytest_cepbench.gate.statistics.differences import Differences
from pytest_cepbench.metrics.uncertainty import t_upper_quantile

Scores = Mapping[str, Mapping[str, float]]
"""Category -> sample -> score."""

PREDICTION_POWERED = "prediction-powered"
"""Method of bounds that are made of labels and verdicts."""

PEOPLE_ONLY = "people only"
"""Method of bounds that are made of labels alone."""

LEAST_IN_CATEGORY = 2
"""Labelled units that show the spread of a category."""

_DECIMALS = 9  # within which scores count as equal


@dataclass(frozen=True, eq=False)
class LabelledScores:
    """Scores of a judge, and of people for a random part of the same samples, less what is even.

    judge: category -> sample -> score, all samples.
    people: category -> sample -> score, those that are labelled: at least two units of every
    category.
    clusters: sample -> the cluster that it shares with others. All of a cluster is labelled, or
    nothing of it.
    probabilities: sample -> the probability with which it was drawn, over 0 and at most 1; 1 where
    it is not named. Within a category only their proportions count.
    Raises ValueError where a label is of no sample, a cluster is labelled in part, or a category
    has too few labels.
    """

    judge: Scores
    people: Scores
    clusters: Mapping[str, str]
    probabilities: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        labelled = {s for part in self.people.values() for s in part}
        units = {self.unit(sample) for sample in labelled}
        for name, part in self.people.items():
            if not part.keys() <= self.judge.get(name, {}).keys():
                raise ValueError(f"category {name!r} has labels of samples that are not in it")
        for name, part in self.judge.items():
            split = [
                s for s in part if s not in self.people.get(name, {}) and self.unit(s) in units
            ]
            if split:
                raise ValueError(f"a label for {split[0]!r} is missing, and its cluster has others")
            own = {self.unit(sample) for sample in self.people.get(name, {})}
            if len(own) < LEAST_IN_CATEGORY:
                raise ValueError(
                    f"category {name!r} has labels of {len(own)} units, and {LEAST_IN_CATEGORY} "
                    "or more are needed"
                )

    def unit(self, sample: str) -> str:
        """The cluster of a sample, which is its own where it shares none."""
        return self.clusters.get(sample, sample)

    @cached_property
    def unlabelled(self) -> dict[str, dict[str, float]]:
        """The judge's scores of the samples without a label; categories that have any."""
        rest = {
            name: {s: score for s, score in part.items() if s not in self.people[name]}
            for name, part in self.judge.items()
        }
        return {name: part for name, part in rest.items() if part}

    @cached_property
    def centers(self) -> dict[str, float]:
        """The mean of all of the judge's scores in each category."""
        return {name: float(np.mean(list(part.values()))) for name, part in self.judge.items()}

    @cached_property
    def units(self) -> tuple[str, ...]:
        """The labelled units, in an order that knows nothing of scores."""
        labelled = {self.unit(sample) for part in self.people.values() for sample in part}
        return tuple(sorted(labelled, key=lambda unit: (digest_text(unit), unit)))

    def tune(self, left_out: frozenset[str] = frozenset()) -> float:
        """The lam of the smallest variance, in [0, 1]; 0 where the judge scores all alike.

        left_out: units whose labels have no part in it.
        sum of w^2 cov(Y, F) / n over categories by sum of w^2 var(F) (1 / n + 1 / N), w a
        category's weight, n and N its samples with and without a label. Of one category:
        cov(Y, F) / ((1 + n / N) var(F)). Source: Angelopoulos, Duchi and Zrnic, 2023, Example 6.1.
        """
        shared, spread = 0.0, 0.0
        for name, rest in self.unlabelled.items():
            samples = [s for s in self.people[name] if self.unit(s) not in left_out]
            if len(samples) < LEAST_IN_CATEGORY:
                continue
            people = np.array([self.people[name][s] for s in samples])
            judge = np.array([self.judge[name][s] for s in samples])
            every = np.append(judge, list(rest.values()))
            n, count = len(samples), len(rest)
            shared += float(np.cov(people, judge)[0, 1]) / n
            spread += float(np.var(every, ddof=1)) * (1 / n + 1 / count)
        return min(max(shared / spread, 0.0), 1.0) if spread > 0 else 0.0


@dataclass(frozen=True, eq=False)
class PredictionPoweredMean:
    """The mean of the categories' means, as people would score them.

    lam: how far the judge is followed, in [0, 1]; the mean of those of the folds.
    labelled: people's scores less lam times the judge's.
    unlabelled: lam times the judge's scores; None where lam is 0 or everything is labelled.
    share: of the categories that have samples without a label.
    people: people's scores alone.
    """

    lam: float
    labelled: Differences
    unlabelled: Differences | None
    share: float
    people: Differences

    @property
    def mean(self) -> float:
        """The mean of lam F over the unlabelled, and of Y - lam F over the labelled."""
        rest = 0.0 if self.unlabelled is None else self.share * self.unlabelled.mean
        return self.labelled.mean + rest

    @property
    def variances(self) -> tuple[float, float]:
        """Of the mean: the part of the labelled, and that of the unlabelled."""
        own = self.labelled.sd**2 / self.labelled.units
        if self.unlabelled is None:
            return own, 0.0
        return own, self.share**2 * self.unlabelled.sd**2 / self.unlabelled.units

    @property
    def error(self) -> float:
        """Standard error of the mean."""
        return sqrt(sum(self.variances))

    @property
    def degrees(self) -> int:
        """Degrees of freedom by Satterthwaite, over labelled and unlabelled, at least 1."""
        own, rest = self.variances
        if self.unlabelled is None or not own + rest:
            return self.labelled.degrees
        parts = own**2 / self.labelled.degrees + rest**2 / self.unlabelled.degrees
        return max(1, floor((own + rest) ** 2 / parts + 1e-9))

    @property
    def skewness(self) -> float:
        """Skewness of the mean, which falls with the root of the units."""
        error = self.error
        if not error:
            return 0.0
        parts = zip(self.variances, (self.labelled, self.unlabelled), strict=True)
        third = sum(
            part.skewness / sqrt(part.effective_units) * variance**1.5
            for variance, part in parts
            if part is not None
        )
        return float(third) / error**3

    def steps(self, alpha: float) -> tuple[float, float]:
        """Distances of the one-sided bounds below and above the mean, in standard errors.

        alpha: error of each, in (0, 0.5]. As `hall_steps`, with the skewness of labelled and
        unlabelled together, moved by the standard error that so many labels leave it.
        """
        t, units = t_upper_quantile(alpha, self.degrees), self.labelled.effective_units
        moved = sqrt(6) / units
        below, above = (min(0.0, side) - moved for side in (self.skewness, -self.skewness))
        return hall_step(t, below), hall_step(t, above)

    @property
    def worth(self) -> float:
        """How many labels one label is worth: the variance of people alone by this one's."""
        variance = sum(self.variances)
        return self.people.sd**2 / self.people.units / variance if variance > 0 else 1.0


def prediction_powered_mean(
    scores: LabelledScores, lam: float | None = None
) -> PredictionPoweredMean:
    """The mean of people's scores, of labels and verdicts together.

    lam: in [0, 1]; tuned where None, in 5 folds, each with the lam that the other four give: labels
    that choose lam and are then corrected by it would look more alike than they are. The judge's
    scores are counted from the mean of their category, which changes nothing where there is one
    lam, and keeps the folds' lams from adding spread.
    Raises ValueError for a lam out of its range.
    """
    if lam is not None and not 0 <= lam <= 1:
        raise ValueError(f"lam is how far the judge is followed, in [0, 1], got {lam}")
    units = scores.units
    if lam is None and len(units) >= LABEL_FOLDS:
        lam_of: dict[str, float] = {}
        for fold in range(LABEL_FOLDS):
            own = units[fold::LABEL_FOLDS]
            lam_of |= dict.fromkeys(own, scores.tune(frozenset(own)))
    else:
        lam_of = dict.fromkeys(units, scores.tune() if lam is None else lam)
    whole = float(np.mean(list(lam_of.values())))
    centers = scores.centers
    corrected = {
        name: {
            s: y - lam_of[scores.unit(s)] * (scores.judge[name][s] - centers[name])
            for s, y in part.items()
        }
        for name, part in scores.people.items()
    }
    weighted = partial(_weighted, probabilities=scores.probabilities)
    rest = {
        name: {s: whole * (score - centers[name]) for s, score in part.items()}
        for name, part in scores.unlabelled.items()
    }
    return PredictionPoweredMean(
        whole,
        Differences.of(weighted(corrected), scores.clusters),
        Differences.of(rest, scores.clusters) if whole > 0 and rest else None,
        len(rest) / len(scores.judge),
        Differences.of(weighted(scores.people), scores.clusters),
    )


def _weighted(parts: Scores, probabilities: Mapping[str, float]) -> Scores:
    """Values whose plain mean is the one weighted by 1 / probability, and their spread its own.

    m + w (v - m), m the weighted mean of a category and w the weights, 1 on average.
    Source: Hajek's estimator, by linearization.
    """
    result = {}
    for name, part in parts.items():
        weights = np.array([1 / probabilities.get(sample, 1.0) for sample in part])
        weights /= weights.mean()
        values = np.array(list(part.values()))
        center = float(np.mean(weights * values))
        moved = np.where(weights == 1, values, center + weights * (values - center))
        result[name] = dict(zip(part, moved.tolist(), strict=True))
    return result


def labelled_bounds(
    scores: LabelledScores,
    alpha: float,
    *,
    span: float,
    lam: float | None = None,
) -> tuple[Bounds, PredictionPoweredMean]:
    """Bounds of the mean of people's scores, each at level alpha, in (0, 0.5].

    span: the most that a score can lie from 0.
    lam: how far the judge is followed, in [0, 1]; tuned where None.
    Student's t of Satterthwaite's degrees over categories, labelled and unlabelled, corrected for
    skewness. Of fewer than 50 labelled units, and of labels of which fewer than 15 units differ
    from the rest, people count alone, and the bounds are those of any other scores (`mean_bounds`):
    a spread that hardly shows is no ground for a lam.
    Raises ValueError as `mean_bounds`.
    """
    alone = prediction_powered_mean(scores, 0.0)
    values = np.round(alone.people.weighted() / alone.people.weights(), _DECIMALS)
    _, counts = np.unique(values, return_counts=True)
    spread = int((np.abs(alone.people.residuals) > 10.0**-_DECIMALS).sum())
    if (
        alone.labelled.units < LEAST_LABELLED
        or min(alone.people.units - int(counts.max()), spread) < LEAST_UNLIKE
    ):
        bounds = mean_bounds(alone.people, alpha, span=span)
        return replace(bounds, method=f"{PEOPLE_ONLY}, {bounds.method}"), alone
    tuned = prediction_powered_mean(scores, lam)
    below, above = (steps * tuned.error for steps in tuned.steps(alpha))
    mean = min(max(tuned.mean, -span), span)
    low, high = max(mean - below, -span), min(mean + above, span)
    return Bounds(mean, low, high, alpha, PREDICTION_POWERED, tuned.labelled.units), tuned
