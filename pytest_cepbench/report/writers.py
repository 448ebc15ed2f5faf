"""What programs read of a run: JSON with provenance, JUnit properties, CSV; writing reports."""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from pytest_cepbench._version import __version__
from pytest_cepbench.errors import WriteError
from pytest_cepbench.escapes import escape_json
from pytest_cepbench.report.case_table import sample_values
from pytest_cepbench.report.number_format import printable
from pytest_cepbench.report.result import BaselineModel, CaseResult, ModelShown, UsageTotals
from pytest_cepbench.report.totals import (
    count_verdicts,
    run_alpha,
    total_usage,
)

if TYPE_CHECKING:
    from pytest_cepbench.gate.baseline import BaselineChange

_PROMPT = "prompt"
"""The last word of the fields of an identity that hold prompts."""


class SuiteProvenance(msgspec.Struct, frozen=True):
    """What was compared with what in one suite.

    suite: its name.
    candidate: the models under test; empty where no case was measured, or where chains were
    recorded elsewhere.
    recorded: what was under test where its chains or answers were recorded elsewhere.
    baselines: the models whose numbers were accepted, each once; empty without a baseline.
    accepted: when the folder of its baselines last changed: the time of the commit, or of the files
    where they are not committed; ISO 8601, empty where that is not known, or there is none.
    accepted_commit: the commit of that change; empty where baselines are not committed as they are.
    uncommitted: whether baselines differ from the last commit, or are in none.
    fixed: the other models: generator, encoders, detector, judge.
    prompts: of the roles, by name.
    data: the data set's identity.
    samples: number of samples of its largest case, and their digest.
    """

    suite: str
    candidate: list[ModelShown] = []
    recorded: str = ""
    baselines: list[BaselineModel] = []
    accepted: str = ""
    accepted_commit: str = ""
    uncommitted: bool = False
    fixed: list[ModelShown] = []
    prompts: dict[str, str] = {}
    data: str = ""
    samples: str = ""


class Provenance(msgspec.Struct, frozen=True):
    """Where, when and how a run was made. Texts that are not known are empty.

    started: ISO 8601, UTC.
    seconds: from there to the writing of the report.
    command: the command line of pytest without keys: see [the report](report.md#the-page).
    commit: of the git repository of the working directory.
    modified: whether its tracked files differ from that commit; None where that is not known.
    ci: address of the job, from the variables of GitHub Actions, GitLab, Jenkins or Buildkite.
    suites: in the order of their cases.
    """

    started: str = ""
    seconds: float = 0.0
    command: str = ""
    commit: str = ""
    modified: bool | None = None
    ci: str = ""
    suites: list[SuiteProvenance] = []


def suite_provenance(suite: str, results: Iterable[CaseResult]) -> SuiteProvenance:
    """What the results of one suite's cases say of its models, prompts and data."""
    measured = [result for result in results if result.identity]
    if not measured:
        return SuiteProvenance(suite)
    largest = max(measured, key=lambda result: result.n)
    models = dict.fromkeys(model for result in measured for model in result.shown.models)
    baselines = dict.fromkeys(result.shown.baseline_model for result in measured)
    replayed = largest.model.get("role") == "replay"
    under_test = [] if replayed else largest.model.get("role", "").split("+")
    return SuiteProvenance(
        suite=suite,
        candidate=[model for model in models if model.seat in under_test],
        recorded=largest.model.get("spec", "") if replayed else "",
        baselines=[model for model in baselines if model is not None],
        fixed=[model for model in models if model.seat not in under_test],
        prompts={
            name: text
            for result in measured
            for name, text in result.identity.items()
            if name.split()[-1:] == [_PROMPT]
        },
        data=largest.identity.get("data", ""),
        samples=largest.identity.get("samples", ""),
    )


# -- the JSON document and JUnit properties --------------------------------------------------------


SCHEMA = 2
"""Of the JSON document; docs/report-schema.md says when it is raised."""


SUFFIXES = (".json", ".html", ".md")
"""Of the files that make a report."""

PREFIX = "cepbench_"
"""Of the names of JUnit properties."""

_NUMBERS = ("value", "baseline", "difference", "p", "low", "high", "alpha", "tolerance", "n")


Acceptance = Literal["not asked", "written", "unchanged", "refused", "unwritten"]
"""What became of baselines. refused: the run gave a reason to accept none. unwritten: they could
not be written, which is one of its problems."""


