"""The samples of a case that reports show: their scores, and facts lost on the way."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import asdict, dataclass
from math import isnan

from pytest_cepbench.datasets.sample import SeedImage
from pytest_cepbench.errors import ImageError
from pytest_cepbench.evaluation.case_evaluation import EvaluatedCase
from pytest_cepbench.gate.measurement import Scores
from pytest_cepbench.metrics.fact_losses import FactSummary, KindSummary
from pytest_cepbench.report import (
    FactKindShown,
    FactsShown,
    FactTableShown,
    RoleLossShown,
)
from pytest_cepbench.store import Store

MOST_SAMPLES = 5
"""Samples that are named of a case that got worse."""

SHOWN_WHOLE = 3
"""The first of them, which are shown with their artifacts."""


@dataclass(frozen=True)
class ScoredSample:
    """A sample of a case with its scores.

    score: of this run.
    baseline: of the baseline, or of the anchor where that is the reference; None where the sample
    was not compared.
    """

    sample: str
    score: float
    baseline: float | None


def scored_sample(evaluated: EvaluatedCase, sample: str) -> ScoredSample | None:
    """A sample with its scores; None where the case has no score of it."""
    reference = evaluated.reference
    if evaluated.measurement.sizes:  # one score of a set
        return None
    score = _score(evaluated.paired_scores, sample)
    compared = reference is not None and sample in evaluated.differences
    before = _score(reference.scores, sample) if compared and reference is not None else None
    return None if score is None else ScoredSample(sample, score, before)


def _score(scores: Scores, sample: str) -> float | None:
    return next((part[sample] for part in scores.values() if sample in part), None)


def keep_image(source: SeedImage, digest: str, store: Store) -> None:
    """Put an image of the data set into the store, where reports find it."""
    if not store.image_path(digest).exists():
        with suppress(ImageError):  # changed since it was measured: the report goes without it
            store.put_image(source.load())


def shown_facts(summary: FactSummary) -> FactsShown:
    """The record of a summary, of built-in types."""
    return FactsShown(
        generations=list(summary.generations),
        precision=summary.precision,
        unanswered=summary.unanswered,
        every=_shown_kind(summary.every),
        kinds=[_shown_kind(kind) for kind in summary.kinds],
    )


def _shown_kind(summary: KindSummary) -> FactKindShown:
    shown = FactKindShown(
        kind=summary.kind,
        facts=summary.facts,
        losses=[RoleLossShown(**asdict(loss)) for loss in summary.losses],
        tables=[
            FactTableShown(pair.text, pair.picture, **asdict(pair.table)) for pair in summary.tables
        ],
    )
    found = summary.half_life
    if found is None:
        return shown
    return FactKindShown(
        kind=shown.kind,
        facts=shown.facts,
        curve=[None if isnan(share) else share for share in found.curve],
        last=found.last,
        half_life=found.value,
        low=found.low,
        high=found.high,
        losses=shown.losses,
        tables=shown.tables,
    )
