"""What a judge is shown: every piece in order, and images of a bounded size."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from pytest_cepbench.models.protocols import AnsweredQuestion, Battle, Piece
from pytest_cepbench.models.text_model.judge_prompts import JUDGE_PROMPTS, break_up, shrink_image

RED, BLUE = Image.new("RGB", (4, 4), "red"), Image.new("RGB", (8, 2), "blue")


@pytest.mark.parametrize("name", JUDGE_PROMPTS)
def test_every_piece_is_shown_once_and_in_order(name: str) -> None:
    """Texts and images of question, first and second answer; nothing of one is with another."""
    battle = Battle(["q1", RED, "q2"], [BLUE, "a1"], ["b1", RED, RED])
    pieces = JUDGE_PROMPTS[name].show(battle)
    images = [piece for piece in pieces if not isinstance(piece, str)]
    text = "".join(piece if isinstance(piece, str) else "#" for piece in pieces)

    assert images == [RED, BLUE, RED, RED]
    places = [text.index(word) for word in ("q1", "q2", "a1", "b1")]
    assert places == sorted(places)
    assert text.index("q1") < text.index("#") < text.index("q2")


@pytest.mark.parametrize("name", JUDGE_PROMPTS)
def test_an_answer_of_nothing_keeps_its_place(name: str) -> None:
    """A judge must see that one answer is empty, not take the other for it."""
    pieces = JUDGE_PROMPTS[name].show(Battle(["q"], [], ["b"]))
    shown = [piece for piece in pieces if isinstance(piece, str)]

    (first,) = [i for i, text in enumerate(shown) if "OUTPUT_A" in text or text == "Answer A:"]
    (second,) = [i for i, text in enumerate(shown) if "OUTPUT_B" in text or text == "Answer B:"]
    assert second == first + 1


@pytest.mark.parametrize("name", JUDGE_PROMPTS)
def test_a_single_answer_is_shown_behind_its_question(name: str) -> None:
    """Every piece once and in order, then the closing text; no second answer is spoken of."""
    answered = AnsweredQuestion(["q1", RED], ["a1", BLUE, "a2"])
    pieces = JUDGE_PROMPTS[name].show_answer(answered, "score it")
    text = "".join(piece if isinstance(piece, str) else "#" for piece in pieces)

    assert [piece for piece in pieces if not isinstance(piece, str)] == [RED, BLUE]
    places = [text.index(word) for word in ("q1", "a1", "a2", "score it")]
    assert places == sorted(places)
    assert not any(word in text for word in ("Answer B", "OUTPUT_A", "OUTPUT_B", "A is better"))


@given(st.lists(st.text("<a>", max_size=5) | st.just(RED), max_size=8))
def test_no_token_is_left_between_texts(pieces: list[Piece]) -> None:
    """Neither within a text nor over several; nothing but spaces is added, images stay."""
    token = re.compile("<a>|<aa>")
    broken = break_up(token, pieces)

    def joined(shown: list[Piece]) -> str:
        return "".join(piece if isinstance(piece, str) else "#" for piece in shown)

    assert len(broken) == len(pieces)
    for before, after in zip(pieces, broken, strict=True):
        kept = after.replace(" ", "") if isinstance(after, str) else after
        assert kept == before
    assert not token.search(joined(broken))
    assert joined(broken).count(" ") == len(token.findall(joined(pieces)))


@given(st.integers(1, 300), st.integers(1, 300), st.integers(1, 5000))
def test_a_smaller_image_keeps_its_shape(width: int, height: int, max_pixels: int) -> None:
    """At most so many pixels, and sides in proportion to within a pixel."""
    image = shrink_image(Image.new("RGB", (width, height)), max_pixels)

    assert image.width * image.height <= max_pixels or image.size == (width, height)
    assert image.width * image.height <= max(max_pixels, 1)
    if width * height <= max_pixels:
        assert image.size == (width, height)
    elif min(image.size) > 1:
        scale = (max_pixels / (width * height)) ** 0.5
        assert abs(image.width - width * scale) <= 1
        assert abs(image.height - height * scale) <= 1
