"""Many cases at once: how an error is divided among them, and tests that use up what is left."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import fsum, isfinite


def alpha_shares(weights: Mapping[str, float], alpha: float) -> Mapping[str, float]:
    """Each case's share of the error: alpha * w / sum of w.

    weights: case -> weight, above 0. alpha: error of the run, in (0, 1). Returns case -> share;
    their sum is alpha. By the union bound the run errs at most that often, however the cases depend
    on each other; and each share is known before anything is measured.
    Source: Bonferroni's inequality. Raises ValueError for other numbers.
    """
    _check(weights, alpha)
    whole = fsum(weights.values())
    return {case: alpha * weight / whole for case, weight in weights.items()}


def holm(
    rejects: Callable[[str, float], bool], weights: Mapping[str, float], alpha: float
) -> set[str]:
    """The cases that are rejected when all are judged together.

    rejects: whether the test of a case rejects at a level; what it rejects at one level it must
    reject at every higher one. weights: case -> weight, above 0. alpha: error of all together, in
    (0, 1). All cases that remain are tested at alpha * w / sum of the w that remain, until no more
    is rejected. The first round is the test at `alpha_shares`: what cases have rejected one by one
    is among the answer, so that showing both costs no further error.
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
        msg = f"alpha is the error of the whole run, in (0, 1), got {alpha}"
        raise ValueError(msg)
    for case, weight in weights.items():
        if not (weight > 0 and isfinite(weight)):
            msg = f"the weight of {case!r} is {weight}: expected a number above 0"
            raise ValueError(msg)
