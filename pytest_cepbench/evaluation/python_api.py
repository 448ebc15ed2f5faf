"""`gate_checkpoint`: the gate without pytest, for scripts, notebooks and training loops."""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from pytest_cepbench.errors import (
    DataAbsentError,
    MeasurementError,
    SpecError,
    SuiteError,
    SuiteNotApplicableError,
    WriteError,
    name_errors,
    unknown_name,
)
from pytest_cepbench.escapes import visible
from pytest_cepbench.evaluation.case_runner import judge_case
from pytest_cepbench.evaluation.evaluator import Evaluator
from pytest_cepbench.evaluation.run_context import RunContext
from pytest_cepbench.evaluation.run_result import (
    NOTHING_COMPARED,
    accept_baselines,
    exit_code,
    nothing_compared,
    record_run,
    remove_reports,
    run_verdict,
    unmeasured_lines,
    write_run_reports,
)
from pytest_cepbench.evaluation.settings import OPTIONS, RunSettings, read_settings
from pytest_cepbench.files import read_text, shown_path
from pytest_cepbench.gate.baseline import baseline_path
from pytest_cepbench.measures.cases import PooledCase
from pytest_cepbench.models.spec import PRESET
from pytest_cepbench.replacement import recover
from pytest_cepbench.report.headline import headline
from pytest_cepbench.report.result import CaseResult
from pytest_cepbench.report.tables import summary_table, text_of
from pytest_cepbench.report.text import explain, promise_lines, refusal_lines, warning_lines
from pytest_cepbench.report.totals import two_identities, unshown_lines
from pytest_cepbench.report.writers import RunOutcome
from pytest_cepbench.suites import Case
from pytest_cepbench.suites.definition import FILE_NAME, find_shipped
from pytest_cepbench.suites.gate_config import Overrides

_OTHERS = ("plan", "devices-per-worker", "allow-skips")
"""Options of plans, of workers and of tests, of which there are none here."""

_OUTCOMES = ("_pytest.outcomes", "unittest.case")
"""Modules of the exceptions that skip a test, or end the run."""


@dataclass(frozen=True)
class GateResult:
    """The verdicts of one checkpoint; true where it passed.

    cases: the judged cases, in the order of their suites.
    skipped: suite -> why none of its cases was judged.
    problems: why the run is incomplete; empty when it is complete.
    infrastructure: what went wrong with machines and was made good.
    reports: paths of the reports that were written.
    changed: paths of the baselines that were written.
    unshown: a sentence for each sample of `show` that no case has.
    """

    cases: tuple[CaseResult, ...]
    skipped: Mapping[str, str] = field(default_factory=dict)
    problems: tuple[str, ...] = ()
    infrastructure: tuple[str, ...] = ()
    reports: tuple[Path, ...] = ()
    changed: tuple[Path, ...] = ()
    unshown: tuple[str, ...] = ()

    @property
    def passed(self) -> bool:
        """Whether everything was measured that was asked for, and no case fails.

        True of an undecided run, as long as `inconclusive` is not `fail`: `verdict` tells them.
        """
        return self.exit_code == 0

    def __bool__(self) -> bool:
        """As `passed`, so that `if gate_checkpoint(...):` is not always true."""
        return self.passed

    @property
    def headline(self) -> str:
        """The run in one sentence, with which every report of it opens."""
        return headline(self.cases, self.problems, skipped=self.skipped)

    @property
    def verdict(self) -> str:
        """Of the whole run: passed, undecided, failed, or incomplete."""
        if nothing_compared(self.cases, self.skipped):
            return "incomplete"
        return run_verdict(self.cases, self.problems)

    @property
    def exit_code(self) -> int:
        """The exit code that pytest ends such a run with; 0 only where it passed."""
        code = exit_code(self.cases, lambda: self.problems)
        if code == 0 and (not self.cases or nothing_compared(self.cases, self.skipped)):
            return NOTHING_COMPARED
        return code

    def __getitem__(self, case: str) -> CaseResult:
        """A case by its name, `suite/part/metric`. Raises KeyError."""
        for result in self.cases:
            if str(result.key) == case:
                return result
        raise KeyError(case)

    def __str__(self) -> str:
        """The table of verdicts, the run as a whole, and why each failing case fails."""
        lines = [self.headline]
        if self.cases:
            lines += [*map(text_of, summary_table(self.cases)), *promise_lines(self.cases)]
            for kind, own in (
                ("warning", warning_lines(self.cases)),
                ("refused", refusal_lines(self.cases)),
                ("informational", unmeasured_lines(self.cases)),
            ):
                lines += [f"{kind}: {line}" for line in own]
        lines += [f"skipped: {suite}: {reason}" for suite, reason in self.skipped.items()]
        lines += [f"infrastructure: {line}" for line in self.infrastructure]
        lines += [*self.unshown, *(f"INCOMPLETE: {problem}" for problem in self.problems)]
        lines.append(f"verdict: {self.verdict}")
        for result in self.cases:
            if not result.passes:
                lines += ["", *explain(result).splitlines()]
        return "\n".join(map(visible, lines))


