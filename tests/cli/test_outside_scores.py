"""`cepbench agree scores`: leaderboards beside a table of outside scores."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pytest_cepbench.metrics.correlation import correlation
from tests.cli.conftest import Home

MODELS = ("a", "b", "c", "d", "e")

OURS = (0.1, 0.2, 0.4, 0.45, 0.5)

THEIRS = (1.0, 4.0, 2.0, 8.0, 9.0)


def rows(score: str, values: tuple[float, ...] = OURS) -> list[dict[str, Any]]:
    """The rows of a board."""
    return [{"model": name, score: value} for name, value in zip(MODELS, values, strict=True)]


def write(folder: Path, document: object, table: str) -> None:
    """A file of leaderboards, and a table."""
    (folder / "board.json").write_text(json.dumps(document))
    (folder / "outside.csv").write_text(table)


def outside(*, more: str = "") -> str:
    """A table with a benchmark, and a second one of two models."""
    lines = [f"{name},{score},{'3' if name < 'c' else ''}"
             for name, score in zip(MODELS, THEIRS, strict=True)]  # fmt: skip
    return "\n".join(["model,MME,Rare", *lines, more])


@pytest.mark.parametrize(
    ("document", "sign"),
    [
        ({"cases": [{"case": "s", "higher_is_better": True, "models": rows("value")}]}, 1),
        ({"cases": [{"case": "s", "higher_is_better": False, "models": rows("value")}]}, -1),
        ({"leaderboards": [{"name": "s", "standings": rows("rating")}]}, 1),
        ({"scores": [{"name": "s", "models": rows("overall")}]}, 1),
    ],
)
def test_every_kind_of_leaderboard(home: Home, document: object, sign: int) -> None:
    """The three coefficients over shared models; losses are turned round, blanks are unknown."""
    write(home.path, document, outside(more="z,7,7"))

    ended = home.command("agree", "scores", "board.json", "outside.csv", "--draws=50")
    written = json.loads((home.path / ".cepbench/agreement/scores-board.json").read_text("utf-8"))

    assert (ended.code, ended.err) == (0, "")
    assert "s, Rare: 2 models in common, too few to correlate" in ended.out
    for own in written["correlations"]:
        expected = correlation(sign * np.array(OURS), np.array(THEIRS), own["method"])
        estimate = own["estimate"]
        assert expected is not None
        assert (own["board"], own["column"], estimate["items"]) == ("s", "MME", 5)
        assert estimate["value"] == pytest.approx(expected.value)
        assert -1 <= estimate["low"] <= estimate["value"] <= estimate["high"] <= 1
    assert [own["method"] for own in written["correlations"]] == ["pearson", "spearman", "kendall"]


BOARD = {"leaderboards": [{"name": "s", "standings": rows("rating")}]}


@pytest.mark.parametrize(
    ("document", "table", "message"),
    [
        ({"schema": 2}, outside(), "board.json holds no leaderboard"),
        ([], outside(), "board.json holds no leaderboard"),
        (BOARD, "", 'a first line with "model" and the name of each benchmark'),
        (BOARD, "model,MME,MME\n", 'a first line with "model" and the name of each benchmark'),
        (BOARD, outside(more="b,1"), "line 7: 'b' is there twice"),
        (BOARD, outside(more="f,1,2,3"), "line 7: 'f' has more cells than the first line"),
        (BOARD, outside(more="f,high"), "line 7: MME is no number, 'high'"),
        (BOARD, outside(more="f,inf"), "line 7: MME is no number, 'inf'"),
        (BOARD, "model,MME\nA,1\n", "nothing can be correlated: s, MME: 0 models in common"),
    ],
)
def test_what_cannot_be_correlated(home: Home, document: object, table: str, message: str) -> None:
    """One line that names the place, and no file."""
    write(home.path, document, table)

    ended = home.command("agree", "scores", "board.json", "outside.csv")

    ended.refused(message, lines=1)
    assert not (home.path / ".cepbench" / "agreement").exists()


def test_cases_of_one_file(home: Home) -> None:
    """MCD against MGG over models, losses of both turned round; one case has nothing beside it."""
    (home.path / "board.json").write_text(
        json.dumps(
            {
                "cases": [
                    {"case": "mcd", "higher_is_better": True, "models": rows("value")},
                    {"case": "mgg", "higher_is_better": False, "models": rows("value", THEIRS)},
                ]
            }
        )
    )

    ended = home.command("agree", "scores", "board.json", "--draws=50")
    written = json.loads((home.path / ".cepbench/agreement/scores-board.json").read_text("utf-8"))
    values = {own["method"]: own["estimate"]["value"] for own in written["correlations"]}

    assert ended.code == 0
    assert {(own["board"], own["column"]) for own in written["correlations"]} == {("mcd", "mgg")}
    assert values["pearson"] == pytest.approx(-np.corrcoef(OURS, THEIRS)[0, 1])
    (home.path / "board.json").write_text(json.dumps(BOARD))
    alone = home.command("agree", "scores", "board.json")
    alone.refused("board.json holds one leaderboard: name a CSV of scores too", lines=1)


def test_files_that_are_not_there(home: Home) -> None:
    """Named, whichever it is."""
    write(home.path, BOARD, outside())

    assert "none.json: No such file" in home.command("agree", "scores", "none.json", "b").err
    assert "none.csv: No such file" in home.command("agree", "scores", "board.json", "none.csv").err
