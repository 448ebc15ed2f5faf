"""The history of runs: a folder of `HOST.jsonl`, to which each machine adds its runs, a line each.

Folders of several machines can be copied together: a run counts once, by its id. A line holds no
scores, texts or images of samples, which are in the report, no command line, and of what was
measured digests.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import socket
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from pytest_cepbench.errors import HistoryError, WriteError, did_you_mean
from pytest_cepbench.files import append_line, read_regular

if TYPE_CHECKING:
    from pytest_cepbench.report.result import CaseResult

FORMAT = 2
"""Of a line. Raised when a field changes its meaning; fields may be added."""

SUFFIX = ".jsonl"

_MOST_BYTES = 2**31  # of a file; ten thousand runs of forty cases take 250 MB
_NAMED = 3  # lines of a file that are left out
_BARS = "▁▂▃▄▅▆▇█"
_NO_VALUE, _BREAK = ".", "|"


class HistoryCase(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A judged case. Numbers are None where they could not be measured or compared.

    case: SUITE/PART/METRIC.
    difference: to the baseline, turned so that positive is better.
    p: of the sign-flip test of a drop.
    low, high: one-sided bounds of the difference; None where one excludes nothing.
    method: of the bounds, or why there are none.
    identity: digest of what a baseline must share with it to be compared; empty where it was not
    measured.
    fields: the same of each of its fields.
    model: spec of its model under test.
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
    model: str = ""
    primary: bool = True
    accepted: bool = False
    higher_is_better: bool = True
    p: float | None = None
    method: str = ""
    fields: dict[str, str] = {}

    @property
    def word(self) -> str:
        """Its verdict as shown."""
        return "accepted" if self.accepted else self.verdict


class HistoryRun(msgspec.Struct, frozen=True, omit_defaults=True):
    """A run.

    format: version of the line.
    run: its id, by which lines of several machines are merged.
    started: in seconds since the epoch.
    seconds: that it took.
    verdict: of the run: passed, undecided, failed, or incomplete.
    cases: in the order of collection.
    report: path of its JSON report, relative to the folder of the history; empty where none was
    written.
    digest: the first 16 digits of that file's SHA-256: a later run may have replaced it.
    host: name of the machine.
    cepbench: version of the package that wrote the line.
    series, look: the series of gates that it belongs to, and the number of its checkpoint there.
    """

    format: int
    run: str
    started: float
    verdict: str
    cases: list[HistoryCase]
    seconds: float = 0.0
    report: str = ""
    digest: str = ""
    host: str = ""
    cepbench: str = ""
    series: str = ""
    look: int = 0

    @property
    def checkpoint(self) -> str:
        """The specs of its models under test, in one text; empty where none is known."""
        return ", ".join(dict.fromkeys(case.model for case in self.cases if case.model))


@dataclass(frozen=True)
class History:
    """What a folder holds.

    folder: of the history.
    runs: each once, the earliest first.
    remarks: sentences on lines that were left out, a few of each file.
    """

    folder: Path
    runs: tuple[HistoryRun, ...]
    remarks: tuple[str, ...] = ()
    _digests: dict[Path, str] = field(default_factory=dict, compare=False)

    def report_of(self, run: HistoryRun) -> Path | None:
        """The JSON report of a run; None where it is gone, or another run's is in its place."""
        if not run.report:
            return None
        path = Path(os.path.normpath(self.folder.absolute() / run.report))
        if path not in self._digests:
            try:
                self._digests[path] = report_digest(read_regular(path, _MOST_BYTES))
            except OSError:
                self._digests[path] = ""
        return path if self._digests[path] == run.digest else None


def report_digest(data: bytes) -> str:
    """The first 16 digits of the SHA-256 of a report."""
    return sha256(data).hexdigest()[:16]


def host_name() -> str:
    """The name of this machine, as a file may have it."""
    return re.sub(r"[^A-Za-z0-9._-]", "-", socket.gethostname())[:64].lstrip(".") or "host"


