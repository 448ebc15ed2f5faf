"""The list of patterns, and the JSON that models reply with."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_cepbench.construction.patterns import (
    LONGEST_NAME,
    MOST_PATTERNS,
    Pattern,
    fold_name,
    read_pattern_reply,
    read_patterns,
    write_patterns,
)
from pytest_cepbench.errors import DatasetError, UnreadableReplyError
from pytest_cepbench.escapes import visible

WORDS = st.text(
    st.characters(codec="utf-8", categories=["L", "N", "P", "S"]), min_size=1, max_size=40
).filter(lambda text: visible(text, "") == text and text == " ".join(text.split()))
PATTERNS = st.lists(
    st.builds(Pattern, WORDS, st.text(max_size=50), st.lists(st.text(max_size=9)).map(tuple)),
    min_size=1,
    max_size=6,
    unique_by=lambda pattern: fold_name(pattern.name),
)


def put(folder: Path, text: str) -> Path:
    """A file of patterns."""
    path = folder / "patterns.toml"
    path.write_text(text, encoding="utf-8")
    return path


@given(PATTERNS)
def test_what_is_written_is_read_again(patterns: list[Pattern]) -> None:
    """Names, sentences and merged names of any characters, markup and quotes among them."""
    text = write_patterns(patterns)
    with TemporaryDirectory() as folder:
        assert read_patterns(put(Path(folder), text)) == tuple(patterns)
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
    path = put(tmp_path, text)

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


def test_what_stands_after_reasoning_counts() -> None:
    """JSON in the reasoning is no answer; nor is the prose around one."""
    entry = '{"name": "Right", "reason": "r", "merged_from": ["a", 3]}'
    reply = f'<think>{{"image_pattern": ["Wrong"]}}</think> So: {{"image_pattern": [{entry}]}}!'

    assert read_pattern_reply(reply).patterns == (Pattern("Right", "r", ("a",)),)


def test_names_are_limited_and_clean() -> None:
    """32 patterns of 200 characters; no control characters, each name once whatever its case."""
    names = ["\x1b[31mRed\u202e", "red", "x" * 900, "  two \n lines ", "", *map(str, range(99))]
    reply = read_pattern_reply(json.dumps({"image_pattern": names}))

    first, second, third = (pattern.name for pattern in reply.patterns[:3])
    assert (first, second, third) == ("[31mRed", "red", "x" * LONGEST_NAME)
    assert len(reply.patterns) == MOST_PATTERNS
    assert reply.patterns[3].name == "two lines"
