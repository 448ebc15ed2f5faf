"""One run knows one model by one name: whatever a trainer writes while the run goes on."""

from __future__ import annotations

import json
import shutil
from importlib.util import find_spec
from pathlib import Path

import pytest

from pytest_cepbench.cli import main
from pytest_cepbench.store import Store
from tests.models.files import LLAVA, safetensors_bytes, write_checkpoint
from tests.plugin.project import INI, SLOWLY_BOTH, Project, contents

COLORS = {
    f"{name}/{n}.png": (60 * place, 80 * n, 90) for place, name in enumerate("abcd") for n in (1, 2)
}


TRAINER = """\
import pathlib, pytest

@pytest.fixture(autouse=True)
def trainer():
    pathlib.Path("weights").write_text("B")
"""


@pytest.fixture
def photos(project: Project) -> Project:
    """Photos in four categories, and models that are what a file says."""
    project.photos(COLORS)
    shutil.copy(Path(__file__).with_name("marked_models.py"), project.path)
    project.write("weights", "A")
    return project


def refused(project: Project) -> list[str]:
    """Why none of the cases of the latest run could be measured; nothing is stored."""
    cases = project.report()["cases"]
    assert {(case["verdict"], len(case["reasons"])) for case in cases} == {("error", 1)}
    with Store(project.path / ".cepbench" / "store") as store:
        assert len(store) == 0
    return [reason for case in cases for reason in case["reasons"]]


@SLOWLY_BOTH
def test_a_checkpoint_that_is_overwritten_after_the_start_is_refused(
    photos: Project, arguments: tuple[str, ...]
) -> None:
    """Each case is an error that says so; nothing is stored under the name of the first weights."""
    if find_spec("torch") is None:  # it is bound and never loaded, so that torch is not imported
        pytest.skip("checkpoints need the [models] extra")
    folder = write_checkpoint(photos.path / "latest", LLAVA)
    (photos.path / "next").write_bytes(safetensors_bytes(b"\0\0\0@"))
    photos.write(
        "conftest.py",
        """\
import pathlib, shutil, pytest

@pytest.fixture(autouse=True)
def trainer(tmp_path):
    shutil.copy("next", tmp_path)
    (tmp_path / "next").replace("latest/model.safetensors")
""",
    )

    result = photos.run(*arguments, f"--model={folder}")

    assert result.ret == pytest.ExitCode.TESTS_FAILED
    for reason in refused(photos):
        assert "changed" in reason
        assert "Copy the checkpoint to a folder of its own" in reason


def test_a_model_of_ones_own_names_the_files_that_it_reads_late(photos: Project) -> None:
    """A factory that fingerprints at the start, and weights that are read at the first answer."""
    photos.write("conftest.py", TRAINER)
    model = "--model=python:marked_models:Lazy"
    assert photos.run_here(model).ret == pytest.ExitCode.TESTS_FAILED
    told = "before the model was loaded (written again: weights)"
    assert all(told in reason for reason in refused(photos))

    photos.write("conftest.py", "")
    assert photos.run_here(model, "--snapshot-update").ret == pytest.ExitCode.OK


EACH_ITS_OWN = """\
import os, user_models

class Own(user_models.Describer):
    def __init__(self):
        super().__init__()
        self.fingerprint = f"weights of {os.environ.get('PYTEST_XDIST_WORKER', 'the controller')}"
"""


