"""`cepbench init` and `suites`: suites of one's own and shipped ones, and what they gate."""

from __future__ import annotations

import os
import re
import shutil
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from pytest_cepbench.cli import main
from pytest_cepbench.evaluation.python_api import gate_checkpoint
from pytest_cepbench.models import python_model
from pytest_cepbench.suites import load_suite
from pytest_cepbench.suites.definition import find_shipped, list_suites
from tests.cli.conftest import Ended, Home
from tests.plugin import user_models
from tests.plugin.project import contents

ROLES = ("--generator=python:user_models:generator", "--encoder=python:user_models:encoder")

MODEL = "--model=python:user_models:noisy"


def make_photos(home: Path, counts: dict[str, int]) -> None:
    """Photographs below `photos`, so many of each category, and the models."""
    rng = np.random.default_rng(0)
    shutil.copy(str(user_models.__file__), home)
    for category, count in counts.items():
        folder = home / "photos" / category
        folder.mkdir(parents=True)
        for number in range(count):
            color = tuple(int(value) for value in rng.integers(256, size=3))
            Image.new("RGB", (16, 16), color).save(folder / f"{number:02d}.png")


@pytest.fixture
def project(home: Home) -> Home:
    """A folder with photographs in two categories."""
    python_model.make_model.cache_clear()  # of another test's folder, under the same name
    (home.path / "suite.toml").unlink()
    make_photos(home.path, {"cats": 12, "dogs": 18})
    return home


def init(project: Home, *argv: str, images: str = "photos", model: str = MODEL) -> Ended:
    """The command on the photographs here."""
    return project.command("init", "--images", images, model, *ROLES, *argv)


def written(project: Home, name: str = "photos") -> dict[str, Any]:
    """The suite that was written."""
    text = (project.path / "suites" / name / "suite.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)


def test_tolerances_come_from_the_noise(project: Home) -> None:
    """The pilot's scatter gives the whole a tolerance, and smaller categories a larger one.

    Quotes, spaces and line ends in names end up in the file as they are.
    """
    odd, cats = 'a "b"\n[gate] é', "c'\"ats"
    (project.path / "photos").rename(project.path / odd)
    (project.path / odd / "cats").rename(project.path / odd / cats)
    ended = init(project, images=odd)
    assert ended.code == 0
    assert ended.err.startswith("1 of 3: seed 0\n")
    suite = written(project, "a-b-gate")
    assert suite["data"]["path"] == f"../../{odd}"
    assert f"{cats}/gc" in suite["cases"]
    tolerance = suite["gate"]["tolerance"]
    assert 0.01 < tolerance < max(case["tolerance"] for case in suite["cases"].values())
    sentences = re.findall(r"^(It will|A checkpoint)", ended.out, re.MULTILINE)
    assert sentences == ["It will", "It will", "A checkpoint"]
    assert f"fewer than 20 images: {cats} (12), dogs (18). Give" in ended.flat


def test_what_is_written(project: Home) -> None:
    """A suite with relative paths, its test, and a folder for baselines.

    Where nothing is measured, the default is named as one, and no model is asked. A preset is
    written out with its settings, as `suites/folder` has them.
    """
    ended = init(project, "--no-measure", "--name=my-own")
    assert ended.code == 0
    suite = written(project, "my-own")
    assert suite["data"] == {"loader": "folder", "name": "my-own", "path": "../../photos"}
    assert suite["roles"] == {
        "generator": "python:user_models:generator",
        "encoder": "python:user_models:encoder",
    }
    file = project.path / "suites" / "my-own" / "suite.toml"
    load_suite(file)
    assert (project.path / "suites" / "my-own" / "test_my_own.py").is_file()
    assert (project.path / "baselines" / "my-own").is_dir()
    assert "tolerance: a default, nothing was measured" in ended.out
    assert suite["gate"]["tolerance"] == 0.01
    reason = "# A default.\n# no model was asked (--no-measure).\ntolerance = 0.01"
    assert reason in file.read_text()
    assert not (project.path / ".cepbench").exists()
    assert init(project, "--no-measure", "--generator=preset:sd-turbo").code == 0
    generator = written(project)["roles"]["generator"]
    assert generator.startswith("stabilityai/sd-turbo?num_inference_steps=1&guidance_scale=0.0")


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        ("describer", "the noise is 0 over 3 seeds: no model that plays uses its seed"),
        (
            "describer?behaviour=broken",
            "the noise could not be measured: not measured under seed 0",
        ),
    ],
    ids=["no-noise", "broken"],
)
def test_where_nothing_can_be_measured_the_reason_is_said(
    project: Home, model: str, reason: str
) -> None:
    """A suite with the default, in which nothing looks measured."""
    ended = init(project, model=f"--model=python:user_models:{model}")
    assert ended.code == 0
    assert "a default, nothing was measured" in ended.out
    assert reason in ended.out
    assert written(project)["gate"]["tolerance"] == 0.01


