"""Answers written in OpenING's layout: read back unchanged, and as its judges do."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import tracemalloc
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image

from pytest_cepbench.artifacts import Failure, ImageArtifact
from pytest_cepbench.artifacts.answer import Answer, StoredStep
from pytest_cepbench.datasets.opening.answers import (
    Ending,
    RecordedAnswer,
    StepContent,
    read_answers,
    write_answers,
)
from pytest_cepbench.datasets.opening.questions import load_opening
from pytest_cepbench.datasets.sample import Sample
from pytest_cepbench.errors import DatasetError, WriteError
from tests.artifacts.files import noise
from tests.datasets.opening.files import put_questions, question, step

UIDS = ("0101001", "0301096", "2301002")


@pytest.fixture
def samples(tmp_path: Path) -> Sequence[Sample]:
    """Three questions as the loader gives them."""
    return load_opening(put_questions(tmp_path / "OpenING", map(question, UIDS))).samples


def image(seed: int, height: int = 12, width: int = 16) -> ImageArtifact:
    """An image that no lossy codec gives back."""
    return ImageArtifact(noise(height, width, seed))


def digest_of(steps: Sequence[StepContent]) -> str:
    """Digest of an answer all of whose images are there."""
    stored = []
    for text, content in steps:
        assert not isinstance(content, Failure)
        stored.append(StoredStep(text, None if content is None else content.digest))
    return Answer(tuple(stored)).digest


def read_back(folder: Path, sample: Sample) -> list[StepContent]:
    """The steps of an answer, its images loaded."""
    answer = read_answers(folder).answer(sample)
    assert isinstance(answer, RecordedAnswer)
    return [(step.text, step.load_image()) for step in answer.steps]


IMAGES = [image(seed, 3, 4) for seed in range(4)]

TEXTS = st.text(st.characters(exclude_categories=()), max_size=20).map(str.strip)

STEPS = st.lists(
    st.tuples(TEXTS, st.none() | st.sampled_from(IMAGES)).filter(any), min_size=1, max_size=4
)


@given(answers=st.lists(STEPS, min_size=3, max_size=3), ending=st.sampled_from([".json", ".jsonl"]))
@settings(
    max_examples=10,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
def test_round_trip(
    tmp_path_factory: pytest.TempPathFactory,
    samples: Sequence[Sample],
    answers: list[list[StepContent]],
    ending: Ending,
) -> None:
    """Any answers, written and read, have the digests that they had."""
    root = tmp_path_factory.mktemp("export")
    folder = write_answers(root, "my+model 2", zip(samples, answers, strict=True), ending)

    assert folder == root / "my+model 2_output"
    assert [path.name for path in root.iterdir()] == [folder.name]
    for sample, steps in zip(samples, answers, strict=True):
        assert digest_of(read_back(folder, sample)) == digest_of(steps)


def test_failures_stay_failures(tmp_path: Path, samples: Sequence[Sample]) -> None:
    """A failed answer is an empty one to the authors' judges; a failed image one not there."""
    steps: list[StepContent] = [("A fox", Failure("bad-image")), ("and a crow.", None)]
    outcomes: list[list[StepContent] | Failure] = [Failure("refused", "no"), steps, steps[1:]]
    folder = write_answers(tmp_path, "m", zip(samples, outcomes, strict=True))
    read = read_answers(folder)
    read.check(samples)
    empty = read.answer(samples[0])

    assert isinstance(empty, Failure)
    assert empty.kind == "empty-text"
    kinds = [(t, i.kind if isinstance(i, Failure) else i) for t, i in read_back(folder, samples[1])]
    assert kinds == [("A fox", "missing"), ("and a crow.", None)]


def test_the_files_are_those_that_the_judges_open(tmp_path: Path) -> None:
    """The question's record with our output; images open by content and become 512 x 512 JPEGs."""
    uid = UIDS[1]
    record = question(
        uid, [step(uid, "i-1", "Go on. <BEGIN> A fox <image>"), step(uid, None, "sat.")]
    )
    (sample,) = load_opening(put_questions(tmp_path / "OpenING", [record])).samples
    written = image(1)
    folder = write_answers(tmp_path, "m", [(sample, [("It ran.", None), ("", written)])])
    exported = json.loads((folder / f"{uid}.json").read_text("utf-8"))
    output = exported["conversations"][1]["output"]

    assert exported["conversations"][0] == record["conversations"][0]
    assert {name: exported[name] for name in record if name != "conversations"} == {
        name: text for name, text in record.items() if name != "conversations"
    }
    assert output == [
        {"text": "It ran.", "image": None},
        {"text": "", "image": f"{uid}-o-1.jpg"},
    ]
    with Image.open(folder / output[1]["image"].split("/")[-1]) as opened:
        assert np.array_equal(np.asarray(opened), written.pixels)
        opened.resize((512, 512)).save(tmp_path / "sent.jpg", "JPEG")
    assert sorted(path.name for path in folder.iterdir()) == [f"{uid}-o-1.jpg", f"{uid}.json"]


