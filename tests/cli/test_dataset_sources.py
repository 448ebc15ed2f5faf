"""`cepbench dataset arena`: questions with gold answers, which the loader of OpenING reads."""

from __future__ import annotations

import re
from typing import Any

import pytest
from PIL import Image

from pytest_cepbench.construction.arena_set import CHECKS
from pytest_cepbench.datasets.opening.questions import load_opening
from pytest_cepbench.ratings.folder import read_ratings
from pytest_cepbench.ratings.records import Vote
from tests.cli.conftest import Ended, Home
from tests.ratings.voted import cast

TEMPLATES = """
[[task]]
id = "2001"
prompt = "Explain each step with an image. "
template = "How do I make {dish}?"

[[task.question]]
values = { dish = "pancakes" }
images = ["kitchen.png"]

[[task.question.gold]]
steps = [{ text = "Mix.", image = "one.png" }, { text = "Fry." }]

[[task.question.gold]]
steps = [{ text = "<b>Mix</b> it.", image = "one.png" }, { text = "Fry it.", image = "two.png" }]

[[task.question]]
values = { dish = "tea {hot}" }
images = ["one.png", "two.png"]

[[task.question.gold]]
steps = [{ text = "Boil.", image = "two.png" }]

[[task]]
id = "0802"
template = "What is the current?"

[[task.question]]

[[task.question.gold]]
steps = [{ text = "One ampere." }]
"""


@pytest.fixture
def kitchen(home: Home) -> Home:
    """Templates and their images."""
    for level, name in enumerate(("kitchen", "one", "two")):
        Image.new("RGB", (8, 8), (40 * level,) * 3).save(home.path / f"{name}.png")
    (home.path / "templates.toml").write_text(TEMPLATES)
    return home


def arena(home: Home, templates: str = "templates.toml") -> Ended:
    """Write out the questions."""
    return home.command("dataset", "arena", templates, "--out=kitchen")


def freeze(home: Home, *argv: str) -> Ended:
    """Freeze it."""
    return home.command("dataset", "freeze", "kitchen", *argv)


def approve(home: Home, annotator: str, rejected: tuple[str, ...] = ()) -> None:
    """Tick everything, but one thing of answers in which one of the texts stands."""
    ratings = read_ratings(home.path / "kitchen/ratings")
    for item in ratings.items.values():
        words = " ".join(part.text or "" for part in item.question)
        bad = any(text in words for text in rejected)
        ticked = CHECKS[1:] if bad else CHECKS
        unticked = CHECKS[:1] if bad else ()
        vote = Vote(
            task="verify", item=item.item, annotator=annotator, ticked=ticked, unticked=unticked
        )
        cast(ratings, vote)


def test_approved_answers_become_the_gold(kitchen: Home) -> None:
    """The first candidate is rejected, the second is the gold; the loader of OpenING reads all."""
    assert arena(kitchen).code == 0
    words = ["dataset", "verify", "kitchen", "--annotators=ada,bo,cy", "--only-write"]
    assert kitchen.command(*words).code == 0
    early = freeze(kitchen, "--copy")
    approve(kitchen, "ada", ("1. Mix.", "ampere"))
    approve(kitchen, "bo", ("1. Mix.", "ampere"))
    approve(kitchen, "cy")
    frozen = freeze(kitchen, "--copy")
    dataset = load_opening(kitchen.path / "kitchen/frozen")

    assert (early.code, frozen.code) == (2, 0), frozen.err
    assert "3 of 3 questions have candidates that nobody looked at" in early.err
    assert "no candidate was approved: 1" in frozen.out
    pancakes, tea = dataset.samples
    assert (pancakes.id, tea.id) == ("2001001", "2001002")
    assert pancakes.question[0] == "Explain each step with an image. How do I make pancakes?"
    assert tea.question[0] == "Explain each step with an image. How do I make tea {hot}?"
    assert [len(sample.question) for sample in dataset.samples] == [2, 3]
    assert [step.text for step in pancakes.gold] == ["<b>Mix</b> it.", "Fry it."]
    assert all(step.image is not None for step in pancakes.gold)
    loaded = pancakes.gold[1].image
    assert loaded is not None
    assert loaded.load().pixels[0, 0].tolist() == [80, 80, 80]
    assert pancakes.categories == ("Multimodal Recipe Generation", "Cooking Tasks")


