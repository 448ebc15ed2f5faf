"""What models say: annotations of images, and the summary of the patterns that they named."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from pytest_cepbench.artifacts import Failure
from pytest_cepbench.chains import RoleRunner
from pytest_cepbench.construction.folder import Annotation, SourceImages, find_images
from pytest_cepbench.construction.patterns import Pattern
from pytest_cepbench.construction.stages import annotate_images, count_patterns, summarize
from pytest_cepbench.errors import DatasetError, MeasurementError
from pytest_cepbench.models import RoleName
from pytest_cepbench.models.binding import BoundRole
from pytest_cepbench.store import Store

NAMES = ("Count", "Color")

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
    folder.mkdir(exist_ok=True)
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
    names: Sequence[str] | None = NAMES,
    fingerprint: str = "f",
) -> tuple[list[Annotation], Scripted]:
    """Annotate grey images with the store of a folder."""
    model = Scripted(answer)
    with Store(root / "store") as store:
        source = grey_images(root / "images")
        asked = runner(store, model, fingerprint)
        annotations = annotate_images(asked, source, "annotate", "which?", names, lambda _: None)
    return annotations, model


def test_a_reply_is_repaired_once(tmp_path: Path) -> None:
    """The second question says what was wrong, and quotes the reply; only broken ones are asked.

    A second run finds all answers in the store.
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


def test_what_stays_broken_is_a_failure_with_its_text(tmp_path: Path) -> None:
    """`bad-json`, counted and kept; the text is short and hides nothing. A refusal, or another
    failure of the model, is no JSON to repair.
    """
    broken_text, refusal = "\x1b[31mI cannot " + "x" * 9000, Failure("refused", "no\x1b")
    answers: list[str | Failure] = [GOOD, broken_text, GOOD, refusal]
    annotations, model = annotate(tmp_path, lambda level, _: answers[level])
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
            annotate_images(asked, source, "annotate", "which?", NAMES, lambda _: None)


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
    """Merged names are those that were counted; the second run asks nothing."""
    entry = {"name": "Count", "sentence": "How many.", "merged_from": ["COUNT", "invented"]}
    model = Scribe(json.dumps({"image_pattern": [entry, {"name": "Red", "sentence": ""}]}))

    expected = (Pattern("Count", "How many.", ("Count",)), Pattern("Red"))
    assert summary(tmp_path, model) == expected
    assert summary(tmp_path, Scribe()) == expected
    assert '"number of things": 2' in model.questions[0]
    assert summary(tmp_path / "one", Scribe(json.dumps({"image_pattern": ["a", "b"]})), 1) == (
        Pattern("a"),
    )


def test_a_summary_is_repaired_once(tmp_path: Path) -> None:
    """The parse error is in the second question; what stays broken names what can be done."""
    model = Scribe("here you are", json.dumps({"image_pattern": ["Red"]}))

    assert summary(tmp_path, model) == (Pattern("Red"),)
    assert "Expecting value" in model.questions[1]
    with pytest.raises(MeasurementError, match=r"bad-json: .*--patterns FILE"):
        summary(tmp_path / "a", Scribe("no", "no"))
    with pytest.raises(MeasurementError, match=r"names no pattern"):
        summary(tmp_path / "b", Scribe('{"image_pattern": []}', '{"image_pattern": []}'))
