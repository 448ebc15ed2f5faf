"""GenEval's rules: what an image must show, where things stand, and what MGG's code changes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from pytest_cepbench.metrics.geneval import (
    PromptResult,
    ToColor,
    judge,
    objects_to_color,
    relations,
)
from pytest_cepbench.metrics.geneval_prompts import (
    Clause,
    Position,
    Prompt,
    Relation,
)
from tests.metrics.geneval_scenes import (
    DOG,
    DOG_AND_CAT,
    RED_DOG,
    RIGHT_OF_A_RED_DOG,
    many,
    placed,
    right,
    seen,
)


def test_one_object_is_enough() -> None:
    """Other objects do not matter, of the same class or of another."""
    assert right(DOG, {"dog": many("dog", 0.31)})
    assert right(DOG, {"dog": many("dog", 0.9, 0.8, 0.7), "cat": many("cat", 1.0)})
    assert judge(DOG, {"cat": many("cat", 1.0)}, {}) == PromptResult(
        correct=False, reasons=("1 dog expected, 0 found",)
    )


def test_only_the_surest_object_is_looked_at_for_color() -> None:
    """A second object of the right color does not help."""
    objects = [seen("dog", 0.9, color="blue"), seen("dog", 0.8, color="red")]
    assert judge(RED_DOG, {"dog": objects}, {}).reasons == ("1 red dog expected, found blue",)


def test_all_counted_objects_need_the_color() -> None:
    """Two red dogs are the two surest, both red."""
    prompt = Prompt("colors", (Clause("dog", 2, "red"),))
    red, blue = seen("dog", 0.9, color="red"), seen("dog", 0.8, color="blue")
    also_red = seen("dog", 0.7, color="red")
    assert not right(prompt, {"dog": [red, blue, also_red]})
    assert right(prompt, {"dog": [red, also_red]})


def test_colors_are_asked_for_the_surest_objects_of_colored_clauses() -> None:
    """Nothing else is cut out and classified."""
    surest, other = seen("dog", 0.9), seen("dog", 0.8)
    detected = {"dog": [other, surest], "cat": many("cat", 0.5)}
    prompt = Prompt("color_attr", (Clause("dog", 1, color="red"), Clause("cat", 1)))
    assert objects_to_color(prompt, detected) == (ToColor("dog", surest),)
    assert objects_to_color(DOG_AND_CAT, detected) == ()


def test_no_color_is_asked_for_that_is_told() -> None:
    """A detector that tells colors needs no classifier; an object of two clauses is asked once."""
    assert objects_to_color(RED_DOG, {"dog": [seen("dog", 0.9, color="red")]}) == ()
    both = Prompt("color_attr", (Clause("dog", 1, color="red"), Clause("dog", 1, color="red")))
    assert len(objects_to_color(both, {"dog": [seen("dog", 0.9)]})) == 1


def test_a_missing_color_is_an_error() -> None:
    """It is not a wrong image, but an image that was not judged."""
    with pytest.raises(ValueError, match=r"the color of 'dog' at \(90.0, .*\) is needed"):
        judge(RED_DOG, {"dog": [seen("dog", 0.9)]}, {})


@pytest.mark.parametrize(
    ("relation", "x", "y"),
    [("left of", 20, 100), ("right of", 180, 100), ("above", 100, 20), ("below", 100, 180)],
)
def test_an_object_in_its_place_is_right(relation: Relation, x: float, y: float) -> None:
    """And in no other place."""
    detected = {"cat": [seen("cat", 0.9)], "dog": [seen("dog", 0.9, x, y)]}
    correct = [
        side for side in ("left of", "right of", "above", "below") if right(placed(side), detected)
    ]
    assert correct == [relation]


def test_only_the_surest_objects_are_looked_at_for_place() -> None:
    """Subject and target alike: another one in the right place does not help."""
    cat, dog = seen("cat", 0.9, 100), seen("dog", 0.9, 20)
    assert right(placed("left of"), {"cat": [cat], "dog": [dog, seen("dog", 0.8, 180)]})
    assert not right(placed("right of"), {"cat": [cat], "dog": [dog, seen("dog", 0.8, 180)]})
    assert not right(placed("right of"), {"cat": [cat, seen("cat", 0.8, 0)], "dog": [dog]})


def test_every_pair_of_subject_and_target_needs_the_relation() -> None:
    """Two dogs left of two cats: one dog between the cats is wrong."""
    position = Position("left of", 0)
    prompt = Prompt("position", (Clause("cat", 2), Clause("dog", 2, None, position)))
    cats = [seen("cat", 0.9, 200), seen("cat", 0.8, 300)]
    assert right(prompt, {"cat": cats, "dog": [seen("dog", 0.9, 0), seen("dog", 0.8, 100)]})
    between = [seen("dog", 0.9, 0), seen("dog", 0.8, 250)]
    outcome = judge(prompt, {"cat": cats, "dog": between}, {})
    assert outcome.reasons == ("dog left of its target expected, found left of or right of",)


def test_a_target_of_the_wrong_color_is_no_target() -> None:
    """A clause that fails by its color leaves nothing to be placed by, wherever the object is."""
    detected = {"dog": [seen("dog", 0.9, 0, color="blue")], "cat": [seen("cat", 0.9, 100)]}
    outcome = judge(RIGHT_OF_A_RED_DOG, detected, {})
    assert outcome.reasons == (
        "1 red dog expected, found blue",
        "nothing that cat could be right of",
    )
    red = {**detected, "dog": [seen("dog", 0.9, 0, color="red")]}
    assert right(RIGHT_OF_A_RED_DOG, red)


Box = tuple[float, float, float, float]

COORDINATES = st.floats(0, 1000).map(lambda x: round(x, 2))


@st.composite
def boxes(draw: st.DrawFn) -> Box:
    """Boxes of an image, empty ones too."""
    left, right = sorted((draw(COORDINATES), draw(COORDINATES)))
    top, bottom = sorted((draw(COORDINATES), draw(COORDINATES)))
    return left, top, right, bottom


def around(x: float, y: float, side: float = 20.0) -> Box:
    """A square box around a center."""
    return x - side / 2, y - side / 2, x + side / 2, y + side / 2


HERE = around(500, 500)


def reference(subject: Box, target: Box, share: float, least: float) -> set[str]:
    """The rule in vectors: offset of the centers, less the margin, over the offset's length."""
    a, b = np.array(subject).reshape(2, 2), np.array(target).reshape(2, 2)
    offset = a.mean(axis=0) - b.mean(axis=0)
    margin = share * ((a[1] - a[0]) + (b[1] - b[0]))
    revised = np.where(np.abs(offset) > margin, offset - np.sign(offset) * margin, 0.0)
    if (np.abs(revised) < 1e-3).all():
        return set()
    x, y = revised / np.linalg.norm(offset)
    # On the threshold itself the last bit of the distance decides.
    assume(min(abs(abs(x) - least), abs(abs(y) - least)) > 1e-12)
    names = {"left of": x < -least, "right of": x > least, "above": y < -least, "below": y > least}
    return {name for name, holds in names.items() if holds}


def test_just_beyond_the_margin_the_whole_distance_counts() -> None:
    """What is left of the offset is weighed against all of it: twice the margin is needed."""
    assert relations(around(507.9, 500), HERE) == frozenset()
    assert relations(around(508.1, 500), HERE) == {"right of"}


@given(boxes(), boxes(), st.sampled_from([0.0, 0.1, 0.3]), st.sampled_from([0.3, 0.5, 0.7]))
def test_relations_are_the_reference_rule(
    subject: Box, target: Box, share: float, least: float
) -> None:
    """On any boxes, thresholds included."""
    result = relations(subject, target, position_threshold=share, min_offset=least)
    assert result == reference(subject, target, share, least)


def test_no_color_is_asked_for_where_there_are_too_few() -> None:
    """The clause has failed already."""
    prompt = Prompt("colors", (Clause("dog", 2, "red"),))
    assert objects_to_color(prompt, {"dog": many("dog", 0.9, 0.3)}) == ()
    assert not right(prompt, {"dog": many("dog", 0.9, 0.3)})