def test_unverified_takes_the_first_candidate(kitchen: Home) -> None:
    """And says so; without --copy nothing is written, since the layout holds images."""
    arena(kitchen)
    uncopied = freeze(kitchen, "--unverified")
    frozen = freeze(kitchen, "--unverified", "--copy")
    dataset = load_opening(kitchen.path / "kitchen/frozen")

    assert (uncopied.code, frozen.code) == (2, 0)
    assert "OpenING's layout holds its images: add --copy" in uncopied.err
    assert [step.text for step in dataset.samples[1].gold] == ["Mix.", "Fry."]
    card = (kitchen.path / "kitchen/frozen/card.md").read_text()
    assert "3 gold answers are the first candidate, which nobody approved" in card


def test_votes_are_of_the_questions_that_were_asked(kitchen: Home) -> None:
    """Other templates need another folder once people were asked."""
    arena(kitchen)
    kitchen.command("dataset", "verify", "kitchen", "--annotators=ada", "--only-write")
    (kitchen.path / "templates.toml").write_text(TEMPLATES.replace("pancakes", "waffles"))
    ended = arena(kitchen)

    ended.refused("has votes on other questions")


def test_a_study_of_other_people_is_refused(kitchen: Home) -> None:
    """As one on labels of images is: nobody is left out silently."""
    arena(kitchen)
    words = ["dataset", "verify", "kitchen", "--only-write"]
    kitchen.command(*words, "--annotators=ada,bo,cy")
    other = kitchen.command(*words, "--annotators=zed")
    overlap = kitchen.command(*words, "--overlap=2")
    same = kitchen.command(*words)

    assert (other.code, overlap.code, same.code) == (2, 2, 0)
    assert "drop --annotators (it has ada, bo, cy)" in other.err
    assert "drop --overlap (it has 3)" in overlap.err
    assert "goes on: kitchen/ratings, 4 items for ada, bo, cy" in same.err


def test_images_of_answers_are_found_from_other_folders(
    kitchen: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beside the data set, as its templates are; where they have moved the option is named."""
    arena(kitchen)
    (kitchen.path / "away").mkdir()
    monkeypatch.chdir(kitchen.path / "away")
    words = ["../kitchen", "--unverified", "--copy"]
    frozen = kitchen.command("dataset", "freeze", *words, "--to=full")
    (kitchen.path / "two.png").rename(kitchen.path / "three.png")
    gone = kitchen.command("dataset", "freeze", *words, "--to=other")

    assert (frozen.code, gone.code) == (0, 2), frozen.err
    assert "if the images have moved, name their folder with --images DIR" in gone.err


def test_tasks_are_shown_with_their_ids(kitchen: Home) -> None:
    """In a column of their own, since long names lose their beginning."""
    ended = arena(kitchen)

    assert re.search(r"^2001 +Multimodal Recipe Generation +2 +3$", ended.out, re.MULTILINE)


@pytest.mark.parametrize(
    ("before", "after", "complaint"),
    [
        ('id = "2001"', 'id = "9901"', "unknown task of OpenING '9901'"),
        ('id = "0802"', 'id = "2001"', "is there twice"),
        ("{dish}", "{dish!r}", "without formats"),
        ("{dish}", "{dish", "template cannot be read"),
        ("{dish}", "{meal}", "no value for 'meal'"),
        ("make {dish}", "make it", "'dish' is not used"),
        ('"pancakes"', '"a <image> b"', "<image> is a mark of OpenING"),
        ('"kitchen.png"', '"../kitchen.png"', "leads out of the folder"),
        ('"kitchen.png"', '"gone.png"', "'gone.png' is not there"),
        ('{ text = "Fry." }', '{ text = " " }', "a step has a text, an image, or both"),
        ('{ text = "Fry." }', "3", "Expected `object`"),
        ('steps = [{ text = "One ampere." }]', "steps = []", "1 to 10 steps"),
        ('template = "What', 'templat = "What', "templat"),
        ("[[task]]", "[[task", "templates.toml"),
    ],
)
def test_bad_templates_are_one_line(kitchen: Home, before: str, after: str, complaint: str) -> None:
    """It names the file and the place, and nothing is written."""
    assert before in TEMPLATES
    (kitchen.path / "templates.toml").write_text(TEMPLATES.replace(before, after, 1))
    ended = arena(kitchen)

    ended.refused(complaint, lines=1)
    assert not (kitchen.path / "kitchen").exists()


def test_a_folder_without_a_set_is_refused(home: Home) -> None:
    """By both commands that need one."""
    results: list[Any] = [
        home.command("dataset", action, "nothing") for action in ("verify", "freeze")
    ]

    assert [ended.code for ended in results] == [2, 2]
    assert all("holds no data set that is being constructed" in ended.err for ended in results)