@pytest.mark.slow
def test_workers_that_find_another_model_than_the_controller_judge_nothing(photos: Project) -> None:
    """The trainer wrote between the run's start and that of its workers; both models are named."""
    photos.write(
        "conftest.py",
        """\
import pathlib

def pytest_configure(config):
    if hasattr(config, "workerinput"):
        pathlib.Path("weights").write_text("B")
""",
    )
    result = photos.run("-n", "2", "--model=python:marked_models:describer")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    for reason in refused(photos):
        assert "is python/1 weights B for worker gw" in reason
        assert "was python/1 weights A when the controller bound it" in reason

    # One that the suite names is what the first worker found: the controller knows nothing of it.
    photos.write("own.py", EACH_ITS_OWN)
    photos.edit("suite.toml", "user_models:describer", "own:Own")
    result = photos.run("-n", "2", "--model=python:user_models:generator", "--cep-role=generator")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    cases = photos.report()["cases"]
    reasons = [reason for case in cases if case["verdict"] == "error" for reason in case["reasons"]]
    assert reasons
    for reason in reasons:
        assert "python:own:Own is python/1 weights of gw" in reason
        assert "when worker gw" in reason
    models = [model for case in cases for model in case["models"] if model["seat"] == "describer"]
    assert len({model["fingerprint"] for model in models}) < 2


MIXED = """\
import pathlib, pytest

@pytest.fixture(autouse=True)
def trainer(request):
    yield
    if "[a-" in request.node.nodeid:
        from pytest_cepbench.models.python_model import make_model
        from pytest_cepbench.plugin.hooks import run_of

        evaluator = run_of(request.config).evaluator()
        for known in (evaluator.models.runners, evaluator.models._handles, evaluator._runs):
            known.clear()
        make_model.cache_clear()
        pathlib.Path("weights").write_text("B")
"""
"""After the first case all is bound anew, as by a worker that shares no folder with the others."""


def test_results_of_two_identities_make_the_run_incomplete(
    photos: Project, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 3, both named with their cases, and nothing is accepted.

    Whatever a report says of itself, which may have been edited.
    """
    photos.write("conftest.py", MIXED)
    result = photos.run(
        "-p", "no:xdist", "--model=python:marked_models:describer", "--snapshot-update"
    )
    assert result.ret == pytest.ExitCode.INTERNAL_ERROR
    (problem,) = photos.report()["problems"]
    assert problem.startswith(
        "the describer python:marked_models:describer of suite photos was not the same model "
        "in all cases: "
    )
    assert "python/1 weights A model={},spec={} in test_photos.py::test_drift[a-gc]; " in problem
    assert "python/1 weights B model={},spec={} in test_photos.py::test_drift[b-gc], " in problem
    assert photos.report()["verdict"] == "incomplete"
    assert not contents(photos.baselines)
    result.stdout.fnmatch_lines(["INCOMPLETE: the describer *"])

    monkeypatch.chdir(photos.path)
    report = photos.path / ".cepbench" / "report.json"
    document = json.loads(report.read_text())
    report.write_text(json.dumps(document | {"verdict": "failed", "problems": []}))
    assert main(["accept", ".cepbench/report.json", "--reason=x"]) == 1
    assert "was not the same model in all cases" in capsys.readouterr().err
    assert not contents(photos.baselines)


EDITOR = """\
import pathlib

def pytest_configure_node():
    file = pathlib.Path("%s")
    text = file.read_text()
    if %r not in text:
        file.write_text(text.replace(%r, %r))
"""
"""Edits a file between the start of the run and that of its workers."""


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("suite.toml", "[metrics.gc]", "[metrics.gc]\ntolerance = 0.3"),
        pytest.param("pytest.ini", "=0.1", "=0.3", marks=pytest.mark.slow),
    ],
    ids=["suite", "settings"],
)
def test_a_file_that_changes_before_workers_read_it_makes_the_run_incomplete(
    accepted: Project, name: str, old: str, new: str
) -> None:
    """What the run was started with is not what its cases were judged by: the file is named."""
    accepted.write("pytest.ini", f"{INI}cepbench_alpha=0.1\n")
    accepted.write("conftest.py", EDITOR % (name, new, old, new))
    before = contents(accepted.baselines)
    run = accepted.run("-n", "2", "-k", "crowded or color", "--snapshot-update")
    assert run.ret == pytest.ExitCode.INTERNAL_ERROR
    (problem,) = accepted.report()["problems"]
    what = "what options, ini file and environment say" if name == "pytest.ini" else name
    assert problem.startswith(f"{what} changed while the run went on")
    assert "for the controller; " in problem
    assert contents(accepted.baselines) == before
