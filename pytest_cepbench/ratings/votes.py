"""People's votes in the forms that numbers are made of: verdicts, tables and scores."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

import numpy as np

from pytest_cepbench.artifacts.outcome import ANSWER_ERRORS, WINNERS, Winner
from pytest_cepbench.errors import DatasetError, unknown_name
from pytest_cepbench.files import digest_json
from pytest_cepbench.metrics.battles import JudgedBattle
from pytest_cepbench.metrics.human_ratings import GRADES, Choice, Grade, grade_score
from pytest_cepbench.metrics.judge_agreement import RatedThings
from pytest_cepbench.metrics.judge_card import mirror
from pytest_cepbench.ratings.folder import Ratings, Votes
from pytest_cepbench.ratings.records import Item, Source, Task, Vote

Rule = Literal["majority", "shares"]
"""majority: a side wins with more than half of the votes, all else is a tie. shares: the most
frequent verdict."""

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

    def verdict(self, rule: Rule = "majority") -> Winner:
        """The verdict of all annotators together.

        A tie leans to the side that more votes lean to. Where they are as many, it leans to either,
        as the digest of both answers has it: to the same in both orders, not always to the first.
        """
        given = list(self.winners.values())
        counts = {winner: given.count(winner) for winner in WINNERS}
        leaning = [WINNERS.index(winner) <= _TIE_A for winner in given]
        sides = sorted(option.option for option in self.item.options)
        first = sides[int(digest_json(sides)[:8], 16) % 2] == self.item.options[0].option
        if leaning.count(True) != leaning.count(False):
            first = leaning.count(True) > leaning.count(False)
        if rule == "majority":
            if 2 * max(counts["A"], counts["B"]) > len(given):
                return "A" if counts["A"] > counts["B"] else "B"
            return "Tie(A)" if first else "Tie(B)"
        ordered = WINNERS if first else WINNERS[::-1]
        return max(ordered, key=counts.__getitem__)  # the first of equals


def battle_votes(
    ratings: Ratings, votes: Votes, annotators: Collection[str] = ()
) -> dict[str, BattleVotes]:
    """Digest of each judged item of a study of pairs -> its votes, in the order of the items.

    Attention and repeated items are left out.
    annotators: whose votes count; everybody's where empty.
    Raises DatasetError for a study of another kind and for an unknown annotator.
    """
    if ratings.study.kind != "pair":
        raise DatasetError(
            f"{str(ratings.path)!r} holds ratings of the kind {ratings.study.kind!r}, and 'pair' "
            "is expected here"
        )
    check_annotators(ratings, annotators)
    winners: dict[str, dict[str, Winner]] = {}
    for vote in votes.answers():
        if not annotators or vote.annotator in annotators:
            winners.setdefault(vote.item, {})[vote.annotator] = winner_of(vote)
    return {
        digest: BattleVotes(item, dict(sorted(winners[digest].items())))
        for digest, item in ratings.asked.items()
        if digest in winners
    }


def check_annotators(ratings: Ratings, annotators: Collection[str]) -> None:
    """Raise DatasetError for an annotator whom the study does not have."""
    for name in annotators:
        if name not in ratings.study.annotators:
            raise DatasetError(
                f"{ratings.path}: {unknown_name('annotator', name, ratings.study.annotators)}"
            )


class VoteScale(NamedTuple):
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


def ranks(vote: Vote) -> dict[str, float]:
    """The rank of each option in a ranking, 1 for the best; equal options share their mean rank."""
    places: dict[str, float] = {}
    above = 0
    for options in vote.places:
        places |= {str(option): above + (len(options) + 1) / 2 for option in options}
        above += len(options)
    return places


SCALES: Mapping[Task, tuple[VoteScale, ...]] = {
    "pair": (
        VoteScale("verdicts", WINNERS, lambda vote: {"": float(WINNERS.index(winner_of(vote)))}),
    ),
    "caption": (
        VoteScale(
            "choices",
            get_args(Choice),
            lambda vote: {"": float(("first", "comparable", "second").index(vote.winner))},
        ),
    ),
    "grades": (
        VoteScale(
            "grades",
            GRADES,
            lambda vote: {n: float(GRADES.index(own)) for n, own in vote.grades.items()},
        ),
        VoteScale("ranks", (), ranks),
    ),
    "describe": (),
    "verify": (
        VoteScale(
            "names",
            ("unticked", "ticked"),
            lambda vote: (
                dict.fromkeys(vote.unticked or (), 0.0) | dict.fromkeys(vote.ticked or (), 1.0)
            ),
            ordered=False,
        ),
    ),
}
"""What the annotators of each task say; descriptions have no values to compare."""


def vote_table(scale: VoteScale, votes: Iterable[Vote], annotators: Sequence[str]) -> RatedThings:
    """What each annotator said on a scale, by votes that are answers, at most one for an item."""
    cells: dict[tuple[str, str], dict[str, float]] = {}
    for vote in votes:
        for thing, value in scale.read(vote).items():
            cells.setdefault((vote.item, thing), {})[vote.annotator] = value
    number = {item: place for place, item in enumerate(sorted({item for item, _ in cells}))}
    values = np.full((len(annotators), len(cells)), np.nan)
    for column, own in enumerate(cells.values()):
        for row, name in enumerate(annotators):
            values[row, column] = own.get(name, np.nan)
    owners = np.array([number[item] for item, _ in cells], np.int64)
    return RatedThings(values, owners)


def shown_battles(ratings: Ratings, votes: Votes) -> list[JudgedBattle]:
    """The same battles, each in the order in which most of its annotators saw the answers.

    With it a leaderboard can tell the models from a preference for what is seen first. A battle
    that as many saw in either order stays in its own. Raises DatasetError as `named_battles`.
    """
    swapped: Counter[str] = Counter()
    for vote in votes.answers():
        swapped[vote.item] += 1 if vote.shown[:1] == ("second",) else -1
    battles = named_battles(ratings, votes)
    return [mirror(battle) if swapped[item.item] > 0 else battle for item, battle in battles]


def named_battles(ratings: Ratings, votes: Votes) -> list[tuple[Item, JudgedBattle]]:
    """Each judged item, and it as a battle of models in its own order, by the majority of votes.

    An answer has the errors that more than half of them told.
    Raises DatasetError as `battle_votes`, where nobody has judged a battle, and where the sources
    do not say which models answered.
    """
    judged = battle_votes(ratings, votes)
    told: Counter[tuple[str, str, str]] = Counter()
    for vote in votes.answers():
        told.update((vote.item, side, kind) for side, own in vote.errors.items() for kind in own)
    if not judged:
        why = "; ".join(votes.remarks)
        raise DatasetError(
            f"{ratings.path}: nobody has judged a battle yet{f' ({why})' if why else ''}"
        )
    by_option: dict[tuple[str, str], Source] = {}
    for source in ratings.sources:
        by_option.setdefault((source.item, source.option), source)
    battles: list[tuple[Item, JudgedBattle]] = []
    for digest, own in judged.items():
        first, second = (by_option.get((digest, option.option)) for option in own.item.options)
        if first is None or second is None or first.model == second.model:
            raise DatasetError(
                f"{ratings.path}: its sources do not say which two models answered {digest[:16]}"
            )
        question = first.sample or digest
        errors = [
            tuple(k for k in ANSWER_ERRORS if told[digest, side, k] * 2 > len(own.winners))
            for side in ("first", "second")
        ]
        verdict = own.verdict("majority")
        battle = JudgedBattle(question, first.model, second.model, verdict, (errors[0], errors[1]))
        battles.append((own.item, battle))
    return battles


Section = Literal["understanding", "generation", "answer"]
"""Of a graded output: a text about an image, an image of a text, or anything with both. Source:
SDP, section 3.3, for the first two."""


class PeopleScore(NamedTuple):
    """What one person thinks of one output.

    item: digest of the item. sample, model, fingerprint: as of `Source`.
    score: in [0, 1]: of a comparison 1 where it is better and one half where both are alike; of a
        grade 0, one half or 1.
    rank: among the outputs of the item, 1 for the best; None where people did not rank.
    grade: None where people did not grade.
    """

    annotator: str
    item: str
    sample: str
    model: str
    fingerprint: str
    section: Section
    score: float
    rank: float | None = None
    grade: Grade | None = None


def people_scores(ratings: Ratings, votes: Votes) -> list[PeopleScore]:
    """Every vote on the outputs of models; attention and repeats are left out.

    Raises DatasetError for a study without models to compare, and where its sources are not there.
    """
    if ratings.study.kind not in ("pair", "caption", "grades"):
        raise DatasetError(
            f"{str(ratings.path)!r} holds ratings of the kind {ratings.study.kind!r}, in which no "
            "models are compared"
        )
    sources: dict[tuple[str, str], list[Source]] = {}
    for source in ratings.sources:
        sources.setdefault((source.item, source.option), []).append(source)
    if not sources:
        raise DatasetError(
            f"{str(ratings.path)!r} has no sources.jsonl, which says what each model made"
        )
    scores = []
    for vote in votes.answers():
        item, places = ratings.items[vote.item], ranks(vote)
        drawn = {part.text is None for option in item.options for part in option.parts}
        asked = {part.text is None for part in item.question}
        section: Section = "answer"
        if (drawn, asked) == ({False}, {True}):
            section = "understanding"
        elif (drawn, asked) == ({True}, {False}):
            section = "generation"
        for number, option in enumerate(item.options):
            grade: Grade | None = vote.grades.get(str(number))
            if grade is not None:
                score = grade_score(grade)
            elif vote.tie or vote.winner == "comparable":
                score = 0.5
            else:
                score = float(vote.winner == ("first", "second")[number])
            scores += [
                PeopleScore(
                    annotator=vote.annotator,
                    item=item.item,
                    sample=source.sample,
                    model=source.model,
                    fingerprint=source.fingerprint,
                    section=section,
                    score=score,
                    rank=places.get(str(number)),
                    grade=grade,
                )
                for source in sources.get((item.item, option.option), ())
            ]
    return scores
