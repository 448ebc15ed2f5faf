"""The report that `pytest --cep-report` wrote, checked before anything in it is believed."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import msgspec

from pytest_cepbench.errors import SpecError
from pytest_cepbench.files import read_regular
from pytest_cepbench.gate import CaseKey
from pytest_cepbench.measures.cases import POOLED
from pytest_cepbench.report import CaseResult
from pytest_cepbench.report.writers import SCHEMA
from pytest_cepbench.suites.definition import NAME

MOST_BYTES = 2**30
"""Of a report: its scores take some dozens of bytes for each sample of each case."""


@dataclass(frozen=True)
class RunReport:
    """Report of a run.

    digest: the first 16 digits of the file's SHA-256.
    verdict, problems, deaths (of workers): of the whole run.
    cases: its cases, in order, without the verdicts of whole suites, which measure nothing.
    suite_verdicts: those verdicts.
    """

    path: Path
    digest: str
    verdict: str
    problems: tuple[str, ...]
    deaths: int
    cases: tuple[CaseResult, ...]
    suite_verdicts: tuple[CaseResult, ...] = ()

    @property
    def incomplete(self) -> str | None:
        """Reason why the run is incomplete; None for a complete one."""
        if self.verdict != "incomplete" and not self.problems:
            return None
        # As a gate a run of informational cases is incomplete; its numbers are whole.
        if self.cases and not self.problems and not any(case.primary for case in self.cases):
            return None
        return "; ".join(self.problems) or "no case was judged"


class _Head(msgspec.Struct):
    schema: int


class _Document(msgspec.Struct):
    verdict: str
    problems: list[str]
    cases: list[CaseResult]
    deaths: int = 0


def read_report(path: Path) -> RunReport:
    """The report in a file. Raises SpecError for a file that is none, or of another schema."""
    try:
        data = read_regular(path, MOST_BYTES)
    except OSError as error:
        raise SpecError(f"results {str(path)!r} cannot be read: {error.strerror}") from error
    try:
        _check_schema(msgspec.json.decode(data, type=_Head).schema, path)
        document = msgspec.json.decode(data, type=_Document)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise SpecError(
            f"results {str(path)!r} are not the JSON report of a run (--cep-report FILE): {error}"
        ) from error
    for case in document.cases:
        if not (NAME.fullmatch(case.suite) and NAME.fullmatch(case.metric)):
            raise SpecError(
                f"results {str(path)!r}: {case.suite!r} with metric {case.metric!r} are no names "
                "of a suite and its metric"
            )
    return RunReport(
        path=path,
        digest=sha256(data).hexdigest()[:16],
        verdict=document.verdict,
        problems=tuple(document.problems),
        deaths=document.deaths,
        cases=tuple(case for case in document.cases if _is_measured(case)),
        suite_verdicts=tuple(case for case in document.cases if not _is_measured(case)),
    )


def _is_measured(case: CaseResult) -> bool:
    """True for a case with a measurement of its own, False for a verdict on others."""
    return (case.part, case.metric) != POOLED


def key_of(case: CaseResult) -> CaseKey:
    """Which case it is."""
    return CaseKey(case.suite, case.part, case.metric)


def _check_schema(schema: int, path: Path) -> None:
    if schema == SCHEMA:
        return
    remedy = (
        "it was written by a newer pytest-cepbench, install that one"
        if schema > SCHEMA
        else "it was written by an earlier pytest-cepbench, run again with this one"
    )
    raise SpecError(
        f"results {str(path)!r} have schema {schema}, this version reads {SCHEMA}: {remedy}"
    )
