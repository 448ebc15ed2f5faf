"""The files of the history: a folder of `HOST.jsonl`, to which each machine adds its runs.

Folders of several machines can be copied together: a run counts once, by its id. Identities of
cases lie beside, in `identities/DIGEST.json`, each written once.
"""

from __future__ import annotations

import fcntl
import gc
import json
import os
import re
import socket
import stat
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from pytest_cepbench.errors import HistoryError, WriteError
from pytest_cepbench.files import append_line, open_regular, read_regular, read_text, replace_small

if TYPE_CHECKING:
    from pytest_cepbench.report.result import CaseResult


# -- one run in the history: its checkpoints, its verdicts, and where its report lies --------------
# A run is one line of JSON. It holds no scores, texts or images of samples, which are in the
# report, and no command line. Identities of cases are long and seldom change: the line has their
# digests.


FORMAT = 1
"""Of a line. Raised when a field changes its meaning; fields may be added."""

_DIGITS = 16  # of a digest


class HistoryModel(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A model under test.

    role: that it plays.
    spec: as the engineer or the suite wrote it.
    identity: what it is in one line, with the beginning of its fingerprint.
    """

    role: str = ""
    spec: str = ""
    identity: str = ""


class HistoryCase(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A judged case. Numbers are None where they could not be measured or compared.

    case: SUITE/PART/METRIC.
    difference: to the baseline, turned so that positive is better.
    p: of the sign-flip test of a drop.
    low, high: one-sided bounds of the difference; None where one excludes nothing.
    method: of the bounds, or why there are none.
    identity: digest of what a baseline must share with it to be compared; empty where it was not
    measured.
    model: place of its model under test in the run's `models`.
    primary: whether it could fail the run.
    accepted: whether the measurement became the baseline.
    """

    case: str
    verdict: str
    value: float | None = None
    baseline: float | None = None
    difference: float | None = None
    low: float | None = None
    high: float | None = None
    tolerance: float = 0.0
    n: int = 0
    identity: str = ""
    model: int = 0
    primary: bool = True
    accepted: bool = False
    higher_is_better: bool = True
    p: float | None = None
    method: str = ""


class HistoryRun(msgspec.Struct, frozen=True, omit_defaults=True):
    """A run.

    format: version of the line.
    run: its id, by which lines of several machines are merged.
    started: in seconds since the epoch.
    seconds: that it took.
    verdict: of the run: passed, undecided, failed, or incomplete.
    models: under test.
    cases: in the order of collection.
    report: path of its JSON report, relative to the folder of the history; empty where none was
    written.
    report_bytes, digest: size of that file, and the first 16 digits of its SHA-256: a later run
    may have replaced it.
    host: name of the machine.
    cepbench: version of the package that wrote the line.
    page, page_bytes, page_digest: the same three of the page in a folder of its own, with its files
    beside it; empty where none was written.
    series, look: the series of gates that it belongs to, and the number of its checkpoint there.
    """

    format: int
    run: str
    started: float
    verdict: str
    cases: list[HistoryCase]
    seconds: float = 0.0
    models: list[HistoryModel] = []
    report: str = ""
    report_bytes: int = 0
    digest: str = ""
    host: str = ""
    cepbench: str = ""
    page: str = ""
    page_bytes: int = 0
    page_digest: str = ""
    series: str = ""
    look: int = 0

    @property
    def checkpoint(self) -> str:
        """The specs of its models under test, in one text; empty where none is known."""
        return ", ".join(dict.fromkeys(model.spec for model in self.models if model.spec))


def run_record(
    run: HistoryRun, results: Sequence[CaseResult]
) -> tuple[HistoryRun, dict[str, dict[str, str]]]:
    """A run as its line, and the identities of its cases by digest.

    run: without its cases, models and series, which the results tell.
    results: the judged cases; the verdicts of whole suites, which measure nothing, are left out.
    """
    from pytest_cepbench.measures.cases import POOLED

    identities: dict[str, dict[str, str]] = {}
    models: dict[HistoryModel, int] = {}
    cases: list[HistoryCase] = []
    for result in results:
        if (result.part, result.metric) == POOLED:
            continue
        digest = ""
        if result.identity:
            identity = {encodable(k): encodable(v) for k, v in result.identity.items()}
            text = json.dumps(identity, sort_keys=True)
            digest = sha256(text.encode("ascii")).hexdigest()[:_DIGITS]
            identities[digest] = identity
        model = HistoryModel(
            *(encodable(result.model.get(name, "")) for name in ("role", "spec", "identity"))
        )
        judged = result.judgement
        value, baseline, difference, low, high = (
            None if number is None else round(number, 6)  # as scores have
            for number in (
                result.value, judged.baseline_value, judged.difference, judged.low, judged.high,
            )
        )  # fmt: skip
        cases.append(
            HistoryCase(
                case=encodable(f"{result.suite}/{result.part}/{result.metric}"),
                verdict=result.verdict,
                value=value,
                baseline=baseline,
                difference=difference,
                low=low,
                high=high,
                tolerance=result.tolerance,
                n=result.n,
                identity=digest,
                model=models.setdefault(model, len(models)),
                primary=result.primary,
                accepted=result.accepted,
                higher_is_better=result.higher_is_better,
                p=judged.p,
                method=judged.method,
            )
        )
    series = next((result.series for result in results if result.series is not None), None)
    line = msgspec.structs.replace(
        run,
        started=round(run.started, 3),
        seconds=round(run.seconds, 1),
        models=list(models),
        cases=cases,
        report=encodable(run.report),
        host=encodable(run.host),
        page=encodable(run.page),
        series="" if series is None else encodable(series.name),
        look=0 if series is None else series.look,
    )
    return line, identities


def report_digest(data: bytes) -> str:
    """The first 16 digits of the SHA-256 of a report."""
    return sha256(data).hexdigest()[:_DIGITS]


def encodable(text: str) -> str:
    """A text that UTF-8 can hold: halves of surrogate pairs come from paths that are not UTF-8."""
    return text.encode("utf-8", "replace").decode("utf-8")


SUFFIX = ".jsonl"

IDENTITIES = "identities"
"""The folder of identities in that of the history."""

_DIGEST = re.compile(r"[0-9a-f]{16}")

_MOST_BYTES = 2**31  # of a file; ten thousand runs of forty cases take 75 MB

_MOST_IDENTITY = 2**20

_PATIENCE = 5.0  # seconds for another process to add its line, which needs far less

_POLL_SECONDS = 0.02


@dataclass(frozen=True)
class History:
    """What a folder holds.

    folder: of the history.
    runs: each once, the earliest first.
    remarks: sentences on lines that were left out.
    """

    folder: Path
    runs: tuple[HistoryRun, ...]
    remarks: tuple[str, ...] = ()

    def report_of(self, run: HistoryRun) -> Path | None:
        """The JSON report of a run; None where it is gone, or another run's is in its place."""
        return self._file_of(run.run, run.report)

    def page_of(self, run: HistoryRun) -> Path | None:
        """The page of a run that has its files beside it; None as of `report_of`."""
        return self._file_of(run.run, run.page)

    @cached_property
    def _written(self) -> dict[str, list[tuple[str, int, str]]]:
        """Path -> id of each run that wrote there, bytes and `report_digest`, in their order."""
        written: dict[str, list[tuple[str, int, str]]] = {}
        for run in self.runs:
            for name, size, digest in (
                (run.report, run.report_bytes, run.digest),
                (run.page, run.page_bytes, run.page_digest),
            ):
                if name:
                    written.setdefault(name, []).append((run.run, size, digest))
        return written

    @cached_property
    def _writers(self) -> dict[str, str | None]:
        """Path -> the run whose file lies there now, as far as it was asked."""
        return {}

    def _file_of(self, run: str, name: str) -> Path | None:
        if name not in self._written:
            return None
        path = Path(os.path.normpath(self.folder.absolute() / name))
        if name not in self._writers:
            self._writers[name] = _writer_of(path, self._written[name])
        return path if self._writers[name] == run else None

    def identity(self, digest: str) -> dict[str, str] | None:
        """An identity by its digest; None where its file is gone or cannot be read."""
        if not _DIGEST.fullmatch(digest):
            return None
        try:
            text = read_text(self.folder / IDENTITIES / f"{digest}.json", _MOST_IDENTITY)
            return msgspec.json.decode(text, type=dict[str, str])
        except (OSError, ValueError):  # msgspec's errors and those of decoding are ValueErrors
            return None


def _writer_of(path: Path, files: Sequence[tuple[str, int, str]]) -> str | None:
    """Id of the run whose file lies at a path where all these were written.

    The file is read only where its size does not tell. None where it is of none of them.
    """
    try:
        size = path.stat().st_size
        alike = [file for file in files if file[1] == size]
        if len(files) == 1 or not alike:
            return alike[0][0] if alike else None
        digest = report_digest(read_regular(path, _MOST_BYTES))
    except OSError:
        return None
    return next((run for run, _, own in reversed(alike) if own == digest), None)


def host_name() -> str:
    """The name of this machine, as a file may have it."""
    return re.sub(r"[^A-Za-z0-9._-]", "-", socket.gethostname())[:64].lstrip(".") or "host"


# -- reading ---------------------------------------------------------------------------------------


@contextmanager
def many_objects() -> Iterator[None]:
    """While hundreds of thousands of objects are made that stay, Python looks for no cycles.

    That would take longer than to read and to draw a long history.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def read_history(folder: Path) -> History:
    """The runs of a folder. Raises HistoryError where there is none, or a file cannot be read."""
    try:
        paths = sorted(path for path in folder.iterdir() if path.suffix == SUFFIX)
    except OSError as error:
        raise HistoryError(
            f"history {str(folder)!r} cannot be read: {error.strerror or error}; every run of "
            "pytest with a cepbench case adds to it, and --history names another folder"
        ) from error
    known: dict[str, HistoryRun] = {}
    remarks: list[str] = []
    decoder = msgspec.json.Decoder(HistoryRun)
    for path in paths:
        try:
            with open_regular(path, _MOST_BYTES) as stream:
                data = stream.read()
        except OSError as error:
            raise HistoryError(
                f"history {str(path)!r} cannot be read: {error.strerror or error}"
            ) from error
        try:
            runs = decoder.decode_lines(data)
        except (ValueError, RecursionError):  # msgspec's errors are ValueErrors
            runs = []
            for number, line in enumerate(data.split(b"\n"), start=1):
                try:
                    runs += [decoder.decode(line)] if line.strip() else []
                except (ValueError, RecursionError) as error:
                    remarks.append(f"{path}: line {number} was left out: {error}")
        sound = [run for run in runs if run.format <= FORMAT and _is_sound(run)]
        if len(sound) < len(runs):
            remarks.append(
                f"{path}: {len(runs) - len(sound)} runs were left out: a newer pytest-cepbench "
                "wrote them, or they were changed by hand"
            )
        for run in sound:
            known.setdefault(run.run, run)
    ordered = sorted(known.values(), key=lambda run: (run.started, run.run))
    return History(folder, tuple(ordered), tuple(remarks))


def _is_sound(run: HistoryRun) -> bool:
    """Whether the models of cases are there, and the time is one that can be shown."""
    most = len(run.models)
    return 0 <= run.started < 1e11 and all(0 <= case.model < most for case in run.cases)


# -- writing ---------------------------------------------------------------------------------------


def append_run(folder: Path, run: HistoryRun, identities: Mapping[str, Mapping[str, str]]) -> Path:
    """Add a run to this machine's file, whole or not at all; returns the file.

    identities: of the run's cases, by digest.
    Safe beside other processes: each locks the file, and its line is one write to the end.
    Raises WriteError where the folder cannot be written, for which no run should fail.
    """
    path = folder / f"{host_name()}{SUFFIX}"
    try:
        (folder / IDENTITIES).mkdir(parents=True, exist_ok=True)
        for digest, identity in identities.items():
            path_of = folder / IDENTITIES / f"{digest}.json"
            if not path_of.exists():
                text = json.dumps(identity, indent=1, sort_keys=True) + "\n"
                replace_small(path_of, text.encode())
        with _opened(path) as file:
            append_line(file, msgspec.json.encode(run) + b"\n")
    except OSError as error:
        raise WriteError(f"{path} could not be written: {error.strerror or error}") from error
    return path


@contextmanager
def _opened(path: Path) -> Iterator[int]:
    """The open file, for one process at a time where files can be locked."""
    flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    file = os.open(path, flags, 0o666)
    try:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            raise OSError("it is no regular file")
        _lock(file)
        yield file
    finally:
        os.close(file)


def _lock(file: int) -> None:
    """Wait for the lock. A file system without locks does: lines are added in one write each."""
    until = time.monotonic() + _PATIENCE
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > until:
                raise OSError(f"another process has held it for {_PATIENCE:g} s") from None
            time.sleep(_POLL_SECONDS)
        except OSError:
            return
        else:
            return
