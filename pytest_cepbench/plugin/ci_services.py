"""What a run leaves for the CI service that it runs on, beside its reports.

GitHub Actions, GitLab and Buildkite tell a process by environment variables where it runs. Only the
process that the user started writes for them, and not for a plan or a list of tests. A file that
cannot be written is told in a line and changes no verdict.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_cepbench.errors import WriteError

if TYPE_CHECKING:
    from pytest_cepbench.plugin.controller import Controller, RunOutcome

_AGENT_SECONDS = 30.0  # for an agent that cannot reach its server

Writer = Callable[["Controller", "RunOutcome", str], "Path | None"]
"""Writes a file for a service, given the value of its variable; returns it where users open it."""


def write_files(controller: Controller) -> None:
    """Write what the services of this process's environment read."""
    outcome = controller.outcome
    if outcome is None or controller.settings.plan or controller.settings.listing:
        return
    written, unsent = list(outcome.written), list(outcome.unsent)
    for variable, write in WRITERS.items():
        value = os.environ.get(variable)
        if not value:
            continue
        try:
            path = write(controller, outcome, value)
        except (OSError, WriteError) as error:
            words = getattr(error, "strerror", None) or error
            unsent.append(f"nothing was written for {variable}: {words}")
        else:
            written += [] if path is None else [path]
    controller.outcome = replace(outcome, written=tuple(written), unsent=tuple(unsent))


def write_annotations(controller: Controller, reporter: Any) -> None:
    """Print the worst cases as commands of GitHub's runner, where this is one.

    reporter: pytest's terminal reporter.
    """
    settings, outcome = controller.settings, controller.outcome
    if os.environ.get("GITHUB_ACTIONS") != "true" or settings.plan or settings.listing:
        return
    if outcome is None:
        return
    from pytest_cepbench.report.ci_reports import annotation_lines

    root = controller.ledger.root
    workspace = Path(os.environ.get("GITHUB_WORKSPACE") or root)
    reporter.ensure_newline()  # a command is read where it begins a line
    for line in annotation_lines(outcome.results, outcome.problems, root, workspace):
        reporter.write_line(line)


def _write_step_summary(_: Controller, outcome: RunOutcome, value: str) -> None:
    from pytest_cepbench.report.ci_reports import append_step_summary

    append_step_summary(Path(value), _summary(outcome))


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


def _write_code_quality(controller: Controller, outcome: RunOutcome, _: str) -> Path:
    from pytest_cepbench.report.ci_reports import SUFFIX, code_quality
    from pytest_cepbench.report.writers import write_reports

    root = controller.ledger.root
    repository = Path(os.environ.get("CI_PROJECT_DIR") or root)
    text = code_quality(outcome.results, outcome.problems, root, repository)
    return write_reports(controller.settings.report, {SUFFIX: text}, stale=False)[0]


def _annotate_build(_: Controller, outcome: RunOutcome, __: str) -> None:
    """Show the summary above the steps of a Buildkite build, where its agent is at hand."""
    import subprocess

    from pytest_cepbench.report.ci_reports import ANNOTATION_BYTES, buildkite_command, shorten

    text = shorten(_summary(outcome), ANNOTATION_BYTES)
    try:
        subprocess.run(  # noqa: S603 - a command of fixed words
            buildkite_command(outcome.verdict),
            input=text.encode("utf-8", "replace"),
            check=True,
            capture_output=True,
            timeout=_AGENT_SECONDS,
        )
    except subprocess.SubprocessError as error:
        raise WriteError(f"its agent did not take the annotation: {error}") from error


WRITERS: dict[str, Writer] = {
    "BUILDKITE": _annotate_build,
    "GITHUB_STEP_SUMMARY": _write_step_summary,
    "GITLAB_CI": _write_code_quality,
}
"""Environment variable of a service -> what is written where it is set."""
