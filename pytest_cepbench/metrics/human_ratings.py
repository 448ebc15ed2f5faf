"""Agreement of SIM with people who compared two captions of an image.

For studies of people's ratings, which `cepbench alignment` reads.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
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
        left, right, most = (Fraction(str(number)) for number in (first, second, margin))
    except ValueError:
        raise ValueError(
            f"expected finite similarities and margin, got {first}, {second} and {margin}"
        ) from None
    if most < 0:
        raise ValueError(f"expected a margin of at least 0, got {margin}")
    if abs(left - right) <= most:
        return "B"
    return "C1" if left > right else "C2"


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
    if len(predictions) != len(votes):
        raise ValueError(
            f"expected one prediction per item, got {len(predictions)} for {len(votes)} items"
        )
    known = get_args(Choice)
    for item, (choice, cast) in enumerate(zip(predictions, votes, strict=True)):
        if not cast or not {choice, *cast} <= set(known):
            raise ValueError(
                f"item {item}: expected votes of {known}, got {choice!r} against {list(cast)}"
            )
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