def when(seconds: float) -> str:
    """A time as date and minute, in UTC. seconds: since the epoch."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M")


# -- writing and reading ---------------------------------------------------------------------------


def _rounded(number: float | None) -> float | None:
    return None if number is None else round(number, 6)


def run_record(run: HistoryRun, results: Sequence[CaseResult]) -> HistoryRun:
    """A run as its line.

    run: without its cases and series, which the results tell.
    results: the judged cases; the verdicts of whole suites, which measure nothing, are left out.
    """
    cases: list[HistoryCase] = []
    for result in results:
        if result.is_pooled:
            continue
        digest, judged = "", result.judgement
        identity = {_encodable(k): _encodable(v) for k, v in result.identity.items()}
        if identity:
            digest = report_digest(json.dumps(identity, sort_keys=True).encode("ascii"))
        cases.append(
            HistoryCase(
                _encodable(str(result.key)),
                result.verdict,
                _rounded(result.value),
                _rounded(judged.baseline_value),
                _rounded(judged.difference),
                _rounded(judged.low),
                _rounded(judged.high),
                tolerance=result.tolerance,
                n=result.n,
                identity=digest,
                model=_encodable(result.model.get("spec", "")),
                primary=result.primary,
                accepted=result.accepted,
                higher_is_better=result.higher_is_better,
                p=judged.p,
                method=judged.method,
                fields={name: report_digest(text.encode())[:8] for name, text in identity.items()},
            )
        )
    series = next((result.series for result in results if result.series is not None), None)
    return msgspec.structs.replace(
        run,
        started=round(run.started, 3),
        seconds=round(run.seconds, 1),
        cases=cases,
        report=_encodable(run.report),
        host=_encodable(run.host),
        series="" if series is None else _encodable(series.name),
        look=0 if series is None else series.look,
    )


def _encodable(text: str) -> str:
    """A text that UTF-8 can hold: halves of surrogate pairs come from paths that are not UTF-8."""
    return text.encode("utf-8", "replace").decode("utf-8")


def append_run(folder: Path, run: HistoryRun) -> Path:
    """Add a run to this machine's file, whole or not at all; returns the file.

    Safe beside other processes: each locks the file, and its line is one write to the end.
    Raises WriteError where the folder cannot be written, for which no run should fail.
    """
    path = folder / f"{host_name()}{SUFFIX}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with path.open("ab+", buffering=0) as stream:
            with suppress(OSError):  # a file system without locks: a line is one write
                fcntl.flock(stream, fcntl.LOCK_EX)
            append_line(stream.fileno(), msgspec.json.encode(run) + b"\n")
    except OSError as error:
        raise WriteError(f"{path} could not be written: {error.strerror or error}") from error
    return path


def read_history(folder: Path) -> History:
    """The runs of a folder. Raises HistoryError where there is none, or a file cannot be read."""
    known: dict[str, HistoryRun] = {}
    remarks: list[str] = []
    decoder = msgspec.json.Decoder(HistoryRun)
    at = folder
    try:
        for at in sorted(path for path in folder.iterdir() if path.suffix == SUFFIX):
            left: list[str] = []
            for number, line in enumerate(read_regular(at, _MOST_BYTES).split(b"\n"), start=1):
                if not line.strip():
                    continue
                try:
                    run = decoder.decode(line)
                except (ValueError, RecursionError, msgspec.MsgspecError) as error:
                    left.append(f"{at}: line {number} was left out: {error}")
                    continue
                if run.format != FORMAT or not 0 <= run.started < 1e11:
                    left.append(f"{at}: line {number} was left out: of another version, or odd")
                else:
                    known.setdefault(run.run, run)
            remarks += left[:_NAMED]
            if len(left) > _NAMED:
                remarks.append(f"{at}: {len(left) - _NAMED} more lines were left out")
    except OSError as error:
        raise HistoryError(
            f"history {str(at)!r} cannot be read: {error.strerror or error}; every run of "
            "pytest with a cepbench case adds to it, and --history names another folder"
        ) from error
    ordered = sorted(known.values(), key=lambda run: (run.started, run.run))
    return History(folder, tuple(ordered), tuple(remarks))


# -- case by case ----------------------------------------------------------------------------------


@dataclass
class Timeline:
    """One case over the runs that judged it, the earliest first.

    case: SUITE/PART/METRIC.
    series: the training whose checkpoints these are; empty for runs outside of any.
    runs, points: the runs, and what each said of the case.
    breaks: points that were measured otherwise than those before, so that their values do not
    compare, and the fields that changed; empty where runs of an earlier version do not name them.
    """

    case: str
    series: str = ""
    runs: list[HistoryRun] = field(default_factory=list)
    points: list[HistoryCase] = field(default_factory=list)
    breaks: dict[int, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The case, and the series that it is of."""
        return f"{self.case} in {self.series}" if self.series else self.case

    @property
    def suite(self) -> str:
        """The name of its suite."""
        return self.case.partition("/")[0]

    @property
    def latest(self) -> HistoryCase:
        """What the latest run said."""
        return self.points[-1]

    def sparkline(self, most: int = 24) -> str:
        """The latest values as bars, higher is higher; `|` at a break, `.` for none."""
        start = max(0, len(self.points) - most)
        shown = self.points[start:]
        values = [point.value for point in shown if point.value is not None]
        top = len(_BARS) - 1
        # Divided first: a difference of numbers in a damaged file may be none.
        low, high = min(values, default=0.0) / top, max(values, default=0.0) / top
        line = ""
        for index, point in enumerate(shown, start):
            line += _BREAK if index in self.breaks else ""
            if point.value is None:
                line += _NO_VALUE
            else:
                share = (point.value / top - low) / (high - low) if high > low else 4 / top
                line += _BARS[round(share * top)]
        return line


