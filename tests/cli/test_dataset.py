"""`cepbench dataset`: patterns of one's own images, verified, frozen, and gated."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import zlib
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from pytest_cepbench import gate_checkpoint
from pytest_cepbench.cli import main
from pytest_cepbench.construction.folder import RATINGS
from pytest_cepbench.datasets.mmgenbench import load_mmgenbench
from pytest_cepbench.ratings.folder import read_ratings
from pytest_cepbench.ratings.records import Vote, option_name
from tests.cli.conftest import Ended, Home
from tests.construction.scenes import write_scenes
from tests.documents import json_lines
from tests.interruption import in_child
from tests.ratings.studies import cast
from tests.studies.toy import write_suite

MODULE = "python:tests.cli.test_dataset"

NAMES = ("Count", "Color", "Position", "Size", "Crowd", "Symmetry")


class Talker:
    """A describer that says what `reply` holds; `asked` counts the images."""

    fingerprint = "talker/1"
    reply = ""
    asked = 0

    def describe(self, images: Sequence[Any], prompt: str, seeds: Sequence[int]) -> list[str]:
        """The same of each image."""
        type(self).asked += len(images)
        return [type(self).reply for _ in images]


@pytest.fixture(scope="module")
def scenes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of 60 scenes, and a store of what the models of the world say of them."""
    root = tmp_path_factory.mktemp("scenes")
    write_scenes(root / "photos")
    options = (f"--out={root / 'bench'}", f"--store={root / '.cepbench/store'}", "--per-pattern=8")
    models = ("--describer=shapes:", "--writer=shapes:")
    assert main(["dataset", "patterns", str(root / "photos"), *models, *options]) == 0
    shutil.rmtree(root / "bench")
    return root


@pytest.fixture
def photos(home: Home, scenes: Path) -> Home:
    """A copy of them, and the command where they lie."""
    shutil.copytree(scenes, home.path, dirs_exist_ok=True)
    return home


def construct(home: Home, *argv: str, describer: str = "shapes:", images: str = "photos") -> Ended:
    """`cepbench dataset patterns` with models of the world."""
    words = [f"--describer={describer}", "--writer=shapes:", "--per-pattern=8", *argv]
    return home.command("dataset", "patterns", images, "--out=bench", *words)


def freeze(home: Home, *argv: str) -> Ended:
    """`cepbench dataset freeze`."""
    return home.command("dataset", "freeze", "bench", *argv)


def test_images_become_a_set_that_gates_a_model(photos: Home) -> None:
    """From 60 scenes to a frozen set, its baselines, and a worse model that regresses, by the suite
    that is shipped for such sets.
    """
    made = construct(photos)
    frozen = freeze(photos, "--unverified")
    shipped = (Path(__file__).parents[2] / "suites/mmgenbench/suite.toml").read_text()
    suite = write_suite(photos.path, shipped.replace("MMGenBench-Test", "bench"))
    data = {"mmgenbench": photos.path / "bench" / "frozen"}
    gate = partial(gate_checkpoint, suite, data=data, generator="shapes:", encoder="shapes:")
    accepted = gate(model="shapes:", snapshot_update=True)
    same, worse = gate(model="shapes:"), gate(model="shapes:?miss=0.4")

    assert (made.code, frozen.code) == (0, 0), made.err + frozen.err
    assert len(accepted.changed) == len(NAMES) + 3  # sim of each and of all, fid, failures
    assert same.passed
    assert not worse.passed


