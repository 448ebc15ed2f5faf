"""Ratings for other uses: descriptions as chains to replay, verdicts as battles of models."""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Collection, Iterable
from pathlib import Path

from pytest_cepbench.errors import DatasetError
from pytest_cepbench.metrics.arena.battles import JudgedBattle
from pytest_cepbench.ratings.battle_votes import (
    battle_votes,
    check_annotators,
    mirrored,
    require_kind,
)
from pytest_cepbench.ratings.folder import Ratings, Votes
from pytest_cepbench.ratings.records import Item, Source
from pytest_cepbench.replacement import replace_files

REPLAYED = "image-first/gen-1.csv"
"""Generation 1 of chains that begin with an image, in the layout `sdp` of `replay:`."""


def write_replay(ratings: Ratings, votes: Votes, out: Path, annotator: str | None) -> list[Path]:
    """Write people's descriptions as generation 1 of chains, which `replay:` reads.

    annotator: whose; where None and several people described an image, the one who is first by
        name, so that a folder has one description of each sample.
    Raises DatasetError for a study of another kind, for an unknown annotator and where there is no
    description; WriteError.
    """
    require_kind(ratings, "describe")
    check_annotators(ratings, [] if annotator is None else [annotator])
    texts: dict[str, str] = {}
    for vote in sorted(votes.answers(), key=lambda vote: vote.annotator):
        if annotator in (None, vote.annotator):
            texts.setdefault(vote.item, vote.text or "")
    rows = [
        (source.sample, texts[source.item])
        for source in ratings.sources
        if source.item in texts and source.sample
    ]
    if not rows:
        raise DatasetError(f"{ratings.path}: there is no description of a sample to write")
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(("filename", "caption"))
    writer.writerows(sorted(rows))
    path = out / REPLAYED
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_files(out, {path: stream.getvalue().encode()})
    return [path]


def people_battles(
    ratings: Ratings, votes: Votes, annotators: Iterable[str] = ()
) -> list[JudgedBattle]:
    """People's verdicts as battles of models over the questions of a suite. See `named_battles`."""
    return [battle for _, battle in named_battles(ratings, votes, annotators)]


def shown_battles(
    ratings: Ratings, votes: Votes, annotators: Collection[str] = ()
) -> list[JudgedBattle]:
    """The same battles, each in the order in which most of its annotators saw the answers.

    With it a leaderboard can tell the models from a preference for what is seen first. A battle
    that as many saw in either order stays in its own. Raises DatasetError as `named_battles`.
    """
    swapped: Counter[str] = Counter()
    for vote in votes.answers():
        if not annotators or vote.annotator in annotators:
            swapped[vote.item] += 1 if vote.shown[:1] == ("second",) else -1
    return [
        JudgedBattle(battle.question, battle.second, battle.first, mirrored(battle.winner))
        if swapped[item.item] > 0
        else battle
        for item, battle in named_battles(ratings, votes, annotators)
    ]


def named_battles(
    ratings: Ratings, votes: Votes, annotators: Iterable[str] = ()
) -> list[tuple[Item, JudgedBattle]]:
    """Each judged item, and it as a battle of models in its own order, by the majority of votes.

    annotators: whose votes count; everybody's where empty.
    Raises DatasetError as `battle_votes`, where nobody has judged a battle, and where the sources
    do not say which models answered.
    """
    judged = battle_votes(ratings, votes, list(annotators))
    if not judged:
        why = "; ".join(votes.remarks.lines)
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
        battle = JudgedBattle(question, first.model, second.model, own.verdict("majority"))
        battles.append((own.item, battle))
    return battles
