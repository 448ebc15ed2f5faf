"""`gate_checkpoint` gives the verdicts and numbers of `pytest suites/...`, without pytest."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from pytest_cepbench import CepError, GateResult, gate_checkpoint
from pytest_cepbench.errors import SpecError, SuiteError
from tests.plugin.project import INI, run_plainly

SUITES = Path(__file__).parents[2] / "suites"

GENERATOR: Any = {"model": "shapes:", "role": "generator", "samples": 2}

REPORTS = ("html", "json", "md")

SUITE, ONE = "suites/instrument/suite.toml", ("-k", "test_drift")
"""One suite file, and the tests that gate it."""

_DIFFER = ("nodeid", "effort", "origins", "chains")
"""Fields of a case that tell who asked, and what the store held already."""


@pytest.fixture(scope="session")
def accepted_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The instrument's suites, one with baselines of a perfect generator; no test changes it."""
    root = tmp_path_factory.mktemp("instrument")
    shutil.copytree(SUITES / "instrument", root / "suites" / "instrument")
    (root / "pytest.ini").write_text(INI)
    suite = root / SUITE
    suite.write_text(suite.read_text().replace("iterations = 3", "iterations = 2"))
    result = gate_checkpoint(suite, root=root, snapshot_update=True, **GENERATOR)
    assert result.passed, str(result)
    assert len(result.changed) == len(result.cases)
    return root


