"""A study while people work on it: what they are shown, and how their answers reach the disk."""

from __future__ import annotations

import fcntl
import hmac
import os
import secrets
from collections.abc import Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, Self

import msgspec

from pytest_cepbench.artifacts.outcome import ANSWER_ERRORS, AnswerError
from pytest_cepbench.errors import DatasetError, WriteError
from pytest_cepbench.escapes import one_line
from pytest_cepbench.files import (
    digest_json,
    digest_text,
    keep_out_of_git,
    read_regular,
    replace_small,
)
from pytest_cepbench.metrics.human_ratings import Grade
from pytest_cepbench.ratings.assignment import Assignment, Slot
from pytest_cepbench.ratings.folder import STUDY, LineFile, Ratings, counted_votes, read_votes
from pytest_cepbench.ratings.items import images_of
from pytest_cepbench.ratings.records import (
    Fields,
    Item,
    Study,
    Vote,
    VoteKind,
    fault_of,
    option_name,
    record_line,
    un_swapped,
)

MOST_WORDS = 499
"""Words of a description; "less than 500 words". Source: GenCeption, appendix."""

MOST_CHARACTERS = 20_000
"""Of a description, a note or a reason."""

LONGEST_SECONDS = 86_400.0

Key = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9-]{8,64}\Z")]
"""Made by a page for each answer, so that it is kept once."""

_Text = Annotated[str, msgspec.Meta(max_length=MOST_CHARACTERS)]