@dataclass(frozen=True)
class RunOutcome:
    """A run that has ended, as the terminal and all reports show it.

    verdict: of the whole run: passed, undecided, failed, or incomplete.
    version: of this package.
    setup: the model under test and what it is compared with, in full.
    problems: why the run is incomplete; empty when it is complete.
    infrastructure: what went wrong with machines and was made good, a sentence each.
    usage: of the run's processes outside of cases.
    deaths: number of workers that died.
    headline: the run in one sentence, see `pytest_cepbench.report.headline`.
    provenance: which models were compared, where, when and how; None where it was not gathered.
    results: the judged cases, in the order of collection.
    skipped: what was not judged, by name, and why.
    remarks: on how cases were judged, for the whole run.
    code: the exit code of pytest's session, as `sys.exit` takes it.
    acceptance: whether baselines were accepted.
    changes: the baselines that were.
    written: paths of the reports.
    unwritten: why a report, the line in the history or a file of a CI service is missing.
    """

    verdict: str
    version: str = __version__
    setup: Sequence[str] = ()
    problems: Sequence[str] = ()
    infrastructure: Sequence[str] = ()
    usage: Sequence[UsageTotals] = ()
    deaths: int = 0
    headline: str = ""
    provenance: Provenance | None = None
    results: Sequence[CaseResult] = ()
    skipped: Mapping[str, str] = field(default_factory=dict)
    remarks: Sequence[str] = ()
    code: int | str | None = 0
    acceptance: Acceptance = "not asked"
    changes: Sequence[BaselineChange] = ()
    written: Sequence[Path] = ()
    unwritten: Sequence[str] = ()

    @property
    def efforts(self) -> list[UsageTotals]:
        """All that the run did."""
        return [*(result.effort for result in self.results), *self.usage]


class Document(msgspec.Struct, frozen=True):
    """The JSON report of a run.

    schema: version of this document.
    cepbench: version of the package that wrote it.
    verdict: of the run: `passed`, `undecided` (no case fails, and the samples do not tell of one
    that gates), `failed`, or `incomplete`.
    headline: the run in one sentence, see [the headline](reference.md#verdicts-and-exit-codes).
    counts: number of cases of each verdict, each case once: `accepted`, `refused` and
    `informational` take precedence over the verdict itself. Zeros are left out.
    alpha: the error allowed to the run: the sum of `alpha` over the cases that could have failed
    it. None where none of them is judged by statistics.
    setup: what was gated against what.
    problems: why the run is incomplete; empty where it is complete.
    infrastructure: problems of machines that the run recovered from: workers that died and what
    happened to their work, tests that ran again after an error.
    deaths: workers that died; nothing is accepted from a run with any.
    provenance: which models were compared, and where, when and how the run was made.
    effort: of the whole run, including work that workers did for the cases of others.
    cases: in the order of collection.
    """

    schema: int
    cepbench: str
    verdict: str
    headline: str
    counts: dict[str, int]
    alpha: float | None
    setup: list[str]
    problems: list[str]
    infrastructure: list[str]
    deaths: int
    provenance: Provenance | None
    effort: UsageTotals
    cases: list[CaseResult]


def json_document(run: RunOutcome) -> str:
    """The run as JSON text; docs/report-schema.md describes every field."""
    document = Document(
        schema=SCHEMA,
        cepbench=run.version,
        verdict=run.verdict,
        headline=run.headline,
        counts=count_verdicts(run.results),
        alpha=run_alpha(run.results),
        setup=list(run.setup),
        problems=list(run.problems),
        infrastructure=list(run.infrastructure),
        deaths=run.deaths,
        provenance=run.provenance,
        effort=total_usage(run.efforts),
        cases=list(run.results),
    )
    # Python's own indentation takes several times as long. Lone surrogates are no UTF-8.
    fields = msgspec.to_builtins(document)
    text = json.dumps(fields, ensure_ascii=False, allow_nan=False).encode("utf-8", "replace")
    return escape_json(msgspec.json.format(text, indent=2).decode()) + "\n"


def absent_field(data: bytes, record: object) -> str:
    """The path of the first field that a record's JSON lacks; empty where it has all of them.

    Decoding fills such a field with its default, as if the run had said that there was nothing.
    data: what the record was decoded from.
    """
    kind = type(record)
    names = getattr(kind, "__struct_fields__", ()) or getattr(kind, "__dataclass_fields__", ())
    parts: dict[Any, bytes] = {}
    own: dict[Any, object] = {}
    if names:  # maps hold no records
        parts |= msgspec.json.decode(data, type=dict[str, msgspec.Raw])
        own |= {name: getattr(record, name) for name in names}
    elif isinstance(record, list | tuple):
        parts |= enumerate(msgspec.json.decode(data, type=list[msgspec.Raw]))
        own |= enumerate(record)
    for name, value in own.items():
        if name not in parts:
            return str(name)
        if absent := absent_field(parts[name], value):
            return f"{name}.{absent}"
    return ""


