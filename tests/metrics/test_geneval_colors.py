"""Colors of cut-outs by zero-shot classification, and accuracies over tasks."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from pytest_cepbench.artifacts import Detection, Mask
from pytest_cepbench.metrics.geneval import (
    COLORS,
    color_prompts,
    crop_object,
    overall_accuracy,
    overall_by_generation,
    zero_shot_color,
)
from pytest_cepbench.metrics.geneval_prompts import TASKS

GREY = (0x99, 0x99, 0x99)


def picture(width: int = 8, height: int = 6) -> Image.Image:
    """An image whose pixels are all different: red tells x, green tells y."""
    pixels = np.zeros((height, width, 3), np.uint8)
    pixels[..., 0] = np.arange(width)[None, :]
    pixels[..., 1] = np.arange(height)[:, None]
    return Image.fromarray(pixels)


def cut(box: tuple[float, float, float, float], mask: Mask | None = None) -> npt.NDArray[np.uint8]:
    """The pixels cut out of the picture."""
    colors = Detection("dog", 0.9, box, mask)
    return np.asarray(crop_object(picture(), colors), dtype=np.uint8)


def whole(pixels: npt.NDArray[Any]) -> tuple[int, int, int, int]:
    """First x, first y, last x, last y of a part of the picture."""
    return (*pixels[0, 0, :2].tolist(), *pixels[-1, -1, :2].tolist())


def test_three_texts_for_each_of_ten_colors() -> None:
    """In GenEval's words."""
    texts = color_prompts("wine glass")
    assert len(texts) == 10
    assert texts[0] == (
        "a photo of a red wine glass",
        "a photo of a red-colored wine glass",
        "a photo of a red object",
    )
    assert [row[2].split()[4] for row in texts] == list(COLORS)


def test_without_a_mask_the_box_is_cut_out() -> None:
    """Right and bottom are the first pixels outside."""
    assert whole(cut((2, 1, 5, 4))) == (2, 1, 4, 3)


def test_what_reaches_over_the_edge_is_cut_there() -> None:
    """No black that is in no image can be taken for the object's color."""
    assert whole(cut((-5, -3, 100, 100))) == (0, 0, 7, 5)
    assert whole(cut((6.2, 4.7, 9, 9))) == (6, 5, 7, 5)


@pytest.mark.parametrize(
    ("box", "pixel"),
    [
        ((3.1, 2.1, 3.2, 2.2), (3, 2)),
        ((3, 2, 3, 2), (3, 2)),
        ((8, 6, 8, 6), (7, 5)),
        ((50, 50, 60, 60), (7, 5)),
        ((-60, -60, -50, -50), (0, 0)),
    ],
)
def test_at_least_one_pixel_is_left(
    box: tuple[float, float, float, float], pixel: tuple[int, int]
) -> None:
    """An encoder can read no empty image."""
    pixels = cut(box)
    assert pixels.shape == (1, 1, 3)
    assert tuple(pixels[0, 0, :2].tolist()) == pixel


def test_pixels_outside_the_mask_become_grey() -> None:
    """#999, within the box alone."""
    inside = np.zeros((6, 8), bool)
    inside[2, 3] = inside[3, 4] = True
    pixels = cut((3, 2, 5, 4), Mask.from_array(inside))
    assert pixels.tolist() == [[[3, 2, 0], [*GREY]], [[*GREY], [4, 3, 0]]]


VECTORS = st.integers(0, 2**32 - 1).map(
    lambda seed: np.random.Generator(np.random.PCG64(seed)).normal(size=(10, 3, 5))
)


def reference(image: npt.NDArray[np.float64], texts: npt.NDArray[np.float64]) -> str:
    """Word by word: normalize, average, normalize, multiply, take the largest."""
    cosines = []
    for templates in texts:
        mean = sum(vector / np.sqrt(vector @ vector) for vector in templates) / 3
        cosines.append(float(image @ mean / np.sqrt(mean @ mean) / np.sqrt(image @ image)))
    return COLORS[cosines.index(max(cosines))]


