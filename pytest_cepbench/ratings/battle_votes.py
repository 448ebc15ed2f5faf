"""People's votes on pairs of answers, as verdicts on the battle that each item is."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from pytest_cepbench.artifacts.outcome import WINNERS, Winner
from pytest_cepbench.errors import DatasetError, unknown_name
from pytest_cepbench.files import digest_json
from pytest_cepbench.ratings.folder import Ratings, Votes
from pytest_cepbench.ratings.records import Item, Task, Vote

Rule = Literal["majority", "shares"]
"""majority: a side wins with more than half of the votes, all else is a tie. shares: the most
frequent verdict, with the share of each verdict as its probability."""

_A, _TIE_A, _TIE_B, _B = range(len(WINNERS))


def winner_of(vote: Vote) -> Winner:
    """A vote on a pair as a verdict in the item's own order: "A" is its first option."""
    place = _TIE_A if vote.tie else _A
    return WINNERS[place if vote.winner == "first" else _B - place]


def mirrored(winner: Winner) -> Winner:
    """The same verdict with the answers in the other order."""
    return WINNERS[_B - WINNERS.index(winner)]


@dataclass(frozen=True)
class BattleVotes:
    """The votes on one pair of answers that count.

    item: the pair.
    winners: annotator -> verdict in the item's own order; at least one.
    """

    item: Item
    winners: Mapping[str, Winner]

    @cached_property
    def shares(self) -> tuple[float, float, float, float]:
        """The share of each verdict, in the order of `WINNERS`; they sum to 1."""
        given = list(self.winners.values())
        a, tie_a, tie_b, b = (given.count(winner) / len(given) for winner in WINNERS)
        return a, tie_a, tie_b, b

    @property
    def score(self) -> float:
        """The first option's mean score in [0, 1], ties being one half."""
        a, tie_a, tie_b, _ = self.shares
        return a + (tie_a + tie_b) / 2

    def verdict(self, rule: Rule = "majority") -> Winner:
        """The verdict of all annotators together.

        A tie leans to the side that more votes lean to. Where they are as many, it leans to either,
        as the digest of both answers has it: to the same in both orders, not always to the first.
        """
        a, _, _, b = self.shares
        first = self._leans_first
        if rule == "majority":
            if max(a, b) > 1 / 2:  # more than half of the votes
                return "A" if a > b else "B"
            return "Tie(A)" if first else "Tie(B)"
        highest = max(self.shares)
        ordered = range(len(WINNERS)) if first else reversed(range(len(WINNERS)))
        return next(WINNERS[place] for place in ordered if self.shares[place] == highest)

    @property
    def _leans_first(self) -> bool:
        leaning = [WINNERS.index(winner) <= _TIE_A for winner in self.winners.values()]
        first, second = leaning.count(True), leaning.count(False)
        if first != second:
            return first > second
        sides = sorted(option.option for option in self.item.options)
        preferred = sides[int(digest_json(sides)[:8], 16) % 2]
        return preferred == self.item.options[0].option


def battle_votes(
    ratings: Ratings, votes: Votes, annotators: Collection[str] = ()
) -> dict[str, BattleVotes]:
    """Digest of each judged item of a study of pairs -> its votes, in the order of the items.

    Practice, attention and repeated items are left out.
    annotators: whose votes count; everybody's where empty.
    Raises DatasetError for a study of another kind and for an unknown annotator.
    """
    require_kind(ratings, "pair")
    check_annotators(ratings, annotators)
    winners: dict[str, dict[str, Winner]] = {}
    for vote in votes.answers():
        if not annotators or vote.annotator in annotators:
            winners.setdefault(vote.item, {})[vote.annotator] = winner_of(vote)
    return {
        digest: BattleVotes(item, dict(sorted(winners[digest].items())))
        for digest, item in study_items(ratings)
        if digest in winners
    }


def study_items(ratings: Ratings) -> Iterable[tuple[str, Item]]:
    """The items that are asked for their answers: none of practice, none whose answer is known."""
    return ((digest, item) for digest, item in ratings.items.items() if item.kind == "item")


def require_kind(ratings: Ratings, *kinds: Task) -> None:
    """Raise DatasetError for a study of another kind."""
    if ratings.study.kind not in kinds:
        raise DatasetError(
            f"{str(ratings.path)!r} holds ratings of the kind {ratings.study.kind!r}, and "
            f"{' or '.join(map(repr, kinds))} is expected here"
        )


def check_annotators(ratings: Ratings, annotators: Collection[str]) -> None:
    """Raise DatasetError for an annotator whom the study does not have."""
    for name in annotators:
        if name not in ratings.study.annotators:
            raise DatasetError(
                f"{ratings.path}: {unknown_name('annotator', name, ratings.study.annotators)}"
            )
