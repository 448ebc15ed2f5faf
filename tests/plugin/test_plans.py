"""`--cep-plan`: how every case would be judged and how well, and what it takes, asking no model."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.models.smi import install_smi
from tests.plugin.project import contents
from tests.plugin.scored_project import ScoredProject, model, scored_suite

SUITE = scored_suite(
    n=60,
    categories=("a", "b"),
    rest="""\
[metrics.gc]
[metrics.s]
parts = "overall"
[metrics.failures]
gate = "threshold"
[gate]
primary = ["gc", "failures"]
pooled = true
""",
)

NOISE = "\n[noise]\nseeds = 3\nunits = 120\nsd = 0.02\nvalue_sd = 0.001\n"


@pytest.fixture(scope="module")
def accepted(tmp_path_factory: pytest.TempPathFactory) -> ScoredProject:
    """A project whose whole case has been calibrated, and which lacks the baseline of `b`."""
    project = ScoredProject.make(tmp_path_factory.mktemp("planned"), SUITE)
    project.accept()
    overall = project.baseline("overall-gc")
    overall.write_text(overall.read_text().replace("\n[failures]", f"{NOISE}\n[failures]", 1))
    project.baseline("b-gc").unlink()
    return project


def _fresh(project: ScoredProject, tmp_path: Path) -> ScoredProject:
    """A copy that has never run."""
    fresh = project.copy(tmp_path / "fresh")
    for left in (".cepbench", ".pytest_cache"):
        (fresh.path / left).rename(tmp_path / left) if (fresh.path / left).exists() else None
    return fresh


@pytest.mark.slow
def test_a_plan_asks_no_model_and_writes_nothing(
    accepted: ScoredProject, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A line for every case, one for every model; no model call, no report, no baseline, no worker,
    no store; exit code 0.
    """
    gpus = [("GPU-b", "NVIDIA H200", 40), ("GPU-a", "NVIDIA H200", 70)]
    install_smi(tmp_path, monkeypatch, gpus)
    project, calls = _fresh(accepted, tmp_path), tmp_path / "calls"

    def written() -> dict[str, bytes]:
        files = contents(project.path).items()
        return {name: data for name, data in files if "__pycache__" not in name}

    before = written()
    ended = project.run("--cep-plan", model(drop=0.05), "-n", "2", env={"CALLS": str(calls)})
    assert ended.code == pytest.ExitCode.OK, ended.output
    ended.lines.fnmatch_lines(
        [
            "*= cepbench plan =*",
            "case *gate *alpha *tolerance *units *visible *held *needed *looks",
            "a GC@1 *regression *0.017 *0.0100 *60 *- *- *60",
            "b GC@1 *regression *0.017 *0.0100 *60 *- *- *60  (no baseline)",
            "overall GC@1 *regression *0.017 *0.0100 *120 *0.0115 *99 *42  120",
            "overall s(1) *informational *0.05 *120 *- *- *120",
            "overall failure rate *threshold *- *0.0100 *120 *- *- *120",
            "visible: the smallest drop that fails in 80 % of runs; held: *",
            "what is - is not known: `cepbench calibrate` *",
            "",
            "suite scored: 120 samples, 120 chains, 480 steps, 0 of them in the store",
            "model * in store *inputs *calls *device *weights *time",
            "describer python:scored:Describer?drop=0.05 * 0 *120 *15 *cpu *- *unknown",
            "generator python:scored:Generator * 0 *120 *15 *cpu *- *unknown",
            "encoder python:scored:Encoder * 0 *240 *30 *cpu *- *unknown",
            "3 models to load on each worker",
            "2 workers: gw0 on NVIDIA H200 (GPU-a), gw1 on NVIDIA H200 (GPU-b)",
            "time not known: 3 of 3 models never worked on this kind of device long enough to tell",
        ]
    )
    assert not calls.exists()
    assert written() == before
    assert not (project.path / ".cepbench").exists()
    assert "[gw" not in ended.output
    assert "summary" not in ended.output


def test_a_suite_can_be_planned_anywhere(accepted: ScoredProject, tmp_path: Path) -> None:
    """Where a model that the suite itself names is not here, only what it takes cannot be told."""
    project = _fresh(accepted, tmp_path)
    project.edit("suite.toml", "python:scored:Describer", "python:not_here:Describer")
    ended = project.run("--cep-plan")
    assert ended.code == pytest.ExitCode.OK
    ended.lines.fnmatch_lines(
        ["a GC@1 *60", "suite scored: what it takes cannot be told: *'not_here'*"]
    )
    broken = project.run("-k", "a-gc")
    assert broken.verdicts == {"a-gc": "error"}


def test_a_run_does_what_was_planned(accepted: ScoredProject, tmp_path: Path) -> None:
    """So many inputs are made; then all is in the store, and the next run's time is known."""
    project = accepted.copy(tmp_path / "copy")

    def planned(*args: str) -> tuple[int, pytest.LineMatcher]:
        ended = project.run("--cep-plan", *args)
        rows = re.findall(r"^\w+ python:\S+ +\d+ +(\d+) ", ended.output, re.MULTILINE)
        assert len(rows) == 3
        return sum(map(int, rows)), ended.lines

    changed = model(drop=0.05)
    inputs, _ = planned(changed, "-k", "a-gc")
    assert project.run(changed, "-k", "a-gc").inputs == inputs > 0

    rest, lines = planned(changed)
    assert rest == inputs
    lines.fnmatch_lines(["3 models to load", "about *s, loading not counted"])

    done, lines = planned(changed, "-k", "a-gc")
    assert done == 0
    lines.fnmatch_lines(["everything is in the store: no model is loaded"])


PLAN = {"CEPBENCH_PLAN": "true"}


@pytest.mark.parametrize(
    ("arguments", "env", "asked", "verbosity"),
    [
        ((), PLAN, "CEPBENCH_PLAN asks for a plan", "-qq"),
        (("--collect-only",), {}, "only listed", "-v"),
        pytest.param((), PLAN, "CEPBENCH_PLAN asks for a plan", "-v", marks=pytest.mark.slow),
        pytest.param(("--collect-only",), {}, "only listed", "-qq", marks=pytest.mark.slow),
    ],
)
def test_what_judges_nothing_says_so(
    accepted: ScoredProject,
    arguments: tuple[str, ...],
    env: dict[str, str],
    asked: str,
    verbosity: str,
) -> None:
    """An environment that nobody looks at makes a plan of a gate: no verbosity hides that."""
    ended = accepted.run(*arguments, verbosity, env=env)
    assert ended.code == pytest.ExitCode.OK
    ended.lines.fnmatch_lines([f"Nothing was judged: * case*, {asked}"])
    assert not ended.report
