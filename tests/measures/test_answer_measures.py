"""What is counted in interleaved answers whose faults are known."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pytest_cepbench.artifacts import Failure
from pytest_cepbench.datasets.sample import Dataset
from pytest_cepbench.datasets.shapes.arena import CRITERIA, WEIGHTS
from pytest_cepbench.models.protocols import AnswerStep
from pytest_cepbench.store import Store
from pytest_cepbench.suites.suite_run import CaseMeasurement
from tests.chains.answers.roles import picture, question
from tests.suites.answers import ANSWERS, MeasuredSuite, prepare

MODULE = "python:tests.measures.test_answer_measures"

TEXT = f"""\
name = "counted"
version = 1
[data]
loader = "{MODULE}:five_questions"
[prompts]
[answer]
[roles]
interleaver = "{MODULE}:Faulty"
[metrics.no_image]
[metrics.never_an_image]
kind = "no_image"
of = "all"
[metrics.no_text]
[metrics.never_a_text]
kind = "no_text"
of = "all"
[metrics.step_gap]
[metrics.failures]
"""

PIPELINE = TEXT.replace(
    f'interleaver = "{MODULE}:Faulty"',
    f'writer = "{MODULE}:Lister"\ngenerator = "{MODULE}:Fickle"',
)


def five_questions() -> Dataset:
    """Questions whose reference answers have four steps."""
    return Dataset("five", {"loader": "five"}, tuple(question(k, gold=4) for k in range(5)))


def _faulty(number: int) -> Any:
    """Whole; an image short; a text short; texts alone, too many; none at all."""
    whole = [AnswerStep(f"{k}", picture(k)) for k in range(4)]
    return (
        whole,
        [*whole[:3], AnswerStep("no image")],
        [AnswerStep(image=picture(k)) if k == 2 else whole[k] for k in range(3)],
        [AnswerStep(f"{k}") for k in range(6)],
        Failure("refused", "no"),
    )[number]


class Faulty:
    """An interleaver with a fault for each question."""

    fingerprint = "faulty/1"

    def interleave(self, questions: Any, _: Any, __: Any) -> Any:
        """The answer to each question, by its number."""
        return [_faulty(int(pieces[0].split()[-1])) for pieces in questions]


class Lister:
    """A writer of as many steps as the number of the question, and nine more."""

    fingerprint = "lister/1"

    def write(self, questions: Any, _: str, __: Any) -> Any:
        """One text for each question."""
        return ["<IMG>".join("abcdefghijklmn"[: 9 + int(q[0].split()[-1])]) for q in questions]


class Fickle:
    """A generator that draws neither a nor b."""

    fingerprint, seeded = "fickle/1", False

    def generate(self, texts: Any, _: Any) -> Any:
        """One picture for each text."""
        lost = {"a": Failure("refused", "no"), "b": np.zeros((6, 8, 3), np.uint8)}
        return [lost.get(text, picture(text)) for text in texts]


@pytest.fixture
def counted(tmp_path: Path) -> Any:
    """The answers with known faults."""
    with Store(tmp_path / "store") as store:
        yield prepare(tmp_path, store, TEXT)


def _scores(measurement: CaseMeasurement) -> list[float]:
    return [score for _, score in sorted(measurement.scores["c"].items())]


@pytest.mark.parametrize(
    ("metric", "scores"),
    [
        ("no_image", [0.0, 1.0, 0.0, 1.0, 1.0]),
        ("never_an_image", [0.0, 0.0, 0.0, 1.0, 1.0]),
        ("no_text", [0.0, 0.0, 1.0, 0.0, 1.0]),
        ("never_a_text", [0.0, 0.0, 0.0, 0.0, 1.0]),
        ("step_gap", [0.0, 0.0, 0.25, 0.5, 1.0]),
        ("failures", [0.0, 0.0, 0.0, 0.0, 1.0]),
    ],
)
def test_faults_are_counted(counted: MeasuredSuite, metric: str, scores: list[float]) -> None:
    """In any step or in all of them; a missing answer lacks everything."""
    measurement = counted.measure(f"overall-{metric}")
    assert _scores(measurement) == scores
    assert not measurement.higher_is_better
    assert measurement.failures == {"refused": 1}


def test_lost_images_and_cut_steps_are_said(tmp_path: Path) -> None:
    """The share of images that were lost, by kind, and how many steps were too many."""
    with Store(tmp_path / "store") as store:
        measurement = prepare(tmp_path, store, PIPELINE).measure("overall-failures")
    assert _scores(measurement) == pytest.approx([2 / 8, 2 / 9] + [2 / 10] * 3, abs=1e-6)
    assert measurement.failures == {}
    assert set(measurement.notes) == {
        "10 images of answers failed: 5 refused, 5 blank-image",
        "6 steps beyond the 10 that an answer may have were cut",
    }


def test_truth_is_the_sum_of_its_criteria(tmp_path: Path) -> None:
    """Each is a metric of its own where a suite asks for it; the total weighs them."""
    more = "".join(f'[metrics.{c}]\nkind = "truth"\ncriterion = "{c}"\n' for c in CRITERIA)
    with Store(tmp_path / "store") as store:
        suite = prepare(tmp_path, store, ANSWERS + more, "shapes:?no_image=0.3&miss=0.2")
        values = [suite.measure(f"overall-{c}").value for c in CRITERIA]
        total = suite.measure("overall-truth").value
    assert len(set(values)) > 3
    assert total == pytest.approx(np.dot(WEIGHTS, values), abs=1e-5)
