"""What people say of GenEval's images, recomputed from the annotations that its authors released.

2,000 answers for each of three models: 400 images, five annotators. The table holds, for each model
and task, how many images none, one, ... or all five annotators call right: the objects are there
(counting: exactly as many), the colors asked for are among those named, and the second object lies
where it should. Source: `annotations/*.csv` of GenEval's code (MIT license).
"""

from __future__ import annotations

from math import comb

import numpy as np
import pytest

from pytest_cepbench.metrics.geneval import overall_accuracy
from pytest_cepbench.metrics.geneval_prompts import TASKS
from tests.metrics.published.tables import load

VOTES = load("geneval_humans", words=2)

ANNOTATORS = 5

MAJORITIES = {
    # model: accuracy by the majority in the order of the tasks, then over all
    "CLIP retrieval": ((0.981, 0.236, 0.456, 0.737, 0.075, 0.000), 0.414),
    "SD 2.1": ((1.000, 0.611, 0.544, 0.882, 0.150, 0.288), 0.579),
    "IF-XL": ((1.000, 0.847, 0.765, 0.855, 0.300, 0.635), 0.734),
}


GENEVAL_PRINTS = {"CLIP retrieval": 0.35, "SD 2.1": 0.50, "IF-XL": 0.61}
"""The evaluator's own overall scores of the three, as its README prints them."""


def votes_of(model: str) -> tuple[list[int], list[str]]:
    """(annotators who call it right, task) of every image of a model."""
    images = [
        (right, task)
        for (name, task), counts in VOTES.rows.items()
        if name == model
        for right, count in enumerate(counts)
        for _ in range(int(count))
    ]
    return [right for right, _ in images], [task for _, task in images]


def test_every_model_has_the_same_400_images() -> None:
    """52, 72, 68, 76, 80 and 52 by task."""
    sizes = {key: int(counts.sum()) for key, counts in VOTES.rows.items()}
    assert [sizes[(model, task)] for model in MAJORITIES for task in TASKS] == [
        *(52, 72, 68, 76, 80, 52)
    ] * 3


@pytest.mark.parametrize("model", MAJORITIES)
def test_accuracies_by_the_majority_of_people(model: str) -> None:
    """.414, .579 and .734 are unweighted means of the six tasks, as GenEval's own scores are."""
    votes, tasks = votes_of(model)
    by_task, overall = MAJORITIES[model]
    right = np.array(votes) > ANNOTATORS / 2
    accuracies = [right[np.array(tasks) == task].mean() for task in TASKS]
    assert [round(accuracy, 3) for accuracy in accuracies] == list(by_task)
    assert round(overall_accuracy(right, tasks), 3) == overall


@pytest.mark.parametrize(
    ("model", "percent"), [("CLIP retrieval", 89.2), ("SD 2.1", 83.6), ("IF-XL", 87.6)]
)
def test_agreement_of_two_annotators(model: str, percent: float) -> None:
    """Of all pairs of annotators of an image, those who say the same of it."""
    votes, _ = votes_of(model)
    same = sum(comb(right, 2) + comb(ANNOTATORS - right, 2) for right in votes)
    assert 100 * same / (len(votes) * comb(ANNOTATORS, 2)) == pytest.approx(percent, abs=0.051)
