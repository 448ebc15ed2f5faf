"""`cepbench study`: what it prints and writes was measured, and its exit code says whether."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.cli.conftest import Home
from tests.studies.toy import COLORS, TOY

GENERATORS = ("--generator=world=shapes:", "--generator=moving=shapes:?move=0.3")


def rows(grid: dict[str, Any]) -> dict[str, list[float]]:
    """Model -> its values over the variants."""
    columns: dict[str, list[float]] = {}
    for cell in grid["cells"]:
        columns.setdefault(cell["model"], []).append(cell["value"])
    return columns


def line(text: str, start: str) -> list[str]:
    """The numbers of the first line that begins so."""
    row = next(line for line in text.splitlines() if line.startswith(start))
    return row[len(start) :].split()


def test_generators(home: Home) -> None:
    """Pearson of two generators over three models, recomputed; every pair is a line."""
    ended = home.study("generators", ".", *GENERATORS, "--generator=shapes:?resize=0.4")
    grid = home.grid("generators")
    table = rows(grid)
    spreads = [[spread["spread"][name] for name in ("std", "range")] for spread in grid["spreads"]]
    assert [grid["mean_std"], grid["mean_range"]] == pytest.approx(np.mean(spreads, axis=0))
    columns = np.array([table[model] for model in "abc"]).T
    expected = np.corrcoef(columns)
    (pearson,) = [a for a in home.grid("generators")["agreements"] if a["method"] == "pearson"]
    coefficients = [[cell["value"] for cell in row] for row in pearson["matrix"]]
    assert np.array(coefficients) == pytest.approx(expected)
    assert pearson["mean"] == pytest.approx((expected.sum() - 3) / 6)
    assert ended.code == 0
    assert "#3 = shapes:?resize=0.4: generator shapes:?resize=0.4" in ended.out
    assert line(ended.out, "#1 and #3")[0] == f"{expected[0, 2]:.4f}"


def test_encoders(home: Home) -> None:
    """The chains are grown once; only the second encoder is asked again."""
    colors = f"--encoder=colors={COLORS}"
    ended = home.study("encoders", ".", "--encoder=world=shapes:", colors, "--metrics=gc")
    assert ended.code == 0
    assert line(ended.out, "world and colors") != []
    players = {(entry["seat"], entry["spec"]) for entry in home.document("encoders")["players"]}
    assert ("encoder", COLORS) in players
    roles = [cell["identity"]["encoder"] for cell in home.grid("encoders")["cells"]]
    assert len(set(roles)) == 2


def test_a_failing_cell_is_shown_and_the_rest_is_measured(home: Home) -> None:
    """Exit code 1, "error" in the cell, the reason below, everything else as ever."""
    ended = home.study("generators", ".", *GENERATORS, "--generator=dead=shapes:?blank=1")
    assert ended.code == 1
    assert line(ended.out, "a   ")[2] == "error"
    assert "a, dead: all 16 chains failed at the generator (shapes:?blank=1)" in ended.out
    cells = home.grid("generators")["cells"]
    assert [cell["value"] is None for cell in cells] == [False, False, True] * 3
    assert "Traceback" not in ended.out + ended.err


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["seeds", "nowhere"], "no suite at 'nowhere'"),
        (["seeds", ".", "--metrics=gcc"], "unknown metric 'gcc'. Did you mean 'gc'?"),
        (["seeds", ".", "--metrics=gc,"], "names separated by commas"),
        (["seeds", ".", "--seeds=1"], "compares at least two: got 1"),
        (["seeds", ".", "--seeds=1,-2"], "'-2': no seed"),
        (["seeds", ".", "--samples=none"], "--samples 'none': a number of at least 1"),
        (["seeds", ".", "--data=photos"], "--data 'photos': NAME=PATH is expected"),
        (["generators", ".", "--generator=shapes:"], "compares at least two"),
        (["seeds", ".", "--model=nobody/"], "nobody"),
        (["seeds", ".", "--store=suite.toml/store"], "suite.toml/store"),
        (["seeds", "absent.toml"], "data set 'photos' is not here: give it with --cep-data photos"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(home: Home, argv: list[str], message: str) -> None:
    """Nothing is measured, no table is printed, no traceback either."""
    absent = TOY.replace('loader = "shapes"', 'loader = "folder"\nname = "photos"')
    absent = absent.replace("options = { samples_per_category = 2 }", "")
    (home.path / "absent.toml").write_text(absent)
    ended = home.study(*argv)
    ended.refused(message, lines=1)
    assert ended.out == ""
    assert not (home.path / ".cepbench" / "studies").exists()


def test_a_file_in_the_place_of_the_folder(home: Home) -> None:
    """Where the files cannot be written, the tables are shown all the same, and the code is 1."""
    ended = home.study("seeds", ".", "--seeds=0,1", "--metrics=gc", "--out=suite.toml")
    assert ended.code == 1
    assert "mean of pairs" in ended.out
    assert ended.err.splitlines()[-1].startswith("cepbench: the results could not be written to")


def test_samples_and_parts(home: Home) -> None:
    """The options of the gate mean here what they mean there, in its spelling too."""
    home.study("seeds", ".", "--seeds=0,1", "--samples=1", "--parts=crowded", "--metrics=gc")
    grids = home.document("seeds")["grids"]
    assert [(g["part"], g["cells"][0]["n"]) for g in grids] == [("crowded", 1), ("overall", 8)]


def test_what_is_written_stays_out_of_git(home: Home) -> None:
    """`.cepbench` ignores itself, as after a test run."""
    home.study("seeds", ".", "--seeds=0,1", "--metrics=gc")
    assert (home.path / ".cepbench" / ".gitignore").read_text() == "*\n"


def test_the_suite_can_be_a_file_elsewhere(home: Home, tmp_path_factory: Any) -> None:
    """A TOML file of any name will do, and modules beside it are found."""
    place: Path = tmp_path_factory.mktemp("suites")
    (place / "models_beside.py").write_text(
        "from pytest_cepbench.datasets.shapes import Degradation\n"
        "from pytest_cepbench.models.rule_based.scene_models import ShapesDescriber\n"
        "class Blind(ShapesDescriber):\n"
        "    fingerprint = 'blind/1'\n"
        "def blind():\n"
        "    return Blind(Degradation(recolor=1.0))\n"
    )
    (place / "other.toml").write_text(TOY)
    model = "--model=blind=python:models_beside:blind"
    ended = home.study("seeds", str(place / "other.toml"), "--seeds=0,1", models=[model])
    assert ended.code == 0
    assert home.document("seeds")["file"] == str(place / "other.toml")
