"""GenEval: what an image must show and where, colors of cut-outs, accuracies over tasks and MGG."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from PIL import Image

from pytest_cepbench.artifacts import Detection, Mask
from pytest_cepbench.metrics.geneval import (
    COLORS,
    ToColor,
    color_prompts,
    crop_object,
    judge,
    objects_to_color,
    overall_accuracy,
    relations,
    zero_shot_color,
)
from pytest_cepbench.metrics.geneval_prompts import (
    GENEVAL,
    TASKS,
    Clause,
    Exclusion,
    Position,
    Prompt,
    Relation,
    SelectionSettings,
)

Found = dict[str, list[Detection]]


def seen(
    name: str, score: float, x: float = 100, y: float = 100, side: float = 20, color: str = ""
) -> Detection:
    """A detection of a square object around a center."""
    box = (x - side / 2, y - side / 2, x + side / 2, y + side / 2)
    return Detection(name, score, box, color=color or None)


def many(name: str, *scores: float) -> list[Detection]:
    """Detections far from one another."""
    return [seen(name, score, x=100 * number) for number, score in enumerate(scores)]


def right(prompt: Prompt, detected: Found, settings: SelectionSettings = GENEVAL) -> bool:
    """Whether the image is right, where the detections carry their colors."""
    return not judge(prompt, detected, {}, settings)


def counting(number: int, name: str = "dog") -> Prompt:
    """Exactly that many."""
    return Prompt("counting", (Clause(name, number),), (Exclusion(name, number + 1),))


def placed(relation: Relation, count: int = 1) -> Prompt:
    """Dogs in that relation to a cat."""
    return Prompt("position", (Clause("cat", 1), Clause("dog", count, None, Position(relation, 0))))


DOG = Prompt("single_object", (Clause("dog", 1),))
DOG_AND_CAT = Prompt("two_object", (Clause("dog", 1), Clause("cat", 1)))
RED_DOG = Prompt("colors", (Clause("dog", 1, color="red"),))
RIGHT_OF_A_RED_DOG = Prompt(
    "position", (Clause("dog", 1, color="red"), Clause("cat", 1, position=Position("right of", 0)))
)


def test_one_object_is_enough() -> None:
    """Other objects do not matter, of the same class or of another."""
    assert right(DOG, {"dog": many("dog", 0.31)})
    assert right(DOG, {"dog": many("dog", 0.9, 0.8, 0.7), "cat": many("cat", 1.0)})
    assert judge(DOG, {"cat": many("cat", 1.0)}, {}) == ("1 dog expected, 0 found",)


def test_only_the_surest_objects_are_looked_at() -> None:
    """A second object of the right color does not help; two red dogs are the two surest. So it is
    for place, for subject and target alike: another one in the right place does not help.
    """
    objects = [seen("dog", 0.9, color="blue"), seen("dog", 0.8, color="red")]
    assert judge(RED_DOG, {"dog": objects}, {}) == ("1 red dog expected, found blue",)
    prompt = Prompt("colors", (Clause("dog", 2, "red"),))
    red, blue = seen("dog", 0.9, color="red"), seen("dog", 0.8, color="blue")
    also_red = seen("dog", 0.7, color="red")
    assert not right(prompt, {"dog": [red, blue, also_red]})
    assert right(prompt, {"dog": [red, also_red]})
    cat, dog = seen("cat", 0.9, 100), seen("dog", 0.9, 20)
    assert right(placed("left of"), {"cat": [cat], "dog": [dog, seen("dog", 0.8, 180)]})
    assert not right(placed("right of"), {"cat": [cat], "dog": [dog, seen("dog", 0.8, 180)]})
    assert not right(placed("right of"), {"cat": [cat, seen("cat", 0.8, 0)], "dog": [dog]})


def test_colors_are_asked_for_the_surest_objects_of_colored_clauses() -> None:
    """A detector that tells colors needs no classifier; an object of two clauses is asked once;
    of too few objects none is asked, since the clause has failed already.
    """
    surest, other = seen("dog", 0.9), seen("dog", 0.8)
    detected = {"dog": [other, surest], "cat": many("cat", 0.5)}
    prompt = Prompt("color_attr", (Clause("dog", 1, color="red"), Clause("cat", 1)))
    assert objects_to_color(prompt, detected) == (ToColor("dog", surest),)
    assert objects_to_color(DOG_AND_CAT, detected) == ()
    assert objects_to_color(RED_DOG, {"dog": [seen("dog", 0.9, color="red")]}) == ()
    both = Prompt("color_attr", (Clause("dog", 1, color="red"), Clause("dog", 1, color="red")))
    assert len(objects_to_color(both, {"dog": [seen("dog", 0.9)]})) == 1
    two = Prompt("colors", (Clause("dog", 2, "red"),))
    assert objects_to_color(two, {"dog": many("dog", 0.9, 0.3)}) == ()
    assert not right(two, {"dog": many("dog", 0.9, 0.3)})
    # It is not a wrong image, but an image that was not judged.
    with pytest.raises(ValueError, match=r"the color of 'dog' at \(90.0, .*\) is needed"):
        judge(RED_DOG, {"dog": [seen("dog", 0.9)]}, {})


def test_an_object_is_right_in_its_place_alone() -> None:
    """Every pair of subject and target needs the relation: of two dogs left of two cats, one dog
    between the cats is wrong.
    """
    places: dict[Relation, tuple[float, float]] = {
        "left of": (20, 100), "right of": (180, 100), "above": (100, 20), "below": (100, 180)
    }  # fmt: skip
    for relation, place in places.items():
        detected = {"cat": [seen("cat", 0.9)], "dog": [seen("dog", 0.9, *place)]}
        assert [side for side in places if right(placed(side), detected)] == [relation]
    position = Position("left of", 0)
    prompt = Prompt("position", (Clause("cat", 2), Clause("dog", 2, None, position)))
    cats = [seen("cat", 0.9, 200), seen("cat", 0.8, 300)]
    assert right(prompt, {"cat": cats, "dog": [seen("dog", 0.9, 0), seen("dog", 0.8, 100)]})
    between = [seen("dog", 0.9, 0), seen("dog", 0.8, 250)]
    wrong = judge(prompt, {"cat": cats, "dog": between}, {})
    assert wrong == ("dog left of its target expected, found left of or right of",)


def test_a_target_of_the_wrong_color_is_no_target() -> None:
    """A clause that fails by its color leaves nothing to be placed by, wherever the object is."""
    detected = {"dog": [seen("dog", 0.9, 0, color="blue")], "cat": [seen("cat", 0.9, 100)]}
    assert judge(RIGHT_OF_A_RED_DOG, detected, {}) == (
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


@given(boxes(), boxes(), st.sampled_from([0.0, 0.1, 0.3]), st.sampled_from([0.3, 0.5, 0.7]))
def test_relations_are_the_reference_rule(
    subject: Box, target: Box, share: float, least: float
) -> None:
    """On any boxes, thresholds included. What is left of the offset beyond the margin is weighed
    against all of it: twice the margin is needed.
    """
    here = (490.0, 490.0, 510.0, 510.0)
    assert relations((497.9, 490, 517.9, 510), here) == frozenset()
    assert relations((498.1, 490, 518.1, 510), here) == {"right of"}
    result = relations(subject, target, position_threshold=share, min_offset=least)
    assert result == reference(subject, target, share, least)


# -- colors of cut-outs by zero-shot classification, and accuracies over tasks

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


def test_without_a_mask_the_box_is_cut_out_as_far_as_it_lies_in_the_image() -> None:
    """Right and bottom are the first pixels outside; no black can be taken for a color.

    At least one pixel is left: an encoder can read no empty image.
    """
    assert whole(cut((2, 1, 5, 4))) == (2, 1, 4, 3)
    assert whole(cut((-5, -3, 100, 100))) == (0, 0, 7, 5)
    assert whole(cut((6.2, 4.7, 9, 9))) == (6, 5, 7, 5)
    for box in ((3.1, 2.1, 3.2, 2.2), (3, 2, 3, 2)):
        assert whole(cut(box)) == (3, 2, 3, 2)
    for box in ((8, 6, 8, 6), (50, 50, 60, 60)):
        assert whole(cut(box)) == (7, 5, 7, 5)
    assert whole(cut((-60, -60, -50, -50))) == (0, 0, 0, 0)


def test_pixels_outside_the_mask_become_grey() -> None:
    """#999, within the box alone; a mask of another image is refused."""
    inside = np.zeros((6, 8), bool)
    inside[2, 3] = inside[3, 4] = True
    pixels = cut((3, 2, 5, 4), Mask.from_array(inside))
    assert pixels.tolist() == [[[3, 2, 0], [*GREY]], [[*GREY], [4, 3, 0]]]
    with pytest.raises(ValueError, match="a mask of 4 x 6 pixels does not fit an image of 8 x 6"):
        cut((3, 2, 5, 4), Mask.from_array(inside[:, :4]))


