"""What a run leaves for GitHub Actions, beside its reports: the summary of a step, annotations.

Only the process that the user started writes for it, and not for a plan or a list of tests. A file
that cannot be written is told in a line and changes no verdict.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

from pytest_cepbench.plugin.ledger import RunOutcome

_SUMMARY = "GITHUB_STEP_SUMMARY"


def write_files(outcome: RunOutcome) -> RunOutcome:
    """Append the Markdown report to the summary of the step: the run, with why it could not be."""
    place = os.environ.get(_SUMMARY)
    if not place:
        return outcome
    from pytest_cepbench.report.ci_reports import append_step_summary

    try:
        append_step_summary(Path(place), _summary(outcome))
    except OSError as error:
        line = f"nothing was written for {_SUMMARY}: {error.strerror or error}"
        return replace(outcome, unsent=(*outcome.unsent, line))
    return outcome


def write_annotations(outcome: RunOutcome, root: Path, reporter: Any) -> None:
    """Print the worst cases as commands of GitHub's runner, where this is one.

    root: folder of the project. reporter: pytest's terminal reporter.
    """
    if os.environ.get("GITHUB_ACTIONS") != "true":
        return
    from pytest_cepbench.report.ci_reports import annotation_lines

    workspace = Path(os.environ.get("GITHUB_WORKSPACE") or root)
    reporter.ensure_newline()  # a command is read where it begins a line
    for line in annotation_lines(outcome.results, outcome.problems, root, workspace):
        reporter.write_line(line)


def _summary(outcome: RunOutcome) -> str:
    """The run's Markdown report; made anew where the run wrote none."""
    for path in outcome.written:
        if path.suffix == ".md":
            return path.read_text(encoding="utf-8")
    from pytest_cepbench._version import __version__
    from pytest_cepbench.report.ci_reports import markdown_summary
    from pytest_cepbench.report.writers import RunFacts

    facts = RunFacts(
        outcome.verdict, __version__, outcome.setup, outcome.problems, outcome.infrastructure,
        outcome.usage, headline=outcome.headline,
    )  # fmt: skip
    return markdown_summary(facts, outcome.results)