@given(VECTORS, VECTORS)
def test_the_nearest_color_is_the_reference_rule(
    texts: npt.NDArray[np.float64], images: npt.NDArray[np.float64]
) -> None:
    """One color for each image."""
    assert zero_shot_color(images[:, 0], texts) == [reference(row, texts) for row in images[:, 0]]


def test_the_mean_of_a_color_is_normalized_again() -> None:
    """A color whose texts disagree has as long a vector as any other."""
    texts = np.zeros((10, 3, 3))
    texts[:, :, 2] = 1
    texts[3] = np.array([[1, 0, 0], [1, 0, 0], [-0.6, 0.8, 0]])  # mean (0.47, 0.27, 0): length 0.54
    texts[4] = np.array([0.75, 0, 0.66])
    assert zero_shot_color(np.array([[1.0, 0.0, 0.0]]), texts) == ["green"]


@pytest.mark.parametrize(
    ("images", "texts"),
    [((5,), (10, 3, 5)), ((2, 5), (10, 5)), ((2, 5), (10, 3, 4)), ((2, 5), (9, 3, 5))],
)
def test_other_shapes_are_refused(images: tuple[int, ...], texts: tuple[int, ...]) -> None:
    """With the shapes that came."""
    with pytest.raises(ValueError, match=r"expected \(n, d\) and \(10, 3, d\), got \("):
        zero_shot_color(np.ones(images), np.ones(texts))


@pytest.mark.parametrize("bad", [0.0, np.nan, np.inf])
def test_a_vector_without_direction_names_no_color(bad: float) -> None:
    """Neither an object's nor a text's."""
    texts = np.ones((10, 3, 5))
    with pytest.raises(ValueError, match="zero or not finite"):
        zero_shot_color(np.full((1, 5), bad), texts)
    texts[4, 1] = bad
    with pytest.raises(ValueError, match="zero or not finite"):
        zero_shot_color(np.ones((1, 5)), texts)


BoolArray = npt.NDArray[np.bool_]


@st.composite
def judged(draw: st.DrawFn) -> tuple[BoolArray, list[str]]:
    """(n, G) verdicts and the tasks of their prompts."""
    tasks: list[str] = [*draw(st.lists(st.sampled_from(TASKS), min_size=1, max_size=12))]
    generations = draw(st.integers(1, 10))
    bits = draw(
        st.lists(
            st.lists(st.booleans(), min_size=generations, max_size=generations),
            min_size=len(tasks),
            max_size=len(tasks),
        )
    )
    return np.array(bits), tasks


def exact_mgg(correct: BoolArray, tasks: list[str]) -> Fraction:
    """The Telephone Game, section 3.2, in fractions: tasks first, then generations."""
    overall = []
    for column in correct.T.tolist():
        accuracies = []
        for task in dict.fromkeys(tasks):
            part = [bit for bit, of in zip(column, tasks, strict=True) if of == task]
            accuracies.append(Fraction(sum(part), len(part)))
        overall.append(sum(accuracies) / Fraction(len(accuracies)))
    return sum(overall) / Fraction(len(overall))


@given(judged())
def test_mgg_is_the_papers_mean(case: tuple[BoolArray, list[str]]) -> None:
    """Mean over generations of the mean over tasks."""
    correct, tasks = case
    mean = overall_by_generation(correct, tasks).mean()
    assert mean == pytest.approx(float(exact_mgg(correct, tasks)), abs=1e-14)


def test_tasks_count_the_same_however_many_images_they_have() -> None:
    """Overall is a mean of tasks; the share of right images, .9 here, is not."""
    correct = np.array([True] * 9 + [False])
    tasks = ["single_object"] * 9 + ["counting"]
    assert overall_accuracy(correct, tasks) == 0.5


@pytest.mark.parametrize("shape", [(3,), (3, 0), (1, 2, 3)])
def test_generations_need_a_dimension(shape: tuple[int, ...]) -> None:
    """The shape that came is said."""
    with pytest.raises(ValueError, match=r"expected \(n, G\) with G at least 1, got \("):
        overall_by_generation(np.zeros(shape, bool), [])
