"""Accuracies: overall, per generation, and MGG as the mean of these."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_cepbench.metrics.geneval import overall_accuracy, overall_by_generation
from pytest_cepbench.metrics.geneval_prompts import TASKS

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


@given(judged())
def test_mgg_is_the_overall_score_of_all_generations_pooled(
    case: tuple[BoolArray, list[str]],
) -> None:
    """Every prompt has as many generations as every other, so the order of the means is free."""
    correct, tasks = case
    mean = overall_by_generation(correct, tasks).mean()
    assert overall_accuracy(correct, tasks) == pytest.approx(mean, abs=1e-14)


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


def test_tasks_count_the_same_however_many_images_they_have() -> None:
    """Overall is a mean of tasks; the share of right images, .9 here, is not."""
    correct = np.array([True] * 9 + [False])
    tasks = ["single_object"] * 9 + ["counting"]
    assert overall_accuracy(correct, tasks) == 0.5


def test_several_images_of_a_prompt_are_images() -> None:
    """A task's accuracy is over images, right or wrong each."""
    correct = np.array([True, True, True, False, False, False])
    assert overall_accuracy(correct, ["colors"] * 4 + ["position"] * 2) == 0.375


def test_generations_are_judged_each_by_itself() -> None:
    """A curve that falls."""
    correct = np.array([[True, True, False], [True, False, False]])
    tasks = ["colors", "position"]
    assert overall_by_generation(correct, tasks).tolist() == [1.0, 0.5, 0.0]


def test_no_image_has_no_accuracy() -> None:
    """Not zero, and not a warning."""
    with pytest.raises(ValueError, match="one task per image and an image"):
        overall_accuracy(np.zeros(0, bool), [])


def test_every_image_has_a_task() -> None:
    """Nothing is paired up as far as it goes."""
    with pytest.raises(ValueError, match=r"got \(2,\) and 1 tasks"):
        overall_accuracy(np.array([True, False]), ["colors"])


@pytest.mark.parametrize("shape", [(3,), (3, 0), (1, 2, 3)])
def test_generations_need_a_dimension(shape: tuple[int, ...]) -> None:
    """The shape that came is said."""
    with pytest.raises(ValueError, match=r"expected \(n, G\) with G at least 1, got \("):
        overall_by_generation(np.zeros(shape, bool), [])
