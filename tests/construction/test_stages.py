"""What models say of images, the summary of the patterns that they named, and what is chosen."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from pytest_cepbench.artifacts import Failure, digest_text
from pytest_cepbench.chains import RoleRunner
from pytest_cepbench.construction.folder import (
    Annotation,
    SourceImages,
    choose_images,
    find_images,
    members_of,
)
from pytest_cepbench.construction.patterns import (
    LONGEST_NAME,
    MOST_PATTERNS,
    Pattern,
    fold_name,
    read_pattern_reply,
    read_patterns,
    write_patterns,
)
from pytest_cepbench.construction.stages import annotate_images, count_patterns, summarize
from pytest_cepbench.construction.verification import vote_labels
from pytest_cepbench.errors import DatasetError, MeasurementError, UnreadableReplyError
from pytest_cepbench.escapes import visible
from pytest_cepbench.models import RoleName
from pytest_cepbench.models.binding import BoundRole
from pytest_cepbench.store import Store

LIST = ("Count", "Color")

GOOD = json.dumps({"description": "d", "image_pattern": [{"name": "Count", "reason": "3"}]})


class Scripted:
    """Answers by the level of grey of an image; counts what it is asked."""

    def __init__(self, answer: Callable[[int, str], str | Failure]) -> None:
        self.answer = answer
        self.prompts: list[str] = []

    def describe(
        self, images: Sequence[Image.Image], prompt: str, seeds: Sequence[int]
    ) -> list[str | Failure]:
        """One answer for each image."""
        self.prompts += [prompt] * len(images)
        assert len(images) == len(seeds)
        return [self.answer(image.getpixel((0, 0))[0], prompt) for image in images]  # type: ignore[index]


def grey_images(folder: Path, number: int = 4) -> SourceImages:
    """Images of the levels 0, 1, ..."""
    folder.mkdir(exist_ok=True, parents=True)
    for level in range(number):
        Image.new("RGB", (4, 4), (level,) * 3).save(folder / f"{level}.png")
    return find_images(folder)


def runner(
    store: Store, model: Any, fingerprint: str = "f", role: RoleName = "describer"
) -> RoleRunner:
    """The model as a describer, or in another role."""
    bound = BoundRole(role, "scripted", "a script", fingerprint, "scripted/1", lambda: model)
    return RoleRunner(bound, store)


def annotate(
    root: Path,
    answer: Callable[[int, str], str | Failure],
    names: Sequence[str] | None = LIST,
    fingerprint: str = "f",
) -> tuple[list[Annotation], Scripted]:
    """Annotate grey images with the store of a folder."""
    model = Scripted(answer)
    with Store(root / "store") as store:
        source = grey_images(root / "images")
        asked = runner(store, model, fingerprint)
        annotations = annotate_images(asked, source, "annotate", "which?", names, lambda _: None)
    return annotations, model


def test_a_reply_is_repaired_once_and_kept_where_it_stays_broken(tmp_path: Path) -> None:
    """The second question says what was wrong, and quotes the reply; only broken ones are asked. A
    second run finds all answers in the store.

    What stays broken is `bad-json`, counted and kept; the text is short and hides nothing. A
    refusal, or another failure of the model, is no JSON to repair.
    """

    def answer(level: int, prompt: str) -> str:
        return GOOD if level != 2 or "could not be read" in prompt else '{"image_pattern": ["Cou'

    annotations, model = annotate(tmp_path, answer)
    again, silent = annotate(tmp_path, answer)

    assert [a.repaired for a in annotations] == [False, False, True, False]
    assert {(a.patterns, a.description) for a in annotations} == {(("Count",), "d")}
    assert [a.reasons for a in annotations] == [{"Count": "3"}] * 4
    assert len(model.prompts) == 5
    assert model.prompts[-1].startswith("which?")
    assert '["Cou' in model.prompts[-1]
    assert (again, silent.prompts) == (annotations, [])
    broken_text, refusal = "\x1b[31mI cannot " + "x" * 9000, Failure("refused", "no\x1b")
    answers: list[str | Failure] = [GOOD, broken_text, GOOD, refusal]
    annotations, model = annotate(tmp_path / "broken", lambda level, _: answers[level])
    broken = annotations[1]

    assert (broken.failure, broken.patterns) == ("bad-json", ())
    assert "Expecting value" in broken.detail
    assert broken.reply.startswith("[31mI cannot xx")
    assert len(broken.reply) == 4000
    assert (annotations[3].failure, annotations[3].detail) == ("refused", "no")
    assert len(model.prompts) == 5


def test_answers_are_kept_by_the_closed_list(tmp_path: Path) -> None:
    """Names outside it are dropped: case and spaces do not matter, nothing else is guessed; markup
    stays text. An answer to another list is another one, and so is one of another checkpoint.
    """
    names = ["  count", "COLOR", "Colour", "Counts", "<b>Count</b>"]
    reply = json.dumps({"image_pattern": names})
    annotations, _ = annotate(tmp_path, lambda *_: reply)
    _, other = annotate(tmp_path, lambda *_: reply, ("Count", "Color", "Size"))
    _, model = annotate(tmp_path, lambda *_: reply, fingerprint="other")

    assert annotations[0].patterns == ("Count", "Color")
    assert annotations[0].dropped == ("Colour", "Counts", "<b>Count</b>")
    assert len(other.prompts) == len(model.prompts) == 4


def test_an_image_that_changes_meanwhile_stops_the_stage(tmp_path: Path) -> None:
    """Its label would be of another image."""
    source = grey_images(tmp_path / "images")
    Image.new("RGB", (4, 4), "red").save(tmp_path / "images" / "2.png")

    with Store(tmp_path / "store") as store:
        asked = runner(store, Scripted(lambda *_: GOOD))
        with pytest.raises(DatasetError, match=r"2\.png' has changed since it was read first"):
            annotate_images(asked, source, "annotate", "which?", LIST, lambda _: None)


class Scribe:
    """A writer that says what it is told, one reply after the other."""

    def __init__(self, *replies: str) -> None:
        self.replies = list(replies)
        self.questions: list[str] = []

    def write(self, questions: Sequence[Any], prompt: str, seeds: Sequence[int]) -> list[str]:
        """The next reply to each question."""
        assert (prompt, len(seeds)) == ("", len(questions))
        self.questions += [question[0] for question in questions]
        return [self.replies.pop(0) for _ in questions]


def summary(root: Path, model: Any, most: int = 13) -> tuple[Pattern, ...]:
    """The patterns of a writer."""
    counts = {"Count": 5, "number of things": 2, "Red": 1}
    with Store(root / "store") as store:
        return summarize(runner(store, model, role="writer"), counts, most)


def test_spellings_are_counted_together_once_an_image() -> None:
    """Case and spaces do not matter, plurals do; the most frequent spelling is shown."""
    counts = count_patterns(
        [
            Annotation(image="1", patterns=("Color", "color ", "Counts")),
            Annotation(image="2", patterns=("Color", "count")),
            Annotation(image="3", patterns=("COLOR",)),
            Annotation(image="4", failure="bad-json"),
        ]
    )

    assert list(counts.patterns.items()) == [("Color", 3), ("Counts", 1), ("count", 1)]
    assert (counts.images, counts.failures) == (3, {"bad-json": 1})


def test_a_summary_is_read_and_kept(tmp_path: Path) -> None:
    """Merged names are those that were counted; the second run asks nothing.

    It is repaired once: the parse error is in the second question; what stays broken names what can
    be done.
    """
    entry = {"name": "Count", "sentence": "How many.", "merged_from": ["COUNT", "invented"]}
    model = Scribe(json.dumps({"image_pattern": [entry, {"name": "Red", "sentence": ""}]}))

    expected = (Pattern("Count", "How many.", ("Count",)), Pattern("Red"))
    assert summary(tmp_path, model) == expected
    assert summary(tmp_path, Scribe()) == expected
    assert '"number of things": 2' in model.questions[0]
    assert summary(tmp_path / "one", Scribe(json.dumps({"image_pattern": ["a", "b"]})), 1) == (
        Pattern("a"),
    )
    model = Scribe("here you are", json.dumps({"image_pattern": ["Red"]}))

    assert summary(tmp_path / "repaired", model) == (Pattern("Red"),)
    assert "Expecting value" in model.questions[1]
    with pytest.raises(MeasurementError, match=r"bad-json: .*--patterns FILE"):
        summary(tmp_path / "a", Scribe("no", "no"))
    with pytest.raises(MeasurementError, match=r"names no pattern"):
        summary(tmp_path / "b", Scribe('{"image_pattern": []}', '{"image_pattern": []}'))


# -- images read once and chosen by quotas, votes, lists of patterns -------------------------------


def put(folder: Path, *names: str) -> Path:
    """Images named by their levels of grey: `7-a.png` and `7-b.webp` have the same pixels."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        level = int(path.name.partition("-")[0])
        Image.new("RGB", (4, 4), (level,) * 3).save(path, lossless=True)
    return folder


