"""The samples of a case as numbers: what each scored, and what it scored for the reference."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pytest_cepbench.artifacts.outcome import EVEN
from pytest_cepbench.gate.measurement import rounded
from pytest_cepbench.report.result import CaseResult


@dataclass(frozen=True)
class SampleValue:
    """A sample of a case.

    sample: its id.
    categories: those of the case that it belongs to; empty where they are not known.
    value: its score, in the case's metric; None where it is not known.
    baseline: the same of the reference, which is the baseline or the anchor; None where the sample
        was not compared.
    difference: of both, turned so that positive is better; None where it was not compared.
    """

    sample: str
    categories: tuple[str, ...]
    value: float | None
    baseline: float | None
    difference: float | None


def sample_values(result: CaseResult) -> list[SampleValue]:
    """The samples of a case, those that lost most first, then those that were not compared.

    Empty where the score is one of a whole set, and where the report does not have the scores.
    """
    categories = _categories(result)
    scores = _scores(result)
    sign = 1.0 if result.higher_is_better else -1.0

    def values(sample: str) -> SampleValue:
        value, difference = scores.get(sample), result.differences.get(sample)
        baseline = None
        if value is not None and difference is not None:
            baseline = rounded(value - sign * difference)
        return SampleValue(sample, categories.get(sample, ()), value, baseline, difference)

    compared = sorted(result.differences, key=lambda name: (result.differences[name], name))
    others = sorted(scores.keys() - result.differences.keys())
    return [values(sample) for sample in (*compared, *others)]


def battle_scores(result: CaseResult) -> Mapping[str, float]:
    """Sample -> its score in the battles of a case.

    The measurement has answers in place of scores: every accepted answer scores one half against
    itself, so that the differences tell what the new one scores.
    """
    sign = 1.0 if result.higher_is_better else -1.0
    return {name: rounded(EVEN + sign * d) for name, d in result.differences.items()}


def _scores(result: CaseResult) -> Mapping[str, float]:
    """Sample -> its score."""
    measured = result.measured
    if measured is None or measured.sizes:
        return {}
    if measured.answers:
        return battle_scores(result)
    return {name: score for part in measured.scores.values() for name, score in part.items()}


def _categories(result: CaseResult) -> Mapping[str, tuple[str, ...]]:
    if result.measured is None:
        return {}
    categories: dict[str, tuple[str, ...]] = {}
    for category, part in result.measured.scores.items():
        for sample in part:
            categories[sample] = (*categories.get(sample, ()), category)
    return categories