@pytest.fixture
def project(accepted_root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the project, in which the test works."""
    path = tmp_path / "project"
    shutil.copytree(accepted_root, path)
    monkeypatch.chdir(path)
    return path


def _numbers(cases: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Cases of a report by name."""
    return {
        f"{case['suite']}/{case['part']}/{case['metric']}": {
            name: value for name, value in case.items() if name not in _DIFFER
        }
        for case in cases
    }


@pytest.mark.parametrize(
    ("suites", "selection", "model", "options", "verdict"),
    [
        pytest.param("suites", (), "shapes:", {}, "held", marks=pytest.mark.slow),
        (SUITE, ONE, "shapes:?miss=0.5&recolor=0.5", {"attribute": 0}, "regressed"),
        (SUITE, ONE, "shapes:", {"seeds": 2}, "incomparable"),
        (SUITE, ONE, "shapes:", {"baselines": "empty"}, "no-baseline"),
    ],
    ids=["held", "regressed", "incomparable", "no-baseline"],
)
def test_it_gives_the_verdicts_and_numbers_of_pytest(
    project: Path, suites: str, selection: tuple[str, ...], model: str, options: Any, verdict: str
) -> None:
    """Every field of every case, and the exit code, whatever the verdict; reports say it, too.

    The message of a failed test follows the table.
    """
    arguments = [f"--cep-{name}={value}" for name, value in options.items()]
    (project / "empty").mkdir()
    if suites != SUITE:
        assert gate_checkpoint(suites, snapshot_update=True, **GENERATOR).changed
    generator = ("--cep-samples=2", "--cep-role=generator", f"--model={model}")
    code = run_plainly(project, *generator, *selection, *arguments)
    told = msgspec.json.decode((project / ".cepbench" / "report.json").read_bytes())

    result = gate_checkpoint(
        suites, report="out/report.json", **{**GENERATOR, "model": model, **options}
    )

    assert verdict in {case.verdict for case in result.cases if case.primary}
    shown = msgspec.json.decode(msgspec.json.encode(result.cases))
    assert _numbers(shown) == _numbers(told["cases"])
    assert (result.exit_code, result.passed, bool(result)) == (code, code == 0, code == 0)
    assert (f"{verdict}: instrument, overall" in str(result)) is not result.passed
    assert {path.name for path in result.reports} == {f"report.{kind}" for kind in REPORTS}
    report = msgspec.json.decode((project / "out" / "report.json").read_bytes())
    assert report["verdict"] == ("passed" if result.passed else "failed")
    assert len(report["cases"]) == len(result.cases)
    seconds = sum(case["effort"]["seconds"] for case in report["cases"])
    assert report["effort"]["seconds"] == pytest.approx(seconds, abs=0.01)


def test_a_checkpoint_that_holds_passes_and_prints_its_table(project: Path) -> None:
    """The table, the promise on errors and the verdict; nothing is left beside store and home."""
    result = gate_checkpoint("suites/instrument/suite.toml", **GENERATOR)

    assert result.passed
    assert result
    assert result.verdict == "passed"
    text = str(result)
    assert text.splitlines()[0] == result.headline
    assert result.headline.startswith("May ship: all ")
    assert "HELD" in text
    assert "false failures at most" in text
    assert text.splitlines()[-1] == "verdict: passed"
    assert result["instrument/overall/gc"].verdict == "held"
    assert not (project / ".cepbench" / "runs").exists()
    assert not (project / ".cepbench" / "report.json").exists()


def test_what_was_asked_for_and_cannot_be_had_does_not_pass(project: Path) -> None:
    """A suite whose data is absent is named, and makes the result incomplete. A measurement that
    may not become a baseline keeps all others from it too.
    """
    absent = project / "suites" / "absent.toml"
    shutil.copy(SUITES / "mmeception" / "suite.toml", absent)
    result = gate_checkpoint([SUITE, absent], **GENERATOR)
    assert [case.verdict for case in result.cases if case.primary and not case.passes] == []
    assert not result.passed
    assert result.exit_code == 3
    assert list(result.skipped) == ["suites/absent.toml"]
    assert "INCOMPLETE: suites/absent.toml was not measured" in str(result)

    before = {path: path.read_bytes() for path in project.glob("baselines/**/*.toml")}
    failing = {**GENERATOR, "model": "shapes:?miss=1.0"}
    result = gate_checkpoint(SUITE, snapshot_update=True, **failing)
    assert not result.passed
    assert any(case.refused for case in result.cases)
    assert result.changed == ()
    assert not any(case.accepted for case in result.cases)
    assert {path: path.read_bytes() for path in project.glob("baselines/**/*.toml")} == before


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"modle": "shapes:"}, TypeError, "Did you mean 'model'"),
        ({"plan": True}, TypeError, "unknown option 'plan'"),
        ({"tolerance": -1}, SpecError, "gate_checkpoint(tolerance=) '-1': a number of at least 0"),
        ({"gate": "strict"}, SpecError, "gate_checkpoint(gate=) 'strict': one of regression"),
        ({"model": "shapes:?miss=much"}, CepError, "miss"),
        ({"model": "x" * 5000}, SpecError, "xxxxx...: no file has so long a name"),
        ({"model": "shapes:", "baselines": "x" * 5000}, SpecError, "no file has so long a name"),
        ({"model": "x/" * 5000}, SpecError, "or so long a path"),
        ({"tolerance": 0.9}, SuiteError, "was accepted at 1 and can lose 0."),
        ({"alpha": 1e-300}, SpecError, "gate_checkpoint(alpha=) '1e-300': no drop could be"),
        ({"snapshot_update": "false"}, SpecError, "='false': True or False is expected"),
        ({"encoder": {"a": "shapes:"}}, SpecError, "gate_checkpoint(encoder=) a=...: unknown enc"),
    ],
    ids=[
        *("name", "plan", "number", "choice", "spec", "long model", "long folder", "long path"),
        *("tolerance", "alpha", "update", "encoder"),
    ],
)
def test_a_wrong_option_is_said(
    accepted_root: Path, options: Any, error: type[Exception], message: str
) -> None:
    """Before anything is measured, in the words of the command line."""
    with pytest.raises(error) as raised:
        gate_checkpoint(accepted_root / SUITE, root=accepted_root, **(GENERATOR | options))
    assert message in str(raised.value)


