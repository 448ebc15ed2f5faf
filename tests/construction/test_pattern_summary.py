"""Counts of names, and the summary that a writer makes of them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from pytest_cepbench.chains import RoleRunner
from pytest_cepbench.construction.pattern_list import Pattern
from pytest_cepbench.construction.pattern_summary import count_patterns, summarize
from pytest_cepbench.construction.prompts import EXAMPLE_NAMES, extraction_prompt
from pytest_cepbench.construction.records import Annotation
from pytest_cepbench.errors import MeasurementError
from pytest_cepbench.models.binding import BoundRole
from pytest_cepbench.store import Store


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
    bound = BoundRole("writer", "scribe", "a script", "f", "scribe/1", lambda: model)
    counts = {"Count": 5, "number of things": 2, "Red": 1}
    with Store(root / "store") as store:
        return summarize(RoleRunner(bound, store), counts, "paper", most, 0)


def test_spellings_are_counted_together_once_an_image() -> None:
    """Case and spaces do not matter, plurals do; the most frequent spelling is shown."""
    counts = count_patterns(
        [
            Annotation(image="1", patterns=("Color", "color ", "Counts")),
            Annotation(image="2", patterns=("Color", "count")),
            Annotation(image="3", patterns=("COLOR",)),
            Annotation(image="4", failure="bad-json"),
        ],
        "none",
    )

    assert list(counts.patterns.items()) == [("Color", 3), ("Counts", 1), ("count", 1)]
    assert (counts.images, counts.failures, counts.annotations) == (3, {"bad-json": 1}, 5)


def test_the_share_of_examples_is_reported() -> None:
    """Whether or not the prompt held them: so much of a list was given to the model."""
    own = count_patterns([Annotation(image="1", patterns=("text", "Mood", "Surreal"))], "paper")

    assert own.example_share == pytest.approx(2 / 3)
    assert all(name in extraction_prompt("paper", "paper") for name in EXAMPLE_NAMES)
    assert not any(name in extraction_prompt("paper", "none") for name in EXAMPLE_NAMES)
    assert count_patterns([], "none").example_share == 0


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
    """The parse error is in the second question."""
    model = Scribe("here you are", json.dumps({"image_pattern": ["Red"]}))

    assert summary(tmp_path, model) == (Pattern("Red"),)
    assert "Expecting value" in model.questions[1]


def test_a_writer_that_gives_none_is_an_error(tmp_path: Path) -> None:
    """It names what can be done."""
    with pytest.raises(MeasurementError, match=r"bad-json: .*--patterns FILE"):
        summary(tmp_path, Scribe("no", "no"))
    with pytest.raises(MeasurementError, match=r"names no pattern"):
        summary(tmp_path / "b", Scribe('{"image_pattern": []}', '{"image_pattern": []}'))
