"""patterns.toml: what is written is read again, and bad edits are refused in one line."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_cepbench.construction.pattern_list import (
    MOST_PATTERNS,
    Pattern,
    fold_name,
    read_patterns,
    write_patterns,
)
from pytest_cepbench.errors import DatasetError
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
        ("pattern = [3]", "a table [[pattern]] is expected"),
        ("[[pattern]]", "a name is expected"),
        ("[[pattern]]\nname = ' '", "a name is expected"),
        ("[[pattern]]\nname = 3", "a name is expected"),
        ("[[pattern]]\nname = 'a'\nsentense = 'b'", "unknown field 'sentense'"),
        ("[[pattern]]\nname = 'a'\nsentence = 3", "sentence is a text"),
        ("[[pattern]]\nname = 'a'\nmerged_from = 'b'", "merged_from is a list"),
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
