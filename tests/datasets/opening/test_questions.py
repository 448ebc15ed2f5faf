"""OpenING's questions: how a record becomes a sample, and what is refused with its place."""

from __future__ import annotations

import json
import os
import shutil
import tomllib
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pytest

from pytest_cepbench.datasets.opening.questions import META_TOPICS, TASKS, load_opening
from pytest_cepbench.datasets.sample import FileImage, GoldStep
from pytest_cepbench.errors import DatasetError
from tests.datasets.files import png, put_questions, question, step

RELEASED = Path(__file__).parents[4] / "shared" / "data" / "opening" / "test_data.jsonl"


def test_a_record_becomes_a_sample(tmp_path: Path) -> None:
    """Question in reading order, gold steps, names of the paper; markers are gone."""
    record = question(
        "0101007",
        [
            step("0101007", "i-1", "Tell the story. <BEGIN> Once upon a time <image>"),
            step("0101007", None, "there was a fox."),
            step("0101007", "i-2", " <image>"),
        ],
        [
            step("0101007", "o-1", "It met a crow. <image>"),
            step("0101007", None, "The end."),
            step("0101007", "o-2", "<image>"),
        ],
    )
    record |= {"subtask_name": "Story Writting"}  # as it was released
    root = put_questions(tmp_path / "any name", [record])
    (sample,) = load_opening(root).samples
    images = root / "images" / "Story Writing"

    assert sample.id == "0101007"
    assert sample.categories == ("Story Writing", "Storybook Creation")
    assert sample.question == (
        "Tell the story. Once upon a time",
        FileImage(images / "7-i-1.jpg"),
        "there was a fox.",
        FileImage(images / "7-i-2.jpg"),
    )
    assert sample.gold == (
        GoldStep("It met a crow.", FileImage(images / "7-o-1.jpg")),
        GoldStep("The end.", None),
        GoldStep("", FileImage(images / "7-o-2.jpg")),
    )
    assert sample.metadata == {
        "meta_task_id": "1",
        "meta_task_name": "Storybook Creation",
        "subtask_id": "1",
        "subtask_name": "Story Writting",
        "data_id": "7",
        "input": record["conversations"][0]["input"],
    }


def test_what_is_no_split_is_refused(tmp_path: Path) -> None:
    """What is given, and what there is; the path is named, with what is expected there."""
    root = put_questions(tmp_path / "root", [question("0101001")])
    (tmp_path / "x.zip").write_bytes(b"PK")
    for path, split, message in (
        (root, "tset", r"unknown split 'tset'\. Did you mean 'test'\?"),
        (root, "dev", "holds no dev_data.jsonl: give the folder in which it lies"),
        (tmp_path, "test", r"holds no test_data\.jsonl"),
        (tmp_path / "gone", "test", "gone' does not exist: the folder that holds test_data"),
        (tmp_path / "x.zip", "test", r"x\.zip' is a file: the folder that holds test_data"),
    ):
        with pytest.raises(DatasetError, match=message):
            load_opening(path, split=split)


def test_missing_images_are_counted(tmp_path: Path) -> None:
    """The folder is refused with how many and the first; a pipe, a folder and a link to nothing
    are no images.
    """
    root = put_questions(tmp_path, [question(f"010100{k}") for k in range(1, 6)])
    images = root / "images" / "Story Writing"
    (images / "2-o-1.jpg").unlink()
    (images / "4-i-1.jpg").unlink()
    (images / "4-o-1.jpg").unlink()
    os.mkfifo(images / "2-o-1.jpg")
    (images / "4-i-1.jpg").mkdir()
    (images / "4-o-1.jpg").symlink_to("nowhere.jpg")

    with pytest.raises(
        DatasetError,
        match=r"3 of 10 images are missing, the first '\./images/Story Writing/2-o-1\.jpg' \(.*"
        r"line 2\): give the whole archive",
    ):
        load_opening(root)


def changed(**fields: Any) -> dict[str, Any]:
    """The record of 0101001 with other fields."""
    return question("0101001") | fields


def with_step(**fields: Any) -> dict[str, Any]:
    """The record of 0101001 whose input step has other fields."""
    return question("0101001", [dict(step("0101001", "i-1", "Go on. <image>")) | fields])


