"""A measurement: the value of a case with everything needed to compare it later."""

from __future__ import annotations

import re
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cached_property
from hashlib import blake2b

import numpy as np

from pytest_cepbench.gate.labels.usable import PeopleScores
from pytest_cepbench.metrics.fact_losses import FactSummary
from pytest_cepbench.metrics.gc import mean_of_categories

DECIMALS = 6
"""Scores are kept with this many, in memory as in baseline files, so that equal stays equal."""

SAMPLE = "sample "
"""What the names of blocks begin with that are samples, each with a score of its own."""

_LARGEST = 1e12
"""No score of ours is larger, and sums of squares of larger ones lose their decimals."""

MOST_UNSCORED = 0.02
"""Share of a case's samples that may lack a score because a model that measures failed. Of more,
bounds that allow for the worst could decide nothing at the tolerances of the suites."""

Scores = Mapping[str, Mapping[str, float]]
"""Category -> sample id -> score."""


def rounded(value: float) -> float:
    """A number as scores are kept."""
    return round(float(value), DECIMALS) + 0.0  # + 0.0 turns -0.0 into 0.0


@dataclass(frozen=True)
class CaseKey:
    """One gated number: which suite, which category, group or "overall", which metric."""

    suite: str
    part: str
    metric: str

    def __str__(self) -> str:
        return f"{self.suite}/{self.part}/{self.metric}"

    @classmethod
    def parse(cls, text: str) -> CaseKey:
        """The key of a text; parts may have slashes in their names, suites and metrics have none.

        What a text that is no key gives has another text.
        """
        suite, _, within = text.partition("/")
        part, _, metric = within.rpartition("/")
        return cls(suite, part, metric)

    @property
    def within(self) -> str:
        """PART/METRIC: its name in its suite."""
        return f"{self.part}/{self.metric}"

    def matches(self, pattern: str) -> bool:
        """Whether `[SUITE/]PART/METRIC`, with the wildcards *, ? and [...], means this case."""
        names = (str(self), self.within)
        return pattern in names or any(fnmatchcase(name, pattern) for name in names)

    @cached_property
    def file_stem(self) -> str:
        """A file name for this case alone: readable, and unique by a digest of the exact key.

        Equal slugs ("org/sdxl" and "org sdxl", or names that differ in case on a file system that
        does not) keep apart by the digest.
        """
        name = f"{self.part}\0{self.metric}".encode("utf-8", "surrogatepass")
        slug = re.sub(r"[^A-Za-z0-9]+", "-", f"{self.part}-{self.metric}").strip("-")[:60]
        return f"{slug.lower()}-{blake2b(name, digest_size=5).hexdigest()}"


def mean_of_scores(scores: Scores) -> float:
    """Unweighted mean of the categories' means."""
    return mean_of_categories({name: np.array(list(p.values())) for name, p in scores.items()})


@dataclass(frozen=True)
class Blindness:
    """Why the scores of a case show no drop, or a small one alone.

    reason: a sentence.
    hidden: the most that the case may have lost unseen, in its own unit.
    visible: the largest drop that its scores can show.
    """

    reason: str
    hidden: float
    visible: float = 0.0