def test_files_of_equal_pixels_are_one_image(tmp_path: Path) -> None:
    """Whatever their format; the others are counted. Cut off files and texts with the name of an
    image are left out with the reason. A Mac's decomposed accents are found again.
    """
    decomposed = unicodedata.normalize("NFD", "8-\xe9.png")
    put(tmp_path, "7-a.png", "7-b.webp", "sub/7-c.bmp", decomposed)
    (tmp_path / "text.png").write_text("no image")
    (tmp_path / "cut.png").write_bytes((tmp_path / "7-a.png").read_bytes()[:40])
    source = find_images(tmp_path)

    assert [(r.path, r.same, r.number) for r in source.records] == [
        ("7-a.png", ("7-b.webp", "sub/7-c.bmp"), 0),
        (decomposed, (), 1),
    ]
    assert source.load(source.records[1]).size == (4, 4)
    assert set(source.unreadable) == {"text.png", "cut.png"}
    assert "not an image" in source.unreadable["text.png"]


def test_numbers_stay_where_images_are_added(tmp_path: Path) -> None:
    """New images get the next numbers, whatever their names; one that is gone is refused."""
    before = find_images(put(tmp_path, "5-a.png", "6-a.png")).records
    after = find_images(put(tmp_path, "1-a.png", "5-0.png"), before).records

    assert [(r.path, r.number) for r in after] == [("5-0.png", 0), ("6-a.png", 1), ("1-a.png", 2)]
    assert [r.image for r in after[:2]] == [r.image for r in before]
    (tmp_path / "6-a.png").unlink()
    with pytest.raises(DatasetError, match="begun with other images: 1 of its 2"):
        find_images(tmp_path, before)