def test_modules_beside_a_suite_are_importable_while_it_runs(project: Path) -> None:
    """As under pytest, and no longer: the path of the caller is as it was."""
    (project / SUITE).with_name("models_beside_the_suite.py").write_text(
        "from pytest_cepbench.datasets.shapes import Degradation\n"
        "from pytest_cepbench.models.rule_based.scene_models import ShapesDescriber\n"
        "class Describer(ShapesDescriber):\n"
        "    fingerprint = 'beside/1'\n"
        "def describer():\n"
        "    return Describer(Degradation())\n"
    )
    before = list(sys.path)

    result = gate_checkpoint(
        SUITE, model="python:models_beside_the_suite:describer", role="describer", samples=2
    )

    assert result.cases
    assert "error" not in {case.verdict for case in result.cases}
    assert sys.path == before


LEAVING = """
import sys, unittest
import pytest

def leave(how):
    {"exit": sys.exit, "skip": pytest.skip, "quit": pytest.exit, "unittest": skip,
     "interrupt": interrupt}[how](0 if how == "exit" else "no GPU")

def skip(words):
    raise unittest.SkipTest(words)

def interrupt(words):
    raise KeyboardInterrupt

class Describer:
    fingerprint = "leaving/1"

    def __init__(self, how, at="describe"):
        self.how = how
        if at == "factory":
            leave(how)

    def describe(self, images, prompt, seeds):
        leave(self.how)

def load(samples_per_category, seed):
    leave("HOW")
"""
"""A module whose code ends the process, or skips the test that calls it."""


def test_code_that_leaves_the_process_is_an_error(project: Path) -> None:
    """The script would end with 0, or the test around it be skipped, and no verdict be known.

    Ctrl-C ends the script as it does everywhere.
    """
    suite, whole = project / SUITE, (project / SUITE).read_text()
    before = {path: path.read_bytes() for path in project.glob("baselines/**/*.toml")}

    def gate(module: str, model: str) -> GateResult:
        return gate_checkpoint(
            SUITE, snapshot_update=True, model=model.format(module), role="describer", samples=2
        )

    suite.with_name("leaving.py").write_text(f"{LEAVING}leave('exit')\n")
    with pytest.raises(CepError, match="SystemExit"):
        gate("leaving", "python:{}:Describer?how=exit&at=module")
    suite.with_name("ctrl_c.py").write_text(LEAVING)
    with pytest.raises(KeyboardInterrupt):
        gate("ctrl_c", "python:{}:Describer?how=interrupt")
    for how, told in ("exit", "SystemExit"), ("skip", "Skipped"), ("unittest", "SkipTest"):
        module = f"leaving_{how}"
        suite.with_name(f"{module}.py").write_text(LEAVING.replace("HOW", how))
        loader = f'loader = "python:{module}:load"'
        suite.write_text(re.sub(r'(?m)^loader = "\w+"$', loader, whole, count=1))
        assert loader in suite.read_text()
        with pytest.raises(CepError, match=told):
            gate(module, "shapes:")

    assert {path: path.read_bytes() for path in project.glob("baselines/**/*.toml")} == before


def test_no_earlier_report_stays(project: Path) -> None:
    """Beside a gate that ends with an error, where its report was to be written."""
    report = project / "out" / "report.json"
    report.parent.mkdir()
    report.write_text('{"verdict": "passed"}')
    with pytest.raises(SpecError):
        gate_checkpoint(SUITE, model="python:nowhere:model", role="generator", report=report)
    assert not report.exists()


def test_a_folder_without_suites_is_an_error(tmp_path: Path) -> None:
    """Nothing to gate is never a pass."""
    (tmp_path / "pyproject.toml").write_text("[project]\nname = 'x'\n")
    with pytest.raises(SuiteError, match="no suite file"):
        gate_checkpoint(tmp_path, model="shapes:")
    with pytest.raises(SuiteError, match="the name of a suite is empty"):
        gate_checkpoint("", model="shapes:")


def test_it_needs_no_pytest() -> None:
    """Importing the API imports neither pytest nor syrupy."""
    code = (
        "import sys; from pytest_cepbench import gate_checkpoint; "
        "print(*({'pytest', '_pytest', 'syrupy'} & set(sys.modules)))"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ended.stdout.split() == []
