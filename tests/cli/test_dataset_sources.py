"""`cepbench dataset pairs` and `cepbench dataset arena`: sets that existing loaders read."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from pytest_cepbench.construction.arena_set import CHECKS
from pytest_cepbench.datasets.nocaps_docci import load_nd400, load_pairs
from pytest_cepbench.datasets.opening.questions import load_opening
from pytest_cepbench.ratings.folder import VoteFile, read_ratings
from pytest_cepbench.ratings.records import Vote
from tests.cli.conftest import Ended, Home

# -- pairs -----------------------------------------------------------------------------------------


def put_copies(root: Path, number: int = 6) -> None:
    """Copies of DOCCI and NoCaps, with so many images each; the last has the first one's pixels."""
    for folder, level in (("docci/images", 0), ("nocaps/images", 100)):
        (root / folder).mkdir(parents=True)
        for i in range(number):
            shade = level + i if i < number - 1 else level
            Image.new("RGB", (4, 4), (shade,) * 3).save(root / folder / f"im{i}.png")
    docci = [
        {"example_id": f"d{i}", "image_file": f"im{i}.png", "description": f' "Scene", {i}\n '}
        for i in range(number)
    ]
    (root / "docci/docci_descriptions.jsonlines").write_text(
        "".join(f"{json.dumps(entry)}\n" for entry in docci)
    )
    nocaps = {
        "images": [{"id": i, "file_name": f"im{i}.png"} for i in range(number)],
        "annotations": [{"image_id": i, "caption": f"Thing {i}."} for i in range(number)],
    }
    (root / "nocaps/captions.json").write_text(json.dumps(nocaps))


def pairs(home: Home, *argv: str) -> Ended:
    """The command with both copies."""
    return home.command("dataset", "pairs", "--docci=docci", "--nocaps=nocaps", *argv)


def test_pairs_are_chosen_of_both_sources(home: Home) -> None:
    """The list and the copied layout are what the loaders read; larger sets contain smaller."""
    put_copies(home.path)
    small = pairs(home, "--out=small", "--per-source=2")
    large = pairs(home, "--out=large", "--per-source=4", "--copy")
    assert (small.code, large.code) == (0, 0), small.err + large.err
    listed = load_nd400(
        home.path / "small/ids.csv",
        docci=str(home.path / "docci"),
        nocaps=str(home.path / "nocaps"),
    )
    copied = load_pairs(home.path / "large")

    assert [len(listed.in_category(source)) for source in ("docci", "nocaps")] == [2, 2]
    texts = {sample.id: sample.text for sample in copied.samples}
    assert len(texts) == 8
    assert {sample.id: sample.text for sample in listed.samples}.items() <= texts.items()
    lines = (home.path / "large/pairs.jsonl").read_text().splitlines()
    records = [json.loads(line) for line in lines]
    digests = {r["id"]: r["image"] for r in records}
    assert {s.id: s.image.load().digest for s in copied.samples if s.image} == digests
    assert not (home.path / "small" / "image-first").exists()


def test_a_list_is_joined_as_it_is(home: Home) -> None:
    """Two of its images have the same pixels, which is told."""
    put_copies(home.path)
    with (home.path / "list.csv").open("w", newline="") as file:
        rows = [("source", "image_id"), ("docci", "d0"), ("docci", "d5"), ("nocaps", "3")]
        csv.writer(file).writerows(rows)
    ended = pairs(home, "--out=own", "--ids=list.csv")
    again = pairs(home, "--out=own", "--ids=list.csv")

    assert (ended.code, again.code) == (0, 0), ended.err
    assert "own: 3 pairs" in ended.out
    assert "pixels of another pair's: 1, all kept" in ended.out
    assert "d5" in (home.path / "own/card.md").read_text()


def test_pairs_that_cannot_be_joined_are_one_line(home: Home) -> None:
    """Too few images, an unknown id, a folder of something else."""
    put_copies(home.path, 3)
    (home.path / "list.csv").write_text("source,image_id\ndocci,d9\n")
    (home.path / "full").mkdir()
    (home.path / "full/mine.txt").write_text("x")
    for words, complaint in (
        (["--out=a", "--per-source=4"], "docci has 3 images with captions: 4 are wanted"),
        (["--out=b", "--ids=list.csv"], "docci d9: not annotated"),
        (
            ["--out=full", "--per-source=2"],
            "holds other files (mine.txt): name a new folder with --out",
        ),
        (["--out=c", "--per-source=none"], "--per-source"),
        (["--out=d", "--ids=gone.csv"], "gone.csv"),
    ):
        ended = pairs(home, *words)
        assert (ended.code, ended.err.count("\n")) == (2, 1), ended.err
        assert complaint in ended.err


