"""A pytest run without a cep test: the plugin costs nothing and says nothing."""

from __future__ import annotations

import json

import pytest

from tests.plugin.project import MODES, Project

HEAVY = {
    "torch", "numpy", "PIL", "msgspec", "jinja2", "transformers", "diffusers", "open_clip", "timm",
    "cleanfid", "filelock", "sqlite3",
}  # fmt: skip

FLOORS = {
    "pytest_cepbench", "pytest_cepbench.plugin", "pytest_cepbench.plugin.options",
}  # fmt: skip
"""What must be imported to know the options; below the plugin's own floor only
modules of the standard library may be: errors, escapes, files and option_values."""

WATCH = """\
import json, os, sys

started = []
sys.addaudithook(
    lambda event, arguments: event in ("subprocess.Popen", "os.posix_spawn", "os.system", "os.exec")
    and started.append(str(arguments[:2]))
)

def pytest_unconfigure(config):
    seen = {"modules": sorted(sys.modules), "started": started}
    worker = os.environ.get("PYTEST_XDIST_WORKER", "main")
    with open(f"{os.environ['WATCH']}/{worker}.json", "w") as file:
        json.dump(seen, file)
"""


@pytest.mark.parametrize(
    "mode", [pytest.param(mode, marks=[pytest.mark.slow][mode == "n0" :]) for mode in MODES]
)
def test_nothing_heavy_is_imported_and_nothing_said(
    project: Project, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    """Neither the libraries nor any floor below the plugin's own, in any process of the run.

    The plugin starts no process: no git, no compiler, no download.
    """
    project.write("watch.py", WATCH)
    project.write("test_plain.py", "def test_one(): pass\n\ndef test_two(): pass\n")
    folder = project.path / "seen"
    folder.mkdir()
    monkeypatch.setenv("WATCH", str(folder))
    result = project.run_cold("-p", "watch", *MODES[mode])
    assert result.ret == pytest.ExitCode.OK
    result.assert_outcomes(passed=2)
    printed = result.stdout.str() + result.stderr.str()
    assert not [
        line
        for line in printed.splitlines()
        if "cep" in line
        and not line.startswith(("plugins: ", "running: "))
        and str(project.path) not in line
    ]
    assert not (project.path / ".cepbench").exists()
    assert not (project.path / "baselines").exists()
    seen = {path.stem: json.loads(path.read_text()) for path in folder.iterdir()}
    assert set(seen) == ({"main", "gw0", "gw1"} if mode == "n2" else {"main"})
    for process in seen.values():
        assert mode == "n2" or process["started"] == []  # as xdist and its workers do
        modules = set(process["modules"])
        assert not modules & HEAVY
        assert modules >= FLOORS
        # The package `models` alone, which has the names of the roles and imports nothing of ours.
        ours = {name for name in modules if name.startswith("pytest_cepbench.")}
        ours -= {"pytest_cepbench.models"}
        assert {name.split(".")[1] for name in ours} <= {
            "plugin",
            "evaluation",
            "errors",
            "files",
            "option_values",
            "escapes",
        }
        assert {name for name in ours if name.startswith("pytest_cepbench.evaluation.")} <= {
            f"pytest_cepbench.evaluation.{name}"
            for name in ("settings", "run_context", "run_result")
        }


@pytest.mark.slow
def test_a_case_does_import_what_is_watched_for(
    toy: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The watch sees imports: the same look at a run with a case finds numpy, still no torch."""
    toy.write("watch.py", WATCH)
    monkeypatch.setenv("WATCH", str(toy.path))
    toy.run_cold("-p", "watch", "-k", "color")
    modules = set(json.loads((toy.path / "main.json").read_text())["modules"])
    assert {"numpy", "PIL", "msgspec", "pytest_cepbench.chains"} <= modules
    assert "torch" not in modules


def test_the_whole_plugin_can_be_switched_off_and_no_part_of_it(toy: Project) -> None:
    """`-p no:cepbench` leaves neither options nor fixtures.

    What a part leaves would judge cases and not say so, or miss those that did not report.
    """
    result = toy.run_here("-p", "no:cepbench", "-k", "drift")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["*fixture 'cep_case' not found"])
    runs = [(part, "--model=shapes:") for part in ("run", "controller", "exit_code")]
    for part, *arguments in (*runs, ("empty_suites",)):
        result = toy.run_here("-p", f"no:cepbench_{part}", *arguments)
        assert result.ret in (pytest.ExitCode.USAGE_ERROR, pytest.ExitCode.INTERRUPTED)
        assert f"-p no:cepbench_{part} leaves" in result.stdout.str() + result.stderr.str()
