"""The result of a run as a whole: verdict, exit code, reports, history, new baselines.

Imports nothing heavy: the plugin asks for the exit code of every run of pytest.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_cepbench.files import keep_out_of_git, shown_path

if TYPE_CHECKING:
    from pytest_cepbench.evaluation.evaluator import Evaluator
    from pytest_cepbench.evaluation.run_context import RunContext
    from pytest_cepbench.evaluation.settings import RunSettings
    from pytest_cepbench.gate.baseline import BaselineChange
    from pytest_cepbench.report.result import CaseResult
    from pytest_cepbench.report.writers import RunOutcome

NOTHING_COMPARED = 5
"""Exit code of a run that compared nothing: pytest's own of a run without tests."""


def run_verdict(results: Sequence[CaseResult], problems: Collection[str]) -> str:
    """Of the whole run: passed, undecided, failed, or incomplete.

    A run is undecided where no case fails, and of one that could have failed it the samples do not
    tell; such a run ends with exit code 0 unless the user has it fail.
    problems: why the run is incomplete; empty when it is complete.
    """
    if problems or not results:
        return "incomplete"
    if not all(result.passes for result in results):
        return "failed"
    if nothing_compared(results, ()):
        return "incomplete"
    open_cases = (result for result in results if result.verdict == "inconclusive" and result.gates)
    return "undecided" if any(open_cases) else "passed"


def nothing_compared(results: Sequence[CaseResult], skipped: Collection[object]) -> bool:
    """Whether there were cases, and none was judged that could have failed the run.

    skipped: what was not to be judged.
    """
    return bool(skipped or results) and not any(
        result.primary or result.accepted for result in results
    )


def unmeasured_lines(results: Iterable[CaseResult]) -> Iterator[str]:
    """The informational cases that were not measured, a line for each reason: they fail no run."""
    from pytest_cepbench.report.number_format import name_of, printable

    names: dict[str, list[str]] = {}
    for result in results:
        if result.verdict == "error" and result.passes:
            reason = printable("; ".join(result.reasons), 500)
            names.setdefault(reason, []).append(name_of(result))
    for reason, (first, *others) in names.items():
        cases = f"{first} and {len(others)} more were" if others else f"{first} was"
        yield f"{cases} not measured: {reason}"


def exit_code(results: Iterable[CaseResult], problems: Callable[[], Collection[str]]) -> int:
    """The exit code of the worst verdict; 0 where all cases pass and the run is complete.

    problems: gives why the run is incomplete; asked only where no case fails.
    """
    failing = [result.presentation.exit_code for result in results if not result.passes]
    if failing:
        return max(failing)
    if problems():
        from pytest_cepbench.gate import PRESENTATIONS, Verdict

        return PRESENTATIONS[Verdict.INCOMPLETE].exit_code
    return 0


def accept_baselines(results: Iterable[CaseResult], root: Path) -> list[BaselineChange]:
    """Write the measurements that were accepted below the folder of baselines, all or none.

    Returns what changed. Raises WriteError, and then nothing is changed.
    """
    from pytest_cepbench.gate.baseline import apply, propose, record_of

    measured = {  # once, where several tests judged a case
        result.key: record_of(result.measurement)
        for result in results
        if result.accepted and result.measurement is not None
    }
    proposed = [propose(key, baseline, root) for key, baseline in measured.items()]
    changes = [change for change in proposed if change is not None]
    apply(changes, root)
    return changes


def write_run_reports(
    evaluator: Evaluator, outcome: RunOutcome, command: Sequence[str] = ()
) -> RunOutcome:
    """Write the JSON report, and HTML and Markdown beside it.

    outcome: has at least one result; what the first one says stands for a set-up that it lacks.
    command: by which the run was started, program first.
    Returns the outcome with its provenance and the paths. Raises WriteError.
    """
    from pytest_cepbench.evaluation.run_provenance import gather_provenance
    from pytest_cepbench.report.ci_reports import markdown_summary
    from pytest_cepbench.report.pages import html_page
    from pytest_cepbench.report.writers import json_document, write_reports

    results, settings = outcome.results, evaluator.settings
    known = {**results[0].model, **results[0].identity}
    run = replace(
        outcome,
        setup=outcome.setup or [f"{name}: {value}" for name, value in known.items()],
        provenance=gather_provenance(
            results,
            started=evaluator.context.started,
            command=command,
            baselines=settings.baselines,
        ),
    )
    documents = {
        ".json": json_document(run),
        ".html": html_page(run, evaluator.stored_artifact),
        ".md": markdown_summary(run),
    }
    # A report of an earlier run would be taken for the report of this one.
    written = write_reports(settings.report, documents, stale=False)
    with suppress(OSError):
        keep_out_of_git(settings.home, settings.report)
    return replace(run, written=written)


def remove_reports(settings: RunSettings) -> str | None:
    """Remove the reports of an earlier run: one that ends without any would seem to have them.

    For the beginning of a run that judges, which may be killed, and the end of one that had nothing
    to judge. Returns a sentence where one cannot be removed.
    """
    from pytest_cepbench.report.writers import SUFFIXES, beside, remove

    earlier = [beside(settings.report, suffix) for suffix in SUFFIXES]
    left = remove(earlier)
    return f"{shown_path(left[0])} cannot be removed, and is of an earlier run" if left else None


def record_run(context: RunContext, outcome: RunOutcome) -> None:
    """Add a run to the history, unless its settings keep none.

    context: the run.
    outcome: has at least one result; no path where reports could not be written.
    Raises WriteError, for which no run should fail.
    """
    folder = context.settings.history
    if folder is None:
        return
    from pytest_cepbench._version import __version__
    from pytest_cepbench.report.history import (
        FORMAT,
        HistoryRun,
        append_run,
        host_name,
        report_digest,
        run_record,
    )

    report = next((path for path in outcome.written if path.suffix == ".json"), None)
    data = b""
    with suppress(OSError):  # someone removed it, and the history links to nothing
        data = b"" if report is None else report.read_bytes()
    run = HistoryRun(
        format=FORMAT,
        cases=[],
        run=context.run_id,
        started=context.started,
        seconds=time.time() - context.started,
        verdict=outcome.verdict,
        report="" if report is None else os.path.relpath(report, folder),
        digest=report_digest(data),
        host=host_name(),
        cepbench=__version__,
    )
    append_run(folder, run_record(run, outcome.results))
    with suppress(OSError):
        keep_out_of_git(context.settings.home, folder)