def select_runs(
    history: History, models: Sequence[str] = (), last: int | None = None
) -> list[HistoryRun]:
    """The runs of some models, or of all where none is named.

    models: patterns of the specs of models under test, with *, ? and [...].
    last: most runs, the latest ones; None for all.
    Raises HistoryError where the history is empty, or no model is like a pattern.
    """
    runs = list(history.runs)
    if not runs:
        raise HistoryError(
            f"history {str(history.folder)!r} has no run yet: run pytest on a suite first"
        )
    if models:
        specs = {case.model for run in runs for case in run.cases}
        wanted = {s for s in specs if any(fnmatchcase(s, like) for like in models)}
        if not wanted:
            raise HistoryError(_nothing("model", models, specs))
        runs = [run for run in runs if any(case.model in wanted for case in run.cases)]
    return runs if last is None else runs[-last:]


def timelines_of(
    runs: Iterable[HistoryRun], suites: Sequence[str] = (), cases: Sequence[str] = ()
) -> list[Timeline]:
    """Cases over some runs, in the order in which runs judged them first.

    suites: names of those that are asked for; all where there are none.
    cases: the same as patterns of SUITE/PART/METRIC, with *, ? and [...].
    The checkpoints of each series, which share its error, are a timeline of their own.
    Raises HistoryError where no case is asked for.
    """
    from pytest_cepbench.gate import CaseKey
    from pytest_cepbench.gate.measurement import differing_fields

    known: dict[tuple[str, str], Timeline] = {}
    measured: dict[tuple[str, str], HistoryCase] = {}  # the latest that was
    for run in runs:
        for case in run.cases:
            key = case.case, run.series
            timeline = known.setdefault(key, Timeline(*key))
            before = measured.get(key, case)
            if case.identity and case.identity != before.identity:
                named = before.fields and case.fields
                changed = differing_fields(before.fields, case.fields) if named else []
                if changed or not named:
                    timeline.breaks[len(timeline.points)] = ", ".join(changed)
            if case.identity:
                measured[key] = case
            timeline.runs.append(run)
            timeline.points.append(case)
    judged = dict.fromkeys(timeline.suite for timeline in known.values())
    for suite in suites:
        if suite not in judged:
            raise HistoryError(_nothing("suite", [suite], judged))
    timelines = [
        timeline
        for timeline in known.values()
        if not suites or timeline.suite in suites
        if not cases or any(map(CaseKey.parse(timeline.case).matches, cases))
    ]
    if not timelines:
        raise HistoryError(_nothing("case", cases, {name for name, _ in known}))
    return sorted(timelines, key=lambda timeline: list(judged).index(timeline.suite))


def _nothing(what: str, patterns: Sequence[str], known: Iterable[str]) -> str:
    shown = ", ".join(repr(pattern) for pattern in patterns)
    return (
        f"the history has no {what} {shown}.{did_you_mean(patterns[0], known) if patterns else ''}"
    )
