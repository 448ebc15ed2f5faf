"""A run gives the same verdicts and numbers without xdist, with it idle, and on two workers."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.plugin.project import (
    EACH_MODE,
    REGRESSED,
    Project,
    contents,
)


@pytest.mark.slow
@EACH_MODE
def test_a_second_run_asks_no_model(accepted: Project, mode: tuple[str, ...]) -> None:
    """Where everything is in the store nothing is loaded and nothing computed, and all is held."""
    result = accepted.run(*mode)
    assert result.ret == pytest.ExitCode.OK
    assert accepted.effort() == (0, 0)
    result.stdout.fnmatch_lines(["0 model loads, 0 model inputs (0.0 s in models), * the store"])
    assert set(accepted.verdicts().values()) == {"held"}


@pytest.mark.slow
@EACH_MODE
def test_accepting_writes_the_same_files(
    toy: Project, mode: tuple[str, ...], accepted_root: Path
) -> None:
    """The baselines that a run accepts do not depend on the mode, byte for byte."""
    result = toy.run_cold(*mode, "--snapshot-update")
    assert result.ret == pytest.ExitCode.OK
    result.stdout.fnmatch_lines(["10 baselines written below baselines: commit them"])
    assert len(contents(toy.baselines)) == 10
    assert contents(toy.baselines) == contents(accepted_root / "baselines")


@pytest.mark.parametrize(
    ("arguments", "chosen"),
    [
        (["-k", "color"], {"color-gc"}),
        (["-m", "cep", "-k", "overall"], {"overall-gc", "overall-failures"}),
        (["test_toy.py::test_drift[count-gc]"], {"count-gc"}),
    ],
    ids=["keyword", "marker", "node-id"],
)
def test_cases_are_chosen_as_any_test_is(
    accepted: Project, arguments: list[str], chosen: set[str]
) -> None:
    """Only the chosen cases are judged, and a run of some cases is complete in itself."""
    accepted.write("test_plain.py", "def test_color_of_nothing(): pass\n")
    result = accepted.run(*arguments)
    assert result.ret == pytest.ExitCode.OK
    assert set(accepted.verdicts()) == chosen
    result.stdout.no_fnmatch_line("*INCOMPLETE*")


def test_stopping_at_the_first_failure_leaves_the_run_incomplete(accepted: Project) -> None:
    """`-x` ends at the first verdict that fails, and the report does not claim more than that."""
    result = accepted.run_here("-x", REGRESSED)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert len([v for v in accepted.verdicts().values() if v == "regressed"]) == 1
    assert accepted.report()["verdict"] == "incomplete"
    result.stdout.fnmatch_lines(["INCOMPLETE: * tests did not report: *"])
