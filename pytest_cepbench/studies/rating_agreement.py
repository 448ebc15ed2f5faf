"""How far the annotators of a ratings folder agree: with one another, with themselves, with known
answers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from pytest_cepbench.artifacts.outcome import WINNERS
from pytest_cepbench.errors import DatasetError
from pytest_cepbench.metrics.judge_agreement import (
    VERDICTS,
    RatedThings,
    Reading,
    alpha_estimate,
    equal_votes_estimate,
    ratio_estimate,
)
from pytest_cepbench.metrics.uncertainty import DRAWS, Estimate
from pytest_cepbench.ratings.folder import Ratings, Votes
from pytest_cepbench.ratings.records import Vote
from pytest_cepbench.ratings.summary import (
    AnnotatorSummary,
    attention_results,
    repeat_results,
    summarize_people,
)
from pytest_cepbench.ratings.votes import SCALES, VoteTable, vote_table

_READINGS: tuple[tuple[Reading, str], ...] = (
    ("fdt", "equal votes, ties forced"),
    ("three_way", "equal votes, ties one verdict"),
)


@dataclass(frozen=True)
class Coefficient:
    """One number of agreement. name: in words. scale: what it is of. note: how to read it."""

    name: str
    scale: str
    estimate: Estimate
    note: str = ""


@dataclass(frozen=True)
class RatingAgreement:
    """The agreement of the annotators of one study.

    ratings: the folder. kind, suite: of the study.
    items: asked of people. judged: that have an answer. shared: that have several.
    remarks: what of the votes does not count, a sentence each.
    """

    ratings: str
    kind: str
    suite: str
    items: int
    judged: int
    shared: int
    coefficients: tuple[Coefficient, ...]
    annotators: tuple[AnnotatorSummary, ...]
    remarks: tuple[str, ...]


def measure_agreement(ratings: Ratings, votes: Votes, draws: int = DRAWS) -> RatingAgreement:
    """The agreement of all annotators who answered.

    draws: of the bootstrap by item, for each interval.
    Raises DatasetError where nobody has answered an item.
    """
    answers = votes.answers()
    if not answers:
        why = "; ".join(votes.remarks.lines)
        raise DatasetError(
            f"{ratings.path}: nobody has judged an item yet{f' ({why})' if why else ''}"
        )
    answered = {vote.annotator for vote in answers}
    names = [name for name in ratings.study.annotators if name in answered]
    tables = [vote_table(scale, answers, names) for scale in SCALES[ratings.study.kind]]
    coefficients = [each for table in tables for each in _coefficients(table, draws)]
    coefficients += _of_annotators(ratings, votes, draws)
    judged = Counter(vote.item for vote in answers)
    return RatingAgreement(
        ratings=str(ratings.path),
        kind=ratings.study.kind,
        suite=ratings.study.suite,
        items=sum(item.kind == "item" for item in ratings.items.values()),
        judged=len(judged),
        shared=sum(count > 1 for count in judged.values()),
        coefficients=tuple(coefficients),
        annotators=tuple(p for p in summarize_people(ratings, votes) if p.name in answered),
        remarks=tuple(votes.remarks.lines),
    )


def _coefficients(table: VoteTable, draws: int) -> Iterator[Coefficient]:
    rated, scale = RatedThings(table.values, table.owners), table.scale
    if scale.ordered:
        alpha = alpha_estimate(rated, "ordinal", draws)
        yield Coefficient("Krippendorff's alpha, ordinal", scale.name, alpha)
    if not scale.labels:  # ranks that are shared are no names
        return
    nominal = alpha_estimate(rated, "nominal", draws)
    yield Coefficient("Krippendorff's alpha, nominal", scale.name, nominal)
    if scale.labels != WINNERS:
        yield Coefficient("equal votes", scale.name, equal_votes_estimate(rated, draws))
        return
    given = np.isfinite(table.values)
    for reading, name in _READINGS:
        words = [VERDICTS[reading][winner] for winner in WINNERS]
        codes = np.array([sorted(set(words)).index(word) for word in words], float)
        values = np.full_like(table.values, np.nan)
        values[given] = codes[table.values[given].astype(int)]
        read = replace(rated, values=values)
        yield Coefficient(name, scale.name, equal_votes_estimate(read, draws))


def _of_annotators(ratings: Ratings, votes: Votes, draws: int) -> Iterator[Coefficient]:
    """Agreement with oneself and with known answers."""
    number = {item: place for place, item in enumerate(ratings.items)}

    def share(name: str, results: Iterable[tuple[Vote, bool]], note: str = "") -> Coefficient:
        right, total = np.zeros(len(number)), np.zeros(len(number))
        for vote, good in results:
            right[number[vote.item]] += good
            total[number[vote.item]] += 1
        return Coefficient(name, "votes", ratio_estimate(right, total, draws), note)

    yield share("the same answer again", repeat_results(votes), "items that came twice")
    yield share("attention checks passed", attention_results(ratings, votes), "hidden checks")