def gate_checkpoint(
    suites: str | Path | Iterable[str | Path],
    *,
    snapshot_update: bool = False,
    root: str | Path | None = None,
    **options: Any,
) -> GateResult:
    """Gate a checkpoint without pytest: the verdicts and numbers are those of `pytest SUITES`.

    suites: suite files, or folders; a folder stands for every suite file in it, and in every folder
        below it that has a `suite.toml`; "pytest_cepbench.suites.NAME" for one of the package's.
    snapshot_update: whether to accept what was measured as the new baselines; only a complete run
        without failures is accepted.
    root: the project's folder, with `baselines` and `.cepbench` in it; the working folder by
        default.
    options: as on the command line, without the dashes (`model="checkpoints/step-8000"`,
        `inconclusive="more"`). No ini file and no environment variable is read. Reports, and a line
        in the history, are written where `report` is given; older ones there are removed at the
        start.
    Raises kinds of CepError for what pytest refuses to collect: a wrong suite, spec or option; and
    MeasurementError where code of a model or a data set ends the process or skips the test that
    calls (sys.exit, pytest.skip), which would look like a pass; in an answer of a model most of
    these are errors of its cases. A suite that the model under test
    has no part in is skipped, as in pytest; one whose data set is not here makes the result
    incomplete.
    """
    if not isinstance(snapshot_update, int | None):  # "false" of an environment variable is true
        raise SpecError(f"snapshot_update={snapshot_update!r}: True or False is expected")
    with name_errors():
        settings = _settings(options, Path.cwd() if root is None else Path(root).absolute())
        report = "report" in options
        if report:
            remove_reports(settings)
        files = list(_suite_files([suites] if isinstance(suites, str | Path) else suites))
        evaluator = Evaluator(RunContext(settings))
    try:
        with importable(files), name_errors():
            return _gate(evaluator, files, update=snapshot_update, report=report)
    except BaseException as error:
        # pytest's and unittest's for skipping and leaving: some of them are ordinary exceptions.
        own = any(kind.__module__ in _OUTCOMES for kind in type(error).__mro__)
        ends = own or not isinstance(error, Exception)  # a process or a test, without a failure
        if isinstance(error, KeyboardInterrupt) or not ends:
            raise
        raise MeasurementError(
            "nothing is known of the checkpoint: code of a model or a data set raised "
            f"{type(error).__name__}({error}) where an ordinary exception is expected"
        ) from error
    finally:
        evaluator.close()
        evaluator.context.remove_folder()


@contextmanager
def importable(files: Sequence[Path]) -> Iterator[None]:
    """Modules of `python:` models and loaders may lie beside their suite, or here, as under pytest.

    files: of suites.
    """
    folders = dict.fromkeys(
        str(folder.absolute()) for folder in (*(file.parent for file in files), Path())
    )
    added = [folder for folder in folders if folder not in sys.path]
    sys.path[:0] = added
    try:
        yield
    finally:
        for folder in added:
            with suppress(ValueError):  # the caller's own code may have removed it
                sys.path.remove(folder)


def _settings(options: Mapping[str, Any], root: Path) -> RunSettings:
    """Options as settings. Raises SpecError for a wrong option, TypeError for no option."""
    values, sources = {}, {}
    known = [option.name.replace("-", "_") for option in OPTIONS if option.name not in _OTHERS]
    for name, value in options.items():
        if name not in known:
            wrong = unknown_name("option", name, known)
            raise TypeError(f"gate_checkpoint: {wrong}")
        if value is not None and (texts := _texts(value)):
            setting = name.replace("_", "-")
            values[setting], sources[setting] = texts, f"gate_checkpoint({name}=)"
    try:
        return read_settings(values, sources, root)
    except ValueError as error:
        raise SpecError(str(error)) from None


def _texts(value: object) -> list[str]:
    """An option as it is typed on the command line."""
    if isinstance(value, Mapping):
        return [f"{name}={item}" for name, item in value.items()]
    if isinstance(value, list | tuple):
        return [str(item) for item in value]
    return [str(value).lower() if isinstance(value, bool) else str(value)]


