"""The interleaved answers of a case that reports show, beside those that they battled."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from pytest_cepbench.artifacts import Failure
from pytest_cepbench.artifacts.outcome import EVEN, Winner
from pytest_cepbench.chains.answers.battles import OrderedVerdict
from pytest_cepbench.datasets.sample import Dataset
from pytest_cepbench.evaluation.case_evaluation import EvaluatedCase
from pytest_cepbench.evaluation.shown_chains import (
    MOST_SAMPLES,
    SHOWN_WHOLE,
    keep_seed,
    scores_of,
)
from pytest_cepbench.gate.compare import Loser
from pytest_cepbench.measures.answer_data import AnswerExcerpt, ExcerptStep, OpponentName
from pytest_cepbench.report import AnswerShown, StepShown
from pytest_cepbench.store import Store
from pytest_cepbench.suites.answer_run import AnswerRun
from pytest_cepbench.suites.suite_run import SuiteRun

_OPPONENTS: Mapping[OpponentName, str] = {
    "accepted": "accepted answer",
    "anchor": "anchor's answer",
    "reference": "reference answer",
}


def shown_answers(
    run: SuiteRun,
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
    assert isinstance(run, AnswerRun)
    replacing = accepted and bool(evaluated.measurement.answers)
    losers = _changed(evaluated) if replacing else evaluated.losers
    samples: dict[str, tuple[float, float | None]] = {
        loser.sample: (loser.candidate, loser.baseline)
        for loser in _varied(losers, run.dataset)[:MOST_SAMPLES]
    }
    named = set(requested)
    for sample in requested:
        scored = samples.get(sample) or scores_of(evaluated, sample)
        if scored is not None:
            samples[sample] = scored
    anchor = not replacing and evaluated.lost_since_anchor
    answers: list[AnswerShown] = []
    for sample, scored in samples.items():
        excerpt = run.show(evaluated.case, sample, anchor=anchor)
        if excerpt is not None:
            whole = len(answers) < SHOWN_WHOLE or sample in named
            answers.append(_answer(sample, scored, excerpt, store, whole=whole))
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
    baseline, now = evaluated.baseline, evaluated.measurement
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
    sample: str,
    scores: tuple[float, float | None],
    excerpt: AnswerExcerpt,
    store: Store,
    *,
    whole: bool,
) -> AnswerShown:
    failure, remark = excerpt.failure, excerpt.remark
    if excerpt.opponent is not None and excerpt.opposing_lost:
        remark = f"the {_OPPONENTS[excerpt.opponent]} is not in the store"
    question, steps, opposing = (
        _steps(part, store) if whole else []
        for part in (excerpt.question, excerpt.steps, excerpt.opposing)
    )
    return AnswerShown(
        sample=sample,
        score=scores[0],
        baseline=scores[1],
        question=question,
        steps=steps,
        opponent="" if excerpt.opponent is None else _OPPONENTS[excerpt.opponent],
        opposing=opposing,
        verdicts=_verdicts(excerpt),
        failure=f"{failure.kind}: {failure.detail}" if failure else None,
        remark=remark,
    )


def _steps(steps: Iterable[ExcerptStep], store: Store) -> list[StepShown]:
    shown = []
    for step in steps:
        if step.source is not None and step.image is not None:
            keep_seed(step.source, step.image, store)
        shown.append(StepShown(step.text, step.image))
    return shown


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
