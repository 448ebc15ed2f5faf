"""Division of a run's error among cases, and among the looks of a case at its samples."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import ceil, fsum, isfinite

FIRST_LOOK = 25

_LEAST_GROWTH = 1.25  # a look at hardly more samples costs error and shows nothing new


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


def look_sizes(most: int, first: int = FIRST_LOOK, growth: float = 2.0) -> tuple[int, ...]:
    """Numbers of samples to look at: first, twice as many, and so on, and at last the most.

    most, first: at least 1. growth: of each look over the one before it, at least 1.25.
    Returns sizes that rise by at least a quarter from look to look: (25, 50, 100, 200, 300) for
    300, and (25, 50, 110) for 110, where the last look replaces the one at 100.
    Raises ValueError for other numbers.
    """
    if growth < _LEAST_GROWTH:
        raise ValueError(f"looks grow by at least a quarter, got a factor of {growth}")
    if most < 1 or first < 1:
        raise ValueError(
            f"expected at least 1 sample at the first look and at most, got {first} and {most}"
        )
    sizes = []
    size = first
    while size * _LEAST_GROWTH <= most:
        sizes.append(size)
        size = ceil(size * growth)
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
    return (*[0.5 / (count - 1)] * (count - 1), 0.5)
