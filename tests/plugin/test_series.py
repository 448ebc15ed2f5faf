"""A series of gates by `--cep-series`: one record, the same places for all workers, all reports."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.plugin.scored_project import ScoredProject, junit_properties, model, scored_suite

CASE = "overall-gc"

SERIES = "--cep-series=run-1"

TWO_METRICS = "[metrics.gc]\n[metrics.s]\n"


def step(drop: float, number: int = 1) -> str:
    """A checkpoint that lost so much; the differences of two scatter by .003 for each number."""
    return model(drop=round(drop, 4), spread=round(0.003 * number, 4), chance=116)


def record(project: ScoredProject, name: str = "run-1") -> list[dict[str, Any]]:
    """The lines of a series' record, without the first."""
    text = (project.path / "baselines" / "series" / f"{name}.jsonl").read_text()
    return [json.loads(line) for line in text.splitlines()[1:]]


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> ScoredProject:
    """The first checkpoint of a series was accepted."""
    project = ScoredProject.make(
        tmp_path_factory.mktemp("series"), scored_suite(n=60, rest=TWO_METRICS)
    )
    ended = project.accept(step(0), SERIES)
    ended.lines.fnmatch_lines(
        ["cepbench: series run-1: begins, with 2.44% of alpha for its first checkpoint *"]
    )
    assert [line["look"] for line in record(project)] == [1, 1]
    return project


@pytest.fixture
def project(begun: ScoredProject, tmp_path: Path) -> ScoredProject:
    """A copy of the series, to be gone on with."""
    return begun.copy(tmp_path / "project")


@pytest.mark.slow
def test_what_a_run_in_a_series_says(project: ScoredProject) -> None:
    """Header, promise, JSON, JUnit and the pages: number of the checkpoint and its alpha.

    Two workers share the look of their run, and one process has it for the same checkpoint: the
    same numbers, no further line.
    """
    ended = project.run(step(0.001, 2), SERIES, "-n", "2", "--junitxml=junit.xml")
    assert ended.code == pytest.ExitCode.OK, ended.output
    promise = (
        "5 % false failures at most per series, however long, of checkpoints that lost no more "
        "than the tolerance, over 2 cases; checkpoint 2 of series run-1, alpha 0.0012 of 0.05"
    )
    ended.lines.fnmatch_lines(["cepbench: series run-1: checkpoint 2, 2.32% of alpha; *", promise])
    assert "per run of checkpoints exchangeable" not in ended.output
    case = ended.cases[CASE]
    assert case["verdict"] == "held", ended.output
    shown = case["series"]
    assert (shown["name"], shown["look"], shown["baseline"]) == ("run-1", 2, None)
    assert shown["alpha"] == pytest.approx(case["alpha"] * 40 / (41 * 42))
    assert shown["level"] == pytest.approx(shown["alpha"] / 2)
    _, cases = junit_properties(project.path / "junit.xml")
    properties = cases["test_drift[overall-gc]"]
    assert properties["cepbench_series"] == "run-1"
    assert properties["cepbench_series_checkpoint"] == "2"
    assert float(properties["cepbench_series_alpha"]) == shown["alpha"]
    report = project.path / ".cepbench" / "report"
    assert promise in report.with_suffix(".md").read_text().replace("\\", "")
    assert "checkpoint 2 of run-1" in report.with_suffix(".html").read_text()

    lines = record(project)
    assert [line["look"] for line in lines] == [1] * 2 + [2] * 2
    assert len({line["run"] for line in lines[2:]}) == 1
    alone = project.run(step(0.001, 2), SERIES)
    assert alone.numbers == ended.numbers
    part = project.run(step(0.001, 2), SERIES, "-k", "gc").cases[CASE]
    assert (part["series"], part["alpha"]) == (alone.cases[CASE]["series"], 0.025)
    assert record(project) == lines


KILLED = """\
import os, signal
import scored

class Describer(scored.Describer):
    def describe(self, *args):
        if os.environ.get("KILL"):
            os.kill(os.getpid(), signal.SIGKILL)
        return super().describe(*args)
"""


@pytest.mark.slow
def test_a_run_that_was_killed_has_spent_its_look(project: ScoredProject) -> None:
    """The next checkpoint has the next number, and the same one goes on with the alpha it had."""
    (project.path / "killed.py").write_text(KILLED)
    spec = "--model=python:killed:Describer?drop=0.001"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:xdist", "-p", "no:cacheprovider"]
    ended = subprocess.run(
        [*command, spec, SERIES],
        cwd=project.path,
        env={**os.environ, "KILL": "1"},
        capture_output=True,
        check=False,
    )
    assert ended.returncode == -signal.SIGKILL
    assert record(project)[-1]["look"] == 2
    for checkpoint, look in ((step(0.001, 2), 3), (spec, 2)):
        assert project.run(checkpoint, SERIES).cases[CASE]["series"]["look"] == look


def test_mistakes_are_one_line(begun: ScoredProject) -> None:
    """What was given, what is expected, before anything runs."""
    for arguments, message in (
        (["--cep-series=a/b"], "letters, digits, '.', '_' and '-' are expected"),
        ([SERIES, "--cep-gate=threshold"], "leave one of the two out"),
        ([SERIES, "--cep-series-length=100000000"], "have 1e-08 of alpha or less"),
        ([SERIES, "--cep-series-length=9"], "begun for 40 checkpoints, and 9 are expected now"),
    ):
        ended = begun.run(step(0.001, 2), *arguments)
        assert ended.code == pytest.ExitCode.USAGE_ERROR
        assert message in ended.errors
        assert "Traceback" not in ended.output + ended.errors