def test_a_folder_without_images_is_refused(tmp_path: Path) -> None:
    """So are a file, nothing at all, and a folder of unreadable files."""
    for name in ("empty", "bad"):
        (tmp_path / name).mkdir()
    (tmp_path / "bad" / "x.png").write_text("x")
    for name, words in (
        ("empty", "no images in"),
        ("bad", "1 files hold none that can be read"),
        ("none", "does not exist"),
        ("bad/x.png", "is a file"),
    ):
        with pytest.raises(DatasetError, match=words):
            find_images(tmp_path / name)


LABELS = st.dictionaries(
    st.integers(0, 60).map(lambda number: digest_text(str(number))),
    st.lists(st.sampled_from("ABCDE"), max_size=5),
    max_size=40,
)


@given(LABELS, st.integers(1, 12), st.integers(0, 5))
def test_every_quota_is_met_and_no_image_is_idle(
    labels: dict[str, list[str]], quota: int, more: int
) -> None:
    """A pattern has its quota or all its images; every image has a pattern that needed it. A larger
    set contains a smaller one, whatever the patterns share: what was verified stays of use.
    """
    chosen = set(choose_images(labels, quota))

    for images in members_of(labels).values():
        assert len(chosen.intersection(images)) >= min(quota, len(images))
    assert all(labels[image] for image in chosen)
    assert len(chosen) <= quota * len(members_of(labels))
    assert chosen <= set(choose_images(labels, quota + more))


def test_the_rarest_pattern_is_filled_first() -> None:
    """An image of a rare pattern counts for the frequent one too."""
    both = digest_text("both")
    labels = {both: ["rare", "often"]} | {digest_text(str(i)): ["often"] for i in range(20)}

    assert choose_images(labels, 1) == [both]


NAMES = ("A", "B", "C")

VOTES = st.frozensets(st.sampled_from(NAMES))


@given(VOTES, st.lists(VOTES, max_size=6))
def test_labels_are_those_of_the_majority(
    model: frozenset[str], people: list[frozenset[str]]
) -> None:
    """Counted by hand; a tie is decided by the people alone, of whom there is an odd number."""
    final = vote_labels(NAMES, model, people)

    for name in NAMES:
        votes = [name in labels for labels in (model, *people)]
        for_it, against = sum(votes), len(votes) - sum(votes)
        if for_it != against:
            assert (name in final.patterns) == (for_it > against)
        else:
            own = votes[1:]
            assert len(own) % 2 == 1
            assert (name in final.patterns) == (2 * sum(own) > len(own))
        assert (name in final.disputed) == (0 < for_it < len(votes))
    assert final.annotators == len(people)
    assert final.changed == (set(final.patterns) != set(model))


# -- the list of patterns, and the JSON that models reply with -------------------------------------