def test_a_folder_that_is_there_is_kept(tmp_path: Path, samples: Sequence[Sample]) -> None:
    """Answers of two exports are never mixed."""
    answers = [(sample, [("x", None)]) for sample in samples]
    folder = write_answers(tmp_path, "m", answers[:2])
    before = sorted(folder.iterdir())
    with pytest.raises(WriteError, match="m_output is there already: remove it"):
        write_answers(tmp_path, "m", answers)
    assert sorted(folder.iterdir()) == before


@pytest.mark.parametrize(
    ("model", "ids", "message"),
    [
        ("org/model", UIDS, r"model 'org/model' cannot name a folder: give a name without /"),
        ("a\\b", UIDS, "cannot name a folder"),
        ("..", UIDS, "cannot name a folder"),
        ("", UIDS, "cannot name a folder"),
        ("a\0", UIDS, "cannot name a folder"),
        ("\ud800", UIDS, "cannot name a folder"),
        ("m", UIDS[:1] * 2, "two answers to '0101001': one is expected"),
        ("m", (), "there is no answer of 'm' to write"),
    ],
)
def test_refused_exports_leave_nothing(
    tmp_path: Path, samples: Sequence[Sample], model: str, ids: Sequence[str], message: str
) -> None:
    """One line, and no file."""
    by_id = {sample.id: sample for sample in samples}
    root = tmp_path / "export"
    root.mkdir()
    with pytest.raises(DatasetError, match=message):
        write_answers(root, model, [(by_id[uid], [("x", None)]) for uid in ids])
    assert list(root.iterdir()) == []


@pytest.mark.parametrize("sample_id", ["street.jpg", "0101001 seed 1", "0101001"])
def test_samples_of_other_data_sets(tmp_path: Path, sample_id: str) -> None:
    """Without the record of a question there is nothing to write the answer to."""
    other = Sample(sample_id, ("c",), question=("?",))
    with pytest.raises(DatasetError, match=f"sample '{sample_id}' is no question of OpenING"):
        write_answers(tmp_path, "m", [(other, [("x", None)])])
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_written(tmp_path: Path, samples: Sequence[Sample]) -> None:
    """One line with the folder and the reason."""
    (tmp_path / "file").touch()
    with pytest.raises(WriteError, match=r"file/m_output could not be written: .*irectory"):
        write_answers(tmp_path / "file", "m", [(samples[0], [("x", None)])])


def test_an_error_on_the_way_leaves_nothing(tmp_path: Path, samples: Sequence[Sample]) -> None:
    """Whatever raises it: the answers come from a store that may be damaged."""
    root = tmp_path / "export"

    def answers() -> Iterator[tuple[Sample, list[StepContent]]]:
        yield samples[0], [("x", image(1))]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_answers(root, "m", answers())
    assert list(root.iterdir()) == []


EXPORT = """
import os, signal, sys
from pathlib import Path
from pytest_cepbench.datasets.opening.answers import write_answers
from pytest_cepbench.datasets.opening.questions import load_opening

def answers():
    for number, sample in enumerate(load_opening(Path(sys.argv[1])).samples):
        if number == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        yield sample, [("x", None)]

write_answers(Path(sys.argv[2]), "m", answers())
"""


def test_a_killed_export_leaves_no_folder_that_looks_whole(
    tmp_path: Path, samples: Sequence[Sample]
) -> None:
    """Its name is not there, and the next export succeeds."""
    root = tmp_path / "export"
    command = [sys.executable, "-c", EXPORT, str(tmp_path / "OpenING"), str(root)]
    killed = subprocess.run(command, check=False, capture_output=True, timeout=60)

    assert killed.returncode == -signal.SIGKILL
    assert not (root / "m_output").exists()
    folder = write_answers(root, "m", [(sample, [("x", None)]) for sample in samples])
    read_answers(folder).check(samples)


def test_memory_is_that_of_one_answer(tmp_path: Path, samples: Sequence[Sample]) -> None:
    """Thirty images of 3 MB pass through, and never more than a few are there."""
    height = width = 1024

    def answers() -> Iterator[tuple[Sample, Iterator[StepContent]]]:
        for sample in samples:
            pixels = (np.full((height, width, 3), k, np.uint8) for k in range(10))
            yield sample, (("", ImageArtifact(array)) for array in pixels)

    tracemalloc.start()
    try:
        write_answers(tmp_path, "m", answers())
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 8 * 3 * height * width
