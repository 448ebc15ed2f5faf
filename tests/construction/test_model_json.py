"""JSON of models: what counts of a reply, its limits, and what is refused."""

from __future__ import annotations

import json
import unicodedata
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_cepbench.construction.model_json import (
    LONGEST_NAME,
    NamedPattern,
    plain_line,
    read_pattern_reply,
)
from pytest_cepbench.construction.pattern_list import MOST_PATTERNS
from pytest_cepbench.errors import UnreadableReplyError

NAMES = st.text("abcdefghij", min_size=1, max_size=8)


@given(
    st.lists(NAMES, unique=True, max_size=6), st.text(max_size=40), st.text("ab {}.", max_size=9)
)
def test_both_forms_say_the_same_inside_any_prose(
    names: list[str], reason: str, prose: str
) -> None:
    """Names with a map of reasons, and objects with a reason each, are read alike."""
    two_fields = {
        "description": "d",
        "image_pattern": names,
        "pattern_detail": dict.fromkeys(names, reason),
    }
    objects = {
        "description": "d",
        "image_pattern": [{"name": name, "reason": reason} for name in names],
    }
    expected = tuple(NamedPattern(name, plain_line(reason)) for name in names)

    for document in (two_fields, objects):
        text = json.dumps(document)
        assert read_pattern_reply(text).patterns == expected
        if "{" not in prose:
            fenced = f"{prose}\n```json\n{text}\n```\n{prose}"
            assert read_pattern_reply(fenced).patterns == expected


@given(st.text(max_size=200))
def test_no_text_raises_anything_else(text: str) -> None:
    """Whatever a model says, it is read or refused."""
    with suppress(UnreadableReplyError):
        assert len(read_pattern_reply(text).patterns) <= MOST_PATTERNS


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "Expecting value"),
        ("no JSON at all", "Expecting value"),
        ('{"image_pattern": ["Count"', "Expecting"),
        ("[1, 2]", "a JSON object is expected"),
        ('{"description": "d"}', "no field image_pattern"),
        ('{"image_pattern": "Count"}', "is no list"),
        ('{"image_pattern": [3]}', "no object with a name"),
        ('{"image_pattern": [{"title": "Count"}]}', "no object with a name"),
        ('{"image_pattern": ["a"], "pattern_detail": ["a"]}', "is no object"),
        ('{"image_pattern": [], "description": 3}', "description is no text"),
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


def test_what_stands_after_reasoning_counts() -> None:
    """JSON in the reasoning is no answer."""
    reply = '<think>{"image_pattern": ["Wrong"]}</think> {"image_pattern": ["Right"]}'

    assert [pattern.name for pattern in read_pattern_reply(reply).patterns] == ["Right"]


def test_names_are_limited_and_clean() -> None:
    """32 patterns of 200 characters; no control characters, each name once whatever its case."""
    names = ["\x1b[31mRed\u202e", "red", "x" * 900, "  two \n lines ", "", *map(str, range(99))]
    reply = read_pattern_reply(json.dumps({"image_pattern": names}))

    first, second, third = (pattern.name for pattern in reply.patterns[:3])
    assert (first, second, third) == ("[31mRed", "red", "x" * LONGEST_NAME)
    assert len(reply.patterns) == MOST_PATTERNS
    assert reply.patterns[3].name == "two lines"


@given(st.text(max_size=600), st.integers(min_value=1, max_value=50))
def test_a_plain_line_hides_nothing(text: str, most: int) -> None:
    """It has no control characters and is as long as was allowed at most."""
    line = plain_line(text, most)

    assert len(line) <= most
    assert not any(unicodedata.category(char).startswith("C") for char in line)
    assert line == line.strip()


def test_merged_names_are_read_as_far_as_they_are_texts() -> None:
    """A writer's summary says what a pattern takes in."""
    entry = {"name": "Count", "sentence": "How many.", "merged_from": ["number", 3, "quantity"]}
    (pattern,) = read_pattern_reply(json.dumps({"image_pattern": [entry]})).patterns

    assert pattern == NamedPattern("Count", "How many.", ("number", "quantity"))
