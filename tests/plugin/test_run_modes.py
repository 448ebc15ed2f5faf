"""Ways to run pytest that call no test: none of them ends as a pass of what was selected."""

from __future__ import annotations

import sqlite3

import pytest

from tests.plugin.project import MODES, Project


def _refused(result: pytest.RunResult, option: str) -> None:
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    everything = result.stdout.str() + result.stderr.str()
    assert f"ERROR: {option} calls no test, so no case would be judged: " in everything
    assert "Traceback" not in everything
    assert "INTERNALERROR" not in everything


@pytest.mark.slow
@pytest.mark.parametrize(
    ("option", "arguments"),
    [
        ("--setup-only", MODES["no-plugin"]),
        ("--setup-plan", MODES["no-plugin"]),
        ("--setup-plan", MODES["n2"]),
    ],
    ids=["only", "plan", "plan-two"],
)
def test_setting_up_alone_is_refused(
    accepted: Project, option: str, arguments: tuple[str, ...]
) -> None:
    """Exit code 4 and one line that names the option, where cases were selected."""
    _refused(accepted.run(*arguments, option), option)


def test_addopts_and_the_environment_are_no_way_round(
    accepted: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An option that a file or a variable adds is refused like one that was typed."""
    monkeypatch.setenv("PYTEST_ADDOPTS", "--setup-only")
    _refused(accepted.run_here(), "--setup-only")
    monkeypatch.delenv("PYTEST_ADDOPTS")
    accepted.edit("pytest.ini", "addopts =", "addopts = --setup-plan")
    _refused(accepted.run_here(), "--setup-plan")


def test_other_tests_may_be_set_up_alone(accepted: Project) -> None:
    """The plugin has no say in runs without cases."""
    accepted.write("unit/test_plain.py", "def test_plain(tmp_path): pass\n")
    assert accepted.run_here("--setup-only", "unit").ret == pytest.ExitCode.OK


@pytest.mark.parametrize(
    "option", ["--collect-only", "--fixtures", "--fixtures-per-test", "--markers", "--cache-show"]
)
def test_listings_judge_nothing_and_say_nothing(accepted: Project, option: str) -> None:
    """What lists fixtures, markers or cases is no run: no summary or report, pytest's exit code."""
    result = accepted.run_here("-p", "cacheprovider", option)
    assert result.ret == pytest.ExitCode.OK
    result.stdout.no_fnmatch_line("*cepbench summary*")


def test_showing_the_set_up_runs_the_tests(accepted: Project) -> None:
    """`--setup-show` prints fixtures beside a run like any other."""
    assert accepted.run_here("--setup-show", "-k", "color").ret == pytest.ExitCode.OK
    assert accepted.verdicts() == {"color-gc": "held"}


def test_going_step_by_step_claims_no_more_than_it_judged(accepted: Project) -> None:
    """`--stepwise` stops at the first failure: interrupted, and the report incomplete."""
    result = accepted.run_here("-p", "cacheprovider", "--stepwise", "--model=shapes:?miss=0.3")
    assert result.ret == pytest.ExitCode.INTERRUPTED
    assert accepted.report()["verdict"] == "incomplete"


def test_workers_say_the_same_of_stored_and_of_computed_scores(accepted: Project) -> None:
    """The JSON report of two workers on a full store, with scores and without, is that of one."""

    def cases(*arguments: str) -> list[dict[str, object]]:
        assert accepted.run(*arguments).ret == pytest.ExitCode.OK
        shown = [{**case, "effort": None} for case in accepted.report()["cases"]]
        return sorted(shown, key=lambda case: str(case["nodeid"]))

    alone = cases("-p", "no:xdist")
    stored = cases("-n2")
    with sqlite3.connect(accepted.path / ".cepbench/store/index.sqlite") as connection:
        assert connection.execute("DELETE FROM results WHERE kind = 'scores'").rowcount
    connection.close()

    assert stored == alone
    assert cases("-n2") == alone
