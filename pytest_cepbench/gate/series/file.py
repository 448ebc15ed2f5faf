"""The file of a series, `series/NAME.jsonl` beside the baselines, to which lines are only added.

All processes of all runs share it: each locks it, reads it, and adds its line.
"""

from __future__ import annotations

import fcntl
import os
import re
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec

from pytest_cepbench.errors import SeriesError, WriteError
from pytest_cepbench.files import MOST_TEXT, read_regular
from pytest_cepbench.gate.series.record import (
    FORMAT,
    SAYS_NOTHING,
    Entry,
    Opening,
    Place,
    SeriesRecord,
    parse_record,
    sealed,
)
from pytest_cepbench.gate.statistics import checkpoint_share
from pytest_cepbench.gate.statistics.constants import EXPECTED_CHECKPOINTS, LEAST_SHARE

SERIES = "series"
"""The folder of the records, in the folder of baselines."""

_SUFFIX = ".jsonl"

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")

_PATIENCE = 10.0  # seconds for another process to add its line, which needs far less

_POLL_SECONDS = 0.02


class SeriesFile:
    """The record of one series.

    root: the folder of baselines.
    name: of the series.
    expected: checkpoints over which half of the error is to be spent; None for what the record
    says.
    path: of the file.
    Raises SeriesError for a name that no series can have.
    """

    def __init__(self, root: Path, name: str, expected: int | None = None) -> None:
        if not _NAME.fullmatch(name):
            raise SeriesError(
                f"--cep-series {name!r}: letters, digits, '.', '_' and '-' are expected, at most "
                "64, and a letter or a digit first"
            )
        self.name = name
        self.path = root / SERIES / f"{name}{_SUFFIX}"
        self.expected = expected

    def read(self) -> SeriesRecord | None:
        """What the record says; None before the series begins.

        Raises SeriesError for a record that cannot be understood, or one that was begun for another
        number of checkpoints.
        """
        try:
            data = read_regular(self.path, MOST_TEXT, links=False)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self._damaged(error.strerror or str(error)) from error
        return self._parse(data)

    def enter(self, entry: Entry, anchor: str | None = None) -> tuple[Place, Entry]:
        """The place of a case, and its entry, which is added where it is new.

        entry: the case, its checkpoint, its run, its alpha and the model of its baseline; its look
        does not count.
        anchor: identity of the anchor's model; None where there is none.
        Returns the place, and the entry with the look and the alpha that the record has.
        A checkpoint that was looked at before keeps both, unless it is compared with one that was
        looked at after it: that is another comparison, and has a look of its own.
        Raises SeriesError as `read`, and for a look that has hardly any alpha; WriteError.
        """
        with self._locked() as file:
            record = self._parse(self._content(file)) or self._begin(file)
            models = (entry.reference, anchor or "")
            references = [_reference(record, entry, model) for model in models]
            newest = max((look for look in references if look is not None), default=0)
            known = record.entry(entry.case, entry.model)
            if known is None or known.look <= newest or record.is_free(known.look):
                own = record.look_of_run(entry.run)
                look = own if own is not None and own > newest else record.next_look
                share = checkpoint_share(look, record.expected)
                if share < LEAST_SHARE:
                    raise SeriesError(
                        f"series {self.name}: checkpoint {look} of a series that was begun for "
                        f"{record.expected} has {share:.1g} of alpha, at which no drop is told "
                        "from noise: begin another one under a new name, for more checkpoints with "
                        "--cep-series-length"
                    )
                known = msgspec.structs.replace(entry, look=look)
                record.add(known)
                self._append(file, known, record)
        return Place(self.name, known.look, record.expected, known.alpha, *references), known

    def settle(self, entry: Entry, run: str) -> None:
        """Add how a case was judged, unless the record says so already.

        entry: as `enter` returned it, with a verdict.
        run: that judged it. A verdict that says nothing is left out where another run has entered
        the case: it may have seen more before it was killed.
        Raises SeriesError as `read`, also where the record is gone, and WriteError.
        """
        with self._locked() as file:
            record = self._parse(self._content(file))
            known = None if record is None else record.entry(entry.case, entry.model)
            if known is None or known.look != entry.look:
                reason = f"look {entry.look} of {entry.case} was entered, and is not there any more"
                raise self._damaged(reason)
            counts = entry.run == run or entry.verdict not in SAYS_NOTHING
            if record is not None and counts and known.verdict != entry.verdict:
                self._append(file, entry, record)

    def _parse(self, data: bytes) -> SeriesRecord | None:
        if not data:
            return None
        try:
            record = parse_record(data, self.name)
        except ValueError as error:
            raise self._damaged(str(error)) from error
        if self.expected not in (None, record.expected):
            raise SeriesError(
                f"series {self.name} was begun for {record.expected} checkpoints, and "
                f"{self.expected} are expected now: leave the series-length as it was, or begin "
                "another series under a new name"
            )
        return record

    def _damaged(self, reason: str) -> SeriesError:
        return SeriesError(
            f"{self.path}: {reason}. A series goes on only with its whole record: restore it from "
            "version control or a copy, or begin another series under a new name"
        )

    # -- the file ----------------------------------------------------------------------------------

    def _begin(self, file: int) -> SeriesRecord:
        record = SeriesRecord(self.expected or EXPECTED_CHECKPOINTS)
        self._append(file, Opening(FORMAT, self.name, record.expected), record)
        folder = os.open(self.path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        with suppress(OSError):  # some file systems cannot sync folders
            os.fsync(folder)
        os.close(folder)
        return record

    def _content(self, file: int) -> bytes:
        status = os.fstat(file)
        if not stat.S_ISREG(status.st_mode):
            reason = "it is no regular file"
            raise self._damaged(reason)
        if status.st_size > MOST_TEXT:
            reason = f"it has {status.st_size:,} bytes, and at most {MOST_TEXT:,} are expected"
            raise self._damaged(reason)
        return os.pread(file, status.st_size, 0)

    def _append(self, file: int, line: Opening | Entry, record: SeriesRecord) -> None:
        """Add a line to a file and sync it; on an error no part of it is left.

        record: of all lines before.
        """
        whole = sealed(line, record.digest)
        data = msgspec.json.encode(whole) + b"\n"
        size = os.fstat(file).st_size
        reason = ""
        try:
            if os.write(file, data) < len(data):
                reason = "the disk is full"
            os.fsync(file)
        except OSError as error:
            reason = error.strerror or str(error)
        if reason:
            with suppress(OSError):  # what is left is found when it is read next
                os.ftruncate(file, size)
            raise WriteError(f"{self.path} could not be written: {reason}; it is as it was before")
        record.digest = whole.digest

    @contextmanager
    def _locked(self) -> Iterator[int]:
        """The open file, for one process at a time; the lock ends with the process."""
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            file = os.open(self.path, flags, 0o666)
        except OSError as error:
            raise WriteError(
                f"{self.path} could not be opened for writing: {error.strerror or error}"
            ) from error
        try:
            self._lock(file)
            yield file
        finally:
            os.close(file)

    def _lock(self, file: int) -> None:
        until = time.monotonic() + _PATIENCE
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() > until:
                    raise WriteError(
                        f"another process has held {self.path} for {_PATIENCE:g} s: wait for it, "
                        "or end it, and try again"
                    ) from None
                time.sleep(_POLL_SECONDS)
            except OSError as error:
                raise WriteError(
                    f"{self.path} cannot be locked ({error.strerror or error}), so that two runs "
                    "could spend the same error: put the baselines on a file system with locks"
                ) from error
            else:
                return


def _reference(record: SeriesRecord, entry: Entry, model: str) -> int | None:
    """Look of a reference, as in `Place`; None also for none, and for the checkpoint itself."""
    first = record.first_reference(entry.case) or entry.reference
    if model in ("", first, entry.model):
        return None
    return record.look_of_model(entry.suite, model)


def recorded_names(root: Path) -> list[str]:
    """Names of the series that have a record below a folder of baselines."""
    return sorted(path.stem for path in (root / SERIES).glob(f"*{_SUFFIX}"))
