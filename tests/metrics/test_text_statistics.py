"""Statistics of texts: words of any script, repetition, length."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_cepbench.metrics.diversity import (
    kept_length,
    repeated_share,
    words_of,
)

WORDS = st.lists(st.sampled_from(["red", "blue", "dog", "on", "a"]), max_size=30)

CHINESE = "一只猫坐在桌子上"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Two Dogs, don't run!", ["two", "dogs", "don't", "run"]),
        ("a well-known  cafe\u0301", ["a", "well-known", "caf\u00e9"]),
        ("一只 cat 坐", ["一", "只", "cat", "坐"]),
        ("ひらカタ", ["ひ", "ら", "カ", "タ"]),
        ("안녕 하세요", ["안녕", "하세요"]),
        ("\u202e\x1b[31m ...", ["31m"]),
        ("", []),
    ],
)
def test_words_are_runs_of_letters_or_single_ones_where_no_spaces_are(
    text: str, words: list[str]
) -> None:
    """Case, punctuation, accents' forms and control characters make no other words."""
    assert words_of(text) == words


@given(st.text(max_size=80))
def test_words_of_any_text_are_without_case_and_space(text: str) -> None:
    """Whatever the text; words of words are themselves."""
    for word in words_of(text):
        assert word
        assert not any(character.isspace() for character in word)


@given(WORDS, st.integers(1, 5))
def test_repetition_counts_n_grams_that_were_there(words: list[str], n: int) -> None:
    """Against a plain loop."""
    seen: set[tuple[str, ...]] = set()
    repeated = count = 0
    for start in range(len(words) - n + 1):
        gram = tuple(words[start : start + n])
        repeated += gram in seen
        seen.add(gram)
        count += 1
    expected = repeated / count if count else 0.0
    assert repeated_share(" ".join(words), n) == pytest.approx(expected)
    assert 0.0 <= repeated_share(" ".join(words), n) < 1.0


def test_a_loop_of_words_is_repetition_in_any_script() -> None:
    """A text that says one thing again and again nears 1; a short or ordinary one has none."""
    assert repeated_share("the dog is red and " * 40) > 0.95
    assert repeated_share(CHINESE * 40) > 0.95
    assert repeated_share("a small red circle at the top left") == 0.0
    assert repeated_share("no shapes") == repeated_share("") == 0.0
    with pytest.raises(ValueError, match="at least 1 word, got 0"):
        repeated_share("a", 0)


@given(WORDS, WORDS)
def test_length_is_kept_alike_in_both_directions(first: list[str], later: list[str]) -> None:
    """Half as long and twice as long lose the same; equal lengths lose nothing."""
    one, other = " ".join(first), " ".join(later)
    assert kept_length(one, other) == kept_length(other, one)
    assert kept_length(one, one) == 1.0
    assert 0.0 <= kept_length(one, other) <= 1.0
    assert kept_length("a b", "a b c d") == 0.5
    assert kept_length("a b", "") == 0.0
