"""Lengths of descriptions: words, their statistics, and the three bands."""

from __future__ import annotations

import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_cepbench.metrics.diversity import (
    LENGTH_BANDS,
    LengthBand,
    WordStatistics,
    count_words,
    word_statistics,
)


def text_of(words: int) -> str:
    """A text of so many words."""
    return " ".join(["word"] * words)


@pytest.mark.parametrize(
    ("text", "words"),
    [("", 0), ("  \n", 0), ("A cat.", 2), (" A  red\ncat\ton a mat ", 6), ("well-known", 1)],
)
def test_words_are_what_white_space_separates(text: str, words: int) -> None:
    """Runs of it count once, and an answer of white space has no word."""
    assert count_words(text) == words


@pytest.mark.parametrize(
    ("words", "band"),
    [(0, "<20"), (19, "<20"), (20, "20-60"), (60, "20-60"), (61, ">60"), (5000, ">60")],
)
def test_every_length_is_in_one_band(words: int, band: str) -> None:
    """The bands of MMGenBench meet at 20 and 60, which are both in the middle one."""
    assert [b.name for b in LENGTH_BANDS if b.holds(words)] == [band]


def test_bands_say_what_they_ask_for() -> None:
    """The constraint put into the prompt names the limits that are checked."""
    for band in LENGTH_BANDS:
        asked = {int(word) for word in band.constraint.split() if word.isdigit()}
        assert asked == {int(number) for number in band.name.strip("<>").split("-")}


@given(st.lists(st.integers(0, 100), min_size=2, max_size=20), st.sampled_from(LENGTH_BANDS))
def test_statistics_are_those_of_a_sample(counts: list[int], band: LengthBand) -> None:
    """Mean, deviation by n - 1, and the share that kept to the band."""
    result = word_statistics([text_of(count) for count in counts], band)
    assert result.n == len(counts)
    assert result.mean == pytest.approx(statistics.mean(counts))
    assert result.std == pytest.approx(statistics.stdev(counts), abs=1e-9)
    assert result.within == sum(map(band.holds, counts)) / len(counts)


def test_few_descriptions_have_few_statistics() -> None:
    """None for what is not defined, never a NaN or a zero."""
    assert word_statistics([]) == WordStatistics(0, None, None, None)
    assert word_statistics([], LENGTH_BANDS[0]) == WordStatistics(0, None, None, None)
    assert word_statistics([text_of(7)]) == WordStatistics(1, 7.0, None, None)
