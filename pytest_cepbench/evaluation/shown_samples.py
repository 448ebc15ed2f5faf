"""The samples of a case that reports show, and of suites of answers the answers themselves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from math import isnan

from msgspec.structs import replace

from pytest_cepbench.artifacts import Failure
from pytest_cepbench.artifacts.outcome import EVEN, Winner
from pytest_cepbench.chains.answers.battles import OrderedVerdict
from pytest_cepbench.datasets.sample import Dataset, SeedImage
from pytest_cepbench.errors import ImageError
from pytest_cepbench.evaluation.case_evaluation import EvaluatedCase
from pytest_cepbench.gate.compare import Loser
from pytest_cepbench.gate.measurement import Scores
from pytest_cepbench.measures.answer_data import AnswerExcerpt, ExcerptStep, OpponentName
from pytest_cepbench.metrics.fact_losses import FactSummary, KindSummary
from pytest_cepbench.report import (
    AnswerShown,
    FactKindShown,
    FactsShown,
    FactTableShown,
    RoleLossShown,
    StepShown,
)
from pytest_cepbench.store import Store
from pytest_cepbench.suites.answer_run import AnswerRun

MOST_SAMPLES = 5
"""Samples that are named of a case that got worse."""

SHOWN_WHOLE = 3
"""The first of them, which are shown with their artifacts."""

_OPPONENTS: Mapping[OpponentName, str] = {
    "accepted": "accepted answer",
    "anchor": "anchor's answer",
    "reference": "reference answer",
}


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


def shown_answers(
    run: AnswerRun,
    evaluated: EvaluatedCase,
    store: Store,
    *,
    accepted: bool,
    requested: Iterable[str] = (),
) -> list[AnswerShown]:
    """The answers to the questions of the samples that lost most, beside those that they battled.

    Of battles whose answers are accepted, the answers that replace others. Images that reports
    show are put into the store.

    requested: further samples whose answers are shown.
    """
    replacing = accepted and bool(evaluated.measurement.answers)
    losers = _changed(evaluated) if replacing else evaluated.judgement.losers
    samples = {
        loser.sample: ScoredSample(loser.sample, loser.candidate, loser.baseline)
        for loser in _varied(losers, run.dataset)[:MOST_SAMPLES]
    }
    named = set(requested)
    for sample in requested:
        scored = samples.get(sample) or scored_sample(evaluated, sample)
        if scored is not None:
            samples[sample] = scored
    anchor = not replacing and evaluated.lost_since_anchor
    answers: list[AnswerShown] = []
    for sample, scored in samples.items():
        excerpt = run.show(evaluated.case, sample, anchor=anchor)
        if excerpt is not None:
            whole = len(answers) < SHOWN_WHOLE or sample in named
            answers.append(_answer(scored, excerpt, store, whole=whole))
    return answers


def _varied(losers: Iterable[Loser], dataset: Dataset) -> list[Loser]:
    """Each sample once, those that lost alike in turn from every category.

    Battles have few different scores, so the first of many equal losers would be of one category.
    """
    homes = {sample.id: sample.categories[0] for sample in dataset.samples}
    by_id: dict[str, Loser] = {}
    for loser in losers:  # a sample may be in several categories
        by_id.setdefault(loser.sample, loser)
    counts: Counter[tuple[float, str]] = Counter()
    turns: dict[str, int] = {}
    for name, loser in by_id.items():
        alike = (loser.difference, homes[name])
        turns[name] = counts[alike]
        counts[alike] += 1
    return sorted(by_id.values(), key=lambda loser: (loser.difference, turns[loser.sample]))


def _changed(evaluated: EvaluatedCase) -> list[Loser]:
    """The samples whose answers are not the accepted ones, those that lost most first."""
    baseline, now = evaluated.references.baseline, evaluated.measurement
    if baseline is None or not now.answers:
        return []
    scores = {name: score for part in now.scores.values() for name, score in part.items()}
    changed = [
        Loser(sample, EVEN, scores[sample], scores[sample] - EVEN)
        for sample, digest in now.answers.items()
        if baseline.answers.get(sample, digest) != digest and sample in scores
    ]
    return sorted(changed, key=lambda loser: (loser.difference, loser.sample))


def _answer(
    scored: ScoredSample, excerpt: AnswerExcerpt, store: Store, *, whole: bool
) -> AnswerShown:
    failure = excerpt.failure
    shown = AnswerShown(
        sample=scored.sample,
        score=scored.score,
        baseline=scored.baseline,
        opponent="" if excerpt.opponent is None else _OPPONENTS[excerpt.opponent],
        verdicts=_verdicts(excerpt),
        failure=f"{failure.kind}: {failure.detail}" if failure else None,
        remark=_remark(excerpt),
    )
    if not whole:
        return shown
    return replace(
        shown,
        question=_steps(excerpt.question, store),
        steps=_steps(excerpt.steps, store),
        opposing=_steps(excerpt.opposing, store),
    )


def _steps(steps: Iterable[ExcerptStep], store: Store) -> list[StepShown]:
    shown = []
    for step in steps:
        if step.source is not None and step.image is not None:
            keep_image(step.source, step.image, store)
        shown.append(StepShown(step.text, step.image))
    return shown


def _remark(excerpt: AnswerExcerpt) -> str:
    if excerpt.opponent is None or not excerpt.opposing_lost:
        return excerpt.remark
    return f"the {_OPPONENTS[excerpt.opponent]} is not in the store"


def _verdicts(excerpt: AnswerExcerpt) -> list[str]:
    """The verdicts in the orders that were asked, or why no judge was asked."""
    if excerpt.outcome is None or excerpt.opponent is None:
        return []
    other = _OPPONENTS[excerpt.opponent]
    if excerpt.outcome.verdicts:
        return [_verdict(verdict, other) for verdict in excerpt.outcome.verdicts]
    if excerpt.steps and excerpt.opposing:
        return ["the answers are equal: no judge was asked"]
    if excerpt.opposing_lost:
        return []
    if not excerpt.steps and not excerpt.opposing:
        return ["both answers are missing: no judge was asked"]
    return [f"the {other if excerpt.steps else 'new answer'} is missing: no judge was asked"]


_FIRST: Mapping[Winner, bool] = {"A": True, "Tie(A)": True, "Tie(B)": False, "B": False}
"""Whether a verdict is for the answer that was shown first."""


def _verdict(verdict: OrderedVerdict, other: str) -> str:
    """A verdict in words. other: the opponent's answer."""
    order = ["new answer", other] if verdict.candidate_first else [other, "new answer"]
    if isinstance(verdict.winner, Failure):
        words = f"no verdict ({verdict.winner.kind}: {verdict.winner.detail})"
    else:
        preferred = order[0] if _FIRST[verdict.winner] else order[1]
        tie = verdict.winner.startswith("Tie")
        words = f"a tie that leans to the {preferred}" if tie else f"the {preferred} is better"
        if verdict.probabilities is not None:
            words = f"{words}, with probability {verdict.probabilities.highest:.2f}"
    return f"{order[0]} shown first: {words}"


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
