"""A measurement: the value of a case with everything needed to compare it later."""

from __future__ import annotations

import re
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cached_property
from hashlib import blake2b
from typing import Any, Self

import msgspec
import numpy as np

from pytest_cepbench.metrics.gc import mean_of_categories

DECIMALS = 6
"""Scores are kept with this many, in memory as in baseline files, so that equal stays equal."""

FORMAT = 2
"""Raised when a field changes its meaning; files of earlier formats are read as far as they go."""

SAMPLE = "sample "
"""What the names of blocks begin with that are samples, each with a score of its own."""

_LARGEST = 1e12
"""No score of ours is larger, and sums of squares of larger ones lose their decimals."""

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
    """Why the scores of a case show no drop.

    reason: a sentence.
    hidden: the most that the case may have lost unseen, in its own unit.
    """

    reason: str
    hidden: float


class Noise(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Noise of a model against itself, measured by `cepbench calibrate`.

    seeds: how many were measured.
    units: independent samples.
    sd: standard deviation of one unit's difference between two seeds, in the metric's unit.
    value_sd: of the case's value over seeds.
    effective, degrees: of the units' differences, as in a Design; None in files of before they were
    kept, which are taken for samples of one category.
    worst: the most that a unit can lose, as in a Design; None where bounds are Hall's.
    """

    seeds: int
    units: int
    sd: float
    value_sd: float
    effective: float | None = None
    degrees: float | None = None
    worst: float | None = None


class Measurement(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A measurement as files and reports carry it; in a file the accepted one, with its origin.

    format: version of the format of baseline files.
    case: `SUITE/PART/METRIC`.
    metric: the metric as shown.
    value: unweighted mean of the categories' means; like `n` redundant, and checked.
    n: number of samples; one in two categories counts in both.
    higher_is_better: direction of the metric.
    model: role, spec and identity of the measured model.
    identity: what two measurements must share to be compared.
    scores: category to sample to score.
    shares: whether scores are shares of right answers, in 0 to 1.
    failures: failed chains or answers by kind.
    sizes: category to number of samples, where one score is that of a whole set.
    blocks: where one score is that of a whole set: category to sample (`sample NAME`) to its part
    in it, or to block of samples to jackknife pseudo-value.
    clusters: sample to the cluster that it shares with others, where it does.
    accepted: how it came to be accepted, where `cepbench accept` wrote it; empty in a report.
    noise: where the model was calibrated; None in a report.
    floor: the value by chance: samples against other samples' starts; None where it is not known.
    answers: of win rates: sample to the digest of its answer, empty for one that is missing. In a
    file each score is one half then, what these answers score against themselves.
    unscored: category to the samples that were measured and have no score, since a model that
    measures failed at them; empty in every file.
    """

    format: int
    case: str
    metric: str
    value: float
    n: int
    higher_is_better: bool
    model: dict[str, str]
    identity: dict[str, str]
    scores: dict[str, dict[str, float]]
    shares: bool = False
    failures: dict[str, int] = {}
    sizes: dict[str, int] = {}
    blocks: dict[str, dict[str, float]] = {}
    clusters: dict[str, str] = {}
    accepted: dict[str, str] = {}
    noise: Noise | None = None
    floor: float | None = None
    answers: dict[str, str] = {}
    unscored: dict[str, list[str]] = {}

    @property
    def key(self) -> CaseKey:
        """The case."""
        return CaseKey.parse(self.case)

    @property
    def label(self) -> str:
        """The metric's name in reports."""
        return self.metric

    @property
    def record(self) -> Measurement:
        """What files and reports keep of it."""
        return Measurement(*(getattr(self, name) for name in Measurement.__struct_fields__))

    @property
    def fresh(self) -> FreshMeasurement:
        """The measurement with its value and n made of its scores, to be compared with another.

        Raises ValueError or OverflowError where there is no score, or one that is not finite.
        """
        made = {"format", "case", "metric", "value", "n"}
        fields = {n: getattr(self, n) for n in self.__struct_fields__ if n not in made}
        return FreshMeasurement.of(key=self.key, label=self.metric, **fields)


_ADDED = {"references"}
"""Fields that earlier versions do not tell; they are compared where both identities have them."""


def differing_fields(before: Mapping[str, str], after: Mapping[str, str]) -> list[str]:
    """The fields in which two identities differ, sorted."""
    in_one = _ADDED - (before.keys() & after.keys())
    names = sorted((before.keys() | after.keys()) - in_one)
    return [name for name in names if before.get(name) != after.get(name)]


class FreshMeasurement(Measurement, frozen=True):
    """A measurement with what the process that made it knows beside, for its comparison.

    strata: category -> all samples that the case has there, measured yet or not; each is in a
    single category where the case counts every sample once. Empty where there are no answers.
    anchor_scores: the scores of the same battles against the anchor's answers, as `scores`.
    obstacles: why the battles could not be fought, a sentence each: the measurement is comparable
    with no baseline then.
    ends: the lowest and the highest that a score can be: bounds allow for them where there is none.
    blind: why a judge or a detector could see no drop here; None where nothing says so.
    anchor_blind: the same of the battles against the anchor's answers.
    redrawn: sample id and digest of an opposing answer, where the answer is that one but for
    rounding.
    """

    strata: Mapping[str, tuple[str, ...]] = {}
    anchor_scores: dict[str, dict[str, float]] = {}
    obstacles: tuple[str, ...] = ()
    ends: tuple[float, float] = (-1.0, 1.0)
    blind: Blindness | None = None
    anchor_blind: Blindness | None = None
    redrawn: AbstractSet[tuple[str, str]] = frozenset()

    @classmethod
    def of(
        cls,
        key: CaseKey,
        label: str,
        higher_is_better: bool,  # noqa: FBT001 - one of its fields
        scores: Scores,
        identity: Mapping[str, str],
        model: Mapping[str, str],
        **fields: Any,
    ) -> Self:
        """The measurement of a case with these scores, which are rounded, with their value and n.

        label: the metric's name in reports.
        fields: the others, by name.
        Raises ValueError where there is no score, or one that is not finite.
        """
        parts = {"scores": scores, "blocks": {}, "anchor_scores": {}}
        parts |= {name: fields[name] for name in parts.keys() & fields.keys()}
        numbers = [
            number
            for name in ("scores", "blocks")
            for part in parts[name].values()
            for number in part.values()
        ]
        if not (scores and all(scores.values()) and (np.abs(numbers) <= _LARGEST).all()):
            raise ValueError(f"{key}: a measurement needs a finite score for every sample")
        fields |= {
            name: {
                category: {name: rounded(value) for name, value in part.items()}
                for category, part in part.items()
            }
            for name, part in parts.items()
        }
        fields["floor"] = None if fields.get("floor") is None else rounded(fields["floor"])
        return cls(
            format=FORMAT,
            case=str(key),
            metric=label,
            value=value_of(fields["scores"]),
            n=sum((fields.get("sizes") or {c: len(part) for c, part in scores.items()}).values()),
            higher_is_better=higher_is_better,
            identity=dict(identity),
            model=dict(model),
            **fields,
        )


def value_of(scores: Scores) -> float:
    """The case's number: unweighted mean of the categories' means."""
    return round(mean_of_scores(scores), DECIMALS)
