"""The figures of the curves, as plain data that is written to a JSON file and read back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path

import msgspec

from benchmarks.curves.analysis import Fall, Tau
from benchmarks.curves.lineups import Role
from benchmarks.curves.resampling import Estimate


@dataclass(frozen=True)
class Course:
    """One metric over the checkpoints of a series.

    reach: the last artifacts it looks at, such as "image-first 6". points: one per checkpoint, None
    where it could not be measured; why: the reasons, by step. ordered: whether no checkpoint is
    worse than the one before. falls: see `analysis.falls`. saturates: see `analysis.saturation`.
    tau: with the step, and with the truth of the same chains: "own" the exact scenes where the
    model under test first acts, "exact" and "objects" at `reach`; None where one side is constant.
    disordered: pairs of steps that metric and "objects" order differently.
    within: of chains within a checkpoint, concordance with "exact" and "objects" at `reach`; None
    where all chains kept alike. kept: the truth's "exact" and "objects" at `reach`, per checkpoint.
    perfect: what the world's own describer and generator reach.
    """

    suite: str
    name: str
    label: str
    higher_is_better: bool
    tolerance: float
    reach: str
    points: tuple[Estimate | None, ...]
    perfect: float | None
    why: Mapping[int, str] = field(default_factory=dict)
    ordered: bool | None = None
    falls: tuple[Fall, ...] = ()
    saturates: int | None = None
    tau: Mapping[str, Tau | None] = field(default_factory=dict)
    disordered: tuple[tuple[int, int], ...] = ()
    within: Mapping[str, tuple[Estimate | None, ...]] = field(default_factory=dict)
    kept: Mapping[str, tuple[Estimate, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class Kept:
    """What the chains of one start keep: aspect -> one row per checkpoint, generation 0 first."""

    suite: str
    start: str
    samples: int
    aspects: Mapping[str, tuple[tuple[float, ...], ...]]
    perfect: Mapping[str, tuple[float, ...]]


@dataclass(frozen=True)
class Beside:
    """GC of one checkpoint beside what its chains really kept at their end.

    score: GC. kept: aspect -> share. high: chains with a GC of at least `HIGH`; lost: those of them
    that did not keep their scene; worst: the least object F1 among these, None without any.
    """

    step: int
    score: Estimate
    kept: Mapping[str, Estimate]
    high: int
    lost: int
    worst: float | None


HIGH = 0.9
"""A GC that reads as "the meaning is kept"."""


@dataclass(frozen=True)
class SeriesFigures:
    """All figures of one series.

    truths: courses of the truth itself, where a model under test first acts ("own exact") and at
    the end of its chains. stopped: chains that did not reach their end, by checkpoint.
    """

    role: Role
    steps: tuple[int, ...]
    fixed: int
    courses: tuple[Course, ...]
    truths: tuple[Course, ...]
    kept: tuple[Kept, ...]
    beside: tuple[Beside, ...]
    stopped: tuple[int, ...]


@dataclass(frozen=True)
class Document:
    """Everything. samples: of each suite. seconds: wall time. machine, versions: of the run."""

    command: str
    machine: str
    versions: Mapping[str, str]
    seconds: float
    samples: Mapping[str, int]
    draws: int
    confidence: float
    series: tuple[SeriesFigures, ...]


def encode(document: Document) -> bytes:
    """As JSON, with a line for each course, so that a diff can be read."""
    return msgspec.json.encode(document).replace(b'{"suite":', b'\n{"suite":') + b"\n"


def digest(document: Document) -> str:
    """Names exactly these figures."""
    return sha256(encode(document)).hexdigest()[:16]


def write(document: Document, path: Path) -> None:
    """Write the figures as JSON."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(encode(document))


def read(path: Path) -> Document:
    """Read what `write` wrote. Raises ValueError naming the file for anything else."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Document)
    except msgspec.MsgspecError as error:
        raise ValueError(f"{path}: {error}; measure the figures again") from error