@pytest.mark.parametrize(
    ("record", "message"),
    [
        (changed(answer=1), "line 2: .* unknown field `answer`"),
        ({"total_uid": "0101001"}, "line 2: .* missing required field `meta_task_id`"),
        (changed(data_id=1), "line 2, data_id: Expected `str`, got `int`"),
        (changed(data_id="one"), r"line 2, data_id: .* regex .*\[0-9\]\{1,3\}"),
        (changed(data_id="2"), "total_uid is '0101001', and its ids give '0101002'"),
        (changed(total_uid=101001), "total_uid is 101001, and its ids give '0101001'"),
        (changed(conversations=[]), "conversations: Expected `array` of length 2, got 0"),
        (changed(conversations=[{"input": []}, 3]), r"s\[1\]: Expected `object`, got `int`"),
        (changed(conversations=[{"input": []}, {"output": []}]), "line 2, input has no step"),
        (with_step(text=None), r"input\[0\]\.text: Expected `str`, got `null`"),
        (with_step(caption="x"), r"input\[0\]: .* unknown field `caption`"),
        (with_step(text="Go on."), "input 1: 0 <image> in the text, and image is './images/Story"),
        (with_step(text="<image> <image>"), "input 1: 2 <image> in the text, and image is"),
        (with_step(image=None), "input 1: 1 <image> in the text, and image is None"),
        (with_step(image=None, text=" <BEGIN> "), "input 1: neither a text nor an image"),
        (
            changed(total_uid="0109001", subtask_id="9"),
            "'0109001' is of a task '0109' that OpenING has not",
        ),
    ],
)
def test_refused_records(tmp_path: Path, record: Any, message: str) -> None:
    """Each with file and line."""
    root = put_questions(tmp_path, [question("0101009")])
    with (root / "test_data.jsonl").open("a") as stream:
        stream.write(f"{json.dumps(record)}\n")
    with pytest.raises(DatasetError, match=message) as raised:
        load_opening(root)
    assert f"{root / 'test_data.jsonl'}, line 2" in str(raised.value)


def test_links_out_of_the_folder(tmp_path: Path) -> None:
    """They are not followed; the folder itself may be reached by a link, and links stay inside."""
    root = put_questions(tmp_path / "root", [question("0101001")])
    images = root / "images" / "Story Writing"
    (tmp_path / "link").symlink_to(root)
    (images / "1-i-1.jpg").rename(images / "other.jpg")
    (images / "1-i-1.jpg").symlink_to("other.jpg")
    assert len(load_opening(tmp_path / "link").samples) == 1

    table, outside = root / "test_data.jsonl", tmp_path / "outside"
    outside.mkdir()
    (outside / "x.jpg").write_bytes(png(1))
    (images / "1-i-1.jpg").unlink()
    (images / "1-i-1.jpg").symlink_to(outside / "x.jpg")
    with pytest.raises(DatasetError, match=r"1-i-1\.jpg' is a link out of .*: put the file itself"):
        load_opening(tmp_path / "link")
    table.rename(outside / "moved.jsonl")
    table.symlink_to(outside / "moved.jsonl")
    with pytest.raises(DatasetError, match=r"jsonl' is a link out of .*: put the file itself"):
        load_opening(tmp_path / "link")


CORRECTED = {
    "Story Writting": "Story Writing",
    "Visual Traffic Forcasting": "Visual Traffic Forecasting",
    "Event Reasoning and Deductive Simulation": "Event Reasoning & Deductive Simulation",
    "Dynamic biography generation": "Multimodal Report Generation",
}


@pytest.mark.slow
@pytest.mark.skipif(not RELEASED.is_file(), reason=f"OpenING's questions are not in {RELEASED}")
def test_the_released_test_set(tmp_path: Path) -> None:
    """2,160 questions in 56 tasks and 23 meta-topics, with the numbers of steps and images; ids
    lead to the names in the records, but for the authors' slips. 26 tasks have two gold steps on
    average, 17 of the others never a second one.
    """
    root = tmp_path / "OpenING-benchmark"
    root.mkdir()
    shutil.copy(RELEASED, root)
    records = map(json.loads, RELEASED.read_text("utf-8").splitlines())
    sides = (
        steps for record in records for side in record["conversations"] for steps in side.values()
    )
    names = [part["image"] for steps in sides for part in steps if part["image"]]
    for folder in {(root / name).parent for name in names}:
        folder.mkdir(parents=True)
    for name in names:
        (root / name).touch()
    dataset = load_opening(root)
    assert len(dataset.samples) == 2160
    assert set(dataset.categories) == {*TASKS.values(), *META_TOPICS.values()}
    assert len({sample.metadata["meta_task_name"] for sample in dataset.samples}) == 24
    for sample in dataset.samples:
        task, topic = sample.metadata["subtask_name"], sample.metadata["meta_task_name"]
        assert sample.categories == (CORRECTED.get(task, task), CORRECTED.get(topic, topic))
    questions = [piece for sample in dataset.samples for piece in sample.question]
    gold = [part for sample in dataset.samples for part in sample.gold]
    assert sum(isinstance(piece, FileImage) for piece in questions) == 1513
    assert len(gold) == 5469
    assert all(part.text and part.image for part in gold)
    texts = [piece for piece in questions if isinstance(piece, str)] + [part.text for part in gold]
    assert not any("<BEGIN>" in text or "<image>" in text for text in texts)
    assert all(text == text.strip() != "" for text in texts)
    lengths = Counter(len(sample.gold) for sample in dataset.samples)
    assert [lengths[k] for k in range(1, 12)] == [1107, 215, 276, 197, 132, 98, 57, 41, 29, 8, 0]

    steps: dict[str, list[int]] = defaultdict(list)
    for sample in dataset.samples:
        steps[sample.categories[0]].append(len(sample.gold))
    suite = Path(__file__).parents[3] / "suites" / "opening" / "suite.toml"
    group = tomllib.loads(suite.read_text("utf-8"))["groups"]["multi-step"]
    assert len(group) == 26
    assert set(group) == {name for name, counts in steps.items() if sum(counts) >= 2 * len(counts)}
    assert sum(max(counts) == 1 for counts in steps.values()) == 17
