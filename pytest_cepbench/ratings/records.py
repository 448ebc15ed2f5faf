"""The records of a ratings folder: a study, its items, what people answered.

Pure data. A line of a file is one record, and `v` is the version of its form. Contents are named by
digests, so that no record says which model made what: only a `Source` does, which is never served.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, get_args

import msgspec

from pytest_cepbench.artifacts.outcome import AnswerError
from pytest_cepbench.files import digest_json
from pytest_cepbench.metrics.human_ratings import Grade

FORMAT = 2
"""Version of all records; raised when a field changes its meaning."""

Task = Literal["pair", "grades", "caption", "describe", "verify"]
"""What people are asked. pair: which of two answers is better (OpenING, 4.2). grades: Good, Medium
or Poor for each output, and a ranking of all (SDP, 3.3). caption: which of two captions of an image
is better (MMGenBench, C.4). describe: a description of an image (GenCeption, 3.4). verify: which of
the names fit the image (MMGenBench, 3.3)."""

TASKS: tuple[Task, ...] = get_args(Task)

ItemKind = Literal["item", "attention"]
"""Of an item: one of the study, or a hidden one whose answer is known."""

VoteKind = Literal["item", "attention", "repeat"]
"""Of a vote; a repeat is an item that the annotator has judged before."""

Side = Literal["first", "second"]

Fields = dict[str, Any]


class Part(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """A piece of a question or of an answer: a text or an image, never both.

    image: digest of its pixels.
    """

    text: str | None = None
    image: str | None = None

    def __post_init__(self) -> None:
        if (self.text is None) == (self.image is None):
            raise ValueError("a part is a text or an image")


class Option(msgspec.Struct, frozen=True):
    """One of the things that are compared, graded or ticked. option: digest of its parts."""

    option: str
    parts: tuple[Part, ...]


class Item(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A question to people.

    item: its digest, as `item_digest` has it.
    known: the right answer of attention items, as `is_right` reads it.
    probability: with which it was drawn among all that could have been asked, in (0, 1].
    """

    v: int = FORMAT
    item: str
    kind: ItemKind = "item"
    question: tuple[Part, ...]
    options: tuple[Option, ...] = ()
    known: Fields = {}
    probability: float = 1.0