def _suite_files(places: Iterable[str | Path]) -> Iterator[Path]:
    """The suite files of what was named. Raises SuiteError where there is none."""

    def is_suite(path: Path) -> bool:
        """One that cannot be read counts, so that it is reported."""
        try:
            return {"name", "metrics"} <= tomllib.loads(read_text(path)).keys()
        except (OSError, ValueError):
            return True

    for name in places:
        if not str(name):  # as of a variable that is not set; as a path it is this folder
            raise SuiteError("the name of a suite is empty: give a suite's file or folder")
        named = Path(name)
        place = find_shipped(str(named)) or named
        if not place.is_dir():
            yield place.resolve()
            continue
        folders = sorted({path.parent for path in place.rglob(FILE_NAME)} | {place})
        every = (file for folder in folders for file in sorted(folder.glob("*.toml")))
        files = [file for file in every if file.name == FILE_NAME or is_suite(file)]
        if not files:
            raise SuiteError(
                f"{place}: no suite file (*.toml) is in this folder, nor a {FILE_NAME} below it"
            )
        yield from (file.resolve() for file in files)


def _gate(evaluator: Evaluator, files: Sequence[Path], *, update: bool, report: bool) -> GateResult:
    """What pytest does in a run: options, cases, verdicts, baselines, reports."""
    settings = evaluator.settings
    # A mistake in an option is to cost a second, not a night.
    for name, assignment in evaluator.suites.choices.assigned.items():
        if assignment.spec.scheme != PRESET:  # which model a preset is, each suite says
            evaluator.bind_named(name)
    if evaluator.series is not None:
        evaluator.series.read()
    recovered = recover(settings.baselines) if settings.baselines.is_dir() else None
    cases, skipped, problems = _collect(evaluator, files, pooled=not update)
    evaluator.assign(
        {
            name: (path, case, Overrides())
            for name, (path, case) in cases.items()
            if isinstance(case, Case)
        }
    )
    evaluator.check_policies(accepting=update)
    evaluator.plan_pools()
    results = [
        judge_case(evaluator, path, case, name, Overrides(), "all" if update else "none")
        for name, (path, case) in cases.items()
    ]
    evaluator.leave_cluster()
    remarks = [*([] if recovered is None else [recovered]), *evaluator.publish(None, None)]
    problems += two_identities(results)
    changed = _accept(results, problems, settings.baselines) if update else []
    infrastructure = list(dict.fromkeys([*remarks, *evaluator.infrastructure]))
    written: Sequence[Path] = ()
    if report and results:
        outcome = RunOutcome(
            run_verdict(results, problems),
            problems=problems,
            infrastructure=infrastructure,
            usage=[evaluator.background_usage],
            headline=headline(results, problems, skipped=skipped),
            results=results,
        )
        outcome = write_run_reports(evaluator, outcome)
        written = outcome.written
        try:
            record_run(evaluator.context, outcome)
        except WriteError as error:
            infrastructure.append(f"the run is not in the history: {error}")
    return GateResult(
        cases=tuple(results),
        skipped=skipped,
        problems=tuple(problems),
        infrastructure=tuple(infrastructure),
        reports=tuple(written),
        changed=tuple(changed),
        unshown=tuple(unshown_lines(results, settings.show, option="show")),
    )


def _collect(
    evaluator: Evaluator, files: Iterable[Path], *, pooled: bool
) -> tuple[dict[str, tuple[Path, Case | PooledCase]], dict[str, str], list[str]]:
    """The cases of suites by name, the suites without any and why, and what is not here at all."""
    cases: dict[str, tuple[Path, Case | PooledCase]] = {}
    skipped: dict[str, str] = {}
    problems: list[str] = []
    for path in dict.fromkeys(files):
        shown = str(shown_path(path))
        try:
            own = evaluator.suites.cases(path, pooled=pooled)
        except SuiteNotApplicableError as reason:
            skipped[shown] = str(reason)
        except DataAbsentError as absence:
            skipped[shown] = str(absence)
            problems.append(f"{shown} was not measured: its data set is not here")
        else:
            cases.update({f"{shown}::{case.id}": (path, case) for case in own})
    evaluator.suites.check_names()
    return cases, skipped, problems


def _accept(results: list[CaseResult], problems: list[str], root: Path) -> list[Path]:
    """Make the results the baselines, if the run is complete and all pass; the written files.

    Where nothing is accepted no result says that it was, and problems say why it could not be.
    """
    if not problems and all(result.passes for result in results):
        try:
            return [baseline_path(root, change.key) for change in accept_baselines(results, root)]
        except WriteError as error:
            problems.append(f"nothing was accepted: {error}")
    results[:] = [replace(result, accepted=False) for result in results]
    return []
