"""Answers in OpenING's layout: read, counted as failed, refused, and written."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image

from pytest_cepbench.artifacts import Failure, ImageArtifact
from pytest_cepbench.artifacts.answer import Answer, StoredStep
from pytest_cepbench.datasets.opening.answers import (
    RecordedAnswer,
    RecordedAnswers,
    StepContent,
    read_answers,
    write_answers,
)
from pytest_cepbench.datasets.opening.questions import load_opening
from pytest_cepbench.datasets.sample import Sample
from pytest_cepbench.errors import DatasetError
from tests.artifacts.files import noise
from tests.datasets.opening.files import Step, png, put_answer, put_questions, question, step

UID = "0301096"


def sample(uid: str = UID) -> Sample:
    """A question of which only the id matters here."""
    return Sample(uid, ("Storybook Completion",), question=("How does it go on?",))


def model_folder(root: Path) -> Path:
    """An empty folder of a model."""
    folder = root / "SEED-X_output"
    folder.mkdir()
    return folder


def content(answers: RecordedAnswers, uid: str = UID) -> Any:
    """Texts of an answer with the grey of its images, or kinds of failures."""
    answer = answers.answer(sample(uid))
    if isinstance(answer, Failure):
        return answer.kind
    steps = []
    for recorded in answer.steps:
        image = recorded.load_image()
        shown = image.kind if isinstance(image, Failure) else image and int(image.pixels[0, 0, 0])
        steps.append((recorded.text, shown))
    return steps


@pytest.mark.parametrize("ending", [".json", ".jsonl", ".JSON"])
def test_either_ending(tmp_path: Path, ending: str) -> None:
    """The same JSON under both, as the authors' pipelines write it, with or without its id."""
    folder = model_folder(tmp_path)
    steps: list[Step] = [
        {"text": "He sat.", "image": f"{UID}-o-0.jpg"},
        {"text": "The end.", "image": None},
    ]
    put_answer(folder, UID, steps, ending)
    put_answer(folder, "0101001", steps, ending, total_uid=None)
    (folder / f"{UID}-o-0.jpg").write_bytes(png(70))
    answers = read_answers(folder)

    assert content(answers) == content(answers, "0101001") == [("He sat.", 70), ("The end.", None)]
    assert (answers.name, answers.model, answers.path) == ("opening", "SEED-X", folder)
    answers.check([sample(), sample("0101001")])


@pytest.mark.parametrize(
    "written",
    [
        f"{UID}-o-0.jpg",
        f"./Show-o_output/{UID}-o-0.jpg",
        f"/mnt/workspace/anole_output/{UID}-o-0.jpg",
        f"..\\anole_output\\{UID}-o-0.jpg",
    ],
)
def test_images_are_found_by_name(tmp_path: Path, written: str) -> None:
    """The folders before it are another machine's."""
    folder = model_folder(tmp_path)
    put_answer(folder, UID, [{"text": "", "image": written}])
    (folder / f"{UID}-o-0.jpg").write_bytes(png(9))

    assert content(read_answers(folder)) == [("", 9)]


def test_failures_are_counted_by_kind(tmp_path: Path) -> None:
    """A named image that is not there is never an answer without image, as the judges take it."""
    folder = model_folder(tmp_path)
    names = ["gone.jpg", "text.jpg", "folder.jpg", "empty.jpg", "link.jpg"]
    put_answer(folder, UID, [{"text": name, "image": name} for name in names])
    (folder / "text.jpg").write_text("no image")
    (folder / "empty.jpg").touch()
    (folder / "folder.jpg").mkdir()
    (folder / "link.jpg").symlink_to("nowhere.jpg")
    answers = read_answers(folder)

    assert content(answers) == [
        ("gone.jpg", "missing"),
        ("text.jpg", "bad-image"),
        ("folder.jpg", "missing"),
        ("empty.jpg", "bad-image"),
        ("link.jpg", "missing"),
    ]
    answer = answers.answer(sample())
    assert isinstance(answer, RecordedAnswer)
    failed = answer.steps[0].image
    assert isinstance(failed, Failure)
    assert failed.detail == "the folder holds no file 'gone.jpg'"


def test_forty_steps_are_cut_to_ten(tmp_path: Path) -> None:
    """And how many were cut is kept; empty ones before them do not count."""
    steps: list[Step] = [
        {"text": "", "image": None},
        *({"text": f"{k}", "image": None} for k in range(40)),
    ]
    put_answer(model_folder(tmp_path), UID, steps)
    answer = read_answers(tmp_path / "SEED-X_output").answer(sample())

    assert isinstance(answer, RecordedAnswer)
    assert [step.text for step in answer.steps] == [str(k) for k in range(10)]
    assert answer.cut == 30


def test_fewer_answers_than_questions(tmp_path: Path) -> None:
    """Refused with a count, and where the answers are to others altogether."""
    folder = model_folder(tmp_path)
    questions = [sample(f"010100{k}") for k in range(1, 6)]
    for asked in questions[:3]:
        put_answer(folder, asked.id, [{"text": "x", "image": None}])
    with pytest.raises(
        DatasetError,
        match=r"SEED-X_output \(opening\): 2 of 5 answers are missing, the first to '0101004'; "
        "its first answer is to '0101001': give the whole folder",
    ):
        read_answers(folder).check(questions)
    assert content(read_answers(folder), "0101005") == "missing"
    read_answers(folder).check(questions[:2])


def test_two_files_for_one_question(tmp_path: Path) -> None:
    """Neither may stand for the other silently."""
    folder = model_folder(tmp_path)
    for ending in (".json", ".jsonl"):
        put_answer(folder, UID, [{"text": ending, "image": None}], ending)
    with pytest.raises(
        DatasetError, match=r"two answers to '0301096': '0301096\.json' and '0301096\.jsonl'; keep"
    ):
        read_answers(folder)