def test_nothing_is_overwritten(project: Home) -> None:
    """A second call names the files that are there, asks no model, and changes nothing. Nor is a
    describer alone gated: the option for the encoder is named.
    """
    ended = project.command("init", "--images=photos", MODEL, ROLES[0])
    ended.refused("needs an encoder: give one with --encoder=")
    assert init(project, "--no-measure").code == 0
    before = contents(project.path)
    ended = init(project)
    ended.refused("suites/photos/suite.toml", "would be replaced", code=1)
    assert contents(project.path) == before


def test_a_mistake_writes_nothing(project: Home) -> None:
    """One line, and exit code 2."""
    (project.path / "empty").mkdir()
    before = set(contents(project.path))
    for argv, message in (
        (["--images=photoss"], "a folder of images is expected. Did you mean 'photos'?"),
        (["--images=empty"], "no images in 'empty'"),
        (["--name=My Own"], "--name 'My Own': lower-case letters"),
        (["--generator=preset:sanna-sprint"], "Did you mean 'sana-sprint'?"),
        (["--seeds=1"], "noise shows between at least 2 seeds"),
        (["--model=python:user_models:discriber"], "Did you mean 'describer'?"),
    ):
        ended = init(project, *argv)
        ended.refused(message)
        new = set(contents(project.path)) - before
        # Python keeps the compiled module of a model beside it.
        own = {name for name in new if "store" not in name and "__pycache__" not in name}
        assert own <= {".cepbench/.gitignore"}


def test_specs_and_images_keep_their_place(
    project: Home, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A relative folder counts from the suite; images outside of the project by their full path."""
    inner = project.path / "inner"
    inner.mkdir()
    monkeypatch.chdir(inner)
    images = os.path.relpath(project.path / "photos", inner)
    (inner / "det").mkdir()  # there, so no id on the hub
    specs = ("--generator=./models/pipe?dtype=float16", "--encoder=../enc")
    argv = ("--no-measure", "--describer=det?backend=pil", *specs)
    assert init(project, *argv, images=images).code == 0
    suite = tomllib.loads((inner / "suites" / "photos" / "suite.toml").read_text())
    assert suite["roles"] == {
        "describer": "../../det?backend=pil",
        "generator": "../../models/pipe?dtype=float16",
        "encoder": "../../../enc",
    }
    assert suite["data"]["path"] == str((project.path / "photos").resolve())


def test_numbers_that_see_nothing_are_not_accepted(project: Home) -> None:
    """The suite is written, no baseline is, and the exit code says so."""
    ended = init(project, "--accept", "--encoder=python:user_models:encoder?behaviour=blind")
    ended.refused("nothing was accepted; the suite is written", code=1)
    assert "the noise could not be measured" in ended.out
    assert "it cannot see what this case measures" in ended.out
    assert written(project)["name"] == "photos"
    assert list((project.path / "baselines").rglob("*.toml")) == []


def test_every_suite_is_listed(capsys: pytest.CaptureFixture[str]) -> None:
    """With its data and the models that have to be named. One in full: what it measures, what it
    needs, and the command.
    """
    assert main(["suites"]) == 0
    out = capsys.readouterr().out
    for suite in list_suites():
        assert any(line.startswith(f"{suite.name} ") for line in out.splitlines())
    (line,) = (line for line in out.splitlines() if line.startswith("folder ") and "gc" in line)
    assert line.split()[1:6] == ["gc", "and", "1", "more", "folder"]
    for name, pieces in {
        "folder": ["--cep-data folder=PATH. Any folder", "describer: --describer=SPEC"],
        "geneval": ["data: built in, or --cep-data geneval=PATH", "or --encoder color=SPEC"],
        "geneval2": ["--cep-data geneval2=PATH. Clone https", "or --vqa=SPEC"],
        "instrument": ["data: built in", "describer: shapes:, or --describer=SPEC"],
        "opening-gold": ["pytest_cepbench.suites.opening ", "judge: --judge=SPEC"],
        "arena-instrument": ["interleaver: shapes:"],
    }.items():
        assert main(["suites", name]) == 0
        out = capsys.readouterr().out
        assert [piece for piece in pieces if piece not in out] == []


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
