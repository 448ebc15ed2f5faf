"""The report that `pytest --cep-report` wrote, checked before anything in it is believed.

And what speaks against accepting baselines from it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import msgspec

from pytest_cepbench.errors import SpecError, few_of
from pytest_cepbench.evaluation.run_result import run_verdict
from pytest_cepbench.files import read_regular
from pytest_cepbench.gate import CaseKey
from pytest_cepbench.gate.baseline import contradiction
from pytest_cepbench.gate.measurement import FORMAT
from pytest_cepbench.gate.sensitivity import why_not_accepted
from pytest_cepbench.measures.measure_registry import higher_is_better
from pytest_cepbench.report.number_format import counted
from pytest_cepbench.report.result import CaseResult
from pytest_cepbench.report.totals import two_identities
from pytest_cepbench.report.writers import SCHEMA, Document, absent_field
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


def read_report(path: Path) -> RunReport:
    """The report in a file.

    Raises SpecError for a file that is none, of another schema, or without one of its fields.
    """
    try:
        data = read_regular(path, MOST_BYTES)
    except OSError as error:
        raise SpecError(f"results {str(path)!r} cannot be read: {error.strerror}") from error
    try:
        schema = msgspec.json.decode(data, type=_Head).schema
        if schema != SCHEMA:
            remedy = "a newer pytest-cepbench, install that one"
            if schema < SCHEMA:
                remedy = "an earlier pytest-cepbench, run again with this one"
            raise SpecError(
                f"results {str(path)!r} have schema {schema}, this version reads {SCHEMA}: it was "
                f"written by {remedy}"
            )
        document = msgspec.json.decode(data, type=Document)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise SpecError(
            f"results {str(path)!r} are not the JSON report of a run (--cep-report FILE): {error}"
        ) from error
    if absent := absent_field(data, document):
        raise SpecError(
            f"results {str(path)!r} are not whole: {absent} is missing. Run again with this version"
        )
    for case in document.cases:
        if not (NAME.fullmatch(case.suite) and NAME.fullmatch(case.metric)):
            raise SpecError(
                f"results {str(path)!r}: {case.suite!r} with metric {case.metric!r} are no names "
                "of a suite and its metric"
            )
    return RunReport(
        digest=sha256(data).hexdigest()[:16],
        verdict=document.verdict,
        problems=tuple(document.problems),
        deaths=document.deaths,
        cases=tuple(case for case in document.cases if not case.is_pooled),
        suite_verdicts=tuple(case for case in document.cases if case.is_pooled),
    )


# -- whether baselines may be accepted from it -----------------------------------------------------


def contradictions(report: RunReport) -> Iterator[str]:
    """In what a report contradicts itself, a sentence each: no run writes such a one.

    Hand-made scores that fit all of the rest are not told from measured ones.
    """
    words = run_verdict([*report.cases, *report.suite_verdicts], report.problems)
    if words != report.verdict:
        yield (
            f"the report says that the run is {report.verdict}, and its cases that it is {words}: "
            "it was edited, run again"
        )
    specs: dict[tuple[str, str], dict[str, list[str]]] = {}
    for case in report.cases:
        tested = case.model.get("role", ""), case.model.get("spec", "")
        for seat, spec in [tested, *((model.seat, model.spec) for model in case.shown.models)]:
            specs.setdefault((case.suite, seat), {}).setdefault(spec, []).append(case.nodeid)
    for (suite, seat), tests in specs.items():
        if len(tests) > 1:
            places = (f"{spec} in {few_of(of)}" for spec, of in tests.items())
            yield f"the {seat} of suite {suite} is {' and '.join(places)}: a run has one, run again"
    for case in report.cases:
        measured = case.measurement
        if measured is None:
            continue
        metric = measured.identity.get("metric", "")
        if measured.higher_is_better != higher_is_better(metric):
            better = "higher" if measured.higher_is_better else "lower"
            yield (
                f"{case.key}: it says that {better} is better, which it is not of {metric}: it "
                "was edited, run again"
            )


def refusals(
    report: RunReport, cases: Mapping[CaseKey, Sequence[CaseResult]], *, insensitive: bool
) -> Iterator[str]:
    """Reasons why a run can update no baseline, a sentence each; none where it can.

    insensitive: whether what lies at its floor by chance may.
    """
    if report.incomplete is not None:
        yield f"the run is incomplete: {report.incomplete}; run it again"
        return
    if report.deaths:
        yield (
            f"{counted(report.deaths, 'worker')} died in the run, and baselines are accepted only "
            "from one in which none did; run it again, what was computed is in the store"
        )
        return
    yield from two_identities(report.cases)
    if not cases:
        yield "the run judged no case"
    for key, results in cases.items():
        if problem := _problem(key, results, insensitive=insensitive):
            yield f"{key}: {problem}"


def _problem(key: CaseKey, results: Sequence[CaseResult], *, insensitive: bool) -> str | None:
    """Problem with the results that a run has of a case; None where there is none."""
    first = results[0].measurement
    for result in results:
        if result.measurement is None or result.verdict in ("error", "incomplete"):
            why = f": {result.reasons[0]}" if result.reasons else ""
            return f"it was not measured{why}"
        if result.partial:
            return (
                "it was decided before all samples were looked at: run again without "
                "--cep-inconclusive=more"
            )
        if (version := result.measurement.format) != FORMAT:
            return (
                f"it has format {version}, this version writes {FORMAT}: accept it "
                "with the pytest-cepbench that made the results"
            )
        wrong = contradiction(result.measurement, key)
        if wrong is not None:
            return f"the measurement {wrong}: run again"
        if result.measurement != first:
            return "the run has several tests of it, which measured different things"
    assert first is not None  # or it was refused above
    if insensitive or not any(result.primary for result in results):
        return None
    chance = why_not_accepted(first)
    return None if chance is None else f"{chance}; --accept-insensitive accepts it all the same"
