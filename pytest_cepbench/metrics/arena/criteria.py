"""Scores by criteria, summed up as OpenING's released table has them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean

_DIGITS = 2


def mean_of_rounded_means(
    scores: Mapping[str, Sequence[float]],
) -> tuple[float, dict[str, float]]:
    """The overall score, and the mean of each criterion, all with two digits.

    scores: criterion -> its scores, in [0, 10], at least one each. Criteria need not have equally
    many.
    The overall score is the mean of the rounded means, which is not the rounded mean of all scores.
    Source: OpenING's script summarize_GPT_scores.py.
    Raises ValueError where a criterion has no score.
    """
    lacking = [name for name, values in scores.items() if not values]
    if lacking or not scores:
        raise ValueError(
            f"at least one score of each criterion is expected, none of {', '.join(lacking)}"
        )
    means = {name: round(fmean(values), _DIGITS) for name, values in scores.items()}
    return round(fmean(means.values()), _DIGITS), means
