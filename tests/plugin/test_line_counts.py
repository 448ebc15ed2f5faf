"""How many lines a run has on a terminal of 80 columns, for any number of cases."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.documents import flat_report
from tests.plugin.project import Project
from tests.reference.shipped import assert_frozen_verdicts

ROOT = Path(__file__).parents[2]

FAILING, PASSING = 60, 25


def _lines(folder: Path, *args: str) -> list[str]:
    hidden = ("CEPBENCH_", "PYTEST_", "GITHUB_", "CI")
    env = {name: value for name, value in os.environ.items() if not name.startswith(hidden)}
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *args],
        cwd=folder,
        env=env | {"COLUMNS": "80"},
        check=False,
        capture_output=True,
        text=True,
    )
    return (ended.stdout + ended.stderr).splitlines()


@pytest.fixture
def instrument(tmp_path: Path) -> Path:
    """A folder with the shipped suites and their accepted baselines, run with names as they are."""
    for folder in (ROOT / "suites" / "instrument", *(ROOT / "baselines").glob("instrument*")):
        shutil.copytree(folder, tmp_path / folder.relative_to(ROOT))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


@pytest.mark.slow
def test_the_instrument_fits_on_a_screen(instrument: Path) -> None:
    """Twenty-one of twenty-six gating cases fail; then all hold."""
    failing = _lines(instrument, "suites/instrument", "--model=shapes:?miss=0.1")
    assert len(failing) <= FAILING, "\n".join(failing)
    text = " ".join(" ".join(failing).split())
    assert "Do not ship: 21 of 26 gating cases regressed" in text
    assert "and 11 more (all with -v)" in text
    assert text.count("lost most: ") == 3
    assert "3 suites as a whole: 3 regressed" in text
    assert "; 675 would see 0.01 (+1 with -v)" in text
    assert " FAILURES " not in text
    assert "short test summary" not in text
    assert failing[-1].startswith("= 21 failed, ")
    assert failing[-2].strip().startswith("file://")
    passing = _lines(instrument, "suites/instrument", "--model=shapes:")
    assert len(passing) <= PASSING, "\n".join(passing)
    assert "May ship: all 26 gating cases held" in passing
    report = json.loads((instrument / ".cepbench" / "report.json").read_text())
    assert_frozen_verdicts(flat_report(report), "instrument")


@pytest.mark.parametrize(
    ("arguments", "most", "cause"),
    [
        ((), 25, "10 cases have no baseline: run again with --snapshot-update"),
        (("--cep-store=/proc/none",), 10, "ERROR: the store /proc/none cannot be used"),
        (("--cep-baselines=/none",), 2, "ERROR: --cep-baselines=/none: no such folder"),
        (("--describer=python:none:load",), 2, "ERROR: "),
    ],
)
def test_one_cause_is_one_block(
    toy: Project, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], most: int, cause: str
) -> None:
    """However many cases meet it; what is wrong for all of them is said before any is measured."""
    monkeypatch.setenv("COLUMNS", "80")
    result = toy.run_here(*arguments)
    lines = [line for line in (*result.outlines, *result.errlines) if line]
    assert len(lines) <= most, "\n".join(lines)
    assert "\n".join(lines).count(cause) == 1


def test_other_failures_are_shown_as_pytest_shows_them(accepted: Project) -> None:
    """With their tracebacks and their line of the short summary; verdicts are in the table."""
    accepted.write("test_other.py", "def test_other():\n    assert 1 == 2\n")
    result = accepted.run_here("--model=shapes:?miss=0.3", "-k", "other or crowded")
    result.assert_outcomes(failed=2)
    result.stdout.fnmatch_lines(
        ["*= FAILURES =*", "*_ test_other _*", "E       assert 1 == 2", "*cepbench summary*",
         "*short test summary info*", "FAILED test_other.py::test_other - assert 1 == 2"]
    )  # fmt: skip
    result.stdout.no_fnmatch_line("*test_drift?crowded-gc? -*")
    shown = accepted.run_here("--model=shapes:?miss=0.3", "-k", "crowded", "-v", "-rf")
    shown.stdout.fnmatch_lines(
        ["*= FAILURES =*", "regressed: toy, crowded, GC@2 (*", "*short test summary info*"]
    )
    short = accepted.run_here("--model=shapes:?miss=0.3", "-k", "crowded", "-v", "--tb=line")
    short.stdout.fnmatch_lines(["*: -0.*, tolerance 0.0100, n = 2: toy crowded GC@2 regressed"])
