"""The grammar of answers in one sequence: whatever a model prefers, its answer is whole."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_cepbench.models.interleavers.answer_grammar import (
    AnswerAutomaton,
    ImageLayout,
    longest_answer,
)
from pytest_cepbench.models.protocols import StepLimit

START, HEADER, ROW, FRAME, CLOSE, END = 90, 91, 92, 93, 94, 95
CODES, WORDS = range(50, 60), range(20)

layouts = st.builds(
    ImageLayout,
    st.just(START),
    st.sampled_from([(), (HEADER,), (HEADER, 1, HEADER)]),
    st.integers(1, 4),
    st.integers(1, 4),
    st.just(ROW),
    st.sampled_from([(FRAME, CLOSE), (CLOSE,)]),
)


def choose(automaton: AnswerAutomaton, source: random.Random, eager: float) -> int:
    """A token that is allowed; eager: how often one that frames is taken before a word."""
    allowed = automaton.allowed
    if allowed.kind == "code":
        return source.choice(CODES)
    if allowed.kind == "token" or source.random() < eager:
        return source.choice(allowed.tokens)
    return source.choice(WORDS)


def write(automaton: AnswerAutomaton, source: random.Random, eager: float) -> list[int]:
    """A whole answer."""
    tokens: list[int] = []
    while not automaton.ended:
        tokens.append(choose(automaton, source, eager))
        automaton.advance(tokens[-1])
    return tokens


@given(
    layouts,
    st.integers(1, 4),
    st.one_of(st.none(), st.integers(1, 6)),
    st.integers(1, 7),
    st.integers(0, 2**32),
    st.sampled_from([0.0, 0.1, 0.9]),
)
def test_any_answer_is_whole_and_within_its_limits(
    layout: ImageLayout, most: int, told: int | None, max_text: int, seed: int, eager: float
) -> None:
    """At most so many images, exactly as many as were told, complete grids, an end in time."""
    automaton = AnswerAutomaton(layout, END, StepLimit(told, most), max_text)

    tokens = write(automaton, random.Random(seed), eager)

    images = [piece.tokens for piece in automaton.pieces if piece.kind == "image"]
    texts = [piece.tokens for piece in automaton.pieces if piece.kind == "text"]
    assert len(images) <= most
    assert told is None or len(images) == min(told, most)
    assert all(grid[layout.width :: layout.width + 1] == [ROW] * layout.height for grid in images)
    assert all(len(grid) == layout.height * (layout.width + 1) for grid in images)
    assert all(1 <= len(text) <= max_text for text in texts)
    assert len(texts) <= most  # so that there are no more steps than images
    assert tokens[-1] == END
    assert len(tokens) <= longest_answer(layout, most, max_text)


def test_the_pieces_are_what_was_written() -> None:
    """Words and grids without the tokens that frame them, in order."""
    layout = ImageLayout(START, (HEADER,), 1, 2, ROW, (FRAME, CLOSE))
    automaton = AnswerAutomaton(layout, END, StepLimit(), 9)

    for token in (1, 2, START, HEADER, 50, 51, ROW, FRAME, CLOSE, 3, END):
        automaton.advance(token)

    found = [(piece.kind, piece.tokens) for piece in automaton.pieces]
    assert found == [("text", [1, 2]), ("image", [50, 51, ROW]), ("text", [3])]


@pytest.mark.parametrize("told", [None, 2])
def test_nothing_follows_the_end(told: int | None) -> None:
    """A batch goes on until its last answer has ended; those that have ended stay as they are."""
    layout = ImageLayout(START, (), 1, 1, ROW, (CLOSE,))
    automaton = AnswerAutomaton(layout, END, StepLimit(told), 2)
    write(automaton, random.Random(0), 0.5)
    before = list(automaton.pieces)

    automaton.advance(1)

    assert automaton.allowed.tokens == (END,)
    assert automaton.pieces == before
