"""Division of a run's error among cases, of a case's among looks and the checkpoints of a series.

**Series.** Every checkpoint k of a series may be compared with every reference: the baseline that
it began with, another one from before it (j = 0), or an earlier checkpoint j that was accepted
since. The upper bound of each such pair is made at a share of alpha that depends on j and k alone,
and all shares add up to at most 1. So the probability that any of these bounds is ever wrong is at
most alpha, by Bonferroni's inequality. Nothing is assumed of how the pairs depend on each other:
all checkpoints are measured on the same samples, and which of them becomes the baseline is decided
by the same scores.

Source: alpha spending, or online Bonferroni (Tian and Ramdas, Online control of the familywise
error rate, 2021). Products of e-values are no alternative: they need evidence that is new given all
that was seen before, which the same samples do not give. Sums of weighted e-values need nothing
either (Vovk and Wang, E-values: calibration, combination and applications, 2021), and found drops
later (benchmarks/results/studies.md, "E-values").
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import fsum, isfinite

from pytest_cepbench.gate.statistics.constants import (
    EXPECTED_CHECKPOINTS,
    FIRST_LOOK,
    FIXED,
    LAST_LOOK,
    LEAST_GROWTH,
    RECENT,
)


def alpha_shares(weights: Mapping[str, float], alpha: float) -> Mapping[str, float]:
    """Each case's share of the error: alpha * w / sum of w.

    weights: case -> weight, above 0.
    alpha: error of the run, in (0, 1).
    Returns case -> share; their sum is alpha.
    By the union bound the run errs at most that often, however the cases depend on each other; and
    each share is known before anything is measured.
    Source: Bonferroni's inequality.
    Raises ValueError for other numbers.
    """
    _check(weights, alpha)
    whole = fsum(weights.values())
    return {case: alpha * weight / whole for case, weight in weights.items()}


def holm(
    rejects: Callable[[str, float], bool], weights: Mapping[str, float], alpha: float
) -> set[str]:
    """The cases that are rejected when all are judged together.

    rejects: whether the test of a case rejects at a level; what it rejects at one level it must
    reject at every higher one.
    weights: case -> weight, above 0.
    alpha: error of all together, in (0, 1).
    All cases that remain are tested at alpha * w / sum of the w that remain, until no more is
    rejected. The first round is the test at `alpha_shares`: what cases have rejected one by one is
    among the answer, so that showing both costs no further error.
    Source: Holm, A simple sequentially rejective multiple test procedure, 1979.
    Raises ValueError for other numbers.
    """
    _check(weights, alpha)
    rejected: set[str] = set()
    while rest := {case: w for case, w in weights.items() if case not in rejected}:
        more = {case for case, share in alpha_shares(rest, alpha).items() if rejects(case, share)}
        if not more:
            break
        rejected |= more
    return rejected


def _check(weights: Mapping[str, float], alpha: float) -> None:
    if not 0 < alpha < 1:
        raise ValueError(f"alpha is the error of the whole run, in (0, 1), got {alpha}")
    for case, weight in weights.items():
        if not (weight > 0 and isfinite(weight)):
            raise ValueError(f"the weight of {case!r} is {weight}: expected a number above 0")


def look_sizes(most: int) -> tuple[int, ...]:
    """Numbers of samples to look at: 25, twice as many, and so on, and at last the most.

    most: at least 1.
    Returns sizes that rise by at least a quarter from look to look: (25, 50, 100, 200, 300) for
    300, and (25, 50, 110) for 110, where the last look replaces the one at 100.
    Raises ValueError for another number.
    """
    if most < 1:
        raise ValueError(f"expected at least 1 sample, got {most}")
    sizes = []
    size = FIRST_LOOK
    while size * LEAST_GROWTH <= most:
        sizes.append(size)
        size *= 2
    return (*sizes, most)


def look_shares(count: int) -> tuple[float, ...]:
    """Share of the error that each of the looks has: half for the last, the rest in equal parts.

    count: looks, at least 1.
    Returns (count,) shares of sum 1.
    By the union bound the promise on alpha holds whatever the looks have to do with each other.
    Pocock's and O'Brien and Fleming's boundaries are less strict, but they are for sums of
    independent increments that are normal and of known variance; here an early look has 25 samples
    of unknown shape, in clusters, and its bounds may be of another kind than the last. Half for the
    last: a run that does not stop early pays little for having looked.
    Raises ValueError for fewer looks.
    """
    if count < 1:
        raise ValueError(f"expected at least 1 look, got {count}")
    if count == 1:
        return (1.0,)
    return (*[(1 - LAST_LOOK) / (count - 1)] * (count - 1), LAST_LOOK)


# -- checkpoints of a series -----------------------------------------------------------------------


def checkpoint_share(number: int, expected: int = EXPECTED_CHECKPOINTS) -> float:
    """Share of the error that the gate of a checkpoint has.

    number: of the checkpoint in its series, from 1.
    expected: checkpoints over which half of the error is spent, at least 1.
    Returns N / ((k + N - 1) (k + N)) for checkpoint k and N expected ones. The first K checkpoints
    have K / (K + N) together, all of them 1.
    Raises ValueError for other numbers.
    """
    return _telescoping(number, expected, "checkpoint")


def reference_share(number: int, reference: int | None) -> float:
    """Part of a checkpoint's share that its bound against one reference has.

    number: of the checkpoint, from 1.
    reference: number of the checkpoint that it is compared with; 0 for a model from before the
    series, None for the baseline that it began with.
    The parts of all references that a checkpoint can have add up to at most 1: half for the first
    baseline, half for the others, the nearest of which have most.
    Raises ValueError for a reference that is not earlier.
    """
    if reference is None:
        return FIXED
    if not 0 <= reference < number:
        raise ValueError(f"checkpoint {number} is compared with earlier ones, got {reference}")
    return (1 - FIXED) * _telescoping(number - reference, RECENT, "distance")


def _telescoping(index: int, half: int, what: str) -> float:
    if index < 1 or half < 1:
        raise ValueError(
            f"expected a {what} and a number of expected ones from 1 on, got {index} and {half}"
        )
    return half / ((index + half - 1) * (index + half))
