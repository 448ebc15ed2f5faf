"""`cepbench study`: what it prints and writes was measured, and its exit code says whether."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.cli.conftest import Home
from tests.studies.toy import COLORS, TOY, write_suite
from tests.suites.answers import ANSWERS

FEW = "--samples=1"

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
    ended = home.study("generators", ".", *GENERATORS, "--generator=shapes:?resize=0.4", FEW)
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
    ended = home.study("generators", ".", *GENERATORS, "--generator=dead=shapes:?blank=1", FEW)
    assert ended.code == 1
    assert line(ended.out, "a   ")[2] == "error"
    assert "a, dead: all 8 chains failed at the generator (shapes:?blank=1)" in ended.out
    cells = home.grid("generators")["cells"]
    assert [cell["value"] is None for cell in cells] == [False, False, True] * 3
    assert "Traceback" not in ended.out + ended.err


def test_samples_and_parts(home: Home) -> None:
    """The options of the gate mean here what they mean there; what is written stays out of git.

    Where the files cannot be written, the tables are shown all the same, and the code is 1.
    """
    argv = (".", "--seeds=0,1764317533000000000", FEW, "--parts=crowded", "--metrics=gc")
    ended = home.study("seeds", *argv)
    assert "seeds: #1 = 0, #2 = 1764317533000000000" in ended.out
    grids = home.document("seeds")["grids"]
    assert [(g["part"], g["cells"][0]["n"]) for g in grids] == [("crowded", 1), ("overall", 8)]
    assert (home.path / ".cepbench" / ".gitignore").read_text() == "*\n"
    ended = home.study("seeds", *argv, "--out=suite.toml")
    assert ended.code == 1
    assert "mean of pairs" in ended.out
    assert ended.err.splitlines()[-1].startswith("cepbench: the results could not be written to")


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
    ended = home.study("seeds", str(place / "other.toml"), "--seeds=0,1", FEW, models=[model])
    assert ended.code == 0
    assert home.document("seeds")["file"] == str(place / "other.toml")


WRITERS = (
    "--role=writer",
    "--model=a=shapes:?miss=0.1",
    "--model=b=shapes:?miss=0.5",
    "--model=c=shapes:",
)
DRAWERS = ("--generator=exact=shapes:", "--generator=moves=shapes:?move=0.3")


@pytest.mark.slow
def test_generators_behind_a_writer(home: Home) -> None:
    """The same texts, drawn by each generator, battle the reference answers and are ranked."""
    write_suite(home.path, ANSWERS.replace("[answer]", '[answer]\n[arena]\nagainst = "gold"'))
    ended = home.study("generators", ".", "--store=own", *DRAWERS, models=WRITERS)
    assert ended.code == 0
    study = json.loads((home.path / ".cepbench/studies/generators-arena.json").read_text("utf-8"))
    grids = {grid["metric"]: grid for grid in study["grids"]}
    assert {*grids} == {"win_rate", "truth", "failures", "judge_failures"}
    assert {model["seat"] for model in study["players"]} == {"writer", "generator", "judge"}
    for metric in ("win_rate", "truth"):
        values = {(c["model"], c["variant"]): c["value"] for c in grids[metric]["cells"]}
        assert all(values[model, "exact"] > values[model, "moves"] for model in "abc")
        assert all(values["c", name] > values["b", name] for name in ("exact", "moves"))
        pearson = grids[metric]["agreements"][0]["matrix"][0][1]["value"]
        columns = [[values[model, name] for model in "abc"] for name in ("exact", "moves")]
        assert pearson == pytest.approx(np.corrcoef(columns)[0, 1])
    asked = study["effort"]["inputs"]
    home.study("generators", ".", "--store=own", *DRAWERS, models=WRITERS)
    study = json.loads((home.path / ".cepbench/studies/generators-arena.json").read_text("utf-8"))
    assert study["effort"]["inputs"] == 0 < asked


@pytest.mark.slow
def test_seeds_of_answers(home: Home) -> None:
    """Without accepted answers no win rate is made up: it is left out, and said so."""
    write_suite(home.path, ANSWERS)
    ended = home.study("seeds", ".", "--seeds=0,1,2")
    assert ended.code == 0
    assert "note: win_rate, judge_failures left out: accepted answers are needed" in ended.out
    study = json.loads((home.path / ".cepbench/studies/seeds-arena.json").read_text("utf-8"))
    grids = {grid["metric"]: grid for grid in study["grids"]}
    assert {*grids} == {"truth", "failures"}
    values = {(c["model"], c["variant"]): c["value"] for c in grids["truth"]["cells"]}
    assert len({values["a", seed] for seed in "012"}) == 3
