"""The rule-based VQA model of the embedded world, and its faults by known amounts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_cepbench.artifacts import Failure
from pytest_cepbench.datasets.shapes import parse_caption, render
from pytest_cepbench.errors import SpecError
from pytest_cepbench.models.protocols import Vqa, VqaQuestion
from pytest_cepbench.models.rule_based import ShapesVqa, VqaKnobs, bind
from pytest_cepbench.models.spec import parse_spec
from tests.models.binding import CONTEXT

CAPTION = "two shapes : large red circle top left , small blue square bottom right"

PICTURE = render(parse_caption(CAPTION), 3).to_pil()

RED = VqaQuestion("Is the circle red? Answer in one word.", ("Yes", "yes"))

BLUE = VqaQuestion("Is the circle blue?", ("Yes", "yes"))

COUNT = VqaQuestion("How many shapes are in the image?", ("two", "Two", "2"))


def test_pictures_and_texts_are_answered_alike() -> None:
    """Exactly: 1 for the answer that is right, else 0."""
    answers = ShapesVqa(VqaKnobs()).answer([PICTURE, CAPTION], [[RED, BLUE, COUNT]] * 2)
    assert answers == [[1.0, 0.0, 1.0]] * 2


@given(st.floats(0, 1), st.floats(0, 1))
def test_knobs_take_known_amounts(yes: float, doubt: float) -> None:
    """A share of every answer is yes whatever is shown, and a share of all goes to nothing."""
    (answers,) = ShapesVqa(VqaKnobs(yes, doubt)).answer([PICTURE], [[RED, BLUE, COUNT]])
    assert answers == pytest.approx(
        [1 - doubt, yes * (1 - doubt), (1 - yes) * (1 - doubt)], abs=1e-12
    )


def test_a_foreign_question_is_a_failure() -> None:
    """No answer is made up for it."""
    (answer,) = ShapesVqa(VqaKnobs()).answer([PICTURE], [[RED, VqaQuestion("Why?", ("Yes",))]])
    assert isinstance(answer, Failure)
    assert answer.kind == "refused"


def test_knobs_are_part_of_the_key_and_draw_nothing() -> None:
    """Answers have no seed."""
    plain, turned = (
        bind(parse_spec(text), "vqa", CONTEXT) for text in ("shapes:", "shapes:?yes=0.5&doubt=0.1")
    )
    assert turned.params == {"yes": 0.5, "doubt": 0.1}
    assert plain.params == {}
    assert not turned.seeded
    assert isinstance(plain.load(), Vqa)
    with pytest.raises(SpecError, match=r"yes is a probability in \[0, 1\], got 2"):
        bind(parse_spec("shapes:?yes=2"), "vqa", CONTEXT)
