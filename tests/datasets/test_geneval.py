"""GenEval's prompts: files of both forms and of GenEval 2, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from pytest_cepbench.artifacts import digest_json
from pytest_cepbench.datasets.geneval import PUBLISHED_FILE, load_geneval, load_geneval2
from pytest_cepbench.errors import DatasetError
from pytest_cepbench.metrics.geneval_prompts import parse_prompt

PUBLISHED_DIGEST = "5c48e0813e812e3c373fa5c8ed07a8f0a483be30272b4427b0559c8048e67c13"
"""SHA-256 of the published `evaluation_metadata.jsonl`."""


DOG = {"class": "dog", "count": 1}
LINE: dict[str, Any] = {"tag": "single_object", "include": [DOG], "prompt": "a photo of a dog"}


def write(folder: Path, *lines: dict[str, Any] | bytes, newline: bytes = b"\n") -> Path:
    """A metadata file of these lines."""
    path = folder / "metadata.jsonl"
    data = [item if isinstance(item, bytes) else json.dumps(item).encode() for item in lines]
    path.write_bytes(newline.join(data) + newline)
    return path


def test_the_built_in_suite_is_there_without_a_path() -> None:
    """553 samples whose ids are their places in the published file, whose rules can be judged."""
    assert sha256(PUBLISHED_FILE.read_bytes()).hexdigest() == PUBLISHED_DIGEST
    dataset = load_geneval()
    assert all(parse_prompt(own.metadata).task == own.categories[0] for own in dataset.samples)
    assert len(dataset.samples) == 553
    assert [sample.id for sample in dataset.samples] == [f"{i:05d}" for i in range(553)]
    assert {task: len(dataset.in_category(task)) for task in dataset.categories} == {
        "single_object": 80,
        "two_object": 99,
        "counting": 80,
        "colors": 94,
        "position": 100,
        "color_attr": 100,
    }


def test_the_identity_tells_prompts_apart(tmp_path: Path) -> None:
    """Another text, another clause or another number of images is another data set."""
    other = LINE | {"prompt": "a dog"}
    strict = LINE | {"exclude": [{"class": "dog", "count": 2}]}
    identities = [load_geneval(write(tmp_path, item)).identity for item in (LINE, other, strict)]
    identities += [load_geneval(write(tmp_path, LINE), images_per_prompt=4).identity]
    identities += [load_geneval().identity]
    assert len({digest_json(dict(item)) for item in identities}) == 5


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"tag": "objects"}, r": Invalid enum value 'objects' - at `\$.tag`"),
        ({"include": []}, r": Expected `array` of length >= 1 - at `\$.include`"),
        ({"include": [DOG | {"count": 0}]}, r": Expected `int` >= 1 - at `\$.include\[0\].count`"),
        ({"include": [DOG | {"color": "cyan"}]}, r": include\[0\]: color: 'cyan' is none of red, "),
        ({"include": [DOG | {"position": ["left of", 0]}]}, r": include\[0\]: position: clause 0"),
        ({"include": [DOG | {"class": "\ud800"}]}, r": '\\ud800' is half of a surrogate"),
        ({"prompt": " \n"}, ", prompt: a text is expected that is not empty"),
        ({"index": "a"}, r", index: .* matching regex .*\[0-9\]\{1,5\}"),
        ({"index": True}, ", index: Expected `int | str | null`, got `bool`"),
    ],
)
def test_a_wrong_line_is_refused(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    """File, line and field are named."""
    path = write(tmp_path, LINE, LINE | change)
    with pytest.raises(DatasetError, match=rf"metadata\.jsonl, line 2{message}"):
        load_geneval(path)


def test_an_empty_file_is_refused(tmp_path: Path) -> None:
    """It is not the built-in suite."""
    path = tmp_path / "metadata.jsonl"
    for data in (b"", b"\n\n", b"\xef\xbb\xbf"):
        path.write_bytes(data)
        with pytest.raises(DatasetError, match="has no prompts"):
            load_geneval(path)


def test_options_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    """Each with what was given; GenEval's own file has no detailed captions."""
    with pytest.raises(DatasetError, match=r"line 1: Object missing .*`detailed_caption`"):
        load_geneval(write(tmp_path, LINE), captions="detailed")
    with pytest.raises(DatasetError, match="'prompt' or 'detailed' is expected, got 'long'"):
        load_geneval(captions="long")
    with pytest.raises(DatasetError, match="built-in GenEval prompts have no detailed captions"):
        load_geneval(captions="detailed")
    for number in (0, 101):
        with pytest.raises(DatasetError, match=rf"must be in 1\.\.100, got {number}"):
            load_geneval(images_per_prompt=number)


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

ONE_DOG = {
    "prompt": "a dog chasing a ball",
    "atom_count": 3,
    "vqa_list": [
        ["Are there any dogs in the image?", "Yes"],
        ["Is the dog chasing the ball?", "Yes"],
        ["Are there any balls in the image?", "Yes"],
    ],
    "skills": ["object", "verb", "object"],
}


def write_geneval2(folder: Path, lines: Sequence[Mapping[str, Any]]) -> Path:
    """A folder with a file of the released name."""
    text = "".join(f"{json.dumps(line)}\n" for line in lines)
    (folder / "geneval2_data.jsonl").write_text(text, encoding="utf-8")
    return folder


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"vqa_list": [["Any cups?"]], "skills": ["object"]}, r", vqa_list\[0\]: Expected `array`"),
        (
            {"vqa_list": [["Any cups?", ""]], "skills": ["object"]},
            r", vqa_list\[0\]\[1\]: a text is",
        ),
        ({"vqa_list": []}, ", vqa_list: Expected `array` of length >= 1"),
        ({"skills": ["count"]}, ": skills: one for each of 6 questions is expected, got 1"),
        ({"skills": ["colour"] * 6}, r": skills\[0\]: unknown skill 'colour'"),
        ({"atom_count": 0}, ", atom_count: Expected `int` >= 1"),
        ({"prompt": ""}, ", prompt: a text is expected that is not empty"),
        ({"prompt": "half \udc00"}, r": '\\udc00' is half of a surrogate pair"),
        ({"skilz": []}, ": Object contains unknown field `skilz`"),
    ],
)
def test_a_wrong_line_is_named(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    """File, line, field, and what is expected."""
    write_geneval2(tmp_path, [ONE_DOG, CUPS | change])
    with pytest.raises(DatasetError, match=rf"geneval2_data\.jsonl, line 2{message}"):
        load_geneval2(tmp_path)


def test_a_folder_without_the_file_says_which_it_lacks(tmp_path: Path) -> None:
    """And what to give; an empty file has no prompts."""
    with pytest.raises(DatasetError, match=r"has no geneval2_data\.jsonl: give the folder"):
        load_geneval2(tmp_path)
    with pytest.raises(DatasetError, match="has no prompts"):
        load_geneval2(write_geneval2(tmp_path, []))
