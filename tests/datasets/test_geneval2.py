"""GenEval 2's released file: its prompts, questions and skills, read from the user's copy."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from pytest_cepbench.datasets.geneval import load_geneval2
from pytest_cepbench.datasets.questions import controls_of, questions_of
from pytest_cepbench.errors import DatasetError

CUPS = {
    "prompt": "two red cups above a table",
    "atom_count": 5,
    "vqa_list": [
        ["How many cups are in the image?", "two"],
        ["Are the cups red?", "Yes"],
        ["Are there any cups in the image?", "Yes"],
        ["Are the cups above the table?", "Yes"],
        ["How many tables are in the image?", "one"],
        ["Are there any tables in the image?", "Yes"],
    ],
    "skills": ["count", "attribute", "object", "position", "count", "object"],
}

DOG = {
    "prompt": "a dog chasing a ball",
    "atom_count": 3,
    "vqa_list": [
        ["Are there any dogs in the image?", "Yes"],
        ["Is the dog chasing the ball?", "Yes"],
        ["Are there any balls in the image?", "Yes"],
    ],
    "skills": ["object", "verb", "object"],
}


def write(folder: Path, lines: Sequence[Mapping[str, Any]]) -> Path:
    """A folder with a file of the released name."""
    text = "".join(f"{json.dumps(line)}\n" for line in lines)
    (folder / "geneval2_data.jsonl").write_text(text, encoding="utf-8")
    return folder


def test_the_released_layout_gives_prompts_by_atomicity(tmp_path: Path) -> None:
    """The folder or its file; ids by line; skills as kinds of facts."""
    dataset = load_geneval2(write(tmp_path, [CUPS, DOG]))
    assert [(s.id, s.categories, s.text) for s in dataset.samples] == [
        ("00000", ("atoms-5",), "two red cups above a table"),
        ("00001", ("atoms-3",), "a dog chasing a ball"),
    ]
    questions = questions_of(dataset.samples[0])
    assert [q.kind for q in questions] == [
        "count", "attribute", "object", "relation", "count", "object",
    ]  # fmt: skip
    assert [q.kind for q in questions_of(dataset.samples[1])] == ["object", "action", "object"]
    assert (questions[0].answer, questions[1].answer) == ("two", "Yes")
    assert set(controls_of(dataset.samples[1])) == {
        "Are there any cups in the image?", "Are there any tables in the image?",
    }  # fmt: skip
    by_file = load_geneval2(tmp_path / "geneval2_data.jsonl")
    assert by_file == dataset
    assert load_geneval2(write(tmp_path, [DOG, CUPS])).identity != dataset.identity


def test_images_of_one_prompt_are_a_cluster(tmp_path: Path) -> None:
    """They tell less than as many prompts."""
    dataset = load_geneval2(write(tmp_path, [CUPS, DOG]), images_per_prompt=2)
    assert [(s.id, s.cluster) for s in dataset.samples] == [
        ("00000-0", "00000"), ("00000-1", "00000"), ("00001-0", "00001"), ("00001-1", "00001"),
    ]  # fmt: skip
    with pytest.raises(DatasetError, match=r"images_per_prompt must be in 1\.\.100, got 0"):
        load_geneval2(tmp_path, images_per_prompt=0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"vqa_list": [["Any cups?"]], "skills": ["object"]}, r"vqa_list\[0\]: a question and its"),
        ({"vqa_list": [["Any cups?", ""]], "skills": ["object"]}, r"vqa_list\[0\]: answer: a text"),
        ({"vqa_list": []}, "vqa_list: a list of questions"),
        ({"vqa_list": None}, "vqa_list: a list of questions"),
        ({"skills": ["count"]}, "skills: one for each of 6 questions is expected, got 1"),
        ({"skills": ["colour"] * 6}, r"skills\[0\]: unknown skill 'colour'"),
        ({"skills": [[]] * 6}, r"skills\[0\]: unknown skill"),
        ({"atom_count": 0}, "atom_count: a whole number from 1 to 99 is expected, got 0"),
        ({"atom_count": True}, "atom_count: a whole number"),
        ({"prompt": ""}, "prompt: a text is expected, got ''"),
        ({"prompt": "half \udc00"}, "prompt: half of a surrogate pair"),
        ({"skilz": []}, "unknown key 'skilz'. Did you mean 'skills'"),
    ],
)
def test_a_wrong_line_is_named(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    """File, line, field, and what is expected."""
    write(tmp_path, [DOG, CUPS | change])
    with pytest.raises(DatasetError, match=rf"geneval2_data\.jsonl, line 2: {message}"):
        load_geneval2(tmp_path)


def test_a_folder_without_the_file_says_which_it_lacks(tmp_path: Path) -> None:
    """And what to give; an empty file has no prompts."""
    with pytest.raises(DatasetError, match=r"has no geneval2_data\.jsonl: give the folder"):
        load_geneval2(tmp_path)
    with pytest.raises(DatasetError, match="has no prompts"):
        load_geneval2(write(tmp_path, []))