def properties_of(result: CaseResult) -> list[tuple[str, str]]:
    """(name, text) pairs for pytest's `user_properties`; what is not known is left out.

    Texts of type str exactly, without control characters and lone surrogates: a report that xdist
    cannot send is lost. Numbers are read back as they were by `float`; `primary` is true or false.
    There is a `warning` for each.
    """
    fields = {
        "case": printable(str(result.key), 500),
        "verdict": "accepted" if result.accepted else printable(result.verdict),
        **{name: str(value) for name in _NUMBERS if (value := result.numbers[name]) is not None},
        "primary": "true" if result.primary else "false",
        **({"judge": printable(result.shown.judge, 700)} if result.shown.judge else {}),
    }
    if result.series is not None:
        fields["series"] = printable(result.series.name)
        fields["series_checkpoint"] = str(result.series.look)
        fields["series_alpha"] = str(result.series.alpha)
    warnings = [("warning", printable(warning, 700)) for warning in result.warnings]
    return [(PREFIX + name, text) for name, text in (*fields.items(), *warnings)]


# -- CSV, for spreadsheets and data frames: a row for each case, or for each sample ----------------


_RUN = ("run", "run_verdict", "step", "model", "suite", "part", "metric", "label")

COLUMNS = (
    *_RUN, "verdict", "accepted", "passes", "primary", "higher_is_better", "value", "baseline",
    "difference", "p", "low", "high", "method", "tolerance", "alpha", "gate", "n", "units",
    "visible", "floor", "anchor", "reasons", "nodeid",
)  # fmt: skip
"""Of a row for each case; docs/report.md says what each is."""

SAMPLE_COLUMNS = (
    *_RUN, "higher_is_better", "sample", "categories", "value", "baseline", "difference",
    "reference",
)  # fmt: skip
"""Of a row for each sample."""

_FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""Beginnings of texts that spreadsheets compute: such a text stands behind an apostrophe."""


def csv_table(cases: Sequence[CaseResult], run: dict[str, Any], *, samples: bool = False) -> str:
    """The table as CSV, as of RFC 4180; what is not known is empty.

    cases: judged ones, in order, and the verdicts of whole suites, which have no value.
    run: its columns that cases do not tell: `run`, `run_verdict`, `step`, `model`.
    samples: whether rows are those of samples, of each case those that lost most first.
    """
    columns = SAMPLE_COLUMNS if samples else COLUMNS
    stream = io.StringIO(newline="")
    writer = csv.writer(stream)
    writer.writerow(columns)
    for case in cases:
        known: dict[str, Any] = {
            **run,
            "verdict": str(case.verdict),
            "method": case.judgement.method,
            "reasons": "; ".join(case.reasons),
            **case.numbers,
        }
        own: list[dict[str, Any]] = [{}]
        if samples:
            own = [
                sample._asdict()
                | {
                    "categories": "; ".join(sample.categories),
                    "reference": None if sample.difference is None else case.judgement.reference,
                }
                for sample in sample_values(case)
            ]
        for row in own:
            cells = known | row
            values = [cells[name] if name in cells else getattr(case, name) for name in columns]
            for place, value in enumerate(values):
                if isinstance(value, bool):
                    values[place] = str(value).lower()
                elif isinstance(value, str) and value.startswith(_FORMULA):
                    values[place] = f"'{value}"
            writer.writerow(values)
    return stream.getvalue()


# -- writing files ---------------------------------------------------------------------------------


def beside(path: Path, suffix: str) -> Path:
    """The file of a report with a suffix: the path's own goes where it is one of a report's.

    Any other point belongs to the name, as in `qwen2.5-vl` and `epoch-1.25`.
    """
    if path.suffix in (*SUFFIXES, suffix):
        return path.with_suffix(suffix)
    return path.with_name(f"{path.name}{suffix}")


def write_reports(path: Path, documents: dict[str, str], *, stale: bool = True) -> list[Path]:
    """Write each text `beside` a path under its suffix, each file in one step; returns the files.

    stale: whether earlier files stay where a new one cannot be written; they are removed otherwise.
    Raises WriteError where a file cannot be written.
    """
    if path.name in ("", ".."):
        raise WriteError(f"{str(path)!r} is a folder: name a file")
    targets = {beside(path, suffix): text for suffix, text in documents.items()}
    fresh = {target: target.with_name(f".{target.name}.new") for target in targets}
    at = path.parent
    try:
        at.mkdir(parents=True, exist_ok=True)
        for at, text in targets.items():
            fresh[at].unlink(missing_ok=True)
            with fresh[at].open("x", encoding="utf-8", errors="replace") as stream:
                stream.write(text)
        for at in targets:
            fresh[at].replace(at)
    except OSError as error:
        left = remove([*fresh.values(), *([] if stale else targets)])
        msg = f"{at} could not be written: {error.strerror or error}"
        if left:
            msg += f"; {left[0]} cannot be removed, and is of an earlier run"
        raise WriteError(msg) from error
    return list(targets)


def remove(paths: Sequence[Path]) -> list[Path]:
    """Remove files; returns those that are still there."""
    for path in paths:
        with suppress(OSError):
            path.unlink(missing_ok=True)
    return [path for path in paths if os.path.lexists(path)]