@dataclass(frozen=True)
class Measurement:
    """Measured scores of one case, with everything that they depend on.

    key: the case.
    label: the metric's name in reports.
    higher_is_better: its direction.
    scores: category -> sample id -> score; one category for a category's case, several for groups
    and the whole suite, whose value is the unweighted mean of their means.
    identity: what makes numbers comparable, field -> value (samples, prompts, lengths, encoders,
    fixed roles); a baseline with another identity is incomparable.
    model: the model under test, field -> value; may differ from the baseline's, that is the point.
    failures: failed chains by kind.
    curve: the mean at each iteration or generation, for the reader.
    sizes: category -> how many samples its score stands for, where one score is that of a whole set
    (FID); empty where every sample has its own.
    blocks: category -> block of samples -> its part in a score of a whole set, whose mean over the
    blocks is that score, but for its bias: `SAMPLE` and the name of a sample or its cluster -> its
    influence, or a block's number -> its jackknife pseudo-value; empty where every sample has its
    own score, or where a set is too small.
    shares: whether scores are shares of right answers, in [0, 1], rather than points on a scale.
    clusters: sample id -> the cluster that it shares with others, where it does.
    notes: what else a reader should know, a sentence each.
    floor: what chance alone gives: the value of samples against other samples' starts; None where
    it is not known.
    warnings: what makes the number mean less than it seems to, a sentence each; every report shows
    them.
    answers: sample id -> digest of its answer, where scores are of battles against the answers that
    were accepted; "" for a sample that has none. Empty for every other metric.
    strata: category -> all samples that the case has there, measured yet or not; each is in a
    single category where the case counts every sample once. Empty where there are no answers.
    anchor_scores: the scores of the same battles against the anchor's answers, as `scores`.
    obstacles: why the battles could not be fought, a sentence each: the measurement is comparable
    with no baseline then.
    judge: what is known of the judge whose verdicts the scores come from, a sentence; empty where
    there were none.
    unscored: category -> ids of samples that were measured and have no score, since a model that
    measures (judge, VQA model, detector, encoder) failed at them.
    ends: the lowest and the highest that a score can be: bounds allow for them where there is none.
    labels: people's scores of a random part of the battles, by which bounds are made; None where
    the judge decides alone.
    facts: what became of the facts of the samples along their chains, for the reader; None where
    the metric is not about facts.
    blind: why a judge or a detector could see no drop here; None where nothing says so.
    anchor_blind: the same of the battles against the anchor's answers.
    redrawn: sample id and digest of an opposing answer, where the answer is that one but for
    rounding.
    Raises ValueError when there is no score, or one that is not finite.
    """

    key: CaseKey
    label: str
    higher_is_better: bool
    scores: Scores
    identity: Mapping[str, str]
    model: Mapping[str, str]
    failures: Mapping[str, int] = field(default_factory=dict)
    curve: tuple[float, ...] = ()
    sizes: Mapping[str, int] = field(default_factory=dict)
    blocks: Scores = field(default_factory=dict)
    shares: bool = False
    clusters: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    floor: float | None = None
    warnings: tuple[str, ...] = ()
    answers: Mapping[str, str] = field(default_factory=dict)
    strata: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    anchor_scores: Scores = field(default_factory=dict)
    obstacles: tuple[str, ...] = ()
    judge: str = ""
    unscored: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    ends: tuple[float, float] = (-1.0, 1.0)
    labels: PeopleScores | None = None
    facts: FactSummary | None = None
    blind: Blindness | None = None
    anchor_blind: Blindness | None = None
    redrawn: AbstractSet[tuple[str, str]] = frozenset()

    def __post_init__(self) -> None:
        values = [score for part in self.scores.values() for score in part.values()]
        pseudo = [value for part in self.blocks.values() for value in part.values()]
        numbers = np.abs([*values, *pseudo])
        if not values or not all(self.scores.values()) or not (numbers <= _LARGEST).all():
            raise ValueError(f"{self.key}: a measurement needs a finite score for every sample")
        object.__setattr__(self, "scores", _rounded_parts(self.scores))
        object.__setattr__(self, "blocks", _rounded_parts(self.blocks))
        object.__setattr__(self, "anchor_scores", _rounded_parts(self.anchor_scores))
        object.__setattr__(self, "curve", tuple(float(value) for value in self.curve))
        if self.floor is not None:
            object.__setattr__(self, "floor", rounded(self.floor))

    @cached_property
    def value(self) -> float:
        """The case's number: unweighted mean of the categories' means."""
        return round(mean_of_scores(self.scores), DECIMALS)

    @property
    def n(self) -> int:
        """Number of samples that were scored (one in two categories counts in both)."""
        if self.sizes:
            return sum(self.sizes.values())
        return sum(len(part) for part in self.scores.values())


def _rounded_parts(parts: Scores) -> Scores:
    return {
        category: {name: rounded(value) for name, value in part.items()}
        for category, part in parts.items()
    }
