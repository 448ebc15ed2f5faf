"""GenEval's prompts as samples: the built-in suite, files of both forms, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_cepbench.artifacts import digest_json
from pytest_cepbench.datasets.geneval import load_geneval
from pytest_cepbench.errors import DatasetError
from pytest_cepbench.metrics.geneval_prompts import parse_prompt

DOG = {"class": "dog", "count": 1}
LINE: dict[str, Any] = {"tag": "single_object", "include": [DOG], "prompt": "a photo of a dog"}


def write(folder: Path, *lines: dict[str, Any] | bytes, newline: bytes = b"\n") -> Path:
    """A metadata file of these lines."""
    path = folder / "metadata.jsonl"
    data = [item if isinstance(item, bytes) else json.dumps(item).encode() for item in lines]
    path.write_bytes(newline.join(data) + newline)
    return path


def test_the_built_in_suite_is_there_without_a_path() -> None:
    """553 samples whose ids are their places in the published file."""
    dataset = load_geneval()
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


def test_a_sample_starts_from_its_prompt() -> None:
    """Text and clauses; there is no image."""
    sample = load_geneval().samples[353]
    assert sample.text == "a photo of a dog right of a teddy bear"
    assert sample.categories == ("position",)
    assert sample.image is None
    assert sample.metadata == {
        "tag": "position",
        "include": [
            {"class": "teddy bear", "count": 1},
            {"class": "dog", "count": 1, "position": ["right of", 0]},
        ],
    }


def test_metadata_is_what_the_rules_read() -> None:
    """Every sample's clauses can be judged, and are built-in types only."""
    for sample in load_geneval().samples:
        assert parse_prompt(sample.metadata).task == sample.categories[0]
        digest_json(dict(sample.metadata))


def test_the_published_file_is_the_built_in_suite() -> None:
    """Samples and identity are the same, so that numbers can be compared."""
    path = Path(__file__).parents[2] / "../shared/data/geneval/evaluation_metadata.jsonl"
    if not path.is_file():
        pytest.skip(f"the published prompts are not at {path}")
    assert load_geneval(path) == load_geneval()


def test_detailed_captions_are_read_from_the_rewritten_form(tmp_path: Path) -> None:
    """The long caption is the seed text, the index the id; the clauses are the same."""
    first = LINE | {"detailed_caption": "A clear photo of a dog on grass.", "index": "00007"}
    second = LINE | {"detailed_caption": "Another dog.", "index": "00003"}
    path = write(tmp_path, first, second)
    detailed = load_geneval(path, captions="detailed")
    assert [(item.id, item.text) for item in detailed.samples] == [
        ("00003", "Another dog."),
        ("00007", "A clear photo of a dog on grass."),
    ]
    short = load_geneval(path)
    assert [item.text for item in short.samples] == ["a photo of a dog"] * 2
    assert short.identity != detailed.identity
    assert short.samples[0].metadata == detailed.samples[0].metadata


def test_several_images_of_a_prompt_are_samples_of_their_own(tmp_path: Path) -> None:
    """Numbered from 0, with one text: the seed of a chain comes from its id."""
    dataset = load_geneval(write(tmp_path, LINE, LINE), images_per_prompt=2)
    assert [item.id for item in dataset.samples] == ["00000-0", "00000-1", "00001-0", "00001-1"]
    assert len({item.text for item in dataset.samples}) == 1
    assert len(load_geneval(write(tmp_path, LINE), images_per_prompt=12).samples) == 12


def test_images_of_a_prompt_are_one_cluster(tmp_path: Path) -> None:
    """Four pictures of one prompt tell less than four prompts; one alone is a unit of its own."""
    lines = [LINE | {"index": index} for index in ("00007", "00003")]
    four = load_geneval(write(tmp_path, *lines), images_per_prompt=4)
    units = {item.id: item.unit for item in four.samples}
    assert units == {f"{p}-{i}": p for p in ("00003", "00007") for i in range(4)}
    assert {item.replicate for item in four.samples} == {0}
    assert {item.cluster for item in load_geneval(write(tmp_path, *lines)).samples} == {None}
    assert len({item.unit for item in load_geneval(images_per_prompt=4).samples}) == 553


def test_seeds_of_an_image_stay_in_its_prompts_cluster(tmp_path: Path) -> None:
    """Two images of three seeds each are six pictures of one prompt."""
    dataset = load_geneval(write(tmp_path, LINE), images_per_prompt=2).repeated(3)
    assert len(dataset.samples) == 6
    assert {item.unit for item in dataset.samples} == {"00000"}


def test_the_identity_tells_prompts_apart(tmp_path: Path) -> None:
    """Another text, another clause or another number of images is another data set."""
    other = LINE | {"prompt": "a dog"}
    strict = LINE | {"exclude": [{"class": "dog", "count": 2}]}
    identities = [load_geneval(write(tmp_path, item)).identity for item in (LINE, other, strict)]
    identities += [load_geneval(write(tmp_path, LINE), images_per_prompt=4).identity]
    identities += [load_geneval().identity, load_geneval(seed=44).identity]
    assert len({digest_json(dict(item)) for item in identities}) == 6


