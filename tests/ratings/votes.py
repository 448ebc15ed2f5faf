"""Answers of simulated people: what a page would send for what is shown, and the vote of it."""

from __future__ import annotations

from typing import Any

from pytest_cepbench.ratings.assignment import Order
from pytest_cepbench.ratings.folder import Ratings
from pytest_cepbench.ratings.live_study import Answer, LiveStudy, Shown, make_vote
from pytest_cepbench.ratings.records import Item, Vote, VoteKind

AT = "2026-11-22T10:00:00.000Z"


def answer_fields(shown: Shown) -> dict[str, Any]:
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


def give(live: LiveStudy, annotator: str, **fields: Any) -> Shown | None:
    """Let a person answer what is shown; None where nothing is."""
    upcoming = live.upcoming(annotator)
    if not upcoming:
        return None
    shown = upcoming[0]
    key = f"key-{annotator}-{len(live.votes.records[annotator])}"
    live.save(annotator, Answer(key=key, slot=shown.slot, **(fields or answer_fields(shown))))
    return shown


def make(
    ratings: Ratings, item: Item, annotator: str = "a1", kind: VoteKind = "item", **fields: Any
) -> Vote:
    """The vote of a person for an item."""
    shown = Order(ratings.study, list(ratings.items.values())).shown(item, annotator, kind)
    own = fields or answer_fields(Shown("", item, kind, shown))
    answer = Answer(key=f"{annotator}-{item.item[:8]}-{kind}", slot="", seconds=3.5, **own)
    return make_vote(answer, ratings.study, item, kind, shown, annotator=annotator, at=AT)
