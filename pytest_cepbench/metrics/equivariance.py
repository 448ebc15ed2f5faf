"""Equivariance: an edit of the start should appear in the answer, and the rest of it stay.

The answer to the edited start, describe(edit(x)), is compared with the edited answer to the start,
edit(describe(x)); likewise for drawings. No truth is needed: a model that is wrong in the same way
twice is equivariant. But a model that does not look is not, since its answer does not change.
Idea: ACON (arXiv 2505.24211), which trains on such pairs; the scores are this project's own.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from math import fsum


@dataclass(frozen=True)
class EditScore:
    """How well an answer went along with an edit.

    followed: share of what the edit changes in the answer that did change so, in [0, 1].
    kept: share of what it leaves alone that stayed, in [0, 1].
    """

    followed: float
    kept: float

    @property
    def both(self) -> float:
        """Followed x kept, in [0, 1]: an answer must change, and only where it should."""
        return self.followed * self.kept


FAILED = EditScore(0.0, 0.0)
"""Of a pair of which one has no answer."""


def edit_score(
    before: AbstractSet[Hashable],
    expected: AbstractSet[Hashable] | None,
    after: AbstractSet[Hashable],
    *,
    changes: bool = True,
) -> EditScore:
    """The score of one pair.

    before: facts of the answer to the start, A.
    expected: facts of that answer after the edit, e(A); None where the edit cannot be made in it,
        such as an object recolored that the answer does not name.
    after: facts of the answer to the edited start, B.
    changes: whether the edit is one that answers must show, rather than one they must not.

    With C = A xor e(A), the facts that come or go by the edit, K = A and e(A), those that stay, and
    F = B - (A or e(A)), foreign ones:

        followed = |{f in C: f in B if and only if f in e(A)}| / |C|
        kept     = |K and B| / |K or F|, 1 where there are none

    An edit that finds nothing to change in the answer was not followed: followed = 0. Of one that
    answers must not show followed is 1, and kept says all. Range [0, 1]; 1 for an exact model.
    A constant answer has followed = 0 (where the edit must be seen). The chance level is the same
    score against B of an unrelated pair: see `chance_level`.
    """
    if expected is None:
        return FAILED
    changed, stays = before ^ expected, before & expected
    foreign = after - (before | expected)
    followed = 0.0 if changes else 1.0
    if changed:
        followed = sum((fact in after) == (fact in expected) for fact in changed) / len(changed)
    rest = len(stays) + len(foreign)
    return EditScore(followed, len(stays & after) / rest if rest else 1.0)


@dataclass(frozen=True)
class EditedFacts:
    """The facts of one pair; `before`, `expected` and `after` as in `edit_score`.

    unit: what the pair shares with others that are not independent of it.
    """

    unit: Hashable
    before: AbstractSet[Hashable]
    expected: AbstractSet[Hashable] | None
    after: AbstractSet[Hashable]


_MOST_OTHERS = 64


def chance_level(
    pairs: Sequence[EditedFacts], score: Callable[[EditScore], float], *, changes: bool = True
) -> float | None:
    """What chance gives: the mean score of each pair with the edited answer of another pair.

    pairs: where all are of one unit, None is returned. Of more than 64 others as many are taken, at
    equal distances in the order that is given.
    score: which number of a pair is meant.
    """
    scores = [
        score(edit_score(own.before, own.expected, other.after, changes=changes))
        for place, own in enumerate(pairs)
        for other in _others(pairs, place)
    ]
    return fsum(scores) / len(scores) if scores else None


def _others(pairs: Sequence[EditedFacts], place: int) -> Sequence[EditedFacts]:
    ring = (*pairs[place + 1 :], *pairs[:place])
    others = [other for other in ring if other.unit != pairs[place].unit]
    if len(others) <= _MOST_OTHERS:
        return others
    return [others[k * len(others) // _MOST_OTHERS] for k in range(_MOST_OTHERS)]
