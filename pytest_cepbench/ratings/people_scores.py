"""What people think of each output of each model: scores, ranks and grades by sample."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from pytest_cepbench.errors import DatasetError
from pytest_cepbench.metrics.rating_alignment import Grade, grade_score
from pytest_cepbench.ratings.folder import Ratings, Votes
from pytest_cepbench.ratings.records import Item, Source, Vote
from pytest_cepbench.ratings.vote_table import ranks

Section = Literal["understanding", "generation", "answer"]
"""Of a graded output: a text about an image, an image of a text, or anything with both. Source:
SDP, section 3.3, for the first two."""


@dataclass(frozen=True)
class PeopleScore:
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
    """Every vote on the outputs of models; practice, attention and repeats are left out.

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
    return [
        score
        for vote in votes.answers()
        for score in _scores(vote, ratings.items[vote.item], sources)
    ]


def _scores(
    vote: Vote, item: Item, sources: Mapping[tuple[str, str], list[Source]]
) -> Iterator[PeopleScore]:
    places = ranks(vote)
    for number, option in enumerate(item.options):
        grade: Grade | None = vote.grades.get(str(number))
        score = _side_score(vote, number) if grade is None else grade_score(grade)
        for source in sources.get((item.item, option.option), ()):
            yield PeopleScore(
                annotator=vote.annotator,
                item=item.item,
                sample=source.sample,
                model=source.model,
                fingerprint=source.fingerprint,
                section=section_of(item),
                score=score,
                rank=places.get(str(number)),
                grade=grade,
            )


def _side_score(vote: Vote, number: int) -> float:
    if vote.tie or vote.winner == "comparable":
        return 0.5
    return float(vote.winner == ("first", "second")[number])


def section_of(item: Item) -> Section:
    """What the outputs of an item show of a model."""
    parts = {part.text is None for option in item.options for part in option.parts}
    asked = {part.text is None for part in item.question}
    if parts == {False} and asked == {True}:
        return "understanding"
    return "generation" if parts == {True} and asked == {False} else "answer"
