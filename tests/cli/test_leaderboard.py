"""`cepbench compare --out`: pages and files of ranked runs, and what it refuses."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pytest

from tests.cli.conftest import Home
from tests.cli.reports import GATED, Measured, edit_report, measure_toy, result_of, write_report


@pytest.fixture
def reports(home: Home, measured: Measured) -> Home:
    """Reports of three models of the toy suite."""
    for name, model in (
        ("best", "shapes:"),
        ("mid", "shapes:?miss=0.4"),
        ("low", "shapes:?miss=0.95"),
    ):
        write_report(home.path / f"{name}.json", map(result_of, measured(model)), "passed")
    return home


def test_page_and_files(reports: Home) -> None:
    """Models with ranks in each metric, then each metric's differences; files hold the same."""
    ended = reports.command("compare", "low.json", "best.json", "third=mid.json", "--out=boards")
    out = reports.path / "boards"
    document = json.loads((out / "leaderboard.json").read_text("utf-8"))

    assert (ended.code, ended.err) == (0, "")
    assert re.search(r"^best +1-2 ", ended.out, re.MULTILINE)
    assert re.search(r"^low +2-3 ", ended.out, re.MULTILINE)
    assert "toy/overall/gc: GC@" in ended.out
    assert (out / "leaderboard.md").read_text("utf-8").startswith("# leaderboard of toy: 3 models")
    assert "best: rank 1-2" in (out / "leaderboard.html").read_text("utf-8")
    board = document["cases"][0]
    assert [model["model"] for model in board["models"]] == ["best", "third", "low"]
    assert board["models"][0]["rank_high"] == board["models"][2]["rank_low"] == 2
    assert board["models"][2]["difference"] < board["models"][1]["difference"] < 0
    assert document["command"] == (
        "cepbench compare low.json best.json third=mid.json --out=boards"
    )


def test_chosen_cases_and_folder(reports: Home) -> None:
    """--case ranks in a part, with or without the name of its suite."""
    ended = reports.command("compare", "best.json", "low.json", "--case=overall/gc", "--out=boards")
    document = json.loads((reports.path / "boards" / "leaderboard.json").read_text("utf-8"))

    assert ended.code == 0
    assert [board["case"] for board in document["cases"]] == ["toy/overall/gc"]


@pytest.mark.parametrize(
    ("pool", "line"),
    [
        ("samples", "lower is better; 16 independent samples"),
        ("categories", "lower is better; too few blocks of samples for intervals: nothing is told"),
    ],
)
def test_distances_between_sets(home: Home, pool: str, line: str) -> None:
    """Units are called what they are; two samples of a category make no blocks."""
    text = f'{GATED}[metrics.fid]\npool = "{pool}"\nparts = "overall"\n'
    for name, model in (("a", "shapes:?miss=0.4"), ("b", "shapes:?recolor=0.9")):
        results = map(result_of, measure_toy(home.path, model, text))
        write_report(home.path / f"{name}.json", results)
    ended = home.command("compare", "a.json", "b.json", "--case=overall/fid", "--out=boards")

    assert (ended.code, ended.err) == (0, "")
    assert line in ended.out


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["best.json"], "expected two or more runs"),
        (
            ["best.json", "low.json", "--suite=toys"],
            "the run of best has no case that is asked for: it has toy/",
        ),
        (["best.json", "none.json"], "results 'none.json' cannot be read: No such file"),
        (["best.json", "best.json"], "two runs are called 'best': name them, NAME=best.json"),
        (
            ["best.json", "low.json", "--case=overall/gx"],
            "the run of best has no case that is asked for: it has toy/",
        ),
        (["best.json", "cut.json"], "the run of cut.json is incomplete (worker gw0 died): run it"),
    ],
)
def test_refused(reports: Home, measured: Measured, argv: list[str], message: str) -> None:
    """One line, exit code 2, no files."""
    results = map(result_of, measured("shapes:"))
    write_report(reports.path / "cut.json", results, "incomplete", ["worker gw0 died"])
    ended = reports.command("compare", *argv, "--out=boards")

    assert (ended.code, ended.out, ended.err.count("\n")) == (2, "", 1)
    assert message in ended.err
    assert not (reports.path / "boards").exists()


@pytest.mark.parametrize(
    ("edit", "field"),
    [
        (lambda measured: measured["identity"].update(prompt="another"), "prompt"),
        (lambda measured: measured.update(higher_is_better=False), "direction"),
        (lambda measured: measured["clusters"].update(color="one"), "clusters"),
    ],
)
def test_runs_of_another_version_of_the_suite(
    reports: Home, edit: Callable[[dict[str, Any]], object], field: str
) -> None:
    """What differs is named, in one line."""

    def edit_cases(document: dict[str, Any]) -> None:
        for case in document["cases"]:
            edit(case["measurement"])

    edit_report(reports.path / "low.json", edit_cases)
    ended = reports.command("compare", "best.json", "low.json", "--out=boards")

    assert (ended.code, ended.err.count("\n")) == (2, 1)
    assert f"best and low were not measured alike ({field} differ)" in ended.err
