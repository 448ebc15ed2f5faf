"""Files and lines that runs leave for CI services."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.plugin.project import REGRESSED, Project


@pytest.fixture
def github(accepted: Project, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The variables of GitHub's runner; the file for the summary of the step."""
    summary = accepted.path / "step-summary"
    summary.touch()  # as the runner does
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    monkeypatch.setenv("GITHUB_WORKSPACE", str(accepted.path))
    return summary


def _errors(result: pytest.RunResult) -> list[str]:
    return [line for line in result.outlines if line.startswith("::error")]


def test_a_failing_run_on_github(accepted: Project, github: Path) -> None:
    """The summary of the step is the Markdown report, and the worst three cases are annotated."""
    result = accepted.run_here(REGRESSED)
    assert result.ret == 1
    assert github.read_text() == (accepted.path / ".cepbench/report.md").read_text()
    assert len(_errors(result)) == 3
    assert _errors(result)[0].startswith("::error file=suite.toml,line=16,title=cepbench%3A toy ")


def test_a_run_that_holds_on_github(accepted: Project, github: Path) -> None:
    """It has a summary and no annotation."""
    result = accepted.run_here()
    assert result.ret == 0
    assert "10 held" in github.read_text()
    assert _errors(result) == []


def test_a_run_that_judges_nothing_on_github(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has no report, but a summary and an annotation that say why it is incomplete."""
    summary = project.path / "step-summary"
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    project.write("suite.toml", "broken")
    project.write("test_toy.py", "def test_drift(cep_case, cep_gate):\n    cep_gate(cep_case)\n")
    result = project.run_here()
    assert result.ret != 0
    assert "1 modules could not be collected" in summary.read_text()
    assert "::error title=cepbench%3A the run is incomplete::1 modules" in result.stdout.str()


@pytest.mark.parametrize("argument", ["--cep-plan", "--collect-only"])
def test_a_run_that_only_looks_leaves_nothing(
    accepted: Project, github: Path, monkeypatch: pytest.MonkeyPatch, argument: str
) -> None:
    """Neither a plan nor a list of the tests says anything of a model."""
    monkeypatch.setenv("GITLAB_CI", "true")
    result = accepted.run_here(argument)
    assert _errors(result) == []
    assert github.read_text() == ""
    assert list(accepted.path.rglob("*.codequality.json")) == []


def test_a_plain_run_of_pytest_leaves_nothing(accepted: Project, github: Path) -> None:
    """A failing test that gates nothing is none of our business."""
    (accepted.path / "suite.toml").unlink()
    accepted.write("test_toy.py", "def test_plain():\n    assert False\n")
    result = accepted.run_here()
    assert (result.ret, _errors(result), github.read_text()) == (1, [], "")


def test_a_summary_that_cannot_be_written_changes_no_verdict(
    accepted: Project, github: Path
) -> None:
    """A line says why, and the reports are there."""
    github.unlink()
    github.mkdir()
    result = accepted.run_here()
    assert result.ret == 0
    result.stdout.fnmatch_lines(["nothing was written for GITHUB_STEP_SUMMARY: Is a directory"])
    assert (accepted.path / ".cepbench/report.md").exists()


def test_code_quality_on_gitlab(accepted: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """It lies beside the other reports, with paths from the checkout."""
    monkeypatch.setenv("GITLAB_CI", "true")
    monkeypatch.setenv("CI_PROJECT_DIR", str(accepted.path.parent))
    result = accepted.run_here(REGRESSED, "--cep-report=out/gate.json")
    result.stdout.fnmatch_lines(["report: out/gate.codequality.json"])
    issues = json.loads((accepted.path / "out/gate.codequality.json").read_text())
    assert {issue["check_name"] for issue in issues} == {"cepbench: regressed"}
    assert {issue["location"]["path"] for issue in issues} == {f"{accepted.path.name}/suite.toml"}
    assert {issue["location"]["lines"]["begin"] for issue in issues} == {16}


def test_an_annotation_on_buildkite(accepted: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """The agent is given the Markdown report; where it fails, a line says so."""
    agent = accepted.write("bin/buildkite-agent", '#!/bin/sh\necho "$@" > args; cat > body\n')
    agent.chmod(0o755)
    monkeypatch.setenv("BUILDKITE", "true")
    monkeypatch.setenv("PATH", f"{agent.parent}:{os.environ['PATH']}")
    assert accepted.run_here(REGRESSED).ret == 1
    assert (accepted.path / "args").read_text().split() == [
        "annotate", "--style", "error", "--context", "cepbench",
    ]  # fmt: skip
    body = (accepted.path / "body").read_text()
    assert body == (accepted.path / ".cepbench/report.md").read_text()
    agent.write_text("#!/bin/sh\nexit 7\n")
    result = accepted.run_here()
    assert result.ret == 0
    result.stdout.fnmatch_lines(["nothing was written for BUILDKITE: its agent did not take *"])


@pytest.mark.slow
def test_only_the_controller_writes(accepted: Project, github: Path) -> None:
    """Of a run on several workers there is one summary, and no annotation twice."""
    result = accepted.run(REGRESSED, "-n", "2")
    assert github.read_text() == (accepted.path / ".cepbench/report.md").read_text()
    assert len(set(_errors(result))) == len(_errors(result)) == 3
