"""Series of gates: which checkpoint has which share of alpha, kept in a record.

The record, `series/NAME.jsonl` beside the baselines, is shared by all processes of all runs: each
locks it, reads it, and adds its lines. The first line says what the series is; then there is one
before a case of a checkpoint is judged. So a verdict is never seen whose error is not in the
record, also if the process is killed.

A look is the gate of one checkpoint by one run; its number says what share of alpha it has. All
cases of a look belong to the same run, which divides its alpha among them. A case that is judged
again with the same checkpoint keeps its look and its alpha, in whatever run.

Each line has a digest of itself and of that of the line before, so that a line that was edited,
added or left out is found. Lines that are cut off at the end are not.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from pathlib import Path

import msgspec

from pytest_cepbench.errors import SeriesError, WriteError
from pytest_cepbench.files import MOST_TEXT, append_line, lock_file, read_regular
from pytest_cepbench.gate.policy import Place
from pytest_cepbench.gate.statistics.constants import EXPECTED_CHECKPOINTS, LEAST_SHARE
from pytest_cepbench.gate.statistics.error_budget import checkpoint_share
from pytest_cepbench.option_values import LONGEST_SERIES

FORMAT = 4

SERIES = "series"
"""The folder of the records, in the folder of baselines."""

_SUFFIX = ".jsonl"

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")

_PATIENCE = 10.0  # seconds for another process to add its line, which needs far less


class Opening(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The first line: format, name, and checkpoints over which half of the error is spent.

    digest: as in `Entry`.
    """

    format: int
    series: str
    expected: int
    digest: str = ""


