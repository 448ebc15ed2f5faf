"""What is counted in interleaved answers, and agreement of judges with stored verdicts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pytest_cepbench.artifacts import Failure
from pytest_cepbench.artifacts.outcome import Winner
from pytest_cepbench.datasets.sample import Dataset
from pytest_cepbench.datasets.shapes.arena import CRITERIA, WEIGHTS
from pytest_cepbench.errors import (
    DatasetError,
    MeasurementError,
    SuiteError,
    SuiteNotApplicableError,
)
from pytest_cepbench.models.protocols import AnswerStep, Battle
from pytest_cepbench.store import Store
from pytest_cepbench.suites import ModelPool, RoleChoices, load_prepared_suite, load_suite
from pytest_cepbench.suites.role_assignment import needed_roles
from pytest_cepbench.suites.suite_run import CaseMeasurement
from tests.chains.answers.roles import picture, question
from tests.datasets.files import put_answer, step
from tests.suites.answers import ANSWERS, MeasuredSuite, prepare

TABLE = """\
{"id": "x/1", "category": "x", "verdict": "A", "question": [{"text": "q1"}],
 "first": [{"text": "good"}], "second": [{"text": "bad"}]}
{"id": "x/2", "category": "x", "verdict": "Tie(B)", "question": [{"text": "q2"}],
 "first": [{"text": "bad"}], "second": [{"text": "good"}]}
{"id": "y/1", "category": "y", "verdict": "B", "question": [{"text": "q3"}],
 "first": [{"text": "good"}], "second": [{"text": "bad"}]}
""".replace(",\n", ", ")

SUITE = """\
name = "mine"
version = 1
[data]
loader = "judged-battles"
path = "."
[answer]
[prompts]
[arena]
against = "gold"
[roles]
judge = "python:tests.measures.test_answer_measures:Named?way=honest"
[metrics.agreement]
[metrics.exact]
kind = "agreement"
ties = "three"
"""


WAYS: dict[str, tuple[Winner | Failure, Winner | Failure]] = {
    "honest": ("A", "B"),
    "leaning": ("Tie(A)", "Tie(B)"),
    "first": ("A", "A"),
    "mute": (Failure("no-verdict", "words, and no verdict among them"),) * 2,
    "absent": (Failure("unanswered", "503"), Failure("unanswered", "nobody is there")),
}
"""What judges say where the first answer is the good one, and in its mirror."""


class Named:
    """A judge that gives one verdict, or fails, where the first answer is the good one, and in its
    mirror.
    """

    def __init__(self, way: str) -> None:
        self._good, self._other = WAYS[way]
        self.fingerprint = way

    def judge(self, battles: Sequence[Battle], _: Sequence[int]) -> list[Winner | Failure]:
        """By the first piece of the first answer."""
        return [self._good if battle.first[0] == "good" else self._other for battle in battles]


def measure(folder: Path, judge: str, text: str = SUITE) -> dict[str, float]:
    """Value of each case under a judge of this module."""
    (folder / "suite.toml").write_text(text, encoding="utf-8")
    (folder / "battles.jsonl").write_text(TABLE, encoding="utf-8")
    choices = RoleChoices(roles={"judge": f"python:{__name__}:Named?way={judge}"})
    prepared = load_prepared_suite(folder / "suite.toml", choices, {})
    with Store(folder / "store") as store:
        run = prepared.run(ModelPool(store))
        measured = {str(case.key): run.measure(case) for case in prepared.cases}
    values = {}
    for key, own in measured.items():
        parts = [sum(scores.values()) / len(scores) for scores in own.scores.values()]
        values[key.partition("/")[2]] = sum(parts) / len(parts)
        assert own.model["role"] == "judge"
        assert "judge" not in own.identity
    return values


def test_a_share_of_orders_agrees(tmp_path: Path) -> None:
    """With ties forced the side counts, with three outcomes a tie is one of its own. A judge of
    places agrees in one of the two orders of every battle: no better than a coin.
    """
    values = measure(tmp_path, "honest")
    assert values["x/agreement"] == 1.0
    assert values["y/agreement"] == 0.0
    assert values["overall/agreement"] == 0.5
    assert values["x/exact"] == 0.5
    values = measure(tmp_path, "leaning")
    assert values["x/agreement"] == 1.0
    assert values["x/exact"] == 0.5
    values = measure(tmp_path, "first")
    assert [values[f"{part}/agreement"] for part in ("x", "y", "overall")] == [0.5] * 3


def test_a_verdict_that_is_not_given_agrees_with_none(tmp_path: Path) -> None:
    """A judge that says something else is a worse one; one that nobody answers for is an error."""
    assert set(measure(tmp_path, "mute").values()) == {0.0}
    with pytest.raises(MeasurementError, match=r"failed at the judge .*unanswered: 503"):
        measure(tmp_path, "absent")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('against = "gold"', 'against = "accepted"', 'agreement needs against = "gold"'),
        ("[metrics.agreement]", "[metrics.win_rate]", "with agreement the judge is under test"),
        ('ties = "three"', 'ties = "four"', "four"),
        ('ties = "three"', "tie = 1", "tie"),
    ],
)
def test_a_suite_of_judges_has_nobody_who_answers(
    tmp_path: Path, old: str, new: str, message: str
) -> None:
    """What cannot be meant is refused with the suite's name."""
    with pytest.raises(SuiteError, match=message):
        measure(tmp_path, "honest", SUITE.replace(old, new))


