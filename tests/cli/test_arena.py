"""`cepbench arena`: leaderboards and agreement from files of verdicts, and what it refuses."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pytest_cepbench.metrics.battles import JudgedBattle
from tests.cli.conftest import Home
from tests.metrics.arena.panels import simulate
from tests.ratings.studies import BLUE, RED, make_study
from tests.ratings.voted import cast, side_vote

PANEL = simulate(np.array([1.5, 0.0, -1.5]), 300, np.random.default_rng(0), per_question=3)


def write(path: Path, battles: Sequence[JudgedBattle], **more: Any) -> None:
    """Verdicts as OpenING's files have them."""
    records = [
        {
            "data_id": b.question,
            "model_A": {"id": "0", "name": b.first},
            "model_B": {"id": "1", "name": b.second},
            "winner": b.winner,
        }
        | more
        for b in battles
    ]
    path.write_text(json.dumps(records), "utf-8")


@pytest.fixture
def panels(home: Home) -> Home:
    """Verdicts of two judges, and files that are none."""
    write(home.path / "people.json", PANEL)
    write(
        home.path / "judge.json",
        [JudgedBattle(b.question, b.first, b.second, "A") for b in PANEL[5:]],
    )
    write(
        home.path / "careless.json",
        [JudgedBattle(b.question, b.second, b.first, "A") for b in PANEL],
    )
    pair = PANEL[0].question, PANEL[0].first, PANEL[0].second
    write(home.path / "extra.json", PANEL, reason="why")
    write(home.path / "nobody.json", [])
    write(home.path / "twice.json", [*PANEL, JudgedBattle(*pair, "B")])
    write(home.path / "self.json", [JudgedBattle("1", "m00", "m00", "A")])
    (home.path / "sub").mkdir()
    write(home.path / "sub" / "people.json", PANEL)
    return home


def test_leaderboard(panels: Home) -> None:
    """Models in order, with what a reader needs to know of judge and battles."""
    ended = panels.command("arena", "leaderboard", "people.json")
    document = json.loads(
        (panels.path / ".cepbench" / "arena" / "leaderboard-people.json").read_text("utf-8")
    )

    assert (ended.code, ended.err) == (0, "")
    title = "arena leaderboard of people: 3 models, 300 verdicts on 100 questions"
    assert ended.out.startswith(title)
    ranked = re.findall(r"^(m0\d) +(\d) +([+-]\d+)", ended.out, re.MULTILINE)
    assert [row[:2] for row in ranked] == [("m00", "1"), ("m01", "2"), ("m02", "3")]
    assert re.search(r"order effect: \+0\.\d{3} logits", ended.out)
    (board,) = document["leaderboards"]
    assert board["standings"][0]["win_rates"].keys() == {
        "fdt",
        "without_ties",
        "ties_as_zero",
        "ties_as_half",
    }


def test_errors_that_people_saw_are_counted_by_model(home: Home) -> None:
    """By more than half of the votes, each answer once."""
    ratings = make_study(home.path / "rated", "pair", count=6, annotators=3)
    for place, item in enumerate(ratings.items.values()):
        for number, name in enumerate(ratings.study.annotators):
            ticked = {"first": ["incomplete"], "second": ["factual"] if number < 2 else []}
            if number == 0:
                ticked["first"].append("poor-image")
            verdict = "A" if place % 3 else "B"
            vote = side_vote(item, name, verdict, errors=ticked, swapped=bool(place % 2))
            cast(ratings, vote)
    ended = home.command("arena", "leaderboard", "rated")
    assert ended.code == 0
    assert "answers in which people saw errors" in ended.out
    written = home.path / ".cepbench/arena/leaderboard-rated"
    (board,) = json.loads(written.with_suffix(".json").read_text())["leaderboards"]
    errors = {row["model"]: row["errors"] for row in board["standings"]}
    assert errors == {RED: {"incomplete": 6}, BLUE: {"factual": 6}}
    write(home.path / "plain.json", PANEL)
    assert "saw errors" not in home.command("arena", "leaderboard", "plain.json").out


def test_files_of_one_name_are_called_after_their_folders(panels: Home) -> None:
    """Such as the verdicts of several plays."""
    ended = panels.command("arena", "leaderboard", "people.json", "sub/people.json", "--out=both")
    assert (ended.code, ended.err) == (0, "")
    first = f"{panels.path.name}-people"
    assert (panels.path / "both" / f"leaderboard-{first}-sub-people.json").is_file()


def test_agreement(panels: Home) -> None:
    """Shares of both judges, and the table of their verdicts."""
    ended = panels.command("agree", "judges", "people.json", "judge.json", "--unseen=m02")
    document = json.loads(
        (panels.path / ".cepbench" / "agreement" / "agreement-people-judge.json").read_text("utf-8")
    )

    assert (ended.code, ended.err) == (0, "")
    assert ended.out.startswith("agreement of people and judge: 295 battles")
    assert "judged by people alone: 5" in ended.out
    comparison = document["comparison"]
    assert comparison["shared"] == 295
    assert sum(row[0] for row in comparison["confusion"]) == 295


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["leaderboard", "none.json"], "file 'none.json' cannot be read: No such file"),
        (
            ["leaderboard", "careless.json"],
            "careless: the judge leaned to the first answer in all 300",
        ),
        (
            ["leaderboard", "extra.json"],
            "extra.json, record 1: Object contains unknown field `reason`",
        ),
        (
            ["leaderboard", "people.json", "sub/../people.json"],
            "-people': rename one, results are named after them",
        ),
        (["leaderboard", "nobody.json"], "file 'nobody.json' holds no battle"),
        (["leaderboard", "twice.json"], "keep one of them, and the verdicts of two judges in"),
        (["leaderboard", "self.json"], "self.json, record 1: 'm00' cannot battle against itself"),
        (["judges", "people.json", "careless.json"], "people and careless judged no battle both"),
        (["judges", "people.json", "judge.json", "--unseen=x"], "no battle has the model 'x'"),
    ],
)
def test_refused(panels: Home, argv: list[str], message: str) -> None:
    """One line, exit code 2, no files."""
    ended = panels.command("agree" if argv[0] == "judges" else "arena", *argv)

    assert (ended.code, ended.out, ended.err.count("\n")) == (2, "", 1)
    assert message in ended.err
    assert not (panels.path / ".cepbench").exists()
