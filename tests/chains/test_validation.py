"""Checks of what models return: an artifact, a failure, or a model that is of no such role."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from PIL import Image

from pytest_cepbench.artifacts import Detection, Detections, Failure, ImageArtifact, Mask
from pytest_cepbench.errors import ModelError
from pytest_cepbench.models.roles import (
    admit_detections,
    admit_image,
    admit_text,
    admit_vectors,
)
from tests.artifacts.files import noise


@given(st.text(st.characters(codec=None)))
def test_a_text_passes_unless_it_is_blank(text: str) -> None:
    """Nothing is trimmed or mended: what a model said goes on, unless it said nothing."""
    admitted = admit_text(text)
    assert admitted == text if text.strip() else isinstance(admitted, Failure)


@pytest.mark.parametrize(
    ("text", "detail"), [("", "no text at all"), (" \n\t\u3000", "nothing but white space")]
)
def test_blank_texts_are_failures(text: str, detail: str) -> None:
    """An empty and a blank description differ in what the reader is told."""
    assert admit_text(text) == Failure("empty-text", detail)


@pytest.mark.parametrize("admit", [admit_text, admit_image])
def test_a_failure_stays_itself(admit: Any) -> None:
    """A role may say of one input that it failed."""
    assert admit(Failure("blank-image", "flagged")) == Failure("blank-image", "flagged")


@pytest.mark.parametrize("value", [None, b"bytes", 3, ["a text"]])
def test_a_describer_returns_texts(value: object) -> None:
    """Anything else is a wrong plug-in, not a failed sample."""
    with pytest.raises(ModelError, match=rf"this one returned {type(value).__name__}"):
        admit_text(value)


@pytest.mark.parametrize("value", [None, "a text", [[1, 2, 3]], b"\x89PNG"])
def test_a_generator_returns_images(value: object) -> None:
    """Anything else is a wrong plug-in, not a failed sample."""
    with pytest.raises(ModelError, match=rf"this one returned {type(value).__name__}"):
        admit_image(value)


def test_images_come_in_three_forms() -> None:
    """Bytes, floats in [0, 1] and Pillow images of the same picture are the same artifact."""
    pixels = noise()
    forms: list[Any] = [
        pixels,
        Image.fromarray(pixels),
        *(pixels / f(255) for f in (np.float32, np.float64)),
    ]
    for form in forms:
        admitted = admit_image(form)
        assert isinstance(admitted, ImageArtifact)
        np.testing.assert_array_equal(admitted.pixels, pixels)


def test_floats_beyond_the_range_are_clipped() -> None:
    """Decoders overshoot a little."""
    admitted = admit_image(np.array([[[-0.2, 0.5, 1.3]]]))
    assert isinstance(admitted, ImageArtifact)
    assert admitted.pixels.tolist() == [[[0, 128, 255]]]


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("kind", [np.float16, np.float32])
def test_pixels_that_are_no_numbers_are_a_failure(value: float, kind: type) -> None:
    """One of them is enough: half-precision decoders overflow."""
    pixels: Any = np.full((4, 4, 3), 0.5, kind)
    pixels[1, 2, 0] = value
    assert admit_image(pixels) == Failure("nan-image", "pixels are NaN or infinite")


def test_a_black_picture_is_a_failure() -> None:
    """That is what safety checkers give; one pixel that is not black makes it a picture."""
    black = np.zeros((4, 4, 3), np.uint8)
    for form in (black, Image.fromarray(black), black.astype(np.float32)):
        assert admit_image(form) == Failure("blank-image", "every pixel is black")
    black[0, 0, 2] = 1
    assert isinstance(admit_image(black), ImageArtifact)


@pytest.mark.parametrize(
    "value",
    [
        np.ones((4, 4), np.uint8),
        np.ones((4, 4, 1), np.float32),
        np.ones((3, 4, 4), np.uint8),
        np.ones((1, 4, 4, 3), np.uint8),
        np.ones((0, 4, 3), np.uint8),
        np.ones((4, 4, 3), np.int64),
        np.ones((4, 4, 3), np.bool_),
        np.full((4, 4, 3), None),
    ],
    ids=lambda value: f"{value.shape}-{value.dtype}",
)
def test_impossible_shapes_are_failures(value: Any) -> None:
    """Nothing is guessed of a picture that is not (height, width, 3)."""
    admitted = admit_image(value)
    assert isinstance(admitted, Failure)
    assert admitted.kind == "bad-image"
    assert str(value.shape) in admitted.detail


@given(hnp.arrays(np.float32, (3, 4), elements=st.floats(width=32)))
def test_each_vector_is_judged_by_itself(array: Any) -> None:
    """A row with NaN or of zeros is a failure; the others of the batch are not."""
    for row, admitted in zip(array, admit_vectors(array, 3), strict=True):
        if np.isfinite(row).all() and row.any():
            np.testing.assert_array_equal(admitted, row)
        else:
            assert isinstance(admitted, Failure)
            assert admitted.kind == "nan-vector"


def test_numbers_of_any_type_become_float32() -> None:
    """Integers and wide floats are taken; what float32 cannot hold has no direction."""
    for kind in (np.int64, np.uint8, np.float16, np.float64):
        (admitted,) = admit_vectors(np.array([[1, 2]], kind), 1)
        assert isinstance(admitted, np.ndarray)
        assert admitted.dtype == np.float32
    assert admit_vectors(np.array([[1e300, 1.0], [1e-300, 0.0]]), 2) == [
        Failure("nan-vector", "features are NaN or infinite"),
        Failure("nan-vector", "features are all zero"),
    ]


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
        admit_vectors(value, 3)


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
    (admitted,) = admit_detections((Detections((CAT, dog)),), [["cat", "dog"]])
    assert admitted == Detections(
        (Detection("dog", 0.75, (0.0, 1.0, 2.0, 3.5), Mask(1, 2, (1, 1)), "red"), CAT)
    )
    (first, _) = admitted.found
    assert {type(first.score), *map(type, first.box)} == {float}


def test_each_image_is_judged_by_itself() -> None:
    """A failure stays itself, and an empty answer is an answer."""
    failed = Failure("exception", "no")
    results = [failed, Detections(), Detections((CAT,))]
    assert admit_detections(results, [["cat"]] * 3) == results


@pytest.mark.parametrize("place", [np.nan, np.inf, 9.0])
def test_a_box_that_is_none_fails_its_image(place: float) -> None:
    """A buffer that is used again turns a good box bad after it was made: NaN, or inside out."""
    buffer: Any = np.array([0.0, 0.0, 4.0, 4.0])
    bad = Detections((Detection("cat", 0.5, buffer),))
    buffer[1] = place
    admitted, other = admit_detections([bad, Detections((CAT,))], [["cat"], ["cat"]])
    assert isinstance(admitted, Failure)
    assert admitted.kind == "bad-boxes"
    assert "left, top, right, bottom" in admitted.detail
    assert other == Detections((CAT,))


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (None, "one result for each image, this one returned 1 for 2"),
        ([Detections()], "returned 1 for 2 images"),
        ([Detections()] * 3, "returned 3 for 2 images"),
        ([Detections(), None], "Detections for each image, this one returned NoneType"),
        ([Detections(), [CAT]], "this one returned list"),
        # Wrong types are ignored below: users give them.
        ([Detections(), Detections((("cat", 0.5),))], "held a tuple"),  # type: ignore[arg-type]
        ([Detections(), Detections((Detection("a cat", 0.5, CAT.box),))],
         "word for word, this one answered 'a cat'"),
        ([Detections(),
          Detections((Detection("cat", 0.5, CAT.box, [[1]]),))],  # type: ignore[arg-type]
         "returned list and NoneType"),
        ([Detections(),
          Detections((Detection("cat", 0.5, CAT.box, None, 3),))],  # type: ignore[arg-type]
         "returned NoneType and int"),
    ],
    ids=range(9),
)  # fmt: skip
def test_a_detector_returns_detections(value: object, message: str) -> None:
    """Anything else is a wrong plug-in, not a failed sample, and it is told what came."""
    with pytest.raises(ModelError, match=message):
        admit_detections(value, [["dog"], ["cat", "dog"]])
