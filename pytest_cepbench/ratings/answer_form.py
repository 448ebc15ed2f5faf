"""An answer as a page sends it, which is untrusted, and the vote that it becomes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import msgspec

from pytest_cepbench.errors import DatasetError
from pytest_cepbench.escapes import one_line
from pytest_cepbench.ratings.records import (
    Fields,
    Grade,
    Item,
    Study,
    Task,
    Vote,
    VoteKind,
    fault_of,
    option_name,
    un_swapped,
)

MOST_WORDS = 499
"""Words of a description; "less than 500 words". Source: GenCeption, appendix."""

MOST_CHARACTERS = 20_000
"""Of a description or a note."""

LONGEST_SECONDS = 86_400.0

_Key = re.compile(r"[A-Za-z0-9-]{8,64}")


class Answer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a page sends. Outputs and names are numbered from 0 as the page shows them.

    key: made by the page for this answer. slot: opaque name of what was shown.
    seconds: for which it was shown. browser: width and height of the window in pixels.
    grades: of each output. ranks: of each output, 1 the best; equal ranks are ties.
    ticked: numbers of names. added: names of the closed list.
    """

    key: str
    slot: str
    seconds: float = 0.0
    browser: tuple[int, ...] = ()
    note: str = ""
    skip: str = ""
    verdict: str = ""
    grades: tuple[Grade, ...] = ()
    ranks: tuple[int, ...] = ()
    text: str = ""
    pasted: bool = False
    ticked: tuple[int, ...] = ()
    added: tuple[str, ...] = ()


def parse_answer(data: bytes) -> Answer:
    """The answer in the body of a request. Raises DatasetError, in one line."""
    try:
        answer = msgspec.json.decode(data, type=Answer)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise DatasetError(f"an answer that cannot be read: {one_line(str(error))}") from error
    if not _Key.fullmatch(answer.key):
        raise DatasetError("an answer has a key of 8 to 64 letters, digits and '-'")
    if len(answer.browser) not in (0, 2):
        raise DatasetError("the size of a window is its width and its height")
    if max(len(answer.text), len(answer.note), len(answer.skip)) > MOST_CHARACTERS:
        raise DatasetError(f"a text has more than {MOST_CHARACTERS:,} characters")
    return answer


def form_of(vote: Vote, item: Item) -> Fields:
    """What a person had filled in for a vote, in the terms of the page: `make_vote` backwards."""
    form: Fields = {"note": vote.note}
    if vote.skip:
        return form
    match vote.task:
        case "pair" | "caption":
            form["verdict"] = vote.verdict
        case "grades":
            ranks = {
                number: rank
                for rank, place in enumerate(vote.ranking, 1)
                for number in ((place,) if isinstance(place, int) else place)
            }
            form["grades"] = [vote.grades[str(number)] for number in vote.shown]
            form["ranks"] = [ranks[int(number)] for number in vote.shown]
        case "describe":
            form |= {"text": vote.text or "", "pasted": bool(vote.pasted)}
        case "verify":
            names = [option_name(option) for option in item.options]
            form["ticked"] = [names.index(name) for name in vote.ticked or ()]
            form["added"] = list(vote.added or ())
    return form


def make_vote(
    answer: Answer, study: Study, item: Item, kind: VoteKind, shown: Sequence[str | int], **who: str
) -> Vote:
    """The vote of an answer.

    shown: the order of the options on the page.
    who: annotator, and the time as `at`.
    Raises DatasetError, in one line, for an answer that is none to this item.
    """
    fields: Fields = {
        "task": study.kind, "item": item.item, "kind": kind, "key": answer.key,
        "seconds": round(min(max(answer.seconds, 0.0), LONGEST_SECONDS), 2),
        "page": f"{study.kind}/1", "browser": answer.browser, "note": answer.note,
        "shown": tuple(shown), "skip": answer.skip, **who,
    }  # fmt: skip
    try:
        vote = (
            Vote(**fields)
            if answer.skip
            else Vote(**fields, **_own(study.kind, answer, item, shown))
        )
        fault = fault_of(vote, study, item)
    except (IndexError, KeyError, TypeError) as error:
        raise DatasetError(
            f"an answer to another item than this: {type(error).__name__}"
        ) from error
    if fault:
        raise DatasetError(f"an answer that cannot be saved: {fault}")
    return vote


def _own(task: Task, answer: Answer, item: Item, shown: Sequence[str | int]) -> dict[str, Any]:
    """The fields of a vote that are those of its task alone."""
    match task:
        case "pair" | "caption":
            meaning = un_swapped(task, answer.verdict, shown)
            if meaning is None:
                raise DatasetError(
                    f"{one_line(answer.verdict, 40)!r} is no verdict of the task {task}"
                )
            return {"verdict": answer.verdict, "winner": meaning[0], "tie": meaning[1]}
        case "grades":
            return _grades(answer, [int(number) for number in shown])
        case "describe":
            words = len(answer.text.split())
            if words > MOST_WORDS:
                raise DatasetError(
                    f"a description has at most {MOST_WORDS} words, and this one {words}"
                )
            return {"text": answer.text, "words": words, "pasted": answer.pasted}
        case "verify":
            names = [option_name(option) for option in item.options]
            chosen = {names[number] for number in answer.ticked if number >= 0}
            return {
                "ticked": tuple(name for name in names if name in chosen),
                "unticked": tuple(name for name in names if name not in chosen),
                "added": tuple(dict.fromkeys(answer.added)),
            }


def _grades(answer: Answer, shown: Sequence[int]) -> dict[str, Any]:
    if not len(answer.grades) == len(answer.ranks) == len(shown):
        raise DatasetError(f"each of the {len(shown)} outputs needs a grade and a rank")
    grades = dict(sorted((str(n), grade) for n, grade in zip(shown, answer.grades, strict=True)))
    places: dict[int, list[int]] = {}
    for number, rank in zip(shown, answer.ranks, strict=True):
        places.setdefault(rank, []).append(number)
    ranking = tuple(
        options[0] if len(options) == 1 else tuple(sorted(options))
        for _, options in sorted(places.items())
    )
    return {"grades": grades, "ranking": ranking}
