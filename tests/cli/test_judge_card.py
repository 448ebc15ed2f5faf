"""`cepbench agree judges`: the card of a judge from files of verdicts, and what it refuses."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest

from pytest_cepbench.metrics.battles import JudgedBattle
from tests.cli.conftest import Home
from tests.cli.test_arena import write
from tests.metrics.arena.panels import SWAPPED, simulate, swap

PEOPLE = simulate(np.array([1.5, 0.0, -1.5]), 300, np.random.default_rng(0), per_question=3)

ERRING = [
    JudgedBattle(b.question, b.first, b.second, SWAPPED[b.winner]) if i % 5 == 0 else b
    for i, b in enumerate(PEOPLE)
]


@pytest.fixture
def verdicts(home: Home) -> Home:
    """Verdicts of people, of a judge that errs in every fifth, and files that fit neither."""
    write(home.path / "people.json", PEOPLE)
    write(home.path / "judge.json", [*ERRING, *swap(ERRING)[:100]])
    write(home.path / "again.json", PEOPLE[:50])
    write(home.path / "copied.json", [*PEOPLE[1:], PEOPLE[0]])
    write(
        home.path / "others.json",
        [JudgedBattle(b.question, f"x{b.first}", f"x{b.second}", b.winner) for b in PEOPLE],
    )
    write(
        home.path / "elsewhere.json",
        [JudgedBattle(f"x{b.question}", b.first, b.second, b.winner) for b in PEOPLE],
    )
    write(home.path / "twice.json", [*ERRING, ERRING[0]])
    write(home.path / "extra.json", ERRING, reason="why")
    write(home.path / "few.json", [*ERRING[:20], JudgedBattle("q", "m00", "new", "A")])
    shutil.copy(home.path / "people.json", home.path / "same.json")
    return home


def test_a_card(verdicts: Home) -> None:
    """The sentence first, then its parts; all of it in the file for machines."""
    ended = verdicts.command(
        *("agree", "judges", "judge.json", "--people=people.json", "--seen=M00", "--seen=m01"),
        "--repeat=again.json",
    )
    folder = verdicts.path / ".cepbench" / "agreement"
    card = json.loads((folder / "judge-card-judge.json").read_text("utf-8"))["card"]
    text = " ".join(ended.out.split())

    assert (ended.code, ended.err) == (0, "")
    assert ended.out.startswith("card of the judge judge: 300 battles that people judged too")
    sentence = "a judge that agrees with people at 0.80 sees 0.60 of a true drop"
    assert sentence in text
    assert "of a true win rate of 0.45 it would show 0.47" in text
    assert "100.00 [89.8, 100.0] of 100 pairs; the first answer in 0, the second in 0" in text
    assert "asked again: the same of the four verdicts in 80.00" in text
    assert "models known while the judge was made: m00, m01" in text
    assert card["sentence"].startswith(sentence)
    assert (card["accuracy"], card["visible_drop"]) == (0.8, pytest.approx(0.6))
    assert card["card"]["both_orders"]["pairs"] == 100
    assert (card["judge_alone"], card["people_alone"]) == (0, 0)
    agreements = card["card"]["agreements"]
    assert agreements[0]["seen"]["total"] == 100
    assert agreements[0]["unseen"]["total"] == 200
    assert (folder / "judge-card-judge.md").read_text("utf-8").startswith("# card of the judge")


def test_a_small_card_says_that_it_is_one(verdicts: Home) -> None:
    """Few battles, models that people never judged, and a judge of unknown making."""
    ended = verdicts.command("agree", "judges", "few.json", "--people=people.json")
    text = " ".join(ended.out.split())

    assert ended.code == 0
    assert "fewer than 100 battles" in text
    assert "models that people did not judge: new" in text
    assert "battles of few alone: 1; of people alone: 280" in text
    assert "not said (--seen MODEL)" in text


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["none.json", "--people=people.json"], "file 'none.json' cannot be read"),
        (["judge.json", "--people=judge.json"], "file 'judge.json' is given twice"),
        (
            ["judge.json", "--people=people.json", "--repeat=judge.json"],
            "file 'judge.json' is given twice",
        ),
        (["same.json", "--people=people.json"], "same and people hold the same 300 verdicts"),
        (["copied.json", "--people=people.json"], "copied and people hold the same 300 verdicts"),
        (
            ["others.json", "--people=people.json"],
            "no model in common: xm00, xm01, xm02 against m00, m01, m02",
        ),
        (["elsewhere.json", "--people=people.json"], "elsewhere and people judged no battle both"),
        (["twice.json", "--people=people.json"], "was judged before, at twice.json, record 1"),
        (["extra.json", "--people=people.json"], "contains unknown field `reason`"),
        (
            ["judge.json", "--people=people.json", "--seen=m09"],
            "no battle has the model 'm09': m00, m01, m02 do",
        ),
        (
            ["judge.json", "--people=people.json", "--repeat=elsewhere.json"],
            "the repetitions have no battle of judge in the same order",
        ),
    ],
)
def test_refused(verdicts: Home, argv: list[str], message: str) -> None:
    """One line, exit code 2, no files."""
    ended = verdicts.command("agree", "judges", *argv)

    assert (ended.code, ended.out, ended.err.count("\n")) == (2, "", 1)
    assert message in ended.err
    assert not (verdicts.path / ".cepbench").exists()


def test_people_are_needed(verdicts: Home) -> None:
    """Without them nothing is known of a judge."""
    ended = verdicts.command("agree", "judges", "judge.json")

    assert ended.code == 2
    assert "--people" in ended.err