def test_labels_are_the_truth_where_the_model_is_exact(photos: Home) -> None:
    """Every file of every stage, and the loaded set, agree with the rules.

    A second run asks nothing and changes nothing, also when it goes on from a stage.
    """
    truth = write_scenes(photos.path / "photos")
    folder = photos.path / "bench"
    stages = [construct(photos, f"--until={stage}") for stage in ("count", "summary")]
    first = construct(photos)
    before = {p: p.read_bytes() for p in folder.rglob("*") if p.is_file()}
    again = construct(photos)

    assert [ended.code for ended in (*stages, first, again)] == [0] * 4
    assert "0 model loads, 0 model inputs" in again.err
    assert {p: p.read_bytes() for p in before} == before
    for name in ("extract.jsonl", "annotate.jsonl"):
        rows = json_lines(folder / name)
        labels = {row["image"]: set(row.get("patterns", ())) for row in rows}
        assert labels == {image: set(patterns) for image, patterns in truth.items()}
    counts = json.loads((folder / "counts.json").read_text())["patterns"]
    assert counts == {n: sum(n in own for own in truth.values()) for n in counts}
    chosen = json.loads((folder / "chosen.json").read_text())
    assert all(share["chosen"] >= min(8, share["images"]) for share in chosen["patterns"].values())
    assert freeze(photos, "--unverified").code == 0
    dataset = load_mmgenbench(folder / "frozen", file="bench.tsv", labels="bench-label-index.json")
    assert {s.image.load().digest for s in dataset.samples if s.image} == set(chosen["images"])
    for sample in dataset.samples:
        assert sample.image is not None
        assert set(sample.categories) == set(truth[sample.image.load().digest])


def test_people_edit_the_patterns(photos: Home) -> None:
    """An edited list is not written again, and images are annotated with it."""
    construct(photos, "--until=summary")
    path = photos.path / "bench" / "patterns.toml"
    edited = '[[pattern]]\nname = "size"\nsentence = "Small and large."\n'
    path.write_text(edited)
    ended = construct(photos)

    rows = json_lines(photos.path / "bench/annotate.jsonl")
    labels = {pattern for row in rows for pattern in row.get("patterns", ())}
    assert (ended.code, labels) == (0, {"size"})
    assert path.read_text() == edited
    path.write_text(edited.replace("size", "Count"))
    assert "was edited after images were annotated" in freeze(photos, "--unverified").err


def test_a_folder_of_another_set_is_refused(photos: Home) -> None:
    """Of other images, of other files, and a file; commands that need a set refuse one without."""
    construct(photos)
    write_scenes(photos.path / "few", 8)
    Image.new("RGB", (9, 9), "red").save(photos.path / "few" / "own.png")
    (photos.path / "notes").mkdir()
    (photos.path / "notes" / "a.txt").write_text("mine")

    def refusal(images: str, out: str) -> str:
        words = ["--describer=shapes:", "--writer=shapes:"]
        ended = photos.command("dataset", "patterns", images, f"--out={out}", *words)
        assert ended.code in (1, 2)
        assert ended.err.count("\n") == 1
        return ended.err

    assert "was begun with other images: 52 of its 60 are not in 'few'" in refusal("few", "bench")
    assert "holds other files and no data set" in refusal("photos", "notes")
    assert "is a file" in refusal("photos", "notes/a.txt")
    assert (photos.path / "notes" / "a.txt").read_text() == "mine"
    for action in ("verify", "freeze"):
        ended = photos.command("dataset", action, "nothing")
        ended.refused("holds no data set that is being constructed")


