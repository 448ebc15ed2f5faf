"""`cepbench suites`, and the suites of the package by their names."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_cepbench.cli import main
from pytest_cepbench.evaluation.python_api import gate_checkpoint
from pytest_cepbench.suites.definition import find_shipped, list_suites
from tests.cli.conftest import Home
from tests.cli.photos import MODEL, ROLES, make_photos
from tests.plugin.project import run_plainly


def test_every_suite_is_listed(capsys: pytest.CaptureFixture[str]) -> None:
    """With its data and the models that have to be named."""
    assert main(["suites"]) == 0
    out = capsys.readouterr().out
    for suite in list_suites():
        assert any(line.startswith(f"{suite.name} ") for line in out.splitlines())
    (line,) = (line for line in out.splitlines() if line.startswith("folder ") and "gc" in line)
    assert line.split()[1:6] == ["gc", "and", "1", "more", "folder"]


@pytest.mark.parametrize(
    ("name", "pieces"),
    [
        ("folder", ["--cep-data folder=PATH. Any folder", "describer: --describer=SPEC"]),
        ("geneval", ["data: built in, or --cep-data geneval=PATH", "or --encoder color=SPEC"]),
        ("geneval2", ["--cep-data geneval2=PATH. Clone https", "or --vqa=SPEC"]),
        ("instrument", ["data: built in", "describer: shapes:, or --describer=SPEC"]),
        ("opening-gold", ["pytest_cepbench.suites.opening ", "judge: --judge=SPEC"]),
        ("arena-instrument", ["interleaver: shapes:"]),
    ],
)
def test_one_suite_in_full(
    capsys: pytest.CaptureFixture[str], name: str, pieces: list[str]
) -> None:
    """What it measures, what it needs, and the command."""
    assert main(["suites", name]) == 0
    out = capsys.readouterr().out
    for piece in pieces:
        assert piece in out


def test_pytest_finds_a_suite_by_its_package(home: Home) -> None:
    """`--pyargs` runs it, and its baselines and store belong to the project."""
    (home.path / "suite.toml").unlink()
    make_photos(home.path, {"cats": 2})
    args = ("--pyargs", "pytest_cepbench.suites.folder", MODEL, *ROLES, "--cep-data=folder=photos")
    assert run_plainly(home.path, *args) == 1
    assert run_plainly(home.path, *args, "--snapshot-update") == 0
    assert run_plainly(home.path, *args) == 0
    assert len(list((home.path / "baselines" / "folder").iterdir())) == 2
    assert (home.path / ".cepbench" / "store").is_dir()


def test_commands_and_python_take_the_same_name(home: Home) -> None:
    """The names of `--pyargs` stand for the folders, and nothing else does."""
    ended = home.command("doctor", "pytest_cepbench.suites.folder", MODEL)
    assert "data set 'folder' is not here" in ended.err
    result = gate_checkpoint("pytest_cepbench.suites.folder", model="shapes:")
    (reason,) = result.skipped.values()
    assert reason.startswith("data set 'folder' is not here")
    folder = find_shipped("pytest_cepbench.suites.folder")
    assert folder is not None
    assert (folder / "test_folder.py").is_file()
    for other in ("folder", "pytest_cepbench.suites.data", "pytest_cepbench.suites.", "x.folder"):
        assert find_shipped(other) is None


def test_the_wheel_has_what_needs_no_checkpoint_of_the_repository() -> None:
    """Each folder of suites is shipped whole, or named here with what it needs."""
    root = Path(__file__).parents[2]
    listed = (root / "pyproject.toml").read_text(encoding="utf-8")
    folders = {path.parent.name for path in (root / "suites").glob("*/suite.toml")}
    left_out = {folder for folder in folders if f'"suites/{folder}" = ' not in listed}
    # The checkpoints of reference/, and accepted answers.
    assert left_out == {"shapes", "arena"}