class Source(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Where an option of an item comes from; for tasks without options, where the item does.

    option: empty where it is of the item as a whole.
    model: its spec. fingerprint: of its content, where there is one.
    sample, suite: that it answered.
    """

    item: str
    option: str = ""
    model: str = ""
    fingerprint: str = ""
    sample: str = ""
    suite: str = ""


class Study(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked of whom.

    kind: the task of all items.
    suite: whose samples they are; empty for none.
    seed: of the orders in which people see items and options.
    created: time in ISO 8601.
    annotators: names of the people, who answer under an address each.
    overlap: how many people judge each item.
    attention: share of hidden items whose answer is known, in [0, 1).
    repeats: share of items that come again with other sides, in [0, 1).
    probability: share of the suite's battles that was drawn, in (0, 1].
    population: number of all battles it was drawn from, or the digest of their list.
    names: closed list from which people may add names to those offered; of the task `verify`.
    data: digest of items.jsonl.
    """

    v: int = FORMAT
    kind: Task
    suite: str = ""
    seed: int = 0
    created: str = ""
    annotators: tuple[str, ...]
    overlap: int = 1
    attention: float = 0.05
    repeats: float = 0.05
    probability: float = 1.0
    population: int | str = 0
    names: tuple[str, ...] = ()
    data: str = ""


class Vote(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One answer of one person, a skipped item, or the withdrawal of the answer before.

    key: made by the page for this answer; an answer that is sent twice is kept once.
    seconds: for which the item was shown.
    at: time of the server in ISO 8601; the order of records is that of their lines.
    page: name and version of the page. browser: width and height of its window in pixels.
    shown: order of the options on the page: first and second, or their numbers from 0.
    verdict: as pressed. winner, tie: in the item's own order.
    errors: side in the item's own order -> kinds of errors that its answer has; of pairs.
    grades: number of an option -> grade. ranking: numbers of options from the best on; options of
    the same rank are in a list of their own.
    skip: why there is no answer. undo: whether the last answer of this person to this item is
    withdrawn.
    """

    v: int = FORMAT
    task: Task
    item: str
    annotator: str
    key: str = ""
    seconds: float = 0.0
    at: str = ""
    page: str = ""
    browser: tuple[int, ...] = ()
    kind: VoteKind = "item"
    note: str = ""
    shown: tuple[str | int, ...] = ()
    verdict: str = ""
    winner: Literal["", "first", "second", "comparable"] = ""
    tie: bool | None = None
    errors: dict[Side, tuple[AnswerError, ...]] = {}
    grades: dict[str, Grade] = {}
    ranking: tuple[int | tuple[int, ...], ...] = ()
    text: str | None = None
    words: int | None = None
    pasted: bool | None = None
    ticked: tuple[str, ...] | None = None
    unticked: tuple[str, ...] | None = None
    added: tuple[str, ...] | None = None
    skip: str = ""
    undo: bool = False

    @property
    def places(self) -> list[tuple[int, ...]]:
        """The ranking, the options of each place together."""
        return [(place,) if isinstance(place, int) else place for place in self.ranking]


_ALWAYS = {
    Item: ("v", "item", "kind", "question", "options", "probability"),
    Source: ("item", "option", "model", "fingerprint", "sample", "suite"),
    Vote: (
        "v", "task", "item", "annotator", "key", "seconds", "at", "page", "browser", "kind", "note",
    ),
}  # fmt: skip
"""Fields that are written whatever they hold; others only where they say something."""


def record_line(record: Item | Source | Vote) -> bytes:
    """A record as its line of a file, with the line's end."""
    fields = msgspec.to_builtins(record)
    always = {name: getattr(record, name) for name in _ALWAYS[type(record)]}
    return msgspec.json.encode({**always, **fields}) + b"\n"


def option_digest(parts: Sequence[Part]) -> str:
    """Digest of the parts of an option, in order."""
    return digest_json(msgspec.to_builtins(parts))


def item_digest(task: Task, question: Sequence[Part], options: Sequence[str]) -> str:
    """Digest of an item. options: digests of its options, in its own order."""
    return digest_json([task, msgspec.to_builtins(question), list(options)])


def option_name(option: Option) -> str:
    """The text of an option, such as a name to tick."""
    return "\n".join(part.text for part in option.parts if part.text is not None)


def fault_of(vote: Vote, study: Study, item: Item) -> str:
    """Why a vote is no answer to its item; empty where it is one."""
    if vote.task != study.kind:
        return f"it answers the task {vote.task!r}, and the study asks {study.kind!r}"
    if vote.annotator not in study.annotators:
        return f"{vote.annotator!r} is none of the study's annotators"
    if vote.kind != item.kind and (vote.kind, item.kind) != ("repeat", "item"):
        return f"it is of the kind {vote.kind!r}, and its item of the kind {item.kind!r}"
    if vote.undo or vote.skip:
        return ""
    if vote.errors and vote.task != "pair":
        return "errors are told of pairs of answers"
    fault = ""
    match vote.task:
        case "pair" | "caption":
            if sorted(map(str, vote.shown)) != ["first", "second"]:
                fault = "shown has to be first and second, in the order of the page"
            elif un_swapped(vote.task, vote.verdict, vote.shown) != (vote.winner, vote.tie):
                fault = "verdict, shown and winner contradict each other"
        case "grades":
            numbers = range(len(item.options))
            if set(vote.grades) != set(map(str, numbers)):
                fault = f"each of the {len(numbers)} options needs a grade"
            elif sorted(option for place in vote.places for option in place) != list(numbers):
                fault = f"each of the {len(numbers)} options needs one place in the ranking"
        case "describe" if not (vote.text or "").strip():
            fault = "a description has at least a word"
        case "verify":
            offered = [option_name(option) for option in item.options]
            if sorted([*(vote.ticked or ()), *(vote.unticked or ())]) != sorted(offered):
                fault = "each offered name is either ticked or unticked"
            elif not set(vote.added or ()) <= set(study.names) - set(offered):
                fault = "an added name is not in the closed list"
    return fault


def un_swapped(
    task: Task, verdict: str, shown: Sequence[str | int]
) -> tuple[str, bool | None] | None:
    """Winner in the item's own order, and whether it is a tie; None for no verdict of the task.

    task: pair or caption; the latter has no ties, and `comparable` in the place of a winner.
    verdict: as pressed, of the sides as they were shown.
    """
    match task, verdict:
        case ("pair", "A" | "Tie(A)") | ("caption", "C1"):
            winner = str(shown[0])
        case ("pair", "B" | "Tie(B)") | ("caption", "C2"):
            winner = str(shown[1])
        case "caption", "B":
            winner = "comparable"
        case _:
            return None
    return winner, verdict.startswith("Tie") if task == "pair" else None
