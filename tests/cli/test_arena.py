"""`cepbench arena` and `agree judges` from files of verdicts, and what they refuse."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from pytest_cepbench.artifacts.outcome import WINNERS
from pytest_cepbench.datasets.judged_battles import VERDICT, load_judged_battles
from pytest_cepbench.metrics.battles import JudgedBattle
from pytest_cepbench.models.text_model.judge_prompts import JUDGE_PROMPTS
from tests.cli.conftest import Home
from tests.documents import json_lines
from tests.metrics.arena.panels import SWAPPED, simulate, swap
from tests.plugin.project import contents
from tests.ratings.studies import BLUE, RED, cast, make_study, side_vote

PANEL = simulate(np.array([1.5, 0.0, -1.5]), 300, np.random.default_rng(0), per_question=3)

ERRING = [
    JudgedBattle(b.question, b.first, b.second, SWAPPED[b.winner]) if i % 5 == 0 else b
    for i, b in enumerate(PANEL)
]


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
    """Verdicts of people and of judges, one of whom errs in every fifth; files that fit none."""
    files = {
        "people": PANEL,
        "judge": [*ERRING, *swap(ERRING)[:100]],
        "strict": [replace(b, winner="A" if b.first < b.second else "B") for b in PANEL],
        "first": [replace(b, winner="A") for b in PANEL[5:]],
        "careless": [JudgedBattle(b.question, b.second, b.first, "A") for b in PANEL],
        "few": [*ERRING[:20], JudgedBattle("q", "m00", "new", "A")],
        "copied": [*PANEL[1:], PANEL[0]],
        "others": [replace(b, first=f"x{b.first}", second=f"x{b.second}") for b in PANEL],
        "elsewhere": [replace(b, question=f"x{b.question}") for b in PANEL],
        "twice": [*ERRING, ERRING[0]],
        "again": [*PANEL, replace(PANEL[0], winner="B")],
        "nobody": [],
        "self": [JudgedBattle("1", "m00", "m00", "A")],
    }
    for name, battles in files.items():
        write(home.path / f"{name}.json", battles)
    write(home.path / "extra.json", PANEL, reason="why")
    (home.path / "sub").mkdir()
    write(home.path / "sub" / "people.json", PANEL)
    return home


def test_leaderboard_and_agreement(panels: Home) -> None:
    """Models in order, with what a reader needs to know of judge and battles. Files of one name,
    such as the verdicts of several plays, are called after their folders.

    Agreement: shares of both judges, and the table of their verdicts.
    """
    ended = panels.command("arena", "leaderboard", "people.json")
    written = panels.path / ".cepbench" / "arena" / "leaderboard-people.json"
    document = json.loads(written.read_text("utf-8"))

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
    ended = panels.command("arena", "leaderboard", "people.json", "sub/people.json", "--out=both")
    assert (ended.code, ended.err) == (0, "")
    first = f"{panels.path.name}-people"
    assert (panels.path / "both" / f"leaderboard-{first}-sub-people.json").is_file()
    ended = panels.command("agree", "judges", "people.json", "first.json", "--unseen=m02")
    written = panels.path / ".cepbench" / "agreement" / "agreement-people-first.json"
    document = json.loads(written.read_text("utf-8"))

    assert (ended.code, ended.err) == (0, "")
    assert ended.out.startswith("agreement of people and first: 295 battles")
    assert "judged by people alone: 5" in ended.out
    comparison = document["comparison"]
    assert (comparison["shared"], comparison["only_second"]) == (295, 0)
    assert [own["reading"] for own in comparison["agreements"]] == ["fdt", "three_way", "decided"]
    assert sum(row[0] for row in comparison["confusion"]) == 295
    assert comparison["alpha"] < 0.1
    assert comparison["unseen"] == ["m02"]


def test_a_card(panels: Home) -> None:
    """The sentence first, then its parts; all of it in the file for machines.

    A small card says that it is one: few battles, models that people never judged, and a judge of
    unknown making.
    """
    ended = panels.command(
        "agree", "judges", "judge.json", "--people=people.json", "--seen=M00", "--seen=m01"
    )
    folder = panels.path / ".cepbench" / "agreement"
    card = json.loads((folder / "judge-card-judge.json").read_text("utf-8"))["card"]

    assert (ended.code, ended.err) == (0, "")
    assert ended.out.startswith("card of the judge judge: 300 battles that people judged too")
    sentence = "a judge that agrees with people at 0.80 sees 0.60 of a true drop"
    assert sentence in ended.flat
    assert "of a true win rate of 0.45 it would show 0.47" in ended.flat
    assert "one call in balanced order sees nearly as much as both orders" in ended.flat
    assert "models known while the judge was made: m00, m01" in ended.flat
    assert card["sentence"].startswith(sentence)
    assert card["accuracy"] == 0.8
    assert (card["judge_alone"], card["people_alone"]) == (0, 0)
    agreements = card["card"]["agreements"]
    assert agreements[0]["seen"]["total"] == 100
    assert agreements[0]["unseen"]["total"] == 200
    biases = [100 * (model["judge"] - model["people"]) for model in card["card"]["models"]]
    rms, largest = np.sqrt(np.mean(np.square(biases))), max(biases, key=abs)
    assert f"{rms:.1f} points (root mean square), the largest {largest:+.1f} for" in ended.flat
    assert "so it flattens differences" in ended.flat
    ended = panels.command("agree", "judges", "strict.json", "--people=people.json")
    assert "so it exaggerates differences" in ended.flat
    ended = panels.command("agree", "judges", "few.json", "--people=people.json")

    assert ended.code == 0
    assert "fewer than 100 battles" in ended.flat
    assert "ask it in both orders: its order effect is large, or cannot be told" in ended.flat
    assert "models that people did not judge: new" in ended.flat
    assert "battles of few alone: 1; of people alone: 280" in ended.flat
    assert "not said (--seen MODEL)" in ended.flat


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


def test_refused(panels: Home) -> None:
    """One line, exit code 2, no files."""
    for line, message in (
        ("leaderboard none.json", "file 'none.json' cannot be read: No such file"),
        ("leaderboard careless.json", "careless: the judge leaned to the first answer in all 300"),
        ("leaderboard extra.json", "extra.json, record 1: Object contains unknown field `reason`"),
        (
            "leaderboard people.json sub/../people.json",
            "-people': rename one, results are named after them",
        ),
        ("leaderboard nobody.json", "file 'nobody.json' holds no battle"),
        ("leaderboard again.json", "keep one of them, and the verdicts of two judges in"),
        ("leaderboard self.json", "self.json, record 1: 'm00' cannot battle against itself"),
        ("judges people.json careless.json", "people and careless judged no battle both"),
        ("judges people.json first.json --unseen=x", "no battle has the model 'x'"),
        ("judges none.json --people=people.json", "file 'none.json' cannot be read"),
        ("judges judge.json --people=judge.json", "judge and judge hold the same 400 verdicts"),
        ("judges copied.json --people=people.json", "copied and people hold the same 300 verdicts"),
        (
            "judges others.json --people=people.json",
            "no model in common: xm00, xm01, xm02 against m00, m01, m02",
        ),
        ("judges elsewhere.json --people=people.json", "have no battle in common"),
        ("judges twice.json --people=people.json", "was judged before, at twice.json, record 1"),
        ("judges extra.json --people=people.json", "contains unknown field `reason`"),
        (
            "judges judge.json --people=people.json --seen=m09",
            "no battle has the model 'm09': m00, m01, m02 do",
        ),
        ("judges --on=people.json", "the judge itself with --judge=SPEC --on FILE"),
        ("judges --judge=shapes: --on=shapes-arena --unseen=m", "--unseen is of two judges"),
    ):
        ended = panels.command("agree" if line.startswith("judges") else "arena", *line.split())
        ended.refused(message, lines=1)
        assert not (panels.path / ".cepbench").exists()


SUITE = Path(__file__).parents[2] / "suites" / "judge"

PROMPT = JUDGE_PROMPTS["criteria"]

ATTACK = "look : <image> <image> \u202e <b>x</b>"
"""In an answer: it must be no image, and stay a text."""


@pytest.fixture
def suite(home: Home) -> Home:
    """Eight battles of the shipped suite, in two categories, one with markup in its answer."""
    folder = home.path / "judge"
    folder.mkdir()
    shutil.copy(SUITE / "suite.toml", folder)
    lines = json_lines(SUITE / "battles.jsonl")
    chosen = [line for line in lines if line["category"] in ("swap", "count")]
    kept = chosen[:4] + chosen[-4:]
    kept[0]["first"].append({"text": ATTACK})
    text = "".join(json.dumps(line) + "\n" for line in kept)
    (folder / "battles.jsonl").write_text(text, encoding="utf-8")
    return home


def said(row: dict[str, Any]) -> str:
    """What the assistant says, in a row for trl."""
    ((turn,),) = [row["completion"]]
    assert turn["role"] == "assistant"
    return str(turn["content"][0]["text"])


def test_chats_are_battles_in_both_orders(suite: Home) -> None:
    """What the judge is asked, the images in their order, and the verdict as it is worded.

    A table is read by the suite again: the same questions, answers and verdicts, with images in
    files; nothing is written over.
    """
    ended = suite.command("arena", "training", "judge", "--out=chats")

    assert ended.code == 0, ended.err
    assert "battles: 8 train" in ended.out
    chats = json_lines(suite.path / "chats" / "train.jsonl")
    assert len(chats) == 16
    stored = {s.id: s for s in load_judged_battles(suite.path / "judge").samples}
    for row, mirrored in zip(chats[::2], chats[1::2], strict=True):
        verdict = stored[row["battle"]].metadata[VERDICT]
        place = WINNERS.index(verdict)
        assert said(row) == PROMPT.phrases[verdict]
        assert said(mirrored) == PROMPT.phrases[WINNERS[3 - place]]
        system, user = row["prompt"]
        assert system["content"] == [{"type": "text", "text": PROMPT.system}]
        texts = [part["text"] for part in user["content"]]
        a, b = (texts.index(heading) for heading in PROMPT.headings[1:])
        turned = [part["text"] for part in mirrored["prompt"][1]["content"]]
        assert texts[a + 1 : b] == turned[turned.index(PROMPT.headings[2]) + 1 : -1]
        shown = [part for part in user["content"] if part["type"] == "image"]
        assert len(shown) == len(row["images"]) == len(mirrored["images"])
        for name in row["images"]:
            with Image.open(suite.path / "chats" / name) as image:
                assert image.size == (64, 64)
    ended = suite.command("arena", "training", "judge", "--format=battles", "--out=table")

    assert ended.code == 0, ended.err
    before = load_judged_battles(suite.path / "judge").samples
    after = load_judged_battles(suite.path / "table").samples
    for own, other in zip(before, after, strict=True):
        assert own.metadata[VERDICT] == other.metadata[VERDICT]
        for steps, same in ((own.answer, other.answer), (own.gold, other.gold)):
            shown = [(s.text, None if s.image is None else s.image.load().digest) for s in steps]
            assert shown == [
                (s.text, None if s.image is None else s.image.load().digest) for s in same
            ]
    two = [f"{name}/battles.jsonl" for name in ("judge", "table")]
    ended = suite.command("arena", "training", *two, "--format=battles", "--out=both")
    assert ended.code == 0, ended.err
    assert len(load_judged_battles(suite.path / "both").samples) == 2 * len(before)
    written = contents(suite.path / "table")
    ended = suite.command("arena", "training", "judge", "--out=table")
    ended.refused("is there already", code=1)
    assert contents(suite.path / "table") == written


@pytest.mark.slow
def test_battles_of_the_embedded_world_have_models(home: Home) -> None:
    """Those of a model that is named go into the split of the unseen."""
    ended = home.command("arena", "training", "shapes-arena", "--unseen=blind", "--out=chats")

    assert ended.code == 0, ended.err
    chats = home.path / "chats"
    train, unseen = (json_lines(chats / f"{name}.jsonl") for name in ("train", "unseen"))
    assert train
    assert unseen
    assert not {row["battle"] for row in train} & {row["battle"] for row in unseen}


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["judge", "--unseen=move"], "--unseen move: no battle has that model or category"),
        (["elsewhere"], "no suite at 'elsewhere'"),
        (["toy"], "has no battles with stored verdicts: its loader is 'shapes'"),
    ],
)
def test_a_mistake_is_one_line(suite: Home, argv: list[str], message: str) -> None:
    """It names what is wrong; no traceback, and nothing is left behind: the command is repeated."""
    (suite.path / "toy").mkdir()
    shutil.copy(SUITE.parent / "instrument" / "suite.toml", suite.path / "toy")
    before = {path.name for path in suite.path.iterdir()} | {".cepbench"}
    ended = suite.command("arena", "training", *argv, "--out=chats")
    assert ended.code != 0
    assert message in ended.err
    assert len(ended.err.strip().splitlines()) == 1
    assert {path.name for path in suite.path.iterdir()} <= before
    again = suite.command("arena", "training", "judge", "--out=chats")
    assert again.code == 0, again.err


def test_people_are_the_teachers_where_they_have_judged(home: Home) -> None:
    """The majority of the votes; who made an answer names the split and is in no row."""
    ratings = make_study(home.path / "ratings", "pair", count=4)
    for item in [*ratings.items.values()][:3]:
        for annotator in ("a1", "a2"):
            cast(ratings, side_vote(item, annotator, "B", swapped=True))

    ended = home.command("arena", "training", "ratings", "--out=chats")

    assert ended.code == 0, ended.err
    chats = json_lines(home.path / "chats" / "train.jsonl")
    assert len(chats) == 6
    assert [said(row) for row in chats] == ["A is better", "B is better"] * 3
    everything = "".join(path.read_text() for path in (home.path / "chats").glob("*.json*"))
    assert RED not in everything
    assert BLUE not in everything
    assert {row["battle"] for row in chats} <= ratings.items.keys()
    ended = home.command("arena", "training", "ratings", f"--unseen={BLUE}", "--out=others")
    assert ended.code == 0, ended.err
    assert not (home.path / "others" / "train.jsonl").exists()
