"""What runs leave: reports, a line in the history, files and lines for CI services."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_cepbench.report.history import host_name, read_history
from tests.plugin.project import REGRESSED, TEST_MODULE, Project, contents


def test_no_earlier_report_stays_beside_a_run_that_has_none(toy: Project) -> None:
    """Whatever kept it from judging a case: a step of CI that reads the report finds none."""
    reports = [toy.path / ".cepbench" / f"report.{kind}" for kind in ("json", "html", "md")]

    def assert_gone(code: int, *args: str) -> None:
        reports[0].parent.mkdir(exist_ok=True)
        for path in reports:
            path.write_text("passed")
        run = toy.run if "killing" in args else toy.run_here
        assert run("-p", "no:xdist", *args).ret == code
        assert not [path for path in reports if path.exists()]

    toy.write("killing.py", "import os\n\ndef pytest_runtest_call():\n    os._exit(9)\n")
    assert_gone(4, "--model=python:nowhere:model")
    assert_gone(5, "-k", "nothing", "--model=shapes:")
    assert_gone(4, "--cep-data=nowhere=data")
    assert_gone(9, "--model=shapes:", "-p", "killing")
    toy.write("test_toy.py", f"import pytest\n\npytest.importorskip('nothing')\n{TEST_MODULE}")
    assert_gone(3)
    toy.write("suite.toml", "name = ")
    toy.write("test_toy.py", TEST_MODULE)
    assert_gone(4, "--model=shapes:")


def test_a_run_that_is_to_judge_nothing_leaves_reports_alone(
    accepted: Project, github: Path
) -> None:
    """A plan, lists, and tests that have nothing to do with models; GitHub is told nothing."""
    accepted.write("test_other.py", "def test_other():\n    pass\n")
    reports = {path: path.read_bytes() for path in (accepted.path / ".cepbench").glob("report.*")}
    assert len(reports) == 3
    for arguments in (
        ("--cep-plan",), ("--collect-only",), ("test_other.py",),
        ("-p", "cacheprovider", "--fixtures"), ("-p", "cacheprovider", "--fixtures-per-test"),
    ):  # fmt: skip
        result = accepted.run_here(*arguments)
        assert result.ret == pytest.ExitCode.OK
        result.stdout.no_fnmatch_line("*cepbench summary*")
        assert _errors(result) == []
        assert github.read_text() == ""
        assert {path: path.read_bytes() for path in reports} == reports


def test_a_run_is_recorded_as_its_report_has_it(accepted: Project) -> None:
    """Verdicts, numbers, the model under test, and the report, beside the run that accepted.

    In another folder where that is asked for, or nowhere.
    """
    home = accepted.path / ".cepbench" / "history"
    before = contents(home)
    accepted.run_here("-k", "crowded", "--cep-history=off")
    accepted.run_here("-k", "crowded", "--cep-history=kept/here")
    assert contents(home) == before
    assert len(read_history(accepted.path / "kept" / "here").runs) == 1
    accepted.run_here("-k", "crowded", REGRESSED)
    history = read_history(home)
    first, latest = history.runs
    (case,) = latest.cases
    (reported,) = accepted.report()["cases"]

    assert {case.accepted for case in first.cases} == {True}
    assert (latest.verdict, case.case, case.verdict) == ("failed", "toy/crowded/gc", "regressed")
    for name in ("value", "baseline", "difference", "tolerance", "n", "primary"):
        assert getattr(case, name) == reported[name]
    assert latest.checkpoint == reported["model"]["spec"]
    assert history.report_of(latest) == accepted.path / ".cepbench" / "report.json"


@pytest.fixture
def github(project: Project, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The variables of GitHub's runner; the file for the summary of the step."""
    summary = project.path / "step-summary"
    summary.touch()  # as the runner does
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    monkeypatch.setenv("GITHUB_WORKSPACE", str(project.path))
    return summary


def _errors(result: pytest.RunResult) -> list[str]:
    return [line for line in result.outlines if line.startswith("::error")]


def test_a_failing_run_on_github(accepted: Project, github: Path) -> None:
    """The summary of the step is the Markdown report, and the worst three cases are annotated."""
    result = accepted.run_here(REGRESSED, "-k", "color or count or crowded or shape or size")
    assert result.ret == 1
    assert github.read_text() == (accepted.path / ".cepbench/report.md").read_text()
    assert len(_errors(result)) == 3
    assert _errors(result)[0].startswith("::error file=test_toy.py,title=cepbench%3A toy ")


def test_a_run_that_judges_nothing_on_github(project: Project, github: Path) -> None:
    """It has no report, but a summary and an annotation that say why it is incomplete."""
    project.write("suite.toml", "broken")
    project.write("test_toy.py", "def test_drift(cep_case, cep_gate):\n    cep_gate(cep_case)\n")
    result = project.run_here()
    assert result.ret != 0
    assert "1 modules could not be collected" in github.read_text()
    assert "::error title=cepbench%3A the run is incomplete::1 modules" in result.stdout.str()


def test_a_summary_or_a_history_that_cannot_be_written_changes_no_verdict(
    accepted: Project, github: Path
) -> None:
    """A line says why for each, and the reports are there."""
    history = accepted.path / ".cepbench" / "history" / f"{host_name()}.jsonl"
    for path in (github, history):
        path.unlink()
        path.mkdir()
    result = accepted.run_here("-k", "crowded")
    assert result.ret == 0
    result.stdout.fnmatch_lines_random(
        [
            "nothing was written for GITHUB_STEP_SUMMARY: Is a directory",
            f"not in the history: {history} could not be written: *directory*",
        ]
    )
    assert (accepted.path / ".cepbench/report.md").exists()
