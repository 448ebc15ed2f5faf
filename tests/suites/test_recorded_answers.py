"""Answers that another tool has made, under test in a suite: read, counted, never made anew."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_cepbench.errors import DatasetError, SpecError, SuiteNotApplicableError
from pytest_cepbench.store import Store
from pytest_cepbench.suites import RoleChoices, load_prepared_suite
from tests.datasets.opening.files import png, put_answer, put_questions, question
from tests.suites.answers import prepare

QUESTIONS = ("0101001", "0101002", "0101003")

SUITE = """\
name = "opening"
version = 1
[data]
loader = "opening"
path = "questions"
[answer]
[prompts]
[roles]
interleaver = "shapes:"
judge = "shapes:"
[metrics.win_rate]
[metrics.failures]
[metrics.no_image]
"""

CHAINS = """\
name = "chains"
version = 1
[data]
loader = "shapes"
[prompts]
describe = "describe the image"
[roles]
describer = "shapes:"
generator = "shapes:"
encoder = "shapes:"
[metrics.gc]
"""


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    """Three questions; answers to them: whole, with an image that is not there, without steps."""
    put_questions(tmp_path / "questions", [question(uid) for uid in QUESTIONS])
    folder = tmp_path / "X_output"
    put_answer(folder, QUESTIONS[0], [{"text": "So.", "image": f"{QUESTIONS[0]}-o-0.jpg"}])
    (folder / f"{QUESTIONS[0]}-o-0.jpg").write_bytes(png(7))
    put_answer(folder, QUESTIONS[1], [{"text": "Thus.", "image": f"{QUESTIONS[1]}-o-0.jpg"}])
    put_answer(folder, QUESTIONS[2], [])
    return folder


def test_failures_count_by_kind(tmp_path: Path, recorded: Path) -> None:
    """A missing file is a lost image, an answer without steps a missing answer."""
    with Store(tmp_path / "store") as store:
        suite = prepare(tmp_path, store, SUITE, f"replay:{recorded}?layout=opening")
        failures = suite.measure("overall-failures")
        images = suite.measure("overall-no_image")
        answers = suite.measure()

    scores, lacks = (
        {uid: score for part in measured.scores.values() for uid, score in part.items()}
        for measured in (failures, images)
    )
    assert scores == dict(zip(QUESTIONS, (0.0, 1.0, 1.0), strict=True))
    assert failures.failures == {"empty-text": 1}
    assert "1 images of answers failed: 1 missing" in failures.notes
    assert lacks == dict(zip(QUESTIONS, (0, 1, 1), strict=True))
    assert [bool(answers.answers[uid]) for uid in QUESTIONS] == [True, True, False]
    assert answers.model["role"] == "replay"
    assert "layout=opening" in answers.model["identity"]


def test_a_folder_of_fewer_answers_is_refused(tmp_path: Path, recorded: Path) -> None:
    """Nothing is measured on a part."""
    (recorded / f"{QUESTIONS[2]}.json").unlink()
    words = "1 of 3 answers are missing"
    with Store(tmp_path / "store") as store, pytest.raises(DatasetError, match=words):
        prepare(tmp_path, store, SUITE, f"replay:{recorded}").measure()


def test_suites_of_the_other_kind_are_passed_over(tmp_path: Path, recorded: Path) -> None:
    """A run of all suites gates recorded answers where answers are asked for."""
    path = tmp_path / "suite.toml"
    path.write_text(CHAINS, "utf-8")
    with pytest.raises(SuiteNotApplicableError, match="brings interleaved answers"):
        load_prepared_suite(path, RoleChoices(f"replay:{recorded}"), {})


def test_recorded_answers_leave_no_role_to_others(tmp_path: Path, recorded: Path) -> None:
    """A writer beside them would do nothing."""
    with Store(tmp_path / "store") as store, pytest.raises(SpecError, match="drop --writer"):
        prepare(tmp_path, store, SUITE, f"replay:{recorded}", roles={"writer": "shapes:"})
