"""Prompts in three lengths: they ask for one length, and for no other."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_cepbench.metrics.diversity import LENGTH_BANDS, LengthBand
from pytest_cepbench.studies.prepared_study import prompt_for, stated_length

SHORT, MIDDLE, LONG = LENGTH_BANDS

FIGURE_16 = (
    "in as much detail as possible, and it should be between 20 to 60 words.\n# Output Format"
)

BANDS = st.sampled_from(LENGTH_BANDS)


def asked(prompt: str) -> list[str]:
    """The bands that a prompt asks for."""
    flat = " ".join(prompt.split())
    return [band.name for band in LENGTH_BANDS if band.constraint in flat]


@given(st.text(), BANDS)
def test_a_prompt_asks_for_its_band_and_no_other(prompt: str, band: LengthBand) -> None:
    """Whatever the suite's prompt is, that of a band asks for this length alone."""
    assert asked(prompt_for(prompt, band)) == [band.name]


@given(st.text(), BANDS, BANDS)
def test_a_band_replaces_another(prompt: str, first: LengthBand, second: LengthBand) -> None:
    """Asked for one length after another, a prompt holds the last one only."""
    twice = prompt_for(prompt_for(prompt, first), second)
    assert asked(twice) == [second.name]


def test_the_prompt_of_mmgenbench_stays_what_it_is_in_its_own_band() -> None:
    """20 to 60 words is its default: the study's column and the gate's number are the same."""
    for prompt in (FIGURE_16, FIGURE_16.replace(" between 20", "\nbetween  20")):
        assert prompt_for(prompt, MIDDLE) == prompt


def test_the_clause_of_mmgenbench_is_replaced() -> None:
    """The other bands change the clause and nothing else, also where a line breaks inside it."""
    expected = FIGURE_16.replace("be between 20 to 60 words", "be more than 60 words")
    assert prompt_for(FIGURE_16, LONG) == expected
    assert prompt_for(FIGURE_16.replace(" between 20", "\nbetween  20"), LONG) == expected


def test_a_prompt_without_a_length_gets_a_sentence() -> None:
    """The sentence comes last, after the prompt as it stands."""
    assert prompt_for("Describe the image.\n", SHORT) == (
        "Describe the image. "
        "As for the length of the description, it should be fewer than 20 words."
    )


@pytest.mark.parametrize(
    ("prompt", "stated"),
    [
        ("Be thorough. You must use less than 500 words.", "You must use less than 500 words"),
        ("Describe the image.", None),
        ("Describe the 3 dogs in words.", None),
        (FIGURE_16, None),
        (prompt_for("Describe.", LONG), None),
    ],
)
def test_a_length_of_another_kind_is_noticed(prompt: str, stated: str | None) -> None:
    """GenCeption's "less than 500 words" is told to the reader; a band's own clause is not."""
    assert stated_length(prompt) == stated
