"""What a run leaves for the CI service that it runs on, beside its reports.

GitHub Actions and GitLab tell a process by environment variables where it runs. Only the process
that the user started writes for them, and not for a plan or a list of tests. A file that cannot be
written is told in a line and changes no verdict.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_cepbench.errors import WriteError

if TYPE_CHECKING:
    from pytest_cepbench.plugin.controller import Controller

Writer = Callable[["Controller", str], "Path | None"]
"""Writes a file for a service, given the value of its variable; returns it where users open it."""


def write_files(controller: Controller) -> None:
    """Write what the services of this process's environment read; lines of it go to `ci_lines`."""
    if controller.settings.plan or controller.settings.listing:
        return
    for variable, write in WRITERS.items():
        value = os.environ.get(variable)
        if not value:
            continue
        try:
            path = write(controller, value)
        except (OSError, WriteError) as error:
            words = getattr(error, "strerror", None) or error
            controller.ci_lines.append(f"nothing was written for {variable}: {words}")
        else:
            if path is not None:
                controller.written.append(path)


def write_annotations(controller: Controller, reporter: Any) -> None:
    """Print the worst cases as commands of GitHub's runner, where this is one.

    reporter: pytest's terminal reporter.
    """
    settings = controller.settings
    if os.environ.get("GITHUB_ACTIONS") != "true" or settings.plan or settings.listing:
        return
    from pytest_cepbench.report.ci_reports import annotation_lines

    ledger = controller.ledger
    workspace = Path(os.environ.get("GITHUB_WORKSPACE") or ledger.root)
    reporter.ensure_newline()  # a command is read where it begins a line
    for line in annotation_lines(ledger.results, ledger.problems(), ledger.root, workspace):
        reporter.write_line(line)


def _write_step_summary(controller: Controller, value: str) -> None:
    from pytest_cepbench.report.ci_reports import append_step_summary

    append_step_summary(Path(value), _summary(controller))


def _summary(controller: Controller) -> str:
    """The run's Markdown report; made anew where the run wrote none."""
    for path in controller.written:
        if path.suffix == ".md":
            return path.read_text(encoding="utf-8")
    from pytest_cepbench._version import __version__
    from pytest_cepbench.report.markdown import markdown_summary
    from pytest_cepbench.report.writers import RunFacts

    ledger = controller.ledger
    facts = RunFacts(
        ledger.verdict(), __version__, controller.lines, ledger.problems(),
        controller.infrastructure, controller.background_usage, headline=controller.headline,
    )  # fmt: skip
    return markdown_summary(facts, ledger.results)


def _write_code_quality(controller: Controller, _: str) -> Path:
    from pytest_cepbench.report.ci_reports import SUFFIX, code_quality
    from pytest_cepbench.report.writers import write_reports

    ledger = controller.ledger
    repository = Path(os.environ.get("CI_PROJECT_DIR") or ledger.root)
    text = code_quality(ledger.results, ledger.problems(), ledger.root, repository)
    return write_reports(controller.settings.report, {SUFFIX: text}, stale=False)[0]


WRITERS: dict[str, Writer] = {
    "GITHUB_STEP_SUMMARY": _write_step_summary,
    "GITLAB_CI": _write_code_quality,
}
"""Environment variable of a service -> what is written where it is set."""