def raw(folder: Path, text: str) -> None:
    """The file of an answer with any content."""
    (folder / f"{UID}.json").write_text(text, "utf-8")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "not JSON"),
        ("[]", "Expected `object`, got `array`"),
        ("[" * 100_000, "it is nested too deeply"),
        ("1" * 10_000, "a number has thousands of digits"),
        ('{"a": 1, "a": 2}', "key 'a' is there twice"),
        ("\ufeff{}", "missing required field `meta_task_id`"),
    ],
)
def test_files_that_are_no_record(tmp_path: Path, text: str, message: str) -> None:
    """One line with the file."""
    folder = model_folder(tmp_path)
    raw(folder, text)
    with pytest.raises(DatasetError, match=message) as raised:
        read_answers(folder)
    assert f"{folder / UID}.json" in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("steps", "more", "message"),
    [
        ([], {"model": "SEED-X"}, "unknown field `model`"),
        ([], {"data_id": None}, "missing required field `data_id`"),
        ([], {"data_id": "95"}, "total_uid is '0301096', and its ids give '0301095'"),
        (
            [],
            {"data_id": "95", "total_uid": "0301095"},
            "the record is of question '0301095', and the file's name says another",
        ),
        ([{"text": "x"}], {}, r"\[1\]\.output\[0\]: .* missing required field `image`"),
        ([{"text": "x", "image": None, "score": 1}], {}, r"output\[0\]: .* unknown field `score`"),
        ([{"text": None, "image": None}], {}, r"output\[0\]\.text: Expected `str`, got `null`"),
        ([{"text": "x", "image": 3}], {}, r"output\[0\]\.image: Expected `str .*, got `int`"),
        (["x"], {}, r"output\[0\]: Expected `object`, got `str`"),
        ([{"text": "", "image": ".."}], {}, r"image '\.\.' leads out of the folder"),
        ([{"text": "", "image": "x/"}], {}, "image '' is no file name"),
        ([{"text": "", "image": "a\0.jpg"}], {}, r"image 'a\\x00\.jpg' is no file name"),
        ([{"text": "", "image": "\ud800"}], {}, "it is not UTF-8"),
    ],
)
def test_refused_records(
    tmp_path: Path, steps: list[Any], more: Mapping[str, Any], message: str
) -> None:
    """Each in one line with the file."""
    folder = model_folder(tmp_path)
    path = put_answer(folder, UID, steps, **more)
    with pytest.raises(DatasetError, match=message) as raised:
        read_answers(folder)
    assert str(path) in str(raised.value)
    assert "\n" not in str(raised.value)


def test_links_out_of_the_folder(tmp_path: Path) -> None:
    """Neither an answer nor an image is read from elsewhere."""
    folder = model_folder(tmp_path)
    outside = put_answer(tmp_path / "outside", UID, [{"text": "", "image": "0.jpg"}])
    (tmp_path / "outside" / "0.jpg").write_bytes(png(1))
    (folder / outside.name).symlink_to(outside)
    with pytest.raises(DatasetError, match=r"0301096\.json' is a link out of"):
        read_answers(folder)
    (folder / outside.name).unlink()
    outside.rename(folder / outside.name)
    (folder / "0.jpg").symlink_to(tmp_path / "outside" / "0.jpg")
    with pytest.raises(DatasetError, match=r"0\.jpg' is a link out of .*: put the file itself"):
        read_answers(folder)


@pytest.mark.parametrize(
    ("folder", "model"),
    [
        ("GPT-4o+DALL-E3_output", "GPT-4o+DALL-E3"),
        ("gill_Output", "gill"),
        ("gill", "gill"),
        ("_output", "_output"),
    ],
)
def test_the_model_is_named_by_its_folder(tmp_path: Path, folder: str, model: str) -> None:
    """As it is spelt there."""
    put_answer(tmp_path / folder, UID, [{"text": "x", "image": None}])

    assert read_answers(tmp_path / folder).model == model


def test_identity_follows_from_what_the_files_hold(tmp_path: Path) -> None:
    """Not from where they lie or how they are written; another text or image file changes it."""

    def identity(
        name: str, text: str = "x", image: bytes = b"12345", ending: str = ".json"
    ) -> Mapping[str, Any]:
        folder = tmp_path / name
        put_answer(folder, UID, [{"text": text, "image": "0.jpg"}], ending)
        put_answer(folder, "0101001", [])
        if image:
            (folder / "0.jpg").write_bytes(image)
        return read_answers(folder).identity

    first = identity("a_output")
    compact = identity("b_output", ending=".jsonl")
    path = tmp_path / "b_output" / f"{UID}.jsonl"
    path.write_text(json.dumps(json.loads(path.read_text())))

    assert first == compact == read_answers(tmp_path / "b_output").identity
    assert {**first, "digest": ""} == {
        "layout": "opening",
        "version": "1",
        "answers": 2,
        "digest": "",
    }
    others = [
        identity("c_output", text="y"),
        identity("d_output", image=b"123456"),
        identity("e_output", image=b""),
    ]
    assert len({first["digest"], *(other["digest"] for other in others)}) == 4


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


@given(answers=st.lists(STEPS, min_size=3, max_size=3))
@settings(
    max_examples=10,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
def test_round_trip(
    tmp_path_factory: pytest.TempPathFactory,
    samples: Sequence[Sample],
    answers: list[list[StepContent]],
) -> None:
    """Any answers, written and read, have the digests that they had."""
    root = tmp_path_factory.mktemp("export")
    folder = write_answers(root, "my+model 2", zip(samples, answers, strict=True))

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
