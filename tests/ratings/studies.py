"""Studies of generated pictures, whose better answer is the red one, by two models with names.

And votes of simulated people: as a page sends them, and as the server writes them into a folder.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from pytest_cepbench.artifacts import ImageArtifact
from pytest_cepbench.artifacts.outcome import Winner
from pytest_cepbench.ratings.assignment import Assignment
from pytest_cepbench.ratings.folder import LineFile, Ratings, read_ratings
from pytest_cepbench.ratings.items import begin_study, make_item
from pytest_cepbench.ratings.live_study import LiveStudy, SentAnswer, ShownItem, make_vote
from pytest_cepbench.ratings.records import (
    Item,
    Part,
    Source,
    Study,
    Task,
    Vote,
    VoteKind,
    record_line,
    un_swapped,
)
from pytest_cepbench.studies.rated_items import RatedItems

RED, BLUE = "SECRET-ALPHA-7b", "SECRET-BETA-13b"
"""The models; no page may name them."""

SAMPLE = "SECRET-SAMPLE"

HOSTILE = (
    "<script>window.hacked = 1</script>",
    '"><img src=x onerror="window.hacked = 2">',
    "\u202e",
)

NAMES = ("Color", "Count", '<b onclick="window.hacked = 3">Motion</b>', "Na\u200ctural")


def picture(number: int, channel: int = 0) -> ImageArtifact:
    """A dark area in one color, different for each number. channel: 0 is red, 2 is blue."""
    pixels = np.full((48, 64, 3), 40, np.uint8)
    pixels[..., channel] = 230
    pixels[10:38, 10:54] = 60  # what is seen to be cut where the tiles are shuffled
    pixels[:8, : 1 + number % 60] = 255 - number // 60
    return ImageArtifact(pixels)


def make_study(
    folder: Path, task: Task, count: int = 12, annotators: int = 2, **settings: Any
) -> Ratings:
    """A written study."""
    names = tuple(f"a{number + 1}" for number in range(annotators))
    closed = NAMES if task == "verify" else ()
    study = Study(kind=task, suite="toy", annotators=names, names=closed)
    study = msgspec.structs.replace(study, **{"attention": 0, "repeats": 0} | settings)
    items: list[Item] = []
    images: dict[str, ImageArtifact] = {}
    sources: list[Source] = []
    for number in range(count):
        item, made = _item(task, number)
        items.append(item)
        images |= made
        sources += [
            Source(item=item.item, option=option.option, model=model, sample=f"{SAMPLE}-{number}")
            for option, model in zip(item.options, (RED, BLUE), strict=False)
        ]
    begin_study(folder, study, items, images, sources)
    return read_ratings(folder)


def _item(task: Task, number: int) -> tuple[Item, dict[str, ImageArtifact]]:
    red, blue = picture(number, 0), picture(number, 2)
    images = {image.digest: image for image in (red, blue)}
    shown = Part(image=red.digest)
    texts = [Part(text=f"Question {number} {HOSTILE[number % 3]}")]
    if task == "pair":
        options = [
            [Part(text=f"It is {name}. {HOSTILE[number % 3]}"), Part(image=image.digest)]
            for name, image in (("red", red), ("blue", blue))
        ]
        return make_item(task, texts, options), images
    if task == "grades":
        green = picture(number, 1)
        images[green.digest] = green
        digests = (red.digest, blue.digest, green.digest)
        return make_item(task, texts, [[Part(image=digest)] for digest in digests]), images
    if task == "caption":
        captions = [
            [Part(text=f"{name} number {number} around a large dark area, {HOSTILE[number % 3]}")]
            for name in ("red", "blue")
        ]
        return make_item(task, [shown], captions), {red.digest: red}
    names = [[Part(text=name)] for name in NAMES[:3]] if task == "verify" else []
    return make_item(task, [shown], names), {red.digest: red}


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
    return make_vote(
        answer, ratings.study, item, kind, shown, annotator=annotator, at="2026-11-22T10:00:00.000Z"
    )