class SentAnswer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a page sends. Outputs and names are numbered from 0 as the page shows them.

    key: made by the page for this answer. slot: opaque name of what was shown.
    seconds: for which it was shown. browser: width and height of the window in pixels.
    errors: kinds of errors of the answers under A and B.
    grades: of each output. ranks: of each output, 1 the best; equal ranks are ties.
    ticked: numbers of names. added: numbers in the closed list of the study.
    """

    key: Key
    slot: str
    seconds: float = 0.0
    browser: tuple[int, ...] = ()
    note: _Text = ""
    skip: _Text = ""
    verdict: str = ""
    errors: dict[Literal["A", "B"], tuple[AnswerError, ...]] = {}
    grades: tuple[Grade, ...] = ()
    ranks: tuple[int, ...] = ()
    text: _Text = ""
    pasted: bool = False
    ticked: tuple[int, ...] = ()
    added: tuple[int, ...] = ()


def parse_answer(data: bytes) -> SentAnswer:
    """The answer in the body of a request. Raises DatasetError, in one line."""
    try:
        answer = msgspec.json.decode(data, type=SentAnswer)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise DatasetError(f"an answer that cannot be read: {one_line(str(error))}") from error
    if len(answer.browser) not in (0, 2):
        raise DatasetError("the size of a window is its width and its height")
    return answer


def make_vote(
    answer: SentAnswer,
    study: Study,
    item: Item,
    kind: VoteKind,
    shown: Sequence[str | int],
    **who: str,
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
        own = {} if answer.skip else _own(answer, study, item, shown)
        vote = Vote(**fields, **own)
        fault = fault_of(vote, study, item)
    except (IndexError, KeyError, TypeError) as error:
        raise DatasetError(
            f"an answer to another item than this: {type(error).__name__}"
        ) from error
    if fault:
        raise DatasetError(f"an answer that cannot be saved: {fault}")
    return vote


def _own(
    answer: SentAnswer, study: Study, item: Item, shown: Sequence[str | int]
) -> dict[str, Any]:
    """The fields of a vote that are those of its task alone."""
    match study.kind:
        case "pair" | "caption":
            meaning = un_swapped(study.kind, answer.verdict, shown)
            if meaning is None:
                raise DatasetError(
                    f"{one_line(answer.verdict, 40)!r} is no verdict of the task {study.kind}"
                )
            sides = dict(zip("AB", shown, strict=True))
            errors = {
                sides[letter]: tuple(kind for kind in ANSWER_ERRORS if kind in kinds)
                for letter, kinds in sorted(answer.errors.items())
                if kinds
            }
            winner, tie = meaning
            return {"verdict": answer.verdict, "winner": winner, "tie": tie, "errors": errors}
        case "grades":
            if not len(answer.grades) == len(answer.ranks) == len(shown):
                raise DatasetError(f"each of the {len(shown)} outputs needs a grade and a rank")
            numbers = [int(number) for number in shown]
            grades = sorted(zip(map(str, numbers), answer.grades, strict=True))
            places: dict[int, list[int]] = {}
            for number, rank in zip(numbers, answer.ranks, strict=True):
                places.setdefault(rank, []).append(number)
            ranking = tuple(
                options[0] if len(options) == 1 else tuple(sorted(options))
                for _, options in sorted(places.items())
            )
            return {"grades": dict(grades), "ranking": ranking}
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
                "added": tuple(study.names[n] for n in dict.fromkeys(answer.added) if n >= 0),
            }


class ShownItem(NamedTuple):
    """What a person is shown. slot: its opaque name. order: of its options."""

    slot: str
    item: Item
    order: tuple[str | int, ...]


class LiveStudy:
    """A study that one server has, from its folder.

    people: token in the address of a person -> their name.
    Raises DatasetError for a folder that cannot be used, and WriteError where it cannot be written
    or another server has it.
    """

    def __init__(self, ratings: Ratings) -> None:
        self.ratings = ratings
        study = ratings.study
        # Pages send numbers of names: one that shows another list is told so, and loads it anew.
        self._asked = f"{study.seed}{digest_json(study.names) if study.names else ''}"
        with ExitStack() as opened:
            opened.callback(os.close, _lock(ratings))
            key = _key(ratings.path / _SECRETS / "key")
            self.people = {
                hmac.new(key, name.encode(), sha256).hexdigest()[:32]: name
                for name in study.annotators
            }
            votes = read_votes(ratings)
            for annotator, path in votes.files.items():
                # Else there would be two files with votes of one person, which nothing can read.
                expected = ratings.vote_path(annotator)
                if path != expected:
                    raise DatasetError(
                        f"{path} has votes of {annotator!r}: move them to {expected.name}, and "
                        "start again"
                    )
            self.remarks = votes.remarks
            self._records = {name: list(votes.records.get(name, ())) for name in study.annotators}
            self._files = {name: LineFile(ratings.vote_path(name)) for name in study.annotators}
            for file in self._files.values():
                opened.callback(file.close)
            self._opened = opened.pop_all()
        counted = {
            id(vote) for own in self._records.values() for vote in counted_votes(own).values()
        }
        in_order = [v for own in self._records.values() for v in own if id(v) in counted]
        self.assignment = Assignment(study, ratings.items.values(), in_order)
        self._images = {
            self.image_name(digest): digest
            for item in ratings.items.values()
            for digest in images_of(item)
        }

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the files, and let another server have the study."""
        self._opened.close()

    def image_name(self, digest: str) -> str:
        """A name of an image that tells nothing, the same for the same image."""
        return digest_text(f"{self.ratings.study.seed} image {digest}")[:32]

    def image_bytes(self, name: str) -> bytes | None:
        """The file of an image; None for a name that is none. Raises DatasetError."""
        digest = self._images.get(name)
        if digest is None:
            return None
        try:
            return self.ratings.image_path(digest).read_bytes()
        except OSError as error:  # its path may name what is compared, and people are told this
            why = error.strerror or type(error).__name__
            raise DatasetError(f"an image cannot be read: {why}; tell the organizer") from error

    def upcoming(self, annotator: str) -> list[ShownItem]:
        """What a person is shown now, and next."""
        return [
            ShownItem(
                self._slot_name(annotator, slot),
                self.ratings.items[slot.item],
                self.assignment.shown(self.ratings.items[slot.item], annotator, slot.kind),
            )
            for slot in self.assignment.upcoming(annotator)
        ]

    def _slot_name(self, annotator: str, slot: Slot) -> str:
        words = (self._asked, "slot", annotator, slot.item, slot.kind)
        return digest_text("\0".join(words))[:32]

    def save(self, annotator: str, answer: SentAnswer) -> None:
        """Write an answer to the disk. An answer that is sent again is not written again.

        Raises DatasetError for what is no answer, and WriteError where it could not be written.
        """
        every = (
            Slot(item.item, kind)
            for item in self.ratings.items.values()
            for kind in ((item.kind, "repeat") if item.kind == "item" else (item.kind,))
        )
        slot = next((own for own in every if self._slot_name(annotator, own) == answer.slot), None)
        if slot is None:
            raise DatasetError("an answer to something that this study does not ask")
        item = self.ratings.items[slot.item]
        shown = self.assignment.shown(item, annotator, slot.kind)
        study = self.ratings.study
        vote = make_vote(answer, study, item, slot.kind, shown, annotator=annotator, at=_now())
        if all(vote.key != known.key for known in self._records[annotator]):
            self._append(vote)
            self.assignment.answer(vote)

    def undo(self, annotator: str, key: str) -> Fields | None:
        """Withdraw a person's last answer; None where there is none. Raises WriteError.

        The same key again withdraws nothing more.
        Returns the opaque name of its `slot`, and the `text` that they had written or `pasted`.
        """
        records = self._records[annotator]
        if all(vote.key != key for vote in records):
            slot = self.assignment.last(annotator)
            if slot is None:
                return None
            task = self.ratings.study.kind
            own: Fields = {"item": slot.item, "kind": slot.kind, "page": f"{task}/1"}
            self._append(Vote(task=task, annotator=annotator, key=key, at=_now(), undo=True, **own))
            self.assignment.withdraw(annotator)
        at = next(place for place, vote in enumerate(records) if vote.key == key)
        undone = records[at]
        vote = counted_votes(records[:at]).get((annotator, undone.item, undone.kind))
        slot_name = self._slot_name(annotator, Slot(undone.item, undone.kind))
        text, pasted = ("", False) if vote is None else (vote.text or "", bool(vote.pasted))
        return {"slot": slot_name, "text": text, "pasted": pasted}

    def _append(self, vote: Vote) -> None:
        self._files[vote.annotator].append(record_line(vote))
        self._records[vote.annotator].append(vote)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


_SECRETS = ".session"
"""In a study's folder: what its addresses are made of, kept out of version control."""


def _key(path: Path) -> bytes:
    """The key of a study, which is made where there is none; its owner alone can read it.

    One that is lost or was cut off gives people other addresses, and their votes stay.
    Raises WriteError.
    """
    try:
        key = read_regular(path, 32, links=False) if path.exists() else b""
        if len(key) < 32:
            key = secrets.token_bytes(32)
            path.parent.mkdir(mode=0o700, exist_ok=True)
            keep_out_of_git(path.parent, path)
            replace_small(path, key)
            path.chmod(0o600)
    except OSError as error:
        raise WriteError(f"{path} cannot be used: {error.strerror or error}") from error
    return key


def _lock(ratings: Ratings) -> int:
    """The lock of the one server that a study has; it ends with the process."""
    path = ratings.path / STUDY
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(file)
        if isinstance(error, BlockingIOError):
            why = f"another server has {str(ratings.path)!r}: end it, or use its addresses"
        else:
            why = f"{path} cannot be locked ({error.strerror or error}): use a local disk"
        raise WriteError(why) from error
    return file
