"""What runs leave: reports, a line in the history, files and lines for CI services."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_cepbench.report.history import History, host_name, read_history
from tests.plugin.project import REGRESSED, TEST_MODULE, Project, contents


def _run(project: Project, *args: str) -> tuple[int, set[str]]:
    """Exit code, and which reports are there afterwards, those of an earlier run put there."""
    place = project.path / ".cepbench"
    place.mkdir(exist_ok=True)
    names = ("report.json", "report.html", "report.md")
    for name in names:
        (place / name).write_text("passed")
    code = int(project.run(*args, "-p", "no:xdist").ret)
    return code, {name for name in names if (place / name).exists()}


@pytest.mark.parametrize(
    ("args", "code", "broken"),
    [
        (("--model=python:nowhere:model",), 4, ""),
        (("-k", "nothing", "--model=shapes:"), 5, ""),
        (("--model=shapes:",), 4, "name = "),
        (("--cep-data=nowhere=data",), 4, ""),
        (("--model=shapes:", "-p", "killing"), 9, ""),
        ((), 3, "importorskip"),
    ],
    ids=["model", "nothing", "suite", "name", "killed", "skipped"],
)
def test_no_earlier_report_stays_beside_a_run_that_has_none(
    toy: Project, args: tuple[str, ...], code: int, broken: str
) -> None:
    """Whatever kept it from judging a case: a step of CI that reads the report finds none."""
    toy.write("killing.py", "import os\n\ndef pytest_runtest_call():\n    os._exit(9)\n")
    if broken == "importorskip":
        toy.write("test_toy.py", f"import pytest\n\npytest.importorskip('nothing')\n{TEST_MODULE}")
    elif broken:
        toy.write("suite.toml", broken)
    assert _run(toy, *args) == (code, set())


@pytest.mark.parametrize("argument", ["--cep-plan", "--collect-only", "test_other.py"])
def test_a_run_that_is_to_judge_nothing_leaves_reports_alone(
    accepted: Project, github: Path, argument: str
) -> None:
    """A plan, a list, and tests that have nothing to do with models; GitHub is told nothing."""
    accepted.write("test_other.py", "def test_other():\n    pass\n")
    place = accepted.path / ".cepbench"
    before = contents(place)
    result = accepted.run_here(argument)
    assert result.ret == pytest.ExitCode.OK
    assert _errors(result) == []
    assert github.read_text() == ""
    reports = {f"report.{kind}" for kind in ("json", "html", "md")}
    assert {name: contents(place)[name] for name in reports} == {n: before[n] for n in reports}


def history_of(project: Project) -> History:
    """What the runs of the project left, where the default puts it."""
    return read_history(project.path / ".cepbench" / "history")


def test_a_run_is_recorded_as_its_report_has_it(accepted: Project) -> None:
    """Verdicts, numbers, the model under test, and the report, beside the run that accepted."""
    accepted.run_here("-k", "crowded", REGRESSED)
    first, latest = history_of(accepted).runs
    (case,) = latest.cases
    (reported,) = accepted.report()["cases"]

    assert {case.accepted for case in first.cases} == {True}
    assert (latest.verdict, case.case, case.verdict) == ("failed", "toy/crowded/gc", "regressed")
    for name in ("value", "baseline", "difference", "tolerance", "n", "primary"):
        assert getattr(case, name) == reported[name]
    assert latest.checkpoint == reported["model"]["spec"]
    assert history_of(accepted).report_of(latest) == accepted.path / ".cepbench" / "report.json"


def test_a_history_that_cannot_be_written_fails_no_run(accepted: Project) -> None:
    """The run ends as it would have, and says what it could not write."""
    path = accepted.path / ".cepbench" / "history" / f"{host_name()}.jsonl"
    path.unlink()
    path.mkdir()
    result = accepted.run_here("-k", "crowded")
    assert result.ret == pytest.ExitCode.OK
    result.stdout.fnmatch_lines([f"not in the history: {path} could not be written: *directory*"])


@pytest.mark.parametrize(
    ("argument", "folder"), [("--cep-history=off", None), ("--cep-history=kept/here", "kept/here")]
)
def test_where_it_is_kept(accepted: Project, argument: str, folder: str | None) -> None:
    """In another folder, or nowhere."""
    before = history_of(accepted).runs
    accepted.run_here("-k", "crowded", argument)

    assert history_of(accepted).runs == before
    kept = None if folder is None else read_history(accepted.path / folder)
    assert (kept is None) or len(kept.runs) == 1


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
    result = accepted.run_here(REGRESSED, "-k", "color or count or crowded or shape or size")
    assert result.ret == 1
    assert github.read_text() == (accepted.path / ".cepbench/report.md").read_text()
    assert len(_errors(result)) == 3
    assert _errors(result)[0].startswith("::error file=test_toy.py,title=cepbench%3A toy ")


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


def test_a_summary_that_cannot_be_written_changes_no_verdict(
    accepted: Project, github: Path
) -> None:
    """A line says why, and the reports are there."""
    github.unlink()
    github.mkdir()
    result = accepted.run_here("-k", "crowded")
    assert result.ret == 0
    result.stdout.fnmatch_lines(["nothing was written for GITHUB_STEP_SUMMARY: Is a directory"])
    assert (accepted.path / ".cepbench/report.md").exists()
