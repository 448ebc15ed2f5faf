"""The list of patterns, and the JSON that models reply with."""

from __future__ import annotations

import json
import unicodedata
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_cepbench.construction.patterns import (
    LONGEST_NAME,
    MOST_PATTERNS,
    Pattern,
    fold_name,
    plain_line,
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
def test_what_is_written_is_read_again(
    tmp_path_factory: pytest.TempPathFactory, patterns: list[Pattern]
) -> None:
    """Names, sentences and merged names of any characters, markup and quotes among them."""
    path = put(tmp_path_factory.mktemp("patterns"), write_patterns(patterns))

    assert read_patterns(path) == tuple(patterns)


def test_invisible_characters_are_escaped(tmp_path: Path) -> None:
    """A person who edits the file sees all that is in it."""
    text = write_patterns([Pattern("Count", "a\u202eb\x1b[0m")])

    assert "\u202e" not in text
    assert "\x1b" not in text
    assert read_patterns(put(tmp_path, text))[0].sentence == "a\u202eb\x1b[0m"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[[pattern]\nname = 3", "is no TOML"),
        ("", "tables [[pattern]] are expected"),
        ("pattern = []", "tables [[pattern]] are expected"),
        ("patterns = 3", "tables [[pattern]] are expected"),
        ("pattern = [3]", "pattern 1: Expected `object`, got `int`"),
        ("[[pattern]]", "missing required field `name`"),
        ("[[pattern]]\nname = ' '", "a name is expected"),
        ("[[pattern]]\nname = 3", "pattern 1, name: Expected `str`"),
        ("[[pattern]]\nname = 'a'\nsentense = 'b'", "contains unknown field `sentense`"),
        ("[[pattern]]\nname = 'a'\nsentence = 3", "pattern 1, sentence: Expected `str`"),
        ("[[pattern]]\nname = 'a'\nmerged_from = 'b'", "pattern 1, merged_from: Expected `array`"),
        ("[[pattern]]\nname = 'a b'\n[[pattern]]\nname = ' A  B'", "there already, in pattern 1"),
        ('[[pattern]]\nname = "a\\u202e"', "all of them visible"),
        (f"[[pattern]]\nname = '{'a' * 201}'", "at most 200 characters"),
        ("".join(f"[[pattern]]\nname = '{i}'\n" for i in range(MOST_PATTERNS + 1)), "at most 32"),
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


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    """So is a folder in its place."""
    with pytest.raises(DatasetError, match="cannot be read: No such file"):
        read_patterns(tmp_path / "none.toml")
    with pytest.raises(DatasetError, match="cannot be read: Is a directory"):
        read_patterns(tmp_path)


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
    expected = tuple(Pattern(name, plain_line(reason)) for name in names)

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

    assert pattern == Pattern("Count", "How many.", ("number", "quantity"))
