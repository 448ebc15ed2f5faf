"""Final labels of images: the majority of the model and the people who looked at them.

Source: MMGenBench, 3.3: labels of the model, checked by people, and voted on.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class FinalLabel:
    """The labels of an image.

    patterns: those that it has in the end, in the order of the closed list.
    annotators: people who looked at it.
    changed: whether they are others than the model gave.
    disputed: patterns on which not all who voted agree.
    """

    patterns: tuple[str, ...]
    annotators: int
    changed: bool
    disputed: tuple[str, ...]


def vote_labels(
    names: Sequence[str], model: Collection[str], people: Sequence[Collection[str]]
) -> FinalLabel:
    """Vote on every pattern of a closed list.

    names: the list. model: patterns that the model gave. people: those that each person gave.
    A pattern has one vote of the model and one of each person. Where as many are for it as against
    it, the majority of the people decides: then their number is odd, so that they have one.
    """
    patterns = tuple(name for name in names if _holds(name in model, [name in p for p in people]))
    disputed = tuple(
        name for name in names if len({name in labels for labels in (model, *people)}) > 1
    )
    changed = set(patterns) != set(model) & set(names)
    return FinalLabel(patterns, len(people), changed, disputed)


def _holds(model: bool, people: Sequence[bool]) -> bool:  # noqa: FBT001 - votes, one of each
    votes = int(model) + sum(people)
    against = 1 + len(people) - votes
    return votes > against if votes != against else sum(people) > len(people) / 2


def error_share(
    final: Mapping[str, Collection[str]], truth: Mapping[str, Collection[str]], names: Sequence[str]
) -> float:
    """Share of wrong labels over all images and patterns, in [0, 1].

    final, truth: image -> its patterns; of the images of both. Raises ValueError for none.
    """
    shared = final.keys() & truth.keys()
    if not shared or not names:
        raise ValueError("no image has both a label and a truth")
    wrong = sum((name in final[i]) != (name in truth[i]) for i in shared for name in names)
    return wrong / (len(shared) * len(names))
