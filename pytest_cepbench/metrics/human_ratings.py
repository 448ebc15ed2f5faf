"""Metrics beside people: agreement of SIM with those who compared captions, and the human gap.

For studies of people's ratings and leaderboards that show people as a row; no suite has either yet.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import fsum, isfinite
from typing import Literal, get_args

Choice = Literal["C1", "B", "C2"]
"""Caption 1 is better, both are comparable, caption 2 is better."""

MARGIN = 0.01


@dataclass(frozen=True)
class HumanAgreement:
    """right of total decisions agree."""

    right: int
    total: int

    @property
    def share(self) -> float | None:
        """The share that agrees, in [0, 1]; None of no decision."""
        return self.right / self.total if self.total else None


@dataclass(frozen=True)
class Alignment:
    """Agreement of predictions with people.

    votes: with every single vote.
    majorities: with the choice of more than half of an item's votes, over the items that have one.
    without_majority: the items that have none; they are in votes but not in majorities.
    """

    items: int
    votes: HumanAgreement
    majorities: HumanAgreement
    without_majority: int


def predicted_choice(first: float, second: float, margin: float = MARGIN) -> Choice:
    """Choice between two captions by SIM: C1, C2, or B where they differ by at most the margin.

    first, second: SIM of the captions' images, finite.
    margin: at least 0.
    The comparison is exact on the decimal numbers as they are written: 0.51 and 0.50 differ by
    exactly 0.01 and are B, although their difference in floats is larger than 0.01. So the scores
    are taken here, not their difference.
    Source: MMGenBench, C.4 (the main text says "less than 0.01" for B; the appendix, which has the
    formula, includes 0.01).
    Raises ValueError for other numbers.
    """
    try:
        one, two, most = (Fraction(str(number)) for number in (first, second, margin))
    except ValueError:
        msg = f"expected finite similarities and margin, got {first}, {second} and {margin}"
        raise ValueError(msg) from None
    if most < 0:
        msg = f"expected a margin of at least 0, got {margin}"
        raise ValueError(msg)
    if abs(one - two) <= most:
        return "B"
    return "C1" if one > two else "C2"


def majority_choice(votes: Sequence[Choice]) -> Choice | None:
    """The choice of more than half of the votes (at least 5 of 9), or None where there is none."""
    if not votes:
        return None
    choice, count = Counter(votes).most_common(1)[0]
    return choice if 2 * count > len(votes) else None


def alignment(predictions: Sequence[Choice], votes: Sequence[Sequence[Choice]]) -> Alignment:
    """Agreement of predictions with the votes on the same items.

    predictions: one per item, see `predicted_choice`.
    votes: those of each item, at least one; items may have different numbers of votes.
    Source: MMGenBench, C.4, which divides the agreement with majorities by all 1,000 items and
    does not say what it did with items that have none; here they are left out and counted.
    Raises ValueError when the lengths differ, an item has no vote, or a choice is unknown.
    """
    _check(predictions, votes)
    right = sum(
        vote == choice for choice, cast in zip(predictions, votes, strict=True) for vote in cast
    )
    majorities = [majority_choice(cast) for cast in votes]
    decided = [
        choice == majority
        for choice, majority in zip(predictions, majorities, strict=True)
        if majority is not None
    ]
    return Alignment(
        items=len(votes),
        votes=HumanAgreement(right, sum(map(len, votes))),
        majorities=HumanAgreement(sum(decided), len(decided)),
        without_majority=majorities.count(None),
    )


def alignment_by_pattern(
    predictions: Sequence[Choice],
    votes: Sequence[Sequence[Choice]],
    patterns: Sequence[Collection[str]],
) -> dict[str, Alignment]:
    """Agreement within each pattern, by name; an item counts in every pattern that it has.

    patterns: those of each item, possibly none.
    Source: MMGenBench, C.4 and Table 2.
    Raises ValueError as `alignment` does, also when the lengths differ.
    """
    _check(predictions, votes)
    if len(patterns) != len(votes):
        msg = f"expected patterns of each of {len(votes)} items, got {len(patterns)}"
        raise ValueError(msg)
    members = {
        name: [i for i, own in enumerate(patterns) if name in own]
        for name in sorted({name for own in patterns for name in own})
    }
    return {
        name: alignment([predictions[i] for i in items], [votes[i] for i in items])
        for name, items in members.items()
    }


def _check(predictions: Sequence[Choice], votes: Sequence[Sequence[Choice]]) -> None:
    if len(predictions) != len(votes):
        msg = f"expected one prediction per item, got {len(predictions)} for {len(votes)} items"
        raise ValueError(msg)
    known = get_args(Choice)
    for item, (choice, cast) in enumerate(zip(predictions, votes, strict=True)):
        if not cast or not {choice, *cast} <= set(known):
            msg = f"item {item}: expected votes of {known}, got {choice!r} against {list(cast)}"
            raise ValueError(msg)


@dataclass(frozen=True)
class CategoryGap:
    """People against the best model in one category.

    human, best: their scores.
    models: who scored best, several when tied.
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

    human: category -> score, higher is better.
    models: model -> category -> score.
    groups: group -> its categories.
    A group's gap is the mean of its categories' gaps, and each category is compared with the model
    that is best there. The gap of the group means would be another number: 18.3 instead of 9.7
    percent for the visual-intensive categories.
    Source: GenCeption, Table 5 (GC@1 on five images per category; GenCeption calls it delta
    percent between human and best).
    Raises ValueError when there is no model, a model lacks a category, a score is not finite, or a
    group is empty or names a category without a human score.
    """
    _check_categories(human, models, groups)
    categories = {name: _gap(name, score, models) for name, score in human.items()}
    return HumanGaps(
        categories,
        {
            name: _mean([categories[category].percent for category in group])
            for name, group in groups.items()
        },
    )


def _gap(category: str, human: float, models: Mapping[str, Mapping[str, float]]) -> CategoryGap:
    best = max(scores[category] for scores in models.values())
    leaders = tuple(name for name, scores in models.items() if scores[category] == best)
    return CategoryGap(human, best, leaders, 100 * (human / best - 1) if best > 0 else None)


def _mean(gaps: Sequence[float | None]) -> float | None:
    known = [gap for gap in gaps if gap is not None]
    return fsum(known) / len(known) if len(known) == len(gaps) else None


def _check_categories(
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
            msg = f"group {group!r} must name categories with a human score, got {list(members)}"
            raise ValueError(msg)