WORDS = st.text(
    st.characters(codec="utf-8", categories=["L", "N", "P", "S"]), min_size=1, max_size=40
).filter(lambda text: visible(text, "") == text and text == " ".join(text.split()))
PATTERNS = st.lists(
    st.builds(Pattern, WORDS, st.text(max_size=50), st.lists(st.text(max_size=9)).map(tuple)),
    min_size=1,
    max_size=6,
    unique_by=lambda pattern: fold_name(pattern.name),
)


def put_patterns(folder: Path, text: str) -> Path:
    """A file of patterns."""
    path = folder / "patterns.toml"
    path.write_text(text, encoding="utf-8")
    return path


@given(PATTERNS)
def test_what_is_written_is_read_again(patterns: list[Pattern]) -> None:
    """Names, sentences and merged names of any characters, markup and quotes among them."""
    text = write_patterns(patterns)
    with TemporaryDirectory() as folder:
        assert read_patterns(put_patterns(Path(folder), text)) == tuple(patterns)
    assert visible(text.replace("\n", "")) == text.replace("\n", "")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[[pattern]\nname = 3", "is no TOML"),
        ("", "missing required field `pattern`"),
        ("pattern = []", "pattern: Expected `array` of length >= 1"),
        ("[[pattern]]", "missing required field `name`"),
        ("[[pattern]]\nname = ' '", "pattern[0].name: a text is expected that is not empty"),
        ("[[pattern]]\nname = 'a'\nsentense = 'b'", "contains unknown field `sentense`"),
        ("[[pattern]]\nname = 'a b'\n[[pattern]]\nname = ' A  B'", "there already, in pattern 1"),
        ('[[pattern]]\nname = "a\\u202e"', "all of them visible"),
        (f"[[pattern]]\nname = '{'a' * 201}'", "at most 200 characters"),
        ("".join(f"[[pattern]]\nname = '{i}'\n" for i in range(MOST_PATTERNS + 1)), "<= 32"),
    ],
)
def test_bad_edits_are_refused(tmp_path: Path, text: str, words: str) -> None:
    """One line names the file, the pattern and what is expected."""
    path = put_patterns(tmp_path, text)

    with pytest.raises(DatasetError) as refused:
        read_patterns(path)

    assert words in str(refused.value)
    assert str(path) in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "Expecting value"),
        ("no JSON at all", "Expecting value"),
        ('{"image_pattern": ["Count"', "Expecting"),
        ("[1, 2]", "a JSON object is expected"),
        ('{"description": "d"}', "missing required field `image_pattern`"),
        ('{"image_pattern": "Count"}', "Expected `array`, got `str`"),
        ('{"image_pattern": [3]}', "Expected `str | object`, got `int`"),
        ('{"image_pattern": [{"title": "Count"}]}', "missing required field `name`"),
        ('{"image_pattern": [], "description": 3}', "Expected `str`, got `int`"),
        ('{"image_pattern": ["a"], "image_pattern": ["b"]}', "there twice"),
        ('<think>{"image_pattern": []}', "inside its reasoning"),
        ('{"a": ' * 3000, "recursion"),
    ],
)
def test_other_replies_are_refused_in_one_line(text: str, words: str) -> None:
    """The message says what was wrong, for the model and for people."""
    with pytest.raises(UnreadableReplyError) as refused:
        read_pattern_reply(text)

    assert words.lower() in str(refused.value).lower()
    assert "\n" not in str(refused.value)


def test_what_counts_of_a_reply(tmp_path: Path) -> None:
    """JSON in the reasoning is no answer; nor is the prose around one. 32 patterns of 200
    characters; no control characters, each name once whatever its case. A file may have them all.
    """
    entry = '{"name": "Right", "reason": "r", "merged_from": ["a", 3]}'
    reply = f'<think>{{"image_pattern": ["Wrong"]}}</think> So: {{"image_pattern": [{entry}]}}!'

    assert read_pattern_reply(reply).patterns == (Pattern("Right", "r", ("a",)),)

    names = ["\x1b[31mRed\u202e", "red", "x" * 900, "  two \n lines ", "", *map(str, range(99))]
    patterns = read_pattern_reply(json.dumps({"image_pattern": names})).patterns
    first_names = [pattern.name for pattern in patterns[:4]]
    assert first_names == ["[31mRed", "red", "x" * LONGEST_NAME, "two lines"]
    assert len(patterns) == MOST_PATTERNS
    assert read_patterns(put_patterns(tmp_path, write_patterns(patterns))) == patterns
