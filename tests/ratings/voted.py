"""Votes of people, written into the folder of a study as the server writes them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from pytest_cepbench.artifacts import ImageArtifact
from pytest_cepbench.artifacts.outcome import Winner
from pytest_cepbench.ratings.folder import Ratings, VoteFile, read_ratings
from pytest_cepbench.ratings.items import write_study
from pytest_cepbench.ratings.records import Item, Study, Task, Vote, un_swapped
from pytest_cepbench.studies.rated_items import RatedItems

SIDES = ("first", "second")


def write_rated(
    folder: Path, rated: RatedItems, annotators: tuple[str, ...] = ("ada", "bob"), **more: Any
) -> Ratings:
    """A study of items that were made of runs, without practice and hidden checks."""
    study = Study(
        kind=rated.task,
        suite=rated.suite,
        annotators=annotators,
        overlap=len(annotators),
        share=1.0,
        practice=0,
        attention=0.0,
        repeats=0.0,
        probability=rated.probability,
        population=rated.population,
        **more,
    )
    write_study(folder, study, rated.items, rated.images, rated.sources)
    return read_ratings(folder)


def cast(ratings: Ratings, *votes: Vote) -> None:
    """Add votes to the files of their annotators, in this order."""
    for vote in votes:
        file = VoteFile(ratings.vote_path(vote.annotator))
        file.append(vote)
        file.close()


def side_vote(
    item: Item,
    annotator: str,
    verdict: str,
    *,
    task: Task = "pair",
    swapped: bool = False,
    **more: Any,
) -> Vote:
    """A vote on two sides, as pressed on a page that shows them in the item's order or swapped."""
    shown = SIDES[::-1] if swapped else SIDES
    result = un_swapped(task, verdict, shown)
    assert result is not None
    winner, tie = result
    return Vote(
        task=task,
        item=item.item,
        annotator=annotator,
        shown=shown,
        verdict=verdict,
        winner=winner,  # type: ignore[arg-type] # one of the words
        tie=tie,
        seconds=more.pop("seconds", 5.0),
        at=more.pop("at", "2026-11-22T10:00:00Z"),
        **more,
    )


def vote_all(
    ratings: Ratings, decide: Callable[[Item], Winner], annotators: Iterable[str] = ("ada", "bob")
) -> None:
    """Everybody votes on every pair; the second annotator sees all of them swapped."""
    flipped = {"A": "B", "Tie(A)": "Tie(B)", "Tie(B)": "Tie(A)", "B": "A"}
    for number, annotator in enumerate(annotators):
        for item in ratings.items.values():
            verdict = decide(item)
            pressed = flipped[verdict] if number % 2 else verdict
            cast(ratings, side_vote(item, annotator, pressed, swapped=bool(number % 2)))


def flat(number: int, channel: int = 0) -> ImageArtifact:
    """A picture of one color, different for each number."""
    import numpy as np

    pixels = np.full((24, 32, 3), 30, np.uint8)
    pixels[..., channel] = 220
    pixels[0, : 1 + number % 30] = 255 - number // 30
    return ImageArtifact(pixels)
