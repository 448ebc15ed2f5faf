"""Accuracies from right and wrong images: per task, overall, per generation, MGG."""

from __future__ import annotations

from collections.abc import Sequence
from math import fsum

import numpy as np
import numpy.typing as npt

from pytest_cepbench.metrics.gc import mean_of_categories

BoolArray = npt.NDArray[np.bool_]
FloatArray = npt.NDArray[np.float64]


def task_accuracies(correct: BoolArray, tasks: Sequence[str]) -> dict[str, float]:
    """Share of right images in each task, tasks in order of appearance.

    correct: (n,), one for every image that was to be made, or (n, G) for G generations, which are
    pooled. An image that is missing is wrong; the released evaluators of GenEval and MGG leave it
    out of the number of images instead.
    tasks: the n images' tasks. Values in [0, 1].
    Raises ValueError where there is no image or the lengths differ.
    """
    return {task: fsum(part) / len(part) for task, part in _by_task(correct, tasks).items()}


def overall_accuracy(correct: BoolArray, tasks: Sequence[str]) -> float:
    """GenEval's overall score: unweighted mean of the accuracies of the tasks that are there.

    correct, tasks: as in `task_accuracies`. In [0, 1].
    Source: GenEval's released summary; the Telephone Game, section 3.2. For (n, G) this is MGG, see
    there.
    """
    return mean_of_categories(
        {task: np.array(part) for task, part in _by_task(correct, tasks).items()}
    )


def overall_by_generation(correct: BoolArray, tasks: Sequence[str]) -> FloatArray:
    """GenEval's overall score at each generation: (n, G) -> (G,), in [0, 1]."""
    columns = _two_dimensional(correct).T
    return np.array([overall_accuracy(column, tasks) for column in columns])


def mgg(correct: BoolArray, tasks: Sequence[str]) -> float:
    """Multi-Generation GenEval: mean over generations of the overall score at each, in [0, 1].

    correct: (n, G), one column for each generation that gives images (1, 3, .., 19 of 20).
    Source: the Telephone Game, section 3.2. Its released code prints `micro_average` instead.
    """
    curve = overall_by_generation(correct, tasks)
    return fsum(curve.tolist()) / len(curve)


def micro_average(correct: BoolArray) -> float:
    """Share of all images that are right, however many of them a task has, in [0, 1].

    correct: (n,) or (n, G).
    Source: the "overall" of the Telephone Game's released code, which pools images over tasks and
    generations.
    Raises ValueError where there is no image.
    """
    if not correct.size:
        msg = "the accuracy of no images is not defined"
        raise ValueError(msg)
    return float(np.count_nonzero(correct)) / correct.size


def _by_task(correct: BoolArray, tasks: Sequence[str]) -> dict[str, list[float]]:
    if len(correct) != len(tasks) or not correct.size:
        msg = (
            f"expected one task per image and an image, got {correct.shape} and {len(tasks)} tasks"
        )
        raise ValueError(msg)
    parts: dict[str, list[float]] = {}
    for task, row in zip(tasks, correct, strict=True):
        parts.setdefault(task, []).extend(np.atleast_1d(row).astype(np.float64).tolist())
    return parts


def _two_dimensional(correct: BoolArray) -> BoolArray:
    if correct.ndim != 2 or correct.shape[1] == 0:
        msg = f"expected (n, G) with G at least 1, got {correct.shape}"
        raise ValueError(msg)
    return correct
