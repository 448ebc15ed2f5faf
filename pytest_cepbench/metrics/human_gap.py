"""How far people are ahead of the best model, by category and group."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import fsum, isfinite


@dataclass(frozen=True)
class CategoryGap:
    """People against the best model in one category.

    human, best: their scores. models: who scored best, several when tied.
    percent: 100 * (human / best - 1), positive where people are ahead; None where the best score
    is not positive, because a share of it would have no meaning.
    """

    human: float
    best: float
    models: tuple[str, ...]
    percent: float | None


@dataclass(frozen=True)
class HumanGaps:
    """The gap of each category, and of each group in percent (None where a category has none)."""

    categories: Mapping[str, CategoryGap]
    groups: Mapping[str, float | None]


def human_gaps(
    human: Mapping[str, float],
    models: Mapping[str, Mapping[str, float]],
    groups: Mapping[str, Sequence[str]],
) -> HumanGaps:
    """The human gap of each category and group.

    human: category -> score, higher is better. models: model -> category -> score.
    groups: group -> its categories.
    A group's gap is the mean of its categories' gaps, and each category is compared with the model
    that is best there. The gap of the group means would be another number: 18.3 instead of 9.7
    percent for the visual-intensive categories.
    Source: GenCeption, Table 5 (GC@1 on five images per category; GenCeption calls it delta
    percent between human and best).
    Raises ValueError when there is no model, a model lacks a category, a score is not finite, or a
    group is empty or names a category that people did not do.
    """
    _check(human, models, groups)
    categories = {name: _gap(name, score, models) for name, score in human.items()}
    return HumanGaps(
        categories,
        {name: _mean([categories[one].percent for one in group]) for name, group in groups.items()},
    )


def _gap(category: str, human: float, models: Mapping[str, Mapping[str, float]]) -> CategoryGap:
    best = max(scores[category] for scores in models.values())
    leaders = tuple(name for name, scores in models.items() if scores[category] == best)
    return CategoryGap(human, best, leaders, 100 * (human / best - 1) if best > 0 else None)


def _mean(gaps: Sequence[float | None]) -> float | None:
    known = [gap for gap in gaps if gap is not None]
    return fsum(known) / len(known) if len(known) == len(gaps) else None


def _check(
    human: Mapping[str, float],
    models: Mapping[str, Mapping[str, float]],
    groups: Mapping[str, Sequence[str]],
) -> None:
    if not models:
        msg = "a human gap needs at least one model to compare people with"
        raise ValueError(msg)
    for who, scores in {"people": human, **models}.items():
        for category in human:
            if not isfinite(scores.get(category, float("nan"))):
                msg = (
                    f"expected a finite score of {who} in {category!r}, got {scores.get(category)}"
                )
                raise ValueError(msg)
    for group, members in groups.items():
        if not members or not set(members) <= set(human):
            msg = f"group {group!r} must name categories that people did, got {list(members)}"
            raise ValueError(msg)
