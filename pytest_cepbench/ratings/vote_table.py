"""Votes as tables of numbers: a row for each annotator, a column for each thing that is judged."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pytest_cepbench.artifacts.outcome import WINNERS
from pytest_cepbench.ratings.battle_votes import winner_of
from pytest_cepbench.ratings.records import CHOICES, Task, Vote

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

GRADES_RISING = ("poor", "medium", "good")


@dataclass(frozen=True)
class VoteScale:
    """What annotators say of each thing.

    name: in reports.
    labels: of the values, from 0 on; empty for numbers without names, such as ranks.
    read: gives the number of each thing that a vote judges, by the thing's name within its item.
    ordered: whether the distance of two values counts.
    """

    name: str
    labels: tuple[str, ...]
    read: Callable[[Vote], Mapping[str, float]]
    ordered: bool = True


def _verdict(vote: Vote) -> dict[str, float]:
    return {"": float(WINNERS.index(winner_of(vote)))}


def _choice(vote: Vote) -> dict[str, float]:
    return {"": float(("first", "comparable", "second").index(vote.winner))}


def _grades(vote: Vote) -> dict[str, float]:
    return {option: float(GRADES_RISING.index(grade)) for option, grade in vote.grades.items()}


def _ticks(vote: Vote) -> dict[str, float]:
    return dict.fromkeys(vote.unticked or (), 0.0) | dict.fromkeys(vote.ticked or (), 1.0)


def ranks(vote: Vote) -> dict[str, float]:
    """The rank of each option in a ranking, 1 for the best; equal options share their mean rank."""
    places: dict[str, float] = {}
    above = 0
    for place in vote.ranking:
        options = (place,) if isinstance(place, int) else place
        places |= {str(option): above + (len(options) + 1) / 2 for option in options}
        above += len(options)
    return places


SCALES: Mapping[Task, tuple[VoteScale, ...]] = {
    "pair": (VoteScale("verdicts", WINNERS, _verdict),),
    "caption": (VoteScale("choices", CHOICES, _choice),),
    "grades": (
        VoteScale("grades", GRADES_RISING, _grades),
        VoteScale("ranks", (), ranks),
    ),
    "describe": (),
    "verify": (VoteScale("names", ("unticked", "ticked"), _ticks, ordered=False),),
}
"""What the annotators of each task say; descriptions have no values to compare."""


@dataclass(frozen=True)
class VoteTable:
    """The votes of several annotators on one scale.

    annotators: in the order of the rows.
    values: (annotators, things), NaN where an annotator did not judge a thing.
    owners: (things,) number of the item that each belongs to.
    items: their digests, by that number.
    """

    scale: VoteScale
    annotators: tuple[str, ...]
    values: FloatArray
    owners: IntArray
    items: tuple[str, ...]


def vote_table(scale: VoteScale, votes: Iterable[Vote], annotators: Sequence[str]) -> VoteTable:
    """The table of votes that are answers, each annotator's at most one for an item."""
    cells: dict[tuple[str, str], dict[str, float]] = {}
    for vote in votes:
        for thing, value in scale.read(vote).items():
            cells.setdefault((vote.item, thing), {})[vote.annotator] = value
    items = tuple(sorted({item for item, _ in cells}))
    number = {item: place for place, item in enumerate(items)}
    values = np.full((len(annotators), len(cells)), np.nan)
    for column, own in enumerate(cells.values()):
        for row, name in enumerate(annotators):
            values[row, column] = own.get(name, np.nan)
    owners = np.array([number[item] for item, _ in cells], np.int64)
    return VoteTable(scale, tuple(annotators), values, owners, items)