def test_bom_and_windows_lines_are_read(tmp_path: Path) -> None:
    """And text of any script."""
    line = LINE | {"prompt": "ein Foto\u2028von einem 🐕"}
    raw = json.dumps(line, ensure_ascii=False).encode()
    path = write(tmp_path, b"\xef\xbb\xbf" + raw, raw, newline=b"\r\n")
    assert [item.text for item in load_geneval(path).samples] == [line["prompt"]] * 2


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), min_size=1), min_size=1))
def test_any_text_comes_through(texts: list[str]) -> None:
    """As it was written, escapes, quotes and line separators included."""
    lines = [LINE | {"prompt": f"{text}."} for text in texts]
    raw = [json.dumps(line, ensure_ascii=False).encode() for line in lines]
    with TemporaryDirectory() as folder:
        for path in (write(Path(folder), *lines), write(Path(folder), *raw)):
            assert [item.text for item in load_geneval(path).samples] == [f"{t}." for t in texts]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"tag": None}, "tag: unknown task 'None'"),
        ({"tag": "objects"}, "tag: unknown task 'objects'"),
        ({"include": []}, "include: at least one clause is expected"),
        ({"include": [DOG | {"count": 0}]}, r"include\[0\]: count: a whole number from 1"),
        ({"include": [DOG | {"color": "cyan"}]}, r"include\[0\]: color: 'cyan' is none of red, "),
        ({"include": [DOG | {"position": ["left of", 0]}]}, r"include\[0\]: position: clause 0"),
        ({"include": [DOG | {"class": "\ud800"}]}, "class: half of a surrogate pair"),
        ({"exclude": [{"class": "\ud800", "count": 1}]}, "class: half of a surrogate pair"),
        ({"prompt": "dog \ud800"}, "prompt: half of a surrogate pair at character 4"),
        ({"prompt": " \n"}, r"prompt: a text is expected, got ' \\n'"),
        ({"prompt": 7}, "prompt: a text is expected, got 7"),
        ({"index": "a"}, "index: up to five digits are expected, got 'a'"),
        ({"index": "000001"}, "index: up to five digits are expected, got '000001'"),
        ({"index": True}, "index: up to five digits are expected, got True"),
        ({"index": "٣"}, "index: up to five digits are expected"),
        ({"index": "../1"}, "index: up to five digits are expected"),
        ({"index": 0}, r"index: '00000' is taken by .*, line 1"),
    ],
)
def test_a_wrong_line_is_refused(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    """File, line and field are named."""
    path = write(tmp_path, LINE, LINE | change)
    with pytest.raises(DatasetError, match=rf"metadata\.jsonl, line 2: {message}"):
        load_geneval(path)


@pytest.mark.parametrize("field", ["tag", "include", "prompt"])
def test_a_missing_field_is_refused(tmp_path: Path, field: str) -> None:
    """By its name."""
    line = {name: value for name, value in LINE.items() if name != field}
    with pytest.raises(DatasetError, match=f"line 2: {field}: .*missing"):
        load_geneval(write(tmp_path, LINE, line))


def test_a_line_without_a_detailed_caption_is_refused(tmp_path: Path) -> None:
    """GenEval's own file has none."""
    with pytest.raises(DatasetError, match="line 1: detailed_caption: a text is expected, missing"):
        load_geneval(write(tmp_path, LINE), captions="detailed")


@pytest.mark.parametrize(
    "line",
    [b"{", b"[]", b'"dog"', b"null", b"[" * 100_000, b'{"tag": "colors", "tag": "counting"}'],
)
def test_what_is_no_json_object_is_refused(tmp_path: Path, line: bytes) -> None:
    """With its line."""
    with pytest.raises(DatasetError, match=r"metadata\.jsonl, line 2"):
        load_geneval(write(tmp_path, LINE, line))


def test_another_encoding_is_refused(tmp_path: Path) -> None:
    """No guessing: a prompt must be what was written."""
    raw = json.dumps(LINE | {"prompt": "café"}, ensure_ascii=False)
    for encoding in ("latin-1", "utf-16"):
        path = write(tmp_path, raw.encode(encoding))
        with pytest.raises(DatasetError, match=r"metadata\.jsonl' is not UTF-8"):
            load_geneval(path)


@pytest.mark.parametrize("data", [b"", b"\n\n", b"\xef\xbb\xbf"])
def test_an_empty_file_is_refused(tmp_path: Path, data: bytes) -> None:
    """It is not the built-in suite."""
    path = tmp_path / "metadata.jsonl"
    path.write_bytes(data)
    with pytest.raises(DatasetError, match="has no prompts"):
        load_geneval(path)


def test_a_path_that_is_no_file_is_refused(tmp_path: Path) -> None:
    """A folder, or nothing."""
    for path in (tmp_path, tmp_path / "absent.jsonl"):
        with pytest.raises(DatasetError, match="cannot be read"):
            load_geneval(path)


def test_options_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    """Each with what was given."""
    with pytest.raises(DatasetError, match="'prompt' or 'detailed' is expected, got 'long'"):
        load_geneval(captions="long")
    with pytest.raises(DatasetError, match="built-in GenEval prompts have no detailed captions"):
        load_geneval(captions="detailed")
    with pytest.raises(DatasetError, match="seed 44 is for the built-in GenEval prompts"):
        load_geneval(write(tmp_path, LINE), seed=44)
    for number in (0, 101):
        with pytest.raises(DatasetError, match=rf"must be in 1\.\.100, got {number}"):
            load_geneval(images_per_prompt=number)
