"""A study while people work on it: what they are shown, and how their answers reach the disk."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Self

from pytest_cepbench.errors import DatasetError, WriteError
from pytest_cepbench.ratings.answer_form import Answer, form_of, make_vote
from pytest_cepbench.ratings.assignment import Assignment, Slot
from pytest_cepbench.ratings.consent import Consents
from pytest_cepbench.ratings.folder import (
    Ratings,
    Remarks,
    VoteFile,
    Votes,
    counted_votes,
    read_votes,
)
from pytest_cepbench.ratings.items import images_of
from pytest_cepbench.ratings.known_answers import WHY, expected_answer, is_right
from pytest_cepbench.ratings.records import Fields, Item, Vote, VoteKind
from pytest_cepbench.ratings.session import SESSION, Session, open_session


@dataclass(frozen=True)
class Shown:
    """What a person is shown.

    slot: its opaque name.
    order: of its options.
    """

    slot: str
    item: Item
    kind: VoteKind
    order: tuple[str | int, ...]


@dataclass(frozen=True)
class Feedback:
    """What a person who practises is told. right: whether the answer was the known one."""

    right: bool
    expected: str
    why: str


@dataclass(frozen=True)
class Undone:
    """An answer that a person took back.

    slot: the opaque name of what is shown again.
    form: what they had filled in.
    """

    slot: str
    form: Fields


class LiveStudy:
    """A study that one server has, from its folder.

    clock: seconds that only go forward, by which leases end.
    Raises DatasetError for a folder that cannot be used, and WriteError where it cannot be written
    or another server has it.
    """

    def __init__(self, ratings: Ratings, clock: Callable[[], float] = time.monotonic) -> None:
        self.ratings, self._clock = ratings, clock
        study = ratings.study
        self.session: Session = open_session(ratings.path, study.annotators)
        with ExitStack() as opened:
            opened.callback(os.close, _lock(ratings))
            votes = read_votes(ratings)
            _check_files(ratings, votes)
            self.remarks: Remarks = votes.remarks
            self.consents = Consents(ratings.path)
            self._records = {name: list(votes.records.get(name, ())) for name in study.annotators}
            self._files = {name: VoteFile(ratings.vote_path(name)) for name in study.annotators}
            for file in self._files.values():
                opened.callback(file.close)
            self._opened = opened.pop_all()
        self._keys = {name: {v.key for v in own if v.key} for name, own in self._records.items()}
        in_order = [vote for own in self._records.values() for vote in counted_in_order(own)]
        self.assignment = Assignment(study, list(ratings.items.values()), in_order)
        self.arrived: list[Vote] = sorted(in_order, key=lambda vote: vote.at)
        """Answers in the order in which they were given, those that were withdrawn among them."""
        self._images = {
            self.session.opaque("image", digest): digest
            for item in ratings.items.values()
            for digest in images_of(item)
        }
        self._slots: dict[str, dict[str, Slot]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the files, and let another server have the study."""
        self._opened.close()

    @property
    def votes(self) -> Votes:
        """All records so far."""
        records = {name: tuple(own) for name, own in self._records.items()}
        return Votes(records, self.remarks)

    @property
    def leased(self) -> int:
        """Items that people have on lease now."""
        return self.assignment.leased(self._clock())

    def image_name(self, digest: str) -> str:
        """The opaque name of an image."""
        return self.session.opaque("image", digest)

    def image_bytes(self, name: str) -> bytes | None:
        """The file of an image; None for a name that is none. Raises DatasetError."""
        digest = self._images.get(name)
        if digest is None:
            return None
        path = self.ratings.image_path(digest)
        try:
            return path.read_bytes()
        except OSError as error:
            raise DatasetError(f"{path} cannot be read: {error.strerror or error}") from error

    def upcoming(self, annotator: str) -> list[Shown]:
        """What a person is shown now, and next."""
        return [
            self._shown(annotator, slot)
            for slot in self.assignment.upcoming(annotator, self._clock())
        ]

    def _shown(self, annotator: str, slot: Slot) -> Shown:
        item = self.ratings.items[slot.item]
        order = self.assignment.shown(item, annotator, slot.kind)
        return Shown(self._slot_name(annotator, slot), item, slot.kind, order)

    def _slot_name(self, annotator: str, slot: Slot) -> str:
        name = self.session.opaque("slot", annotator, slot.item, slot.kind)
        self._slots.setdefault(annotator, {})[name] = slot
        return name

    def _slot(self, annotator: str, name: str) -> Slot:
        """The slot of an opaque name, which may be of an earlier server. Raises DatasetError."""
        known = self._slots.setdefault(annotator, {})
        if name not in known:
            for item in self.ratings.items.values():
                kinds: tuple[VoteKind, ...] = (
                    (item.kind, "repeat") if item.kind == "item" else (item.kind,)
                )
                for kind in kinds:
                    self._slot_name(annotator, Slot(item.item, kind))
        if name not in known:
            raise DatasetError("an answer to something that this study does not ask")
        return known[name]

    def save(self, annotator: str, answer: Answer) -> Feedback | None:
        """Write an answer to the disk. An answer that is sent again is not written again.

        Returns feedback where the person practises.
        Raises DatasetError for what is no answer, and WriteError where it could not be written.
        """
        slot = self._slot(annotator, answer.slot)
        item = self.ratings.items[slot.item]
        shown = self.assignment.shown(item, annotator, slot.kind)
        vote = make_vote(
            answer, self.ratings.study, item, slot.kind, shown, annotator=annotator, at=_now()
        )
        if answer.key not in self._keys[annotator]:
            self._append(vote)
            self.assignment.answer(vote)
            self.arrived.append(vote)
        if slot.kind != "practice":
            return None
        return Feedback(
            is_right(vote.task, item.known, vote),
            expected_answer(vote.task, item.known, shown, item),
            str(item.known.get(WHY, "")),
        )

    def undo(self, annotator: str, key: str) -> Undone | None:
        """Withdraw a person's last answer; None where there is none. Raises WriteError."""
        if key in self._keys[annotator]:
            return self._undone(annotator, key)
        slot = self.assignment.last(annotator)
        if slot is None:
            return None
        study = self.ratings.study
        self._append(
            Vote(
                task=study.kind,
                item=slot.item,
                annotator=annotator,
                key=key,
                at=_now(),
                page=f"{study.kind}/1",
                kind=slot.kind,
                undo=True,
            )
        )
        self.assignment.withdraw(annotator)
        return self._undone(annotator, key)

    def _undone(self, annotator: str, key: str) -> Undone:
        """What the record with a key took back."""
        records = self._records[annotator]
        at = next(place for place, vote in enumerate(records) if vote.key == key)
        counting = (annotator, records[at].item, records[at].kind)
        vote = counted_votes(records[:at]).get(counting)
        slot = self._slot_name(annotator, Slot(records[at].item, records[at].kind))
        return Undone(slot, {} if vote is None else form_of(vote, self.ratings.items[vote.item]))

    def _append(self, vote: Vote) -> None:
        self._files[vote.annotator].append(vote)
        self._records[vote.annotator].append(vote)
        self._keys[vote.annotator].add(vote.key)


def counted_in_order(records: list[Vote]) -> Iterator[Vote]:
    """The answers of one person that count, in the order in which they were given."""
    counted = {id(vote) for vote in counted_votes(records).values()}
    return (vote for vote in records if id(vote) in counted)


def _check_files(ratings: Ratings, votes: Votes) -> None:
    """Raise DatasetError where a person's votes are in another file than that to which this adds.

    Else there would be two files with votes of one person, which nothing can read any more.
    """
    for annotator, path in votes.files.items():
        expected = ratings.vote_path(annotator)
        if path != expected:
            raise DatasetError(
                f"{path} has votes of {annotator!r}: move them to {expected.name}, and start again"
            )


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _lock(ratings: Ratings) -> int:
    """The lock of the one server that a study has; it ends with the process."""
    path = ratings.path / SESSION
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError as error:
        raise WriteError(f"{path} cannot be opened: {error.strerror or error}") from error
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(file)
        raise WriteError(
            f"another server has {str(ratings.path)!r}: end it, or use its addresses"
        ) from None
    except OSError as error:
        with suppress(OSError):
            os.close(file)
        raise WriteError(
            f"{path} cannot be locked ({error.strerror or error}): use a disk of this machine"
        ) from error
    return file
