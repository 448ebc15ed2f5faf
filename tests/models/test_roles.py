"""Checks of what models return: an artifact, a failure, or a model that is of no such role."""

from __future__ import annotations

from inspect import signature
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from pytest_cepbench.artifacts import Detection, Detections, Failure, Mask
from pytest_cepbench.artifacts.modality import check_image
from pytest_cepbench.errors import ModelError
from pytest_cepbench.models.protocols import (
    ROLE_NAMES,
    AnswerScorer,
    JsonDescriber,
    JsonWriter,
    RoleName,
    SoundEncoder,
)
from pytest_cepbench.models.roles import METHODS, ROLES, check_detections, check_text, check_vectors

# Protocols of abilities that not every model of a role has, and the method of each.
ABILITIES = (AnswerScorer, JsonDescriber, JsonWriter, SoundEncoder)


@given(st.text(st.characters(codec=None)))
def test_a_text_passes_unless_it_is_blank(text: str) -> None:
    """Nothing is trimmed or mended: what a model said goes on, unless it said nothing."""
    checked = check_text(text)
    assert checked == text if text.strip() else isinstance(checked, Failure)


def test_what_is_no_text_is_told_apart() -> None:
    """Empty, blank, failed already; anything else is a wrong plug-in, not a failed sample."""
    assert check_text("") == Failure("empty-text", "no text at all")
    assert check_text(" \n\t\u3000") == Failure("empty-text", "nothing but white space")
    failed = Failure("blank-image", "flagged")
    assert check_text(failed) == check_image(failed) == failed
    assert check_detections(failed, ["cat"]) == failed
    assert check_detections(Detections(), ["cat"]) == Detections()
    for value in (None, b"bytes", ["a text"]):
        with pytest.raises(ModelError, match=rf"this one returned {type(value).__name__}"):
            check_text(value)


@given(hnp.arrays(np.float32, (3, 4), elements=st.floats(width=32)))
def test_each_vector_is_judged_by_itself(array: Any) -> None:
    """A row with NaN or of zeros is a failure; the others of the batch are not."""
    assert check_vectors(np.array([[1e300, 1.0], [1e-300, 0.0]]), 2) == [
        Failure("nan-vector", "features are NaN or infinite"),
        Failure("nan-vector", "features are all zero"),
    ]
    for row, checked in zip(array, check_vectors(array, 3), strict=True):
        if np.isfinite(row).all() and row.any():
            np.testing.assert_array_equal(checked, row)
        else:
            assert isinstance(checked, Failure)
            assert checked.kind == "nan-vector"


@pytest.mark.parametrize(
    "value",
    [np.ones((2, 4)), np.ones((4, 4)), np.ones(3), np.ones((3, 0)), np.ones((3, 1, 4)), None,
     np.full((3, 2), "x"), np.ones((3, 4), np.complex64), [[True], [True], [False]]],
)  # fmt: skip
def test_an_encoder_returns_one_row_per_input(value: object) -> None:
    """Too few rows, too many dimensions, no numbers: a wrong plug-in, and it is told what came."""
    with pytest.raises(
        ModelError, match=r"returns \(3, dimension\) numbers for 3 inputs, this one"
    ):
        check_vectors(value, 3)


CAT = Detection("cat", 0.5, (0.0, 0.0, 4.0, 4.0))


def test_detections_pass_with_built_in_numbers_in_the_order_of_confidence() -> None:
    """Detectors give numpy's floats in any order; the store's text and the rules want neither."""
    box: Any = np.array([0, 1, 2, 3.5], np.float32)
    dog = Detection(
        "dog",
        np.float32(0.75),  # type: ignore[arg-type] # as users do
        box,
        Mask(1, 2, (1, 1)),
        "red",
    )
    checked = check_detections(Detections((CAT, dog)), ["cat", "dog"])
    assert checked == Detections(
        (Detection("dog", 0.75, (0.0, 1.0, 2.0, 3.5), Mask(1, 2, (1, 1)), "red"), CAT)
    )
    assert isinstance(checked, Detections)
    (first, _) = checked.found
    assert {type(first.score), *map(type, first.box)} == {float}


@pytest.mark.parametrize("place", [np.nan, np.inf, 9.0])
def test_a_box_that_is_none_fails_its_image(place: float) -> None:
    """A buffer that is used again turns a good box bad after it was made: NaN, or inside out."""
    buffer: Any = np.array([0.0, 0.0, 4.0, 4.0])
    bad = Detections((Detection("cat", 0.5, buffer),))
    buffer[1] = place
    checked = check_detections(bad, ["cat"])
    other = check_detections(Detections((CAT,)), ["cat"])
    assert isinstance(checked, Failure)
    assert checked.kind == "bad-boxes"
    assert "left, top, right, bottom" in checked.detail
    assert other == Detections((CAT,))


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (None, "Detections for each image, this one returned NoneType"),
        ([CAT], "this one returned list"),
        # Wrong types are ignored below: users give them.
        (Detections((("cat", 0.5),)), "this one answered ..cat', 0.5"),  # type: ignore[arg-type]
        (Detections((Detection("a cat", 0.5, CAT.box),)),
         "word for word, this one answered Detection.query='a cat'"),
        (Detections((Detection("cat", 0.5, CAT.box, [[1]]),)),  # type: ignore[arg-type]
         "returned list and NoneType"),
        (Detections((Detection("cat", 0.5, CAT.box, None, 3),)),  # type: ignore[arg-type]
         "returned NoneType and int"),
    ],
    ids=range(6),
)  # fmt: skip
def test_a_detector_returns_detections(value: object, message: str) -> None:
    """Anything else is a wrong plug-in, not a failed sample, and it is told what came."""
    with pytest.raises(ModelError, match=message):
        check_detections(value, ["cat", "dog"])


@pytest.mark.parametrize("role", ROLES)
def test_the_table_asks_as_the_protocol_says(role: RoleName) -> None:
    """An argument that stands elsewhere, or is left out, would fail every batch of the role."""
    own = ROLES[role]
    for method in own.methods:
        protocol = next(p for p in (own.protocol, *ABILITIES) if hasattr(p, method.name))
        expected = list(signature(getattr(protocol, method.name)).parameters)[1:]
        assert [*method.inputs, *method.shared, *["seeds"] * method.seeds] == expected
        assert str(method) == f"{method.name}({', '.join(expected)})"
        assert method.optional == (protocol is not own.protocol)
    assert set(ROLES) == set(ROLE_NAMES)
    assert len(METHODS) == sum(len(own.methods) for own in ROLES.values())


def test_a_describer_without_json_is_asked_once_for_each_prompt() -> None:
    """Its texts come back in the order of the inputs."""
    calls: list[Any] = []

    class Plain:
        """Reads the prompt and the image, which is a text here."""

        def describe(self, images: Any, prompt: str, seeds: Any) -> list[str]:
            """A text for each."""
            calls.append((list(images), prompt, list(seeds)))
            return [f"{image} {prompt}" for image in images]

    method = METHODS["describe_json"]
    arguments = method.arguments([("a", "1"), ("b", "2"), ("c", "1")], ({},), [7, 8, 9])
    assert method.of(Plain())(*arguments) == ["a 1", "b 2", "c 1"]
    assert calls == [(["a", "c"], "1", [7, 9]), (["b"], "2", [8])]
