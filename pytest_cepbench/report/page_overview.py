"""What the page shows first: the worst samples, and causes that cases share."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from pytest_cepbench.gate import Verdict
from pytest_cepbench.report.anchors import case_anchor
from pytest_cepbench.report.number_format import counted
from pytest_cepbench.report.result import AnswerShown, CaseResult, ChainShown, chains_shown

MOST_SAMPLES = 5
"""Samples that are shown before everything else."""

_UNJUDGED = (Verdict.ERROR, Verdict.INCOMPLETE, Verdict.INCOMPARABLE, Verdict.NO_BASELINE)

_NUMBERS = re.compile(r"\d+")


@dataclass(frozen=True)
class WorstSample:
    """One of the samples of the run that lost most.

    result: the case that shows it.
    shown: its chain or answer there.
    loss: how much worse it is than the baseline's, in the metric's unit.
    """

    result: CaseResult
    shown: ChainShown | AnswerShown
    loss: float

    @property
    def is_whole(self) -> bool:
        """Whether its artifacts are shown, and not only its scores."""
        shown = self.shown
        return bool(shown.links if isinstance(shown, ChainShown) else shown.question)


@dataclass
class Cause:
    """Cases that have one reason not to be judged, or failures of the same kind.

    text: the reason, as the first of them gives it.
    """

    text: str
    results: list[CaseResult] = field(default_factory=list)

    @property
    def count(self) -> str:
        """How many cases there are, in words."""
        return counted(len(self.results), "case")


def worst_samples(results: Sequence[CaseResult]) -> list[WorstSample]:
    """The samples that lost most in tolerances of their cases, each once, at most five.

    Of cases that can fail the run and are not settled, those that fail it first. A sample that
    several cases show is taken from one that shows it whole.
    """
    by_sample: dict[tuple[str, str], list[WorstSample]] = {}
    for result in results:
        if result.primary and not result.settled:
            for sample in _losses(result):
                by_sample.setdefault((result.suite, sample.shown.sample), []).append(sample)
    clearest = [max(places, key=_clarity) for places in by_sample.values()]
    return sorted(clearest, key=_rank, reverse=True)[:MOST_SAMPLES]


def pictured_cases(results: Sequence[CaseResult]) -> frozenset[str]:
    """Names of the cases whose chains are shown, as `case_anchor` has them.

    All that are not settled, and of each suite the one that lost most of those that hold.
    """
    names = {case_anchor(result) for result in results if not result.settled}
    held: dict[str, list[CaseResult]] = {}
    for result in results:
        if result.settled and result.primary and _has_pictures(result):
            held.setdefault(result.suite, []).append(result)
    names |= {case_anchor(max(cases, key=_most_lost)) for cases in held.values()}
    return frozenset(names)


def worst_case(results: Sequence[CaseResult]) -> CaseResult | None:
    """The case whose details are open: of those that fail, the one that lost most tolerances.

    None where no case fails.
    """
    failing = [result for result in results if not result.passes]
    return max(failing, key=lambda result: (result.primary, _drop(result)), default=None)


def causes(results: Sequence[CaseResult]) -> list[Cause]:
    """Why cases were not judged, or have failed samples, the most frequent reason first.

    Reasons that differ in numbers alone are one.
    """
    by_text: dict[str, Cause] = {}
    for result in results:
        for text in _reasons(result):
            key = _NUMBERS.sub("#", text)
            by_text.setdefault(key, Cause(text)).results.append(result)
    return sorted(by_text.values(), key=lambda cause: -len(cause.results))


def _losses(result: CaseResult) -> Iterator[WorstSample]:
    sign = 1.0 if result.higher_is_better else -1.0
    samples: list[ChainShown | AnswerShown] = [*result.chains, *result.answers]
    for shown in samples:
        if shown.baseline is not None:
            loss = sign * (shown.baseline - shown.score)
            if loss > 0:
                yield WorstSample(result, shown, loss)


def _weight(sample: WorstSample) -> float:
    return sample.loss / (sample.result.tolerance or 1.0)


def _clarity(sample: WorstSample) -> tuple[bool, bool, float]:
    return not sample.result.passes, sample.is_whole, _weight(sample)


def _rank(sample: WorstSample) -> tuple[bool, float, bool]:
    return not sample.result.passes, _weight(sample), sample.is_whole


def _drop(result: CaseResult) -> float:
    if result.difference is None:
        return -1.0
    return max(0.0, -result.difference) / (result.tolerance or 1.0)


def _has_pictures(result: CaseResult) -> bool:
    chains, answers = chains_shown(result), result.answers
    return any(chain.links for chain in chains) or any(answer.question for answer in answers)


def _most_lost(result: CaseResult) -> tuple[bool, float]:
    """Of cases that hold: those of which a sample lost come first, then by the mean drop."""
    return bool(result.chains), _drop(result)


def _reasons(result: CaseResult) -> Iterator[str]:
    if result.refused:
        yield result.refused
    elif result.verdict in _UNJUDGED and result.reasons and not result.accepted:
        yield "; ".join(result.reasons)
    elif not result.settled:
        yield from (f"failed samples: {kind}" for kind in result.failures)
