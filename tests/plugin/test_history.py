"""Every run adds a line to the history, and none fails for it."""

from __future__ import annotations

import pytest

from pytest_cepbench.report.history.file import History, host_name, read_history
from pytest_cepbench.report.history.timeline import Selection, timelines_of
from tests.plugin.project import MODES, REGRESSED, Project


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
    assert history_of(accepted).identity(case.identity) == reported["identity"]
    assert history_of(accepted).report_of(latest) == accepted.path / ".cepbench" / "report.json"


def test_a_page_in_a_folder_is_recorded(accepted: Project) -> None:
    """Until a later run puts its own in the same place, the history finds it."""
    for _ in range(2):
        accepted.run_here("-k", "crowded", REGRESSED, "--cep-report-dir=page")
    history = history_of(accepted)
    assert [history.page_of(run) is not None for run in history.runs] == [False, False, True]
    assert history.page_of(history.runs[-1]) == accepted.path / "page" / "index.html"


@pytest.mark.slow
@pytest.mark.parametrize("mode", list(MODES))
def test_one_line_for_a_run_of_any_number_of_processes(accepted: Project, mode: str) -> None:
    """Workers add none."""
    before = history_of(accepted).runs
    accepted.run(*MODES[mode], "-k", "crowded")
    (added,) = history_of(accepted).runs[len(before) :]
    assert [case.case for case in added.cases] == ["toy/crowded/gc"]


def test_a_run_that_compared_nothing_is_recorded_too(accepted: Project) -> None:
    """It is no gap in the history, and its measurement is known to be another."""
    accepted.edit("suite.toml", "iterations = 2", "iterations = 3")
    accepted.run_here("-k", "crowded")
    latest = history_of(accepted).runs[-1]
    assert (latest.verdict, latest.cases[0].verdict) == ("failed", "incomparable")
    (timeline,) = timelines_of(history_of(accepted).runs, Selection(cases=["toy/crowded/gc"]))
    assert timeline.breaks == (1,)


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


def test_a_plain_run_leaves_nothing(project: Project) -> None:
    """A run without a judged case is none of the history's."""
    project.write("test_plain.py", "def test_nothing():\n    pass\n")
    project.run_here()
    assert not (project.path / ".cepbench").exists()