class Entry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One case of one look.

    look: its number, from 1.
    run: that has this look.
    case: `suite/part/metric`.
    model: identity of the checkpoint, as baselines keep it.
    spec: what the user typed for it.
    alpha: of the case, before the series divides it.
    reference: identity of the baseline's model; empty where there is none yet.
    digest: of the line, and of that of the line before; empty in memory.
    """

    look: int
    run: str
    case: str
    model: str
    spec: str
    alpha: float
    reference: str = ""
    digest: str = ""


@dataclass
class SeriesRecord:
    """A record, line by line.

    expected: checkpoints over which half of the error is spent.
    lines: all entries, in order.
    digest: of the last line of the file.
    runs: look -> the run that has it.
    """

    expected: int = EXPECTED_CHECKPOINTS
    lines: list[Entry] = field(default_factory=list)
    digest: str = ""
    runs: dict[int, str] = field(default_factory=dict)

    def copy(self) -> SeriesRecord:
        """The same, to which lines can be added."""
        return replace(self, lines=[*self.lines], runs={**self.runs})

    def seal(self, line: Opening | Entry) -> Opening | Entry:
        """The next line with its digest, which is of the digest of the line before, too."""
        text = msgspec.json.encode(msgspec.structs.replace(line, digest=""))
        digest = blake2b(self.digest.encode() + text, digest_size=16).hexdigest()
        return msgspec.structs.replace(line, digest=digest)

    def read(self, text: bytes, name: str) -> None:
        """Take in the next line of the file of a series.

        Raises ValueError where it is none, was edited, or contradicts those before it, SeriesError
        for the first line of another version's.
        """
        line: Opening | Entry
        if self.digest:
            line = msgspec.json.decode(text, type=Entry)
        else:
            line = msgspec.json.decode(text, type=Opening)
            if line.format != FORMAT:
                raise SeriesError(
                    f"{SERIES}/{name}{_SUFFIX}: its format is {line.format}, and this version goes "
                    f"on with {FORMAT} alone: begin another series under a new name"
                )
            if line.series != name:
                raise ValueError(f"it is the record of series {line.series!r}")
            if not 1 <= line.expected <= LONGEST_SERIES:
                raise ValueError(f"{line.expected} checkpoints are expected")
            self.expected = line.expected
        if line.digest != self.seal(line).digest:
            raise ValueError("its digest is another one, so it was edited, or lines before it were")
        self.digest = line.digest
        if isinstance(line, Entry):
            self.add(msgspec.structs.replace(line, digest=""))

    def add(self, entry: Entry) -> None:
        """Take in an entry. Raises ValueError where it contradicts those before it."""
        if not 1 <= entry.look <= self.next_look:
            raise ValueError(f"look {entry.look} comes after look {self.next_look - 1}")
        if not 0 < entry.alpha <= 0.5:
            raise ValueError(f"alpha is {entry.alpha}")
        if self.runs.setdefault(entry.look, entry.run) != entry.run:
            raise ValueError(f"look {entry.look} belongs to another run")
        self.lines.append(entry)

    @property
    def next_look(self) -> int:
        """The number that a checkpoint gets that was not looked at yet."""
        return len(self.runs) + 1

    def entry(self, case: str, model: str) -> Entry | None:
        """The latest entry of a case with a checkpoint."""
        return next((e for e in reversed(self.lines) if (e.case, e.model) == (case, model)), None)

    def reference(self, entry: Entry, model: str) -> int | None:
        """Look of a reference, as in `Place`; None also for none, and for the checkpoint itself."""
        firsts = (e.reference for e in self.lines if e.case == entry.case and e.reference)
        if model in ("", next(firsts, entry.reference), entry.model):
            return None
        suite = entry.case.partition("/")[0] + "/"
        looks = [e.look for e in self.lines if e.model == model and e.case.startswith(suite)]
        return min(looks, default=0)


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
        self._entered: Entry | None = None
        self._parsed = b"", SeriesRecord()  # each case reads the file anew, and it grows

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

    def enter(self, entry: Entry, anchor: str | None = None) -> Place:
        """The place of a case; its entry is added where it is new.

        entry: the case, its checkpoint, its run, its alpha and the model of its baseline; its look
        does not count.
        anchor: identity of the anchor's model; None where there is none.
        A checkpoint that was looked at before keeps its look and its alpha, unless it is compared
        with one that was looked at after it: that is another comparison, and has a look of its own.
        Raises SeriesError as `read`, and for a look that has hardly any alpha; WriteError.
        """
        with self._locked() as file:
            status = os.fstat(file)
            if not stat.S_ISREG(status.st_mode) or status.st_size > MOST_TEXT:
                raise self._damaged(f"it is no regular file of at most {MOST_TEXT:,} bytes")
            record = self._parse(os.pread(file, status.st_size, 0))
            if self._entered and (record is None or self._entered not in record.lines):
                raise self._damaged("what this run entered is gone")
            if record is None:
                record = SeriesRecord(self.expected or EXPECTED_CHECKPOINTS)
                self._append(file, Opening(FORMAT, self.name, record.expected), record)
                folder = os.open(self.path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
                with suppress(OSError):  # some file systems cannot sync folders
                    os.fsync(folder)
                os.close(folder)
            models = (entry.reference, anchor or "")
            references = [record.reference(entry, model) for model in models]
            newest = max((look for look in references if look is not None), default=0)
            known = record.entry(entry.case, entry.model)
            if known is None or known.look <= newest:
                own = [look for look, run in record.runs.items() if run == entry.run]
                look = own[-1] if own and own[-1] > newest else record.next_look
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
            self._entered = known
        return Place(self.name, known.look, record.expected, known.alpha, *references)

    def _parse(self, data: bytes) -> SeriesRecord | None:
        """The record in a file's bytes; None where there are none. Raises SeriesError."""
        if not data:
            return None
        parsed, known = self._parsed if data.startswith(self._parsed[0]) else (b"", SeriesRecord())
        record, done = known.copy(), parsed.count(b"\n")
        *lines, rest = data[len(parsed) :].split(b"\n")
        if rest:
            raise self._damaged(f"line {done + len(lines) + 1} is cut off")
        for number, line in enumerate(lines, done + 1):
            try:
                record.read(line, self.name)
            except (ValueError, msgspec.MsgspecError) as error:  # one only since msgspec 0.21
                raise self._damaged(f"line {number}: {error}") from error
        if self.expected not in (None, record.expected):
            raise SeriesError(
                f"series {self.name} was begun for {record.expected} checkpoints, and "
                f"{self.expected} are expected now: leave the series-length as it was, or begin "
                "another series under a new name"
            )
        self._parsed = data, record.copy()
        return record

    def _damaged(self, reason: str) -> SeriesError:
        return SeriesError(
            f"{self.path}: {reason}. A series goes on only with its whole record: restore it from "
            "version control or a copy, or begin another series under a new name"
        )

    def _append(self, file: int, line: Opening | Entry, record: SeriesRecord) -> None:
        """Add a line to a file and sync it; on an error no part of it is left.

        record: of all lines before.
        """
        whole = record.seal(line)
        try:
            append_line(file, msgspec.json.encode(whole) + b"\n")
        except OSError as error:
            raise WriteError(
                f"{self.path} could not be written: {error.strerror or error}; it is as it was "
                "before"
            ) from error
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
            try:
                lock_file(file, _PATIENCE)
            except BlockingIOError:
                raise WriteError(
                    f"another process has held {self.path} for {_PATIENCE:g} s: wait for it, or "
                    "end it, and try again"
                ) from None
            except OSError as error:
                raise WriteError(
                    f"{self.path} cannot be locked ({error.strerror or error}), so that two runs "
                    "could spend the same error: put the baselines on a file system with locks"
                ) from error
            yield file
        finally:
            os.close(file)


def recorded_names(root: Path) -> list[str]:
    """Names of the series that have a record below a folder of baselines."""
    return sorted(path.stem for path in (root / SERIES).glob(f"*{_SUFFIX}"))
