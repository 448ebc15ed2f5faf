"""What the Telephone Game's released code does instead of GenEval's rules."""

from __future__ import annotations

from pytest_cepbench.metrics.geneval import judge, objects_to_color
from pytest_cepbench.metrics.geneval_prompts import MGG_CODE, Clause, Prompt, SelectionSettings
from tests.metrics.geneval_scenes import (
    RED_DOG,
    counting,
    many,
    placed,
    right,
    seen,
)


def test_mgg_code_counts_what_is_hardly_seen() -> None:
    """One spurious box at 0.11 is one too many; GenEval's counting does not see it."""
    objects = {"dog": many("dog", 0.95, 0.92, 0.11)}
    assert right(counting(2), objects)
    assert judge(counting(2), objects, {}, MGG_CODE).reasons == (
        "fewer than 3 dog expected, 3 found",
    )
    assert right(counting(2), {"dog": many("dog", 0.95, 0.11)}, MGG_CODE)
    assert not right(counting(2), {"dog": many("dog", 0.95, 0.1)}, MGG_CODE)


def test_mgg_code_has_no_limit_of_objects_and_no_suppression() -> None:
    """Seventeen boxes are seventeen, even in one place."""
    crowd = {"dog": [seen("dog", 0.95)] * 17}
    settings = SelectionSettings(threshold=0.1, max_overlap=0.5, variant="mgg-code")
    assert right(counting(17), crowd, settings)


def test_mgg_code_looks_at_every_subject() -> None:
    """A dog hardly seen on the wrong side fails the image; GenEval looks at the surest."""
    objects = {
        "cat": [seen("cat", 0.9, 100)],
        "dog": [seen("dog", 0.9, 20), seen("dog", 0.11, 180)],
    }
    assert right(placed("left of"), objects)
    assert not right(placed("left of"), objects, MGG_CODE)


def test_mgg_code_is_content_with_any_target() -> None:
    """A dog left of one of two cats is right; GenEval's surest cat is on its other side."""
    objects = {
        "cat": [seen("cat", 0.9, 20), seen("cat", 0.5, 180)],
        "dog": [seen("dog", 0.9, 100)],
    }
    assert not right(placed("left of"), objects)
    assert right(placed("left of"), objects, MGG_CODE)


def test_mgg_code_compares_pixels() -> None:
    """A little to the left and far above is left of as well."""
    objects = {"cat": [seen("cat", 0.9, 100, 400)], "dog": [seen("dog", 0.9, 90, 100)]}
    assert not right(placed("left of"), objects)
    assert right(placed("left of"), objects, MGG_CODE)


def test_mgg_code_does_not_look_at_colors() -> None:
    """They were in the query; whatever answered it counts, and nothing is left to classify."""
    objects = {"dog": [seen("dog", 0.5)]}
    assert objects_to_color(RED_DOG, objects, MGG_CODE) == ()
    assert right(RED_DOG, objects, MGG_CODE)


def test_mgg_code_pools_clauses_of_one_class() -> None:
    """A red and a blue dog are both there where one dog is."""
    prompt = Prompt("color_attr", (Clause("dog", color="red"), Clause("dog", color="blue")))
    assert right(prompt, {"dog": [seen("dog", 0.5, color="blue")]}, MGG_CODE)
    assert not right(prompt, {"dog": [seen("dog", 0.5, color="blue")]})
