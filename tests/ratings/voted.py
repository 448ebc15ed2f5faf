"""Votes of simulated people: as a page sends them, and as the server writes them into a folder."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from pytest_cepbench.artifacts.outcome import Winner
from pytest_cepbench.ratings.assignment import Assignment
from pytest_cepbench.ratings.folder import LineFile, Ratings, read_ratings
from pytest_cepbench.ratings.items import begin_study
from pytest_cepbench.ratings.live_study import LiveStudy, SentAnswer, ShownItem, make_vote
from pytest_cepbench.ratings.records import (
    Item,
    Study,
    Task,
    Vote,
    VoteKind,
    record_line,
    un_swapped,
)
from pytest_cepbench.studies.rated_items import RatedItems

SIDES = ("first", "second")


def write_rated(
    folder: Path, rated: RatedItems, annotators: tuple[str, ...] = ("ada", "bob"), **more: Any
) -> Ratings:
    """A study of items that were made of runs, without hidden checks."""
    study = Study(
        kind=rated.task,
        suite=rated.suite,
        annotators=annotators,
        overlap=len(annotators),
        attention=0.0,
        repeats=0.0,
        probability=rated.probability,
        population=rated.population,
        **more,
    )
    begin_study(folder, study, rated.items, rated.images, rated.sources)
    return read_ratings(folder)


def cast(ratings: Ratings, *votes: Vote) -> None:
    """Add votes to the files of their annotators, in this order."""
    for vote in votes:
        file = LineFile(ratings.vote_path(vote.annotator))
        file.append(record_line(vote))
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


AT = "2026-11-22T10:00:00.000Z"


def answer_fields(shown: ShownItem) -> dict[str, Any]:
    """An answer for the first option, or for what every image of the studies shows."""
    if shown.order and isinstance(shown.order[0], str):
        at = shown.order.index("first")
        pair = len(shown.item.question) == 1 and shown.item.question[0].text is not None
        return {"verdict": ("A", "B")[at] if pair else ("C1", "C2")[at]}
    if shown.order:
        ranks = tuple(int(number) + 1 for number in shown.order)
        grades = tuple(("good", "medium", "poor")[min(rank, 3) - 1] for rank in ranks)
        return {"ranks": ranks, "grades": grades}
    return {"ticked": (0,)} if shown.item.options else {"text": "a red and a blue thing"}


def give(live: LiveStudy, annotator: str, **fields: Any) -> ShownItem | None:
    """Let a person answer what is shown; None where nothing is."""
    upcoming = live.upcoming(annotator)
    if not upcoming:
        return None
    shown = upcoming[0]
    key = f"key-{annotator}-{live.assignment.progress(annotator)[0]}"
    live.save(annotator, SentAnswer(key=key, slot=shown.slot, **(fields or answer_fields(shown))))
    return shown


def make(
    ratings: Ratings, item: Item, annotator: str = "a1", kind: VoteKind = "item", **fields: Any
) -> Vote:
    """The vote of a person for an item."""
    shown = Assignment(ratings.study, ratings.items.values()).shown(item, annotator, kind)
    own = fields or answer_fields(ShownItem("", item, shown))
    answer = SentAnswer(key=f"{annotator}-{item.item[:8]}-{kind}", slot="", seconds=3.5, **own)
    return make_vote(answer, ratings.study, item, kind, shown, annotator=annotator, at=AT)
