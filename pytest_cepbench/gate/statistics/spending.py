"""Spending of a case's error over a series of gates, however long it is and whenever one looks.

Every checkpoint k of a series may be compared with every reference: the baseline that it began
with, another one from before it (j = 0), or an earlier checkpoint j that was accepted since. The
upper bound of each such pair is made at a share of alpha that depends on j and k alone, and all
shares add up to at most 1. So the probability that any of these bounds is ever wrong is at most
alpha, by Bonferroni's inequality. Nothing is assumed of how the pairs depend on each other: all
checkpoints are measured on the same samples, and which of them becomes the baseline is decided by
the same scores.

Source: alpha spending, or online Bonferroni (Tian and Ramdas, Online control of the familywise
error rate, 2021). Products of e-values are no alternative: they need evidence that is new given all
that was seen before, which the same samples do not give. Sums of weighted e-values need nothing
either (Vovk and Wang, E-values: calibration, combination and applications, 2021), and find drops
later: `benchmarks/error_rates/trainings.py` measures both.
"""

from __future__ import annotations

EXPECTED_CHECKPOINTS = 40
"""Checkpoints over which half of the error is spent, where nothing else is said."""

LEAST_SHARE = 1e-5
"""The smallest share of a checkpoint: with less of alpha no drop is told from noise."""

_RECENT = 2
"""Checkpoints after a baseline over which half of the error of its comparisons is spent."""

_FIXED = 0.5
"""Of a checkpoint's share: for the baseline that the series began with."""


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
        return _FIXED
    if not 0 <= reference < number:
        raise ValueError(f"checkpoint {number} is compared with earlier ones, got {reference}")
    return (1 - _FIXED) * _telescoping(number - reference, _RECENT, "distance")


def _telescoping(index: int, half: int, what: str) -> float:
    if index < 1 or half < 1:
        raise ValueError(
            f"expected a {what} and a number of expected ones from 1 on, got {index} and {half}"
        )
    return half / ((index + half - 1) * (index + half))
