"""How a study stands: what each person has done, how they did on checks, how far people agree."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import combinations
from statistics import median

import numpy as np

from pytest_cepbench.metrics.judge_agreement import Distance, krippendorff_alpha
from pytest_cepbench.ratings.folder import Ratings, Votes
from pytest_cepbench.ratings.items import is_right
from pytest_cepbench.ratings.records import Vote
from pytest_cepbench.ratings.votes import SCALES, vote_table

# -- how annotators did on the hidden items: attention items, and items that came a second time ----


def attention_results(ratings: Ratings, votes: Votes) -> Iterator[tuple[Vote, bool]]:
    """Each answer to an attention item that counts, and whether it is the known one.

    A skipped one is left out: "broken image" is a sensible answer to an image whose tiles were
    shuffled.
    """
    for vote in votes.answers("attention"):
        yield vote, is_right(vote.task, ratings.items[vote.item].known, vote)


def repeat_results(votes: Votes) -> Iterator[tuple[Vote, bool]]:
    """Each answer to an item that came again, and whether it is the first answer once more.

    Items that were skipped at one of the two times are left out, and so are descriptions, which
    are not compared.
    """
    for vote in votes.answers("repeat"):
        first = votes.counted.get((vote.annotator, vote.item, "item"))
        if vote.task != "describe" and first is not None and not first.skip:
            # A tie counts for the side to which it leans.
            said = [
                (own.winner, own.grades, {*(own.ticked or ()), *(own.added or ())})
                for own in (first, vote)
            ]
            yield vote, said[0] == said[1]


LEAST_SHARED = 10
"""Items that several people judged, from which on their agreement is told."""

_LEAST_KNOWN, _RIGHT = 2, 0.75
"""Of an annotator's hidden items with a known answer: so many at least, and so many right."""


def doubtful_annotators(ratings: Ratings, votes: Votes) -> dict[str, str]:
    """Annotators whose answers decide nothing by default, and why.

    Those who are right on fewer than three of four hidden items whose answer is known, of two at
    least; and of the others those who agree with nobody: Krippendorff's alpha is at most 0 with
    each one with whom they share `LEAST_SHARED` judged items, of one at least.
    """
    doubts: dict[str, str] = {}
    for name, results in _by_annotator(attention_results(ratings, votes)).items():
        right = results.count(True)
        if len(results) >= _LEAST_KNOWN and right < _RIGHT * len(results):
            doubts[name] = f"right on {right} of {len(results)} items whose answer is known"
    by_name: dict[str, list[Vote]] = {}
    for vote in votes.answers():
        if vote.annotator not in doubts:
            by_name.setdefault(vote.annotator, []).append(vote)
    values: dict[str, list[float]] = {}
    for scale in SCALES[ratings.study.kind][:1]:  # ranks follow from grades; descriptions have none
        for pair in combinations(by_name, 2):
            table = vote_table(scale, [vote for name in pair for vote in by_name[name]], pair)
            both = np.isfinite(table.values).all(axis=0)
            if len(set(table.items[both])) >= LEAST_SHARED:
                distance: Distance = "ordinal" if scale.ordered else "nominal"
                alpha = krippendorff_alpha(table.values[:, both], distance)
                if alpha is not None:
                    for name in pair:
                        values.setdefault(name, []).append(alpha)
    for name, alphas in values.items():
        if max(alphas) <= 0:
            doubts[name] = f"agrees with nobody (alpha {max(alphas):.2f} at most)"
    return doubts


@dataclass(frozen=True)
class AnnotatorSummary:
    """What one person has done.

    votes: items that were judged. skipped: of these and of checks.
    seconds: median per judged item; None of none.
    attention: hidden checks answered right, and all that were answered.
    repeats: equal answers to items that came again, and all of them.
    """

    name: str
    votes: int
    skipped: int
    seconds: float | None
    attention: tuple[int, int]
    repeats: tuple[int, int]


def summarize_people(ratings: Ratings, votes: Votes) -> tuple[AnnotatorSummary, ...]:
    """What each person of a study has done, in the order of the study."""
    own: dict[str, list[Vote]] = {name: [] for name in ratings.study.annotators}
    for vote in votes.counted.values():
        own[vote.annotator].append(vote)
    attention = _by_annotator(attention_results(ratings, votes))
    repeats = _by_annotator(repeat_results(votes))
    people = []
    for name, given in own.items():
        judged = [vote for vote in given if vote.kind == "item" and not vote.skip]
        checks, again = attention.get(name, []), repeats.get(name, [])
        people.append(
            AnnotatorSummary(
                name=name,
                votes=len(judged),
                skipped=sum(bool(vote.skip) for vote in given),
                seconds=median(vote.seconds for vote in judged) if judged else None,
                attention=(sum(checks), len(checks)),
                repeats=(sum(again), len(again)),
            )
        )
    return tuple(people)


def _by_annotator(results: Iterable[tuple[Vote, bool]]) -> dict[str, list[bool]]:
    own: dict[str, list[bool]] = {}
    for vote, good in results:
        own.setdefault(vote.annotator, []).append(good)
    return own
