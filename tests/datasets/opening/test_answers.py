"""Answers of models in OpenING's layout, and verdicts on them: read, refused, and written."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from pytest_cepbench.artifacts import Failure
from pytest_cepbench.datasets.opening.answers import RecordedAnswer, RecordedAnswers, read_answers
from pytest_cepbench.datasets.opening.verdict_files import ModelNames, read_verdicts, write_battles
from pytest_cepbench.datasets.sample import Sample
from pytest_cepbench.errors import DatasetError
from pytest_cepbench.metrics.battles import JudgedBattle
from tests.datasets.files import Step, png, put_answer

UID = "0301096"


def sample(uid: str = UID) -> Sample:
    """A question of which only the id matters here."""
    return Sample(uid, ("Storybook Completion",), question=("How does it go on?",))


def model_folder(root: Path, name: str = "SEED-X_output") -> Path:
    """An empty folder of a model."""
    (root / name).mkdir()
    return root / name


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


def test_either_ending(tmp_path: Path) -> None:
    """The same JSON under both, as the authors' pipelines write it, with or without its id. Images
    are found by name: the folders before it are another machine's.
    """
    for ending in (".json", ".jsonl", ".JSON"):
        folder = model_folder(tmp_path, f"SEED-X{ending}_output")
        (folder / f"{UID}-o-0.jpg").write_bytes(png(70))
        put_answer(folder, "0101001", [{"text": "The end.", "image": None}], ending, total_uid=None)
        for before in (
            "",
            "./Show-o_output/",
            "/mnt/workspace/anole_output/",
            "..\\anole_output\\",
        ):
            steps: list[Step] = [
                {"text": "He sat.", "image": f"{before}{UID}-o-0.jpg"},
                {"text": "The end.", "image": None},
            ]
            put_answer(folder, UID, steps, ending)
            answers = read_answers(folder)
            assert content(answers) == [("He sat.", 70), ("The end.", None)]
        assert content(answers, "0101001") == [("The end.", None)]
        assert (answers.name, answers.model, answers.path) == ("opening", f"SEED-X{ending}", folder)
        answers.check([sample(), sample("0101001")])


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
    """Refused with a count, and where the answers are to others altogether. So are two files for
    one question: neither may stand for the other silently.
    """
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
    put_answer(folder, "0101001", [{"text": "x", "image": None}], ".jsonl")
    with pytest.raises(
        DatasetError, match=r"two answers to '0101001': '0101001\.json' and '0101001\.jsonl'; keep"
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
        (
            [{"text": "", "image": "\xe9" * 200}],
            {},
            "is no file name: it is too long",
        ),
    ],
)
def test_refused_answers(
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


def test_identity_follows_from_what_the_files_hold(tmp_path: Path) -> None:
    """Not from where they lie or how they are written; another text or image file changes it. The
    model is named as its folder spells it.
    """
    for name, model in (("GPT-4o_output", "GPT-4o"), ("gill_Output", "gill")):
        put_answer(tmp_path / name, UID, [{"text": "x", "image": None}])
        assert read_answers(tmp_path / name).model == model
    for name in ("gill", "_output"):
        put_answer(tmp_path / name, UID, [{"text": "x", "image": None}])
        assert read_answers(tmp_path / name).model == name

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


# -- files of verdicts ----------------------------------------------------------------------------


def record(
    question: object = "0101001", first: object = "a", second: object = "b", **more: Any
) -> Any:
    """One record as the released files have it."""
    return {
        "data_id": question,
        "model_A": {"id": "0", "name": first},
        "model_B": {"id": "1", "name": second},
        "winner": "A",
    } | more


def write(folder: Path, content: Any) -> Path:
    """A file of records."""
    path = folder / "verdicts.json"
    path.write_text(json.dumps(content), "utf-8")
    return path


def test_one_spelling_of_a_model(tmp_path: Path) -> None:
    """The one that is read first, also across files; ids mean nothing."""
    names = ModelNames()
    for first, second, expected in (
        ("gill", "Anole", "gill Anole"),
        ("anole", "GILL", "Anole gill"),
    ):
        (battle,) = read_verdicts(write(tmp_path, [record(first=first, second=second)]), names)
        assert f"{battle.first} {battle.second}" == expected


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({}, "Expected `array`, got `object`"),
        ([], "holds no battle"),
        (["A"], "record 1: Expected `object`, got `str`"),
        ([record(), record("2", reason="better")], "record 2: .* unknown field `reason`"),
        ([{"data_id": "1"}], "record 1: .* missing required field `model_A`"),
        (
            [record(winner="tie(b)")],
            r"record 1: winner is 'tie\(b\)': A, Tie\(A\), Tie\(B\), B are",
        ),
        ([record(question="")], "data_id: Expected `str` of length >= 1"),
        ([record(second=" ")], r"model_B\.name: a text is expected"),
        ([record(first="GILL", second="gill")], "'GILL' cannot battle against itself"),
        (
            [record(), record("2"), record(winner="B")],
            "record 3: 'a' against 'b' in question '0101001' was judged before, at .*record 1",
        ),
    ],
)
def test_refused_verdicts(tmp_path: Path, content: Any, message: str) -> None:
    """Each with file and record."""
    path = write(tmp_path, content)
    with pytest.raises(DatasetError, match=message) as raised:
        read_verdicts(path)
    assert str(path) in str(raised.value)


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    """In both forms, in the order given; a second file takes the place of the first. What could not
    be read again is refused, and an earlier file stays.
    """
    battles = [
        JudgedBattle("1", "b", "a", "Tie(B)"),
        JudgedBattle("1", "a", "b", "A"),
        JudgedBattle("2", "ä\n", "a", "B"),
    ]
    for name in ("verdicts.json", "verdicts.jsonl"):
        path = tmp_path / name
        write_battles(path, battles[::-1])
        write_battles(path, battles)
        for wrong in (
            [],
            [JudgedBattle("1", "a", "a", "A")],
            [JudgedBattle("1", " ", "a", "A")],
            [battles[1], JudgedBattle("1", "a", "b", "B")],
        ):
            words = r"no verdict to write|two models are expected, and one"
            with pytest.raises(DatasetError, match=words):
                write_battles(path, wrong)
        assert read_verdicts(path) == battles
        text = path.read_text("utf-8")
        entries = json.loads(text) if path.suffix == ".json" else map(json.loads, text.splitlines())
        for entry, own in zip(entries, battles, strict=True):
            for model in ("model_A", "model_B"):
                entry[model]["id"] = record()[model]["id"]
            assert entry == record(own.question, own.first, own.second, winner=own.winner)
    assert {file.name for file in tmp_path.iterdir()} == {"verdicts.json", "verdicts.jsonl"}
