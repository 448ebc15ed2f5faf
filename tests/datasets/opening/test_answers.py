"""Answers in OpenING's layout: read, counted as failed, refused, and written."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from pytest_cepbench.artifacts import Failure
from pytest_cepbench.datasets.opening.answers import RecordedAnswer, RecordedAnswers, read_answers
from pytest_cepbench.datasets.sample import Sample
from pytest_cepbench.errors import DatasetError
from tests.datasets.opening.files import Step, png, put_answer

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


def test_images_are_found_by_name(tmp_path: Path) -> None:
    """The folders before it are another machine's."""
    folder = model_folder(tmp_path)
    (folder / f"{UID}-o-0.jpg").write_bytes(png(9))
    for before in ("", "./Show-o_output/", "/mnt/workspace/anole_output/", "..\\anole_output\\"):
        put_answer(folder, UID, [{"text": "", "image": f"{before}{UID}-o-0.jpg"}])
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
    steps: list[Step] = [{"text": text, "image": None} for text in ("", *map(str, range(40)))]
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


@pytest.mark.parametrize(
    ("steps", "more", "message"),
    [
        ([], {"model": "SEED-X"}, "unknown field `model`"),
        (
            [],
            {"data_id": "95", "total_uid": "0301095"},
            "the record is of question '0301095', and the file's name says another",
        ),
        ([{"text": "x"}], {}, r"\[1\]\.output\[0\]: .* missing required field `image`"),
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


def test_the_model_is_named_by_its_folder(tmp_path: Path) -> None:
    """As it is spelt there."""
    for folder in ("GPT-4o_output", "gill_Output", "gill", "_output"):
        put_answer(tmp_path / folder, UID, [{"text": "x", "image": None}])
        model = {"GPT-4o_output": "GPT-4o", "gill_Output": "gill"}.get(folder, folder)
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
    digest = first["digest"]
    assert first == {"layout": "opening", "version": "1", "answers": 2, "digest": digest}
    changes: list[dict[str, Any]] = [{"text": "y"}, {"image": b"123456"}, {"image": b""}]
    others = [identity(f"{n}_output", **own)["digest"] for n, own in enumerate(changes)]
    assert len({digest, *others}) == 4
