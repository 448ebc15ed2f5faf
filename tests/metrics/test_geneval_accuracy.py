"""Accuracies: per task, overall, per generation, MGG; and the studies whose counts are known."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_cepbench.metrics.geneval import (
    TASKS,
    mgg,
    micro_average,
    overall_accuracy,
    overall_by_generation,
    task_accuracies,
)

BoolArray = npt.NDArray[np.bool_]

PER_TASK = (52, 72, 68, 76, 80, 52)
"""Images per task in GenEval's study with people, in the order of `TASKS`."""


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
    assert mgg(correct, tasks) == pytest.approx(float(exact_mgg(correct, tasks)), abs=1e-14)


@given(judged())
def test_mgg_is_the_overall_score_of_all_generations_pooled(
    case: tuple[BoolArray, list[str]],
) -> None:
    """Every prompt has as many generations as every other, so the order of the means is free."""
    correct, tasks = case
    assert overall_accuracy(correct, tasks) == pytest.approx(mgg(correct, tasks), abs=1e-14)


@given(judged(), st.randoms(use_true_random=False))
def test_the_order_of_images_does_not_matter(
    case: tuple[BoolArray, list[str]], random: Any
) -> None:
    """The same bits."""
    correct, tasks = case
    order = list(range(len(tasks)))
    random.shuffle(order)
    shuffled = [tasks[i] for i in order]
    assert overall_accuracy(correct[order], shuffled) == overall_accuracy(correct, tasks)
    assert task_accuracies(correct[order], shuffled) == task_accuracies(correct, tasks)


def test_tasks_count_the_same_however_many_images_they_have() -> None:
    """Overall is a mean of tasks; the released code's is a share of images."""
    correct = np.array([True] * 9 + [False])
    tasks = ["single_object"] * 9 + ["counting"]
    assert task_accuracies(correct, tasks) == {"single_object": 1.0, "counting": 0.0}
    assert overall_accuracy(correct, tasks) == 0.5
    assert micro_average(correct) == 0.9


def test_several_images_of_a_prompt_are_images() -> None:
    """A task's accuracy is over images, right or wrong each."""
    correct = np.array([True, True, True, False, False, False])
    assert task_accuracies(correct, ["colors"] * 4 + ["position"] * 2) == {
        "colors": 0.75,
        "position": 0.0,
    }


def test_generations_are_judged_each_by_itself() -> None:
    """A curve that falls."""
    correct = np.array([[True, True, False], [True, False, False]])
    tasks = ["colors", "position"]
    assert overall_by_generation(correct, tasks).tolist() == [1.0, 0.5, 0.0]
    assert mgg(correct, tasks) == 0.5


@pytest.mark.parametrize(
    ("right", "printed", "overall"),
    [
        ((51, 17, 31, 56, 6, 0), (0.981, 0.236, 0.456, 0.737, 0.075, 0.0), 0.414),
        ((52, 44, 37, 67, 12, 15), (1.0, 0.611, 0.544, 0.882, 0.15, 0.288), 0.579),
        ((52, 61, 52, 65, 24, 33), (1.0, 0.847, 0.765, 0.855, 0.3, 0.635), 0.734),
    ],
    ids=["CLIP retrieval", "Stable Diffusion 2.1", "IF-XL"],
)
def test_what_people_said_of_three_models(
    right: tuple[int, ...], printed: tuple[float, ...], overall: float
) -> None:
    """The majority of GenEval's five annotators: accuracies of the 400 images that they judged."""
    correct: list[bool] = []
    tasks: list[str] = []
    for task, images, number in zip(TASKS, PER_TASK, right, strict=True):
        correct += [True] * number + [False] * (images - number)
        tasks += [task] * images
    accuracies = task_accuracies(np.array(correct), tasks)
    assert tuple(round(accuracies[task], 3) for task in TASKS) == printed
    assert round(overall_accuracy(np.array(correct), tasks), 3) == overall


def test_no_image_has_no_accuracy() -> None:
    """Not zero, and not a warning."""
    none = np.zeros(0, bool)
    with pytest.raises(ValueError, match="no images"):
        micro_average(none)
    with pytest.raises(ValueError, match="one task per image and an image"):
        overall_accuracy(none, [])


def test_every_image_has_a_task() -> None:
    """Nothing is paired up as far as it goes."""
    with pytest.raises(ValueError, match=r"got \(2,\) and 1 tasks"):
        task_accuracies(np.array([True, False]), ["colors"])


@pytest.mark.parametrize("shape", [(3,), (3, 0), (1, 2, 3)])
def test_generations_need_a_dimension(shape: tuple[int, ...]) -> None:
    """The shape that came is said."""
    with pytest.raises(ValueError, match=r"expected \(n, G\) with G at least 1, got \("):
        overall_by_generation(np.zeros(shape, bool), [])