VECTORS = st.integers(0, 2**32 - 1).map(
    lambda seed: np.random.Generator(np.random.PCG64(seed)).normal(size=(10, 3, 5))
)


@given(VECTORS, VECTORS)
def test_the_nearest_color_is_the_reference_rule(
    texts: npt.NDArray[np.float64], images: npt.NDArray[np.float64]
) -> None:
    """One color for each image; word by word: normalize, average, normalize, multiply, take the
    largest.
    """
    expected = []
    for image in images[:, 0]:
        cosines = []
        for templates in texts:
            mean = sum(vector / np.sqrt(vector @ vector) for vector in templates) / 3
            cosines.append(float(image @ mean / np.sqrt(mean @ mean) / np.sqrt(image @ image)))
        expected.append(COLORS[cosines.index(max(cosines))])
    assert zero_shot_color(images[:, 0], texts) == expected


def test_the_mean_of_a_color_is_normalized_again() -> None:
    """A color whose texts disagree has as long a vector as any other."""
    texts = np.zeros((10, 3, 3))
    texts[:, :, 2] = 1
    texts[3] = np.array([[1, 0, 0], [1, 0, 0], [-0.6, 0.8, 0]])  # mean (0.47, 0.27, 0): length 0.54
    texts[4] = np.array([0.75, 0, 0.66])
    assert zero_shot_color(np.array([[1.0, 0.0, 0.0]]), texts) == ["green"]