def test_data_without_verdicts_are_refused(tmp_path: Path) -> None:
    """Another loader's samples have reference answers, and no verdicts to agree with."""
    text = SUITE.replace('"judged-battles"\npath = "."', '"shapes-arena"')
    with pytest.raises(DatasetError, match="has no answer of its own"):
        measure(tmp_path, "honest", text)


def test_who_is_under_test(tmp_path: Path) -> None:
    """The judge alone is needed; a model that cannot judge, and recorded answers, do not apply."""
    (tmp_path / "suite.toml").write_text(SUITE, encoding="utf-8")
    (tmp_path / "battles.jsonl").write_text(TABLE, encoding="utf-8")
    path = tmp_path / "suite.toml"
    assert list(needed_roles(load_suite(path))) == ["judge"]
    whole = load_prepared_suite(path, RoleChoices(model="shapes:"), {})
    assert whole.assignments.gated == ("judge",)
    with pytest.raises(SuiteNotApplicableError, match="no role in suite"):
        load_prepared_suite(path, RoleChoices(model="shapes:", role="describer"), {})
    put_answer(tmp_path, "0101001", [step("0101001", None, "red")])
    with pytest.raises(SuiteNotApplicableError, match="has judges under test"):
        load_prepared_suite(path, RoleChoices(model=f"replay:{tmp_path}?layout=opening"), {})


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
    f'interleaver = "{MODULE}:Faulty"', f'writer = "{MODULE}:Lister"\ngenerator = "{MODULE}:Fickle"'
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


@pytest.fixture(scope="module")
def counted(tmp_path_factory: pytest.TempPathFactory, store: Store) -> MeasuredSuite:
    """The answers with known faults."""
    return prepare(tmp_path_factory.mktemp("suite"), store, TEXT)


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


def test_lost_images_and_cut_steps_are_said(tmp_path: Path, store: Store) -> None:
    """The share of images that were lost, by kind, and how many steps were too many."""
    measurement = prepare(tmp_path, store, PIPELINE).measure("overall-failures")
    assert _scores(measurement) == pytest.approx([2 / 8, 2 / 9] + [2 / 10] * 3, abs=1e-6)
    assert measurement.failures == {}
    assert set(measurement.notes) == {
        "10 images of answers failed: 5 refused, 5 blank-image",
        "6 steps beyond the 10 that an answer may have were cut",
    }


def test_truth_is_the_sum_of_its_criteria(tmp_path: Path, store: Store) -> None:
    """Each is a metric of its own where a suite asks for it; the total weighs them."""
    more = "".join(f'[metrics.{c}]\nkind = "truth"\ncriterion = "{c}"\n' for c in CRITERIA)
    suite = prepare(tmp_path, store, ANSWERS + more, "shapes:?no_image=0.3&miss=0.2")
    values = [suite.measure(f"overall-{c}").value for c in CRITERIA]
    total = suite.measure("overall-truth").value
    assert len(set(values)) > 3
    assert total == pytest.approx(np.dot(WEIGHTS, values), abs=1e-5)