def files_below(folder: Path) -> dict[str, bytes]:
    """The files of a folder by their paths in it."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_pairs_are_never_replaced_by_other_pairs(home: Home) -> None:
    """Captions and images of two choices in one folder would be paired by position."""
    put_copies(home.path)
    made = pairs(home, "--out=pr", "--per-source=3", "--copy")
    before = files_below(home.path / "pr")
    others = [
        pairs(home, "--out=pr", "--per-source=3", "--seed=1", "--copy"),
        pairs(home, "--out=pr", "--per-source=3", "--seed=1"),
        pairs(home, "--out=pr", "--per-source=4", "--copy"),
    ]
    same = pairs(home, "--out=pr", "--per-source=3", "--copy")

    assert (made.code, same.code) == (0, 0), same.err
    assert [ended.code for ended in others] == [2, 2, 2]
    assert all("what is frozen stays" in ended.err for ended in others)
    assert all("name another folder with --out" in ended.err for ended in others)
    assert files_below(home.path / "pr") == before
    load_pairs(home.path / "pr")


def test_copied_pairs_stay_where_the_list_is_written_again(home: Home) -> None:
    """The manifest and the card go on to tell of the images that are there."""
    put_copies(home.path)
    pairs(home, "--out=pr", "--per-source=3", "--copy")
    before = files_below(home.path / "pr")

    assert pairs(home, "--out=pr", "--per-source=3").code == 0
    assert files_below(home.path / "pr") == before


def test_pairs_go_on_after_an_image_was_repaired(home: Home) -> None:
    """The message names source and file, and nothing is written before all images were read."""
    put_copies(home.path)
    damaged = [home.path / f"docci/images/im{i}.png" for i in range(6)]
    whole = [path.read_bytes() for path in damaged]
    for path in damaged:
        path.write_bytes(b"no image")
    failed = pairs(home, "--out=pr", "--per-source=3", "--copy")
    for path, data in zip(damaged, whole, strict=True):
        path.write_bytes(data)
    repaired = pairs(home, "--out=pr", "--per-source=3", "--copy")

    assert (failed.code, failed.err.count("\n"), repaired.code) == (2, 1, 0), repaired.err
    assert re.search(r"docci d\d: '.*docci/images/im\d\.png': not an image", failed.err)
    assert len(load_pairs(home.path / "pr").samples) == 6


def test_copies_that_were_stopped_take_no_other_pairs(home: Home) -> None:
    """Images without a manifest are those of a run that was killed: the same pairs go on."""
    put_copies(home.path)
    pairs(home, "--out=pr", "--per-source=3", "--copy")
    whole = files_below(home.path / "pr")
    for name in ("ids.csv", "pairs.jsonl", "card.md", "dataset.toml", "text-first/gen-0.csv"):
        (home.path / "pr" / name).unlink()
    other = pairs(home, "--out=pr", "--per-source=3", "--seed=1", "--copy")
    same = pairs(home, "--out=pr", "--per-source=3", "--copy")

    assert (other.code, same.code) == (2, 0), same.err
    assert "holds other files (image-first/gen-0/" in other.err
    assert files_below(home.path / "pr") == whole


# -- arenas ----------------------------------------------------------------------------------------

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
    file = VoteFile(ratings.vote_path(annotator))
    for item in ratings.items.values():
        words = " ".join(part.text or "" for part in item.question)
        bad = any(text in words for text in rejected)
        ticked = CHECKS[1:] if bad else CHECKS
        unticked = CHECKS[:1] if bad else ()
        vote = Vote(
            task="verify", item=item.item, annotator=annotator, ticked=ticked, unticked=unticked
        )
        file.append(vote)
    file.close()


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

    assert ended.code == 2
    assert "has votes on other questions" in ended.err


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

    assert (ended.code, ended.err.count("\n")) == (2, 1), ended.err
    assert complaint in ended.err
    assert not (kitchen.path / "kitchen").exists()


def test_a_folder_without_a_set_is_refused(home: Home) -> None:
    """By both commands that need one."""
    results: list[Any] = [
        home.command("dataset", action, "nothing") for action in ("verify", "freeze")
    ]

    assert [ended.code for ended in results] == [2, 2]
    assert all("holds no data set that is being constructed" in ended.err for ended in results)
