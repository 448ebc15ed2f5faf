"""Studies as they are made, attention items of every task, and who is shown what."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from pytest_cepbench.artifacts import ImageArtifact
from pytest_cepbench.errors import DatasetError, WriteError
from pytest_cepbench.ratings.assignment import Assignment, Slot
from pytest_cepbench.ratings.folder import read_ratings
from pytest_cepbench.ratings.items import begin_study, is_right, make_item, read_items
from pytest_cepbench.ratings.records import TASKS, Item, ItemKind, Part, Study, Task, Vote
from tests.ratings.studies import make_study, picture

WORDS = [Part(text="Which is better?")]
PAIR = make_item("pair", WORDS, [[Part(text="one")], [Part(text="two")]])
TWO = Study(kind="pair", annotators=("a1", "a2"))


def test_images_are_lossless_and_say_nothing(tmp_path: Path) -> None:
    """WebP of the same pixels, without metadata, named by the digest of the pixels alone. A study
    is not written over another, which may have votes.

    The format of the pages ends at 16,383 pixels: a larger image is refused, for another format
    would tell items apart. Known items are the same for a seed on every machine.
    """
    digests = [
        sorted(make_study(tmp_path / str(at), "pair", attention=0.2, seed=seed).items)
        for at, seed in enumerate((3, 3, 4))
    ]
    assert digests[0] == digests[1] != digests[2]
    tmp_path /= "images"
    ratings = make_study(tmp_path, "pair", count=3)
    for path in (ratings.path / "images").iterdir():
        with Image.open(path) as image:
            assert image.format == "WEBP"
            assert not {"exif", "xmp", "icc_profile"} & image.info.keys()
            pixels = np.asarray(image.convert("RGB"))
        assert ImageArtifact(pixels).digest == path.stem
    with pytest.raises(WriteError, match="holds a study already"):
        begin_study(tmp_path, TWO, list(ratings.items.values()), {})
    (tmp_path / "study.json").unlink()  # then the others may be a user's own
    (tmp_path / "images/mine.png").touch()
    mine = "holds images/mine.png, items.jsonl, sources.jsonl, votes: name a new folder"
    with pytest.raises(WriteError, match=mine):
        begin_study(tmp_path, TWO, list(ratings.items.values()), {})
    large = ImageArtifact(np.zeros((1, 16384, 3), np.uint8))
    item = make_item("describe", [Part(image=large.digest)], [])
    study = Study(kind="describe", annotators=("a1",))
    with pytest.raises(DatasetError, match="side of 16384 pixels"):
        begin_study(tmp_path / "study", study, [item], {large.digest: large})


@pytest.mark.parametrize(
    ("study", "items", "message"),
    [
        ({}, [], "at least one item"),
        ({"annotators": ()}, [PAIR], "at least one annotator"),
        ({"annotators": ("a/b",)}, [PAIR], "letters, digits"),
        ({"annotators": ("Ann", "ann")}, [PAIR], "differ, also in lower case"),
        ({"overlap": 3}, [PAIR], "overlap of 3 needs as many annotators"),
        ({"overlap": 0}, [PAIR], "overlap of 0"),
        ({}, [make_item("pair", WORDS, [WORDS])], "task pair has 2 options, got 1"),
        ({}, [make_item("pair", WORDS, [])], "task pair has 2 options, got 0"),
        ({}, [make_item("pair", [], [WORDS, WORDS])], "it has no question"),
        (
            {"kind": "verify"},
            [make_item("verify", WORDS, [[Part(text="a")], [Part(text="a")]])],
            "offered twice",
        ),
    ],
)
def test_what_cannot_be_asked_is_refused(
    study: dict[str, Any], items: list[Item], message: str, tmp_path: Path
) -> None:
    """Before a file is written."""
    with pytest.raises(DatasetError, match=message):
        begin_study(tmp_path / "study", msgspec.structs.replace(TWO, **study), items, {})
    assert not (tmp_path / "study").exists()


# -- items of one's own --------------------------------------------------------------------------


def test_items_of_a_file(tmp_path: Path) -> None:
    """Texts and images; models stay in the sources.

    Equal sides are refused where the study is written: people could only say that they are alike,
    and what reads the votes has no two models. All lines are named at once; outputs to grade may be
    equal. A file without items is refused, and one that is not there.
    """
    (tmp_path / "a").mkdir()
    picture(1, 0).to_pil().save(tmp_path / "a" / "red.png")
    line = {
        "question": ["Draw it", {"image": "a/red.png"}],
        "options": [["Text", {"image": "a/red.png"}], ["Nothing"]],
        "models": ["alpha", "beta"],
        "sample": "s1",
    }
    (tmp_path / "items.jsonl").write_text(f"{json.dumps(line)}\n\n")
    items, images, sources = read_items(tmp_path / "items.jsonl", "pair")
    (item,) = items
    assert [part.text for part in item.question] == ["Draw it", None]
    assert images.keys() == {picture(1, 0).digest}
    assert [(own.model, own.sample) for own in sources] == [("alpha", "s1"), ("beta", "s1")]
    begin_study(tmp_path / "study", TWO, items, images, sources)
    assert read_ratings(tmp_path / "study").study.data
    text = '{"question": ["a"], "options": [["b"], [%s]], "models": ["x", "y"]}'
    path = tmp_path / "items.jsonl"
    path.write_text("\n".join(text % f'"{side}"' for side in "bcb"))
    with pytest.raises(DatasetError, match="both sides are equal in lines 1, 3, which"):
        read_items(path, "pair")
    assert len(read_items(path, "grades")[0]) == 3
    path.write_text((text % '"c"').replace('"y"', '"x"'))  # of one model, as votes would be too
    with pytest.raises(DatasetError, match="line 1: both options are of 'x'"):
        read_items(path, "pair")
    assert len(read_items(path, "grades")[0]) == 1
    path.write_text("\n")
    with pytest.raises(DatasetError, match="holds no item"):
        read_items(tmp_path / "items.jsonl", "pair")
    with pytest.raises(DatasetError, match="cannot be read"):
        read_items(tmp_path / "none.jsonl", "pair")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "line 2: "),
        ('{"question": ["a"], "option": []}', "unknown field `option`"),
        ('{"question": [{"image": "../x.png"}]}', "has to lie below the folder"),
        ('{"question": [{"image": "/etc/passwd"}]}', "has to lie below the folder"),
        ('{"question": [{"image": "none.png"}]}', "'none.png': cannot be read"),
        ('{"question": [{"image": "items.jsonl"}]}', "not an image"),
        ('{"question": ["a"], "options": [["b"]], "models": ["c", "d"]}', "2 models of 1 options"),
    ],
)
def test_faults_of_a_file_are_named(line: str, message: str, tmp_path: Path) -> None:
    """With the number of the line."""
    path = tmp_path / "items.jsonl"
    path.write_text(f'{{"question": ["fine"]}}\n{line}\n')
    with pytest.raises(DatasetError, match=message):
        read_items(path, "describe")


def plain(level: int) -> ImageArtifact:
    """An image of one color."""
    return ImageArtifact(np.full((64, 64, 3), level, np.uint8))


@pytest.mark.parametrize(
    ("parts", "images"),
    [
        (["b"], []),
        (["other answer 19"], []),
        (["\u0642\u0637\u0629 \u062d\u0645\u0631\u0627\u0621"], []),
        (["very very very very very very very very good"], []),
        ([], [plain(30)]),
        (["An image"], [plain(200)]),
        ([], [ImageArtifact(np.random.default_rng(0).integers(0, 256, (64, 64, 3), np.uint8))]),
    ],
    ids=["a word", "three words", "Arabic", "one word again", "plain", "plain and words", "noise"],
)
def test_options_that_cannot_be_damaged_make_no_attention_item(
    parts: list[str], images: list[ImageArtifact], tmp_path: Path
) -> None:
    """Nobody is blamed for what nobody can see: some words in another order, tiles that are alike.

    The organizer is told that there are fewer.
    """
    study = msgspec.structs.replace(TWO, attention=0.5)
    own = [*(Part(text=text) for text in parts), *(Part(image=each.digest) for each in images)]
    item = make_item("pair", WORDS, [own, [*own, Part(text="and")]])
    pictures = {each.digest: each for each in images}
    items = [item, make_item("pair", [Part(text="Again?")], [own, [*own, Part(text="and")]])]
    said = begin_study(tmp_path / "study", study, items, pictures)
    assert said.startswith("0 of 1 attention items: ")
    assert read_ratings(tmp_path / "study").items.keys() == {own.item for own in items}


@pytest.mark.parametrize("task", TASKS)
def test_attention_items_are_damaged_so_that_everybody_sees_it(task: Task, tmp_path: Path) -> None:
    """An option of an item against itself: most words stand elsewhere, or the image is cut.

    Its known answer is right and others not; tasks without options have none.
    """

    def known_vote(item: Item, *, right: bool) -> Vote:
        own: dict[str, Any] = {"task": task, "item": item.item, "annotator": "a1"}
        if task != "grades":
            others = {"first": "second", "second": "first"}
            winner: Any = item.known["winner"] if right else others[item.known["winner"]]
            return Vote(winner=winner, **own)
        order = range(len(item.options))[:: 1 if right else -1]
        grades: Any = {str(number): "good" if number == order[0] else "poor" for number in order}
        return Vote(ranking=tuple(order), grades=grades, **own)

    ratings = make_study(tmp_path, task, count=20, attention=0.5)
    checks = [item for item in ratings.items.values() if item.kind == "attention"]
    assert len(ratings.asked) == 20
    assert len(checks) == (10 if task in ("pair", "caption", "grades") else 0)
    own = {option.option for item in ratings.asked.values() for option in item.options}
    for item in checks:
        right, wrong = (known_vote(item, right=right) for right in (True, False))
        skipped = msgspec.structs.replace(right, skip="other")
        given = [is_right(task, item.known, vote) for vote in (right, wrong, skipped)]
        assert given == [True, False, False]
        if task == "grades":
            whole, damaged = item.options[0], item.options[1]
        else:
            sides = item.options if item.known["winner"] == "first" else item.options[::-1]
            whole, damaged = sides
        assert whole.option in own
        assert damaged.option not in own
        visible = []
        for good, bad in zip(whole.parts, damaged.parts, strict=True):
            if good.text is not None and bad.text is not None:
                words = list(zip(good.text.split(), bad.text.split(), strict=True))
                visible.append(len(words) >= 8 and sum(a != b for a, b in words) >= len(words) / 2)
            else:
                first, second = (
                    ratings.image(str(part.image)).pixels.astype(int) for part in (good, bad)
                )
                visible.append(np.mean(abs(first - second).max(axis=-1) > 32) > 0.05)
        assert any(visible)


# -- who is shown what: orders, sides, overlap, hidden checks --------------------------------------


def items_of(task: Task, count: int, options: int = 2, kind: ItemKind = "item") -> list[Item]:
    """Items of texts."""
    names = [[Part(text=f"option {number}")] for number in range(options)]
    return [make_item(task, [Part(text=f"{kind} {n}")], names, kind) for n in range(count)]


def study_of(people: int = 2, kind: Task = "pair", **settings: object) -> Study:
    """A study of so many people, without hidden items."""
    names = tuple(f"a{number + 1}" for number in range(people))
    own = {"attention": 0.0, "repeats": 0.0} | settings
    return Study(kind=kind, annotators=names, **own)  # type: ignore[arg-type]


def answered(slot: Slot, annotator: str, *, skip: str = "") -> Vote:
    """A vote for a slot."""
    return Vote(task="pair", item=slot.item, annotator=annotator, kind=slot.kind, skip=skip)


def work(assignment: Assignment, annotator: str, count: int) -> list[Slot]:
    """Let a person answer so many items, or all there are. Returns what was shown."""
    shown: list[Slot] = []
    while len(shown) < count and (upcoming := assignment.upcoming(annotator)):
        shown.append(upcoming[0])
        assignment.answer(answered(upcoming[0], annotator))
    return shown


@given(seed=st.integers(0, 10**6), count=st.integers(1, 25), people=st.integers(1, 5))
def test_sides_are_counterbalanced(seed: int, count: int, people: int) -> None:
    """Each person sees half of the items swapped, and neighbours see each item differently."""
    items = items_of("pair", count)
    study = study_of(people, seed=seed)
    order = Assignment(study, items)
    shown = {name: [order.shown(item, name, "item") for item in items] for name in study.annotators}
    for sides in shown.values():
        assert abs(2 * sides.count(("second", "first")) - count) <= 1
    for first, second in zip(study.annotators, study.annotators[1:], strict=False):
        assert all(a == b[::-1] for a, b in zip(shown[first], shown[second], strict=True))
    for item in items:
        assert order.shown(item, "a1", "repeat") == order.shown(item, "a1", "item")[::-1]


@given(seed=st.integers(0, 10**6), options=st.integers(2, 6))
def test_outputs_are_shuffled_as_in_a_latin_square(seed: int, options: int) -> None:
    """As many people as outputs see each output once at each place."""
    (item,) = items_of("grades", 1, options)
    study = study_of(options, "grades", seed=seed)
    rows = [Assignment(study, [item]).shown(item, name, "item") for name in study.annotators]
    assert all(sorted(row) == list(range(options)) for row in rows)
    assert all(len(set(column)) == options for column in zip(*rows, strict=True))


def test_everyone_has_an_order_of_their_own() -> None:
    """The same after a restart, another for another seed."""
    items = items_of("pair", 30)
    orders = [
        [slot.item for slot in work(Assignment(study_of(seed=seed), items), name, 30)]
        for seed, name in ((0, "a1"), (0, "a1"), (0, "a2"), (1, "a1"))
    ]
    assert orders[0] == orders[1]
    assert len({tuple(order) for order in orders}) == 3
    assert all(sorted(order) == sorted(orders[0]) for order in orders)


@given(
    count=st.integers(1, 40),
    people=st.integers(1, 4),
    overlap=st.integers(1, 4),
    turns=st.lists(st.integers(0, 3), max_size=200),
)
def test_each_item_is_judged_by_as_many_as_it_needs(
    count: int, people: int, overlap: int, turns: list[int]
) -> None:
    """Whoever works when, one after the other: as many as are wanted."""
    items, wanted = items_of("pair", count), min(people, overlap)
    study = study_of(people, overlap=wanted)
    assignment = Assignment(study, items)
    judged: Counter[str] = Counter()
    for turn in [*turns, *(list(range(people)) * (count + 1))]:
        name = study.annotators[turn % people]
        judged.update(slot.item for slot in work(assignment, name, 1))
    assert judged == {item.item: wanted for item in items}
    assert not any(assignment.upcoming(name) for name in study.annotators)


def test_an_answer_to_what_others_have_judged_meanwhile_counts() -> None:
    """Two people can be shown the same item; who has not answered is shown it no longer.

    An answer that is taken back is shown again, before what was shown meanwhile; taken back twice,
    the one before it.
    """
    assignment = Assignment(study_of(), items_of("pair", 1))
    (slot,) = assignment.upcoming("a1")
    assert assignment.upcoming("a2") == [slot]
    assignment.answer(answered(slot, "a2"))
    assert assignment.upcoming("a1") == []
    assignment.answer(answered(slot, "a1"))
    assert assignment.progress("a1")[0] == 1
    # What one skips goes to the other, and not to the same one again.
    assignment = Assignment(study_of(), items_of("pair", 1))
    (slot,) = assignment.upcoming("a1")
    assignment.answer(answered(slot, "a1", skip="broken image"))
    assert assignment.upcoming("a1") == []
    assert assignment.upcoming("a2") == [slot]
    assignment = Assignment(study_of(1), items_of("pair", 6))
    done = work(assignment, "a1", 2)
    shown = assignment.upcoming("a1")
    assignment.withdraw("a1")
    assert assignment.upcoming("a1") == [done[1], shown[0]]
    assert assignment.last("a1") == done[0]
    assignment.withdraw("a1")
    assert assignment.upcoming("a1") == [done[0], done[1]]
    assert assignment.last("a1") is None
    assert len(work(assignment, "a1", 10)) == 6


@pytest.mark.parametrize("stop", [0, 1, 7, 30])
def test_people_go_on_where_they_stopped(stop: int) -> None:
    """A new server, which knows the votes alone, shows what the old one would have shown."""
    items = items_of("pair", 40) + items_of("pair", 10, kind="attention")
    study = study_of(1, attention=0.2, repeats=0.1)
    assignment = Assignment(study, items)
    done = work(assignment, "a1", stop)
    again = Assignment(study, items, [answered(slot, "a1") for slot in done])
    assert again.upcoming("a1")[:1] == assignment.upcoming("a1")[:1]


def test_checks_are_hidden_among_the_items() -> None:
    """5 % attention items and 5 % repeats, each once, repeats far apart; as many as were said."""
    study = study_of(1, attention=0.05, repeats=0.05)
    items = items_of("pair", 200) + items_of("pair", 20, kind="attention")
    assignment = Assignment(study, items)
    assert assignment.progress("a1") == (0, 220)
    shown = work(assignment, "a1", 1000)
    assert len(shown) == len(set(shown))
    kinds = Counter(slot.kind for slot in shown)
    assert kinds["item"] == 200
    assert 9 <= kinds["attention"] <= 12
    assert 9 <= kinds["repeat"] <= 12
    places = {slot: place for place, slot in enumerate(shown)}
    for slot in shown:
        if slot.kind == "repeat":
            assert places[slot] - places[Slot(slot.item, "item")] > 5


@given(seed=st.integers(0, 10**6), skips=st.lists(st.booleans(), min_size=1, max_size=7))
def test_what_was_skipped_does_not_come_again(seed: int, skips: list[bool]) -> None:
    """No skipped item is a repeat, nor an attention item; also after a restart."""
    study = study_of(1, attention=0.2, repeats=0.3, seed=seed)
    items = items_of("pair", 40) + items_of("pair", 8, kind="attention")
    kinds = {item.item: item.kind for item in items}
    assignment = Assignment(study, items)
    votes: list[Vote] = []
    for turn in range(1000):
        if turn == 30:
            assignment = Assignment(study, items, votes)
        upcoming = assignment.upcoming("a1")
        if not upcoming:
            break
        skip = "offensive or disturbing" if skips[turn % len(skips)] else ""
        votes.append(answered(upcoming[0], "a1", skip=skip))
        assignment.answer(votes[-1])
    skipped = {vote.item for vote in votes if vote.kind == "item" and vote.skip}
    repeated = [vote.item for vote in votes if vote.kind == "repeat"]
    assert not skipped & set(repeated)
    assert all(kinds[item] == "item" for item in repeated)
    assert bool(repeated) or all(skips)
