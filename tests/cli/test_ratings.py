"""`cepbench agree` and `arena leaderboard` of ratings folders."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pytest_cepbench.datasets.opening.verdict_files import write_battles
from pytest_cepbench.metrics.battles import JudgedBattle
from pytest_cepbench.ratings.folder import Ratings
from tests.cli.conftest import Home
from tests.ratings.studies import BLUE, RED, make_study
from tests.ratings.voted import cast, side_vote

MODULE = "python:tests.cli.test_ratings"


class Redder:
    """Prefers the answer with the redder image."""

    fingerprint, seeded = "redder/1", False

    def judge(self, battles: list, seeds: list) -> list:  # type: ignore[type-arg]
        """A verdict each."""
        return ["A" if self._red(b.first) > self._red(b.second) else "B" for b in battles]

    def _red(self, answer: list) -> float:  # type: ignore[type-arg]
        image = next(piece for piece in answer if not isinstance(piece, str))
        return float(image.resize((1, 1)).getpixel((0, 0))[0])


@pytest.fixture
def rated(home: Home) -> Ratings:
    """Twelve battles: people prefer red in all, but for two in which both prefer blue."""
    ratings = make_study(home.path / "ratings/may", "pair", 12)
    for number, item in enumerate(ratings.items.values()):
        for name in ("a1", "a2"):
            verdict = "B" if number < 2 else "Tie(A)" if name == "a2" and number < 4 else "A"
            cast(ratings, side_vote(item, name, verdict, seconds=3.0 + number))
    return ratings


def test_agreement_is_printed_and_written(home: Home, rated: Ratings) -> None:
    """Each coefficient with its interval, a row for each annotator, and the same as JSON."""
    ended = home.command("agree", "people", "ratings/may")
    out = " ".join(ended.out.split())

    assert (ended.code, ended.err) == (0, "")
    assert "2 annotators, 12 of 12 items judged, 12 by several" in out
    assert "equal votes, ties forced verdicts 1.000 [1.000, 1.000] 12" in out
    content = json.loads(Path(".cepbench/agreement/agreement-may.json").read_text())["agreement"]
    assert content["coefficients"][0]["name"] == "Krippendorff's alpha, ordinal"
    assert content["annotators"][0]["votes"] == 12


def test_mistakes_are_told_in_a_line(home: Home, rated: Ratings) -> None:
    """No folder, nothing to compare, two files of one annotator, a wrong option."""
    make_study(home.path / "ratings/words", "describe", 2)
    cases = {
        ("agree", "people", "ratings"): "is no ratings folder",
        ("agree", "people", "ratings/words"): "nobody has judged an item yet",
        ("agree", "models", "ratings/words"): "in which no models are compared",
        ("arena", "leaderboard", "ratings/words"): "'pair' is expected here",
    }
    for argv, message in cases.items():
        ended = home.command(*argv)
        assert ended.code == 2, (argv, ended)
        assert message in ended.err, (argv, ended)
        assert len(ended.err.splitlines()) == 1
    path = rated.vote_path("a1")
    path.with_name("copy.jsonl").write_bytes(path.read_bytes())
    ended = home.command("agree", "people", "ratings/may")
    ended.refused("both have votes of 'a1'")


def test_votes_that_do_not_count_are_told(home: Home, rated: Ratings) -> None:
    """A line that was cut off is left out and counted."""
    with rated.vote_path("a1").open("ab") as file:
        file.write(b'{"v":1,"task":"pair","it')
    ended = home.command("agree", "models", "ratings/may")
    assert ended.code == 0, ended.err
    assert "1 records of votes that cannot be read are left out" in " ".join(ended.out.split())


def test_who_won_is_told_with_an_interval(home: Home, rated: Ratings) -> None:
    """Each model's win rate over all votes, and how sure it is: printed, and as JSON."""
    ended = home.command("agree", "models", "ratings/may")
    rows = {
        line.split()[0]: line.split()[1:6] for line in ended.out.splitlines() if "SECRET" in line
    }
    content = json.loads(Path(".cepbench/agreement/alignment-may.json").read_text())["alignment"]

    assert (ended.code, ended.err) == (0, "")
    (red,) = (own for own in content["people"] if own["model"] == RED)
    (blue,) = (own for own in content["people"] if own["model"] == BLUE)
    assert red["score"] == pytest.approx(19 / 24)  # 2 battles lost by both, 2 ties of one person
    assert red["items"] == 12
    assert 1 / 2 < red["low"] < red["score"] < red["high"] < 1
    assert (blue["low"], blue["high"]) == pytest.approx((1 - red["high"], 1 - red["low"]))
    shown = [f"[{red['low']:.3f},", f"{red['high']:.3f}]"]
    assert rows[RED] == ["answer", "24", "0.792", *shown]
    assert "the better one is known where the interval leaves out .5" in " ".join(ended.out.split())


def test_votes_are_ranked_as_people_saw_the_sides(home: Home) -> None:
    """So that a leaderboard can tell models from sides."""
    ratings = make_study(home.path / "ratings/may", "pair", 24, annotators=3)
    items = list(ratings.items.values())
    for number, item in enumerate(items):
        verdict = "B" if number % 6 == 0 else "Tie(A)" if number % 6 == 1 else "A"
        swapped = number % 2 == 1
        pressed = {"A": "B", "B": "A", "Tie(A)": "Tie(B)"}[verdict] if swapped else verdict
        cast(ratings, side_vote(item, "a1", pressed, swapped=swapped))
    cast(ratings, side_vote(items[1], "a2", "Tie(A)"))  # as many saw either order: its own
    for name in ("a2", "a3"):
        cast(ratings, side_vote(items[2], name, "B", swapped=True))  # most saw it swapped
    ended = home.command("arena", "leaderboard", "ratings/may")
    assert ended.code == 0, ended.err
    assert "order effect: " in " ".join(ended.out.split())
    (row,) = (line.split() for line in ended.out.splitlines() if line.startswith(RED))
    assert row[1] == "1"


def test_a_card_from_people(home: Home, rated: Ratings) -> None:
    """Verdicts of a judge in a file beside the majority of people's votes."""
    battles = [
        JudgedBattle(f"SECRET-SAMPLE-{number}", RED.lower(), BLUE.lower(), "A" if number else "B")
        for number in range(12)
    ]
    write_battles(home.path / "judge.json", battles)
    ended = home.command("agree", "judges", "judge.json", "--people=ratings/may")
    card = json.loads(Path(".cepbench/agreement/judge-card-judge.json").read_text())["card"]

    assert ended.code == 0, ended.err
    assert card["people"] == "may"
    assert card["accuracy"] == pytest.approx(11 / 12)


def test_a_judge_is_asked_on_a_ratings_folder(home: Home, rated: Ratings) -> None:
    """It brings questions and answers; the card is kept, and a second time costs no call."""
    argv = ("agree", "judges", f"--judge={MODULE}:Redder", "--on=ratings/may")
    ended = home.command(*argv)
    again = home.command(*argv)
    (kept,) = (home.path / "baselines/judges").iterdir()
    card = json.loads(kept.read_text())["card"]

    assert ended.code == 0, ended.err
    assert "24 verdicts by the judge, 0 from the store" in ended.err
    assert "0 verdicts by the judge, 24 from the store" in again.err
    assert card["accuracy"] == pytest.approx(10 / 12)
    assert card["people"] == "may"
    refused = home.command(*argv, "--data=opening=x")
    refused.refused("--on ratings/may brings questions and answers")
