"""One run in the history: its checkpoints, its verdicts, and where its report lies.

A run is one line of JSON. It holds no scores, texts or images of samples, which are in the report,
and no command line. Identities of cases are long and seldom change: the line has their digests.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from pytest_cepbench.report.result import CaseResult

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

    @property
    def checkpoint(self) -> str:
        """The specs of its models under test, in one text; empty where none is known."""
        return ", ".join(dict.fromkeys(model.spec for model in self.models if model.spec))


@dataclass(frozen=True)
class RunOrigin:
    """Facts of a run beside its cases. Fields as in `HistoryRun`."""

    run: str
    started: float
    seconds: float
    verdict: str
    report: str
    report_bytes: int
    digest: str
    host: str
    cepbench: str
    page: str = ""
    page_bytes: int = 0
    page_digest: str = ""


def run_record(
    origin: RunOrigin, results: Sequence[CaseResult]
) -> tuple[HistoryRun, dict[str, dict[str, str]]]:
    """A run as its line, and the identities of its cases by digest.

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
            digest = identity_digest(identity)
            identities[digest] = identity
        model = HistoryModel(
            *(encodable(result.model.get(name, "")) for name in ("role", "spec", "identity"))
        )
        cases.append(_case_record(result, digest, models.setdefault(model, len(models))))
    run = HistoryRun(
        format=FORMAT,
        run=origin.run,
        started=round(origin.started, 3),
        seconds=round(origin.seconds, 1),
        verdict=origin.verdict,
        models=list(models),
        cases=cases,
        report=encodable(origin.report),
        report_bytes=origin.report_bytes,
        digest=origin.digest,
        host=encodable(origin.host),
        cepbench=origin.cepbench,
        page=encodable(origin.page),
        page_bytes=origin.page_bytes,
        page_digest=origin.page_digest,
    )
    return run, identities


def _case_record(result: CaseResult, identity: str, model: int) -> HistoryCase:
    return HistoryCase(
        case=encodable(f"{result.suite}/{result.part}/{result.metric}"),
        verdict=result.verdict,
        value=_rounded(result.value),
        baseline=_rounded(result.baseline),
        difference=_rounded(result.difference),
        low=_rounded(result.low),
        high=_rounded(result.high),
        tolerance=result.tolerance,
        n=result.n,
        identity=identity,
        model=model,
        primary=result.primary,
        accepted=result.accepted,
        higher_is_better=result.higher_is_better,
        p=result.p,
        method=result.method,
    )


def identity_digest(identity: dict[str, str]) -> str:
    """The first 16 digits of the SHA-256 of an identity's fields, in any order."""
    text = json.dumps(identity, sort_keys=True)
    return sha256(text.encode("ascii")).hexdigest()[:_DIGITS]


def report_digest(data: bytes) -> str:
    """The first 16 digits of the SHA-256 of a report."""
    return sha256(data).hexdigest()[:_DIGITS]


def changed_fields(before: dict[str, str] | None, now: dict[str, str] | None) -> Iterable[str]:
    """Names of the fields in which two identities differ; none where one is not known."""
    if before is None or now is None:
        return ()
    return sorted(k for k in before.keys() | now.keys() if before.get(k) != now.get(k))


def _rounded(value: float | None) -> float | None:
    """Six decimals, as scores have."""
    return None if value is None else round(value, 6)


def encodable(text: str) -> str:
    """A text that UTF-8 can hold: halves of surrogate pairs come from paths that are not UTF-8."""
    return text.encode("utf-8", "replace").decode("utf-8")