def test_what_names_no_color_is_refused() -> None:
    """Other shapes, with those that came; vectors without direction, of an object and of a text."""
    for images, texts in (
        *(((5,), (10, 3, 5)), ((2, 5), (10, 5))),
        *(((2, 5), (10, 3, 4)), ((2, 5), (9, 3, 5))),
    ):
        with pytest.raises(ValueError, match=r"expected \(n, d\) and \(10, 3, d\), got \("):
            zero_shot_color(np.ones(images), np.ones(texts))
    for bad in (0.0, np.nan, np.inf):
        spoilt = np.ones((10, 3, 5))
        spoilt[4, 1] = bad
        for image, vectors in ((bad, np.ones((10, 3, 5))), (1.0, spoilt)):
            with pytest.raises(ValueError, match="zero or not finite"):
                zero_shot_color(np.full((1, 5), image), vectors)


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


@given(judged())
def test_mgg_is_the_papers_mean(case: tuple[BoolArray, list[str]]) -> None:
    """The Telephone Game, section 3.2, in fractions: tasks first, then generations."""
    correct, tasks = case
    overall = []
    for column in correct.T.tolist():
        accuracies = []
        for task in dict.fromkeys(tasks):
            part = [bit for bit, of in zip(column, tasks, strict=True) if of == task]
            accuracies.append(Fraction(sum(part), len(part)))
        overall.append(sum(accuracies) / Fraction(len(accuracies)))
    expected = float(sum(overall) / Fraction(len(overall)))
    assert overall_accuracy(correct, tasks) == pytest.approx(expected, abs=1e-14)


def test_tasks_count_the_same_however_many_images_they_have() -> None:
    """Overall is a mean of tasks; the share of right images, .9 here, is not.

    A wrong number of either is refused, and no image at all.
    """
    correct = np.array([True] * 9 + [False])
    tasks = ["single_object"] * 9 + ["counting"]
    assert overall_accuracy(correct, tasks) == 0.5
    for images, names in ((2, ["counting"]), (1, ["counting"] * 2), (0, [])):
        with pytest.raises(ValueError, match="expected one task per image and an image, got "):
            overall_accuracy(np.zeros(images, bool), names)