def test_a_missing_writer_is_told_before_an_image_is_asked(
    photos: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not where it is not needed: up to the counts, and with a list of patterns.

    A model that gives no JSON at all ends the stage, in one line.
    """
    monkeypatch.setattr(Talker, "reply", json.dumps({"image_pattern": ["Count"]}))
    monkeypatch.setattr(Talker, "asked", 0)
    words = ["photos", "--out=bench", f"--describer={MODULE}:Talker"]
    early = photos.command("dataset", "patterns", *words)

    assert (early.code, Talker.asked) == (2, 0)
    assert "needs a writer: give one with --writer SPEC" in early.err
    assert not (photos.path / "bench").exists()
    assert photos.command("dataset", "patterns", *words, "--until=count").code == 0
    (photos.path / "bench/patterns.toml").write_text('[[pattern]]\nname = "Count"\n')
    assert photos.command("dataset", "patterns", *words).code == 0
    # A file in the place of a summary needs no writer: nothing is extracted.
    shutil.rmtree(photos.path / "bench")
    (photos.path / "names.toml").write_text('[[pattern]]\nname = "Crowd"\n')
    own = ["--describer=shapes:", "--per-pattern=8", "--patterns=names.toml"]
    ended = photos.command("dataset", "patterns", "photos", "--out=bench", *own)
    (photos.path / "names.toml").write_text('[[pattern]]\nname = "Size"\n')
    other = photos.command("dataset", "patterns", "photos", "--out=bench", *own)

    assert ended.code == 0, ended.err
    assert not (photos.path / "bench" / "extract.jsonl").exists()
    assert "differ: drop the option" in other.err
    shutil.rmtree(photos.path / "bench")
    monkeypatch.setattr(Talker, "reply", "I see a circle.")
    monkeypatch.setattr(Talker, "fingerprint", "talker/2")
    ended = construct(photos, describer=f"{MODULE}:Talker")

    assert ended.code == 1
    assert "annotated none of 60 images; the first: bad-json: Expecting value" in ended.err
    assert "I see a circle." in ended.err
    kept = json_lines(photos.path / "bench" / "extract.jsonl")
    assert {(row["failure"], row["reply"]) for row in kept} == {("bad-json", "I see a circle.")}


def test_what_is_frozen_stays(photos: Home) -> None:
    """And an image has to have the pixels that were labelled: else nothing is left behind. Files of
    other labels, as where one of them is from another state of the folder, are not frozen.
    """
    construct(photos)
    for file, before, after, words in (
        ("annotate.jsonl", '"fingerprint":"', '"fingerprint":"x', "of another model or prompt"),
        ("annotate.jsonl", '"patterns":["', '"patterns":["Crowd","', "chosen by other labels"),
        ("construction.json", '"annotate": {', '"annotated": {', "of another model or prompt"),
    ):
        path = photos.path / "bench" / file
        text = path.read_text("utf-8")
        path.write_text(text.replace(before, after, 20), "utf-8")
        assert path.read_text("utf-8") != text
        freeze(photos, "--unverified").refused(words, lines=1)
        path.write_text(text, "utf-8")
    freeze(photos, "--unverified", "--name=a b").refused("'a b' cannot name the set", lines=1)
    assert freeze(photos, "--unverified", "--to=sent").code == 0
    freeze(photos, "--unverified", "--to=sent").refused("what is frozen stays; name another")
    for place in ("..", "sent/card.md"):
        freeze(photos, "--unverified", f"--to={place}").refused("cannot be a new folder", lines=1)
    (first, *_) = json_lines(photos.path / "sent" / "bench-images.jsonl")
    Image.new("RGB", (64, 64), "red").save(photos.path / "photos" / first["path"])
    freeze(photos, "--unverified").refused("has changed since it was read first", lines=1)
    assert {path.name for path in photos.path.glob("bench/*frozen*")} == set()


def vote(
    home: Home, annotator: str, wrong: Sequence[str] = (), known: Sequence[str] = NAMES
) -> int:
    """Let a person label every item by the truth, but for the names in `wrong`, and by none that is
    not in `known`.
    """
    truth = write_scenes(home.path / "photos")
    ratings = read_ratings(home.path / "bench" / RATINGS)
    number = 0
    for item in ratings.items.values():
        if item.kind != "item":
            continue
        image = next(part.image for part in item.question if part.image)
        labels = set(truth[image]).symmetric_difference(wrong).intersection(known)
        offered = [option_name(option) for option in item.options]
        cast(
            ratings,
            Vote(
                task="verify",
                item=item.item,
                annotator=annotator,
                ticked=tuple(name for name in offered if name in labels),
                unticked=tuple(name for name in offered if name not in labels),
                added=tuple(sorted(labels - set(offered))),
            ),
        )
        number += 1
    return number


def test_people_outvote_the_model(photos: Home) -> None:
    """Two people and a model that mislabels: the truth wins; freeze waits until all are seen.

    Their study goes on as it was written: settings are refused.
    """
    construct(photos, describer="shapes:?mislabel=0.2")
    verify = partial(photos.command, "dataset", "verify", "bench", "--only-write")
    unasked = verify()
    asked = verify("--annotators=ada,bo")
    study = read_ratings(photos.path / "bench" / RATINGS).study
    assert (study.annotators, study.overlap) == (("ada", "bo"), 2)
    again = verify()
    assert again.code == 0, again.err
    assert re.search(r"goes on: bench/ratings, \d+ items for ada, bo", again.err)
    for option in ("--annotators=zed", "--overlap=1"):
        verify(option).refused("is a study already, which goes on as it was written")
    early = freeze(photos)
    number = vote(photos, "ada")
    vote(photos, "bo", wrong=["Crowd"])
    frozen = freeze(photos)

    assert (unasked.code, asked.code, early.code, frozen.code) == (2, 0, 2, 0), frozen.err
    assert "--annotators" in unasked.err
    assert f"{number} of {number} images are not verified by anyone" in early.err
    truth = write_scenes(photos.path / "photos")
    rows = json_lines(photos.path / "bench/frozen/bench-images.jsonl")
    assert len(rows) == number
    for row in rows:
        others = set(truth[row["image"]]) - {"Crowd"}
        assert set(row["patterns"]) - {"Crowd"} == others
        assert row["annotators"] == 2
    card = (photos.path / "bench/frozen/card.md").read_text()
    assert f"{number} of {number} images were checked by people" in card
    assert f"on {number} not all agreed" in card  # they differ on one of six names in every image
    assert "mislabel" in card


def test_a_name_that_people_were_not_asked_about_is_told(photos: Home) -> None:
    """A name that left the list is fine; no tick is no vote on one that came later."""
    construct(photos)
    photos.command("dataset", "verify", "bench", "--annotators=ada", "--only-write")
    vote(photos, "ada")
    path = photos.path / "bench" / "patterns.toml"
    path.write_text('[[pattern]]\nname = "Count"\n[[pattern]]\nname = "Size"\n')
    construct(photos)
    fewer = freeze(photos, "--unverified", "--to=fewer")
    path.write_text(path.read_text() + '[[pattern]]\nname = "Crowds"\n')
    construct(photos)
    more = freeze(photos, "--unverified", "--to=more")
    again = photos.command("dataset", "verify", "bench", "--only-write")

    assert fewer.code == 0
    assert (more.code, again.code) == (2, 2)
    assert "people were not asked about 'Crowds'" in more.err
    assert "people were not asked about 'Crowds'" in again.err


def test_a_study_of_other_images_is_told(photos: Home) -> None:
    """Votes are of what was asked; a larger set asks for the rest in a study of its own.

    A set of which people leave nothing is refused: the one who was asked ticks nothing at first.
    """
    construct(photos, "--per-pattern=2")
    photos.command("dataset", "verify", "bench", "--annotators=ada", "--only-write")
    vote(photos, "ada", known=())
    freeze(photos).refused("no image has a pattern that is left", lines=1)
    vote(photos, "ada")
    construct(photos)
    other = photos.command("dataset", "verify", "bench", "--only-write")
    partly = freeze(photos)

    assert other.code == 2
    assert "asks about other images (0 that are not chosen any more" in other.err
    assert "are not verified by anyone" in partly.err
    assert freeze(photos, "--unverified").code == 0
    (photos.path / "bench" / RATINGS).rename(photos.path / "away")
    verify = ("dataset", "verify", "bench", "--only-write", "--annotators=2", "--overlap=1")
    assert photos.command(*verify).code == 0
    study = read_ratings(photos.path / "bench" / RATINGS).study
    assert (study.annotators, study.overlap) == (("a1", "a2"), 1)


def test_mistakes_are_one_line(photos: Home) -> None:
    """Without a traceback, and nothing is written."""
    (photos.path / "photos" / "x.png").write_text("no folder")
    for words, complaint in (
        (["--per-pattern=0"], "--per-pattern"),
        (["--patterns=0"], "1 to 32 patterns"),
        (["--patterns=names.tml"], "a file of patterns"),
        (["--describer=nothing:x"], "nothing"),
        (["--describer=tones:"], "--describer tones: reads no images"),
        (["--store=photos/x.png/y"], "x.png"),
    ):
        ended = construct(photos, *words)
        ended.refused(complaint, lines=1)
        assert not (photos.path / "bench").exists()


LOG = Path("asked.log")

SPEC = f"{MODULE}:Mortal"


class Mortal:
    """Names one pattern and writes down what it is asked; kills its process at the `last` call."""

    fingerprint = "mortal/1"
    batch_size = 8
    last = 0

    def describe(self, images: Sequence[Any], prompt: str, seeds: Sequence[int]) -> list[str]:
        """The same of each image."""
        Mortal.last -= 1
        if not Mortal.last:
            os.kill(os.getpid(), signal.SIGKILL)
        with LOG.open("a", encoding="utf-8") as log:
            log.writelines(f"{zlib.crc32(image.tobytes())} {len(prompt)}\n" for image in images)
        return [json.dumps({"image_pattern": ["Count"]}) for _ in images]


def killed(home: Home, last: int) -> bool:
    """`construct` in a process that `Mortal` kills; whether it did."""

    def die() -> None:
        Mortal.last = last
        construct(home, describer=SPEC)

    return in_child(die) == -signal.SIGKILL


@pytest.mark.slow
def test_a_killed_extraction_goes_on(home: Home) -> None:
    """SIGKILL in the middle: the second run asks about the rest, and about no image twice."""
    truth = write_scenes(home.path / "photos", 40)
    assert killed(home, 3)
    before = LOG.read_text().splitlines()
    assert not (home.path / "bench" / "extract.jsonl").exists()
    resumed = construct(home, describer=SPEC)
    asked = LOG.read_text().splitlines()

    assert len(before) == 16
    assert resumed.code == 0, resumed.err
    assert len(asked) == len(set(asked)) == 2 * len(truth)  # two stages, each image once
    extracted = json_lines(home.path / "bench" / "extract.jsonl")
    assert {line["image"] for line in extracted} == set(truth)


@pytest.mark.slow
@pytest.mark.parametrize("change", ["model", "sentence"])
def test_labels_are_never_credited_to_a_model_that_was_killed(home: Home, change: str) -> None:
    """A complete set, then SIGKILL before the first new label: neither verify nor freeze goes on.

    The same command once more repairs it, also with the first model.
    """
    write_scenes(home.path / "photos", 16)
    first = SPEC if change == "sentence" else "shapes:?mislabel=0.1"
    assert construct(home, describer=first).code == 0
    path = home.path / "bench" / "patterns.toml"
    if change == "sentence":
        path.write_text(path.read_text().replace('sentence = "', 'sentence = "Look: '))
    assert killed(home, 1)
    verify = ("dataset", "verify", "bench", "--annotators=ada", "--only-write")
    for ended in (freeze(home, "--unverified"), home.command(*verify)):
        ended.refused("has no chosen.json: finish cepbench dataset patterns first")
    assert not (home.path / "bench" / "ratings").exists()
    repaired = construct(home, describer=first)
    frozen = freeze(home, "--unverified")

    assert (repaired.code, frozen.code) == (0, 0), frozen.err
    construction = json.loads((home.path / "bench/construction.json").read_text())
    assert construction["models"]["annotate"]["spec"] == first
