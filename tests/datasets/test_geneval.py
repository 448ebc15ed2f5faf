"""GenEval's prompts: the generator, files of both forms and of GenEval 2, and what is refused."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from hashlib import sha256
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_cepbench.artifacts import digest_json
from pytest_cepbench.datasets.geneval import (
    OBJECTS,
    PUBLISHED_FILE,
    RandomStream,
    WrittenPrompt,
    load_geneval,
    load_geneval2,
    plural,
    with_article,
    write_prompts,
)
from pytest_cepbench.datasets.questions import controls_of, questions_of
from pytest_cepbench.errors import DatasetError
from pytest_cepbench.metrics.geneval import COLORS
from pytest_cepbench.metrics.geneval_prompts import TASKS, parse_prompt, prompt_metadata

PUBLISHED = Path(__file__).parents[2] / "../shared/data/geneval"

PUBLISHED_DIGEST = "5c48e0813e812e3c373fa5c8ed07a8f0a483be30272b4427b0559c8048e67c13"
"""SHA-256 of the published `evaluation_metadata.jsonl`."""


def as_file(prompts: tuple[WrittenPrompt, ...]) -> bytes:
    """The suite in the form in which GenEval publishes it."""
    lines = [
        json.dumps({**prompt_metadata(written.prompt), "prompt": written.text})
        for written in prompts
    ]
    return "".join(f"{line}\n" for line in lines).encode()


def test_seed_43_is_the_published_suite() -> None:
    """Byte for byte what the package ships, and what GenEval's authors released."""
    assert as_file(write_prompts()) == PUBLISHED_FILE.read_bytes()
    assert sha256(PUBLISHED_FILE.read_bytes()).hexdigest() == PUBLISHED_DIGEST


@pytest.mark.parametrize(
    ("seed", "number", "digest"),
    [
        (43, 1, "6c845436faf43210006f0489c29c53e9d0b52371a68185ff7990312bd1c7138b"),
        (43, 10, "a4a61472c063f750de3dcf956567b136df89fb28077f4631a4f795f5a52ad321"),
        (43, 79, "10cdc242916db1da851ec9549ad2905a1bb13d8fa9f6cc175e2136864f882f9c"),
        (7, 25, "c32172dee1d6afee0cfcb6e04b0759824314f12a073e8ad927392ec062f2e1be"),
        (2024, 150, "4a2a6ba2cf46cd0d32ea1a7879b83d2345c7ee824f77d85b4ce910946a77a9e7"),
    ],
)
def test_suites_of_other_sizes_are_those_of_the_released_generator(
    seed: int, number: int, digest: str
) -> None:
    """SHA-256 of what `create_prompts.py --seed SEED -n NUMBER` writes, also with fewer than 80."""
    assert sha256(as_file(write_prompts(seed, number))).hexdigest() == digest


def test_the_published_file_is_the_one_that_was_digested() -> None:
    """The digest above is of the real file, and the classes are its names in its order."""
    if not PUBLISHED.is_dir():
        pytest.skip(f"the published prompts are not at {PUBLISHED}")
    assert as_file(write_prompts()) == (PUBLISHED / "evaluation_metadata.jsonl").read_bytes()
    assert list(OBJECTS) == (PUBLISHED / "object_names.txt").read_text().split("\n")[:80]


def test_the_published_suite_has_its_numbers() -> None:
    """553 prompts in the order of the tasks; two, three and four objects 26, 28 and 26 times."""
    prompts = [written.prompt for written in write_prompts()]
    assert list(Counter(prompt.task for prompt in prompts).items()) == list(
        zip(TASKS, (80, 99, 80, 94, 100, 100), strict=True)
    )
    numbers = Counter(prompt.include[0].count for prompt in prompts if prompt.task == "counting")
    assert numbers == {2: 26, 3: 28, 4: 26}


@given(st.integers(0, 2**64), st.integers(1, 150))
@settings(max_examples=25)
def test_suites_of_other_seeds_keep_the_rules(seed: int, number: int) -> None:
    """No prompt twice, no colored person, two different classes, each task within its number."""
    written = write_prompts(seed, number)
    assert len(set(written)) == len({each.text for each in written}) == len(written)
    tasks = Counter(each.prompt.task for each in written)
    assert set(tasks) == set(TASKS)
    assert tasks.pop("single_object") == 80
    assert max(tasks.values()) <= number
    for prompt in (each.prompt for each in written):
        assert {clause.name for clause in prompt.include} <= set(OBJECTS)
        assert len({clause.name for clause in prompt.include}) == len(prompt.include)
        assert all(c.name != "person" and c.color in COLORS for c in prompt.include if c.color)


@given(st.integers(0, 2**32))
@settings(max_examples=10)
def test_the_words_say_what_the_clauses_ask(seed: int) -> None:
    """Every class, color and number is in the text; the subject of a position comes first."""
    for written in write_prompts(seed, 10):
        include = written.prompt.include
        assert written.text.startswith("a photo of ")
        for clause in include:
            words = f"{clause.color} {clause.name}" if clause.color else clause.name
            assert words in written.text
        if written.prompt.task == "position":
            target, subject = include
            assert subject.position
            match = re.fullmatch(
                f"a photo of an? (.+) {subject.position.relation} an? (.+)", written.text
            )
            assert match
            assert match.groups() == (subject.name, target.name)


def test_other_seeds_give_other_prompts() -> None:
    """Hardly any pair of objects is shared."""
    first, second = ({written.text for written in write_prompts(seed)} for seed in (43, 44))
    assert len(first & second) < 553 - 350


@pytest.mark.parametrize(
    ("words", "article"), [("apple", "an apple"), ("orange bus", "an orange bus"), ("tv", "a tv")]
)
def test_articles_go_by_the_first_letter(words: str, article: str) -> None:
    """Of the color, where there is one."""
    assert with_article(words) == article


@pytest.mark.parametrize(
    ("name", "expected"),
    [("bus", "buses"), ("wine glass", "wine glasses"), ("bench", "benchs"), ("person", "persons")],
)
def test_plurals_are_those_of_the_suite(name: str, expected: str) -> None:
    """Published mistakes are part of the prompts."""
    assert plural(name) == expected


@given(
    st.integers(0, 2**63),
    st.lists(st.tuples(st.integers(1, 300), st.none() | st.integers(1, 20)), max_size=30),
)
def test_choices_are_numpys(seed: int, requests: list[tuple[int, int | None]]) -> None:
    """Any sequence of single and of several choices, from one stream."""
    draws, numpy = RandomStream(seed), np.random.default_rng(seed)
    for limit, number in requests:
        if number is None:
            assert draws.one(limit) == numpy.choice(limit)
        else:
            most = min(number, limit)
            assert draws.some(most, limit) == numpy.choice(limit, most, replace=False).tolist()


def test_large_limits_are_drawn_again_where_numpy_does() -> None:
    """Near the word's size the choice is often rejected; the streams stay together."""
    draws, numpy = RandomStream(0), np.random.default_rng(0)
    limit = 3 * 2**30 + 1
    assert [draws.one(limit) for _ in range(50)] == [int(numpy.choice(limit)) for _ in range(50)]


@pytest.mark.parametrize(("seed", "number"), [(-1, 100), (43, 0), (43, -5)])
def test_impossible_suites_are_refused(seed: int, number: int) -> None:
    """With what was given."""
    with pytest.raises(DatasetError, match=f"got {seed} and {number}"):
        write_prompts(seed, number)


def test_tasks_come_one_after_the_other() -> None:
    """Each task's prompts are together, whatever the number drawn."""
    tasks = [written.prompt.task for written in write_prompts(7, 3)]
    assert sum(first != second for first, second in pairwise(tasks)) == 5


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
        ({"tag": None}, ": tag: unknown task 'None'"),
        ({"tag": "objects"}, ": tag: unknown task 'objects'"),
        ({"include": []}, ": include: at least one clause is expected"),
        ({"include": [DOG | {"count": 0}]}, r": include\[0\]: count: a whole number from 1"),
        ({"include": [DOG | {"color": "cyan"}]}, r": include\[0\]: color: 'cyan' is none of red, "),
        ({"include": [DOG | {"position": ["left of", 0]}]}, r": include\[0\]: position: clause 0"),
        ({"include": [DOG | {"class": "\ud800"}]}, r": '\\ud800' is half of a surrogate"),
        (
            {"exclude": [{"class": "\ud800", "count": 1}]},
            r": '\\ud800' is half of a surrogate",
        ),
        ({"prompt": "dog \ud800"}, r": '\\ud800' is half of a surrogate"),
        ({"prompt": " \n"}, ", prompt: a text is expected that is not empty"),
        ({"prompt": 7}, ", prompt: Expected `str`, got `int`"),
        ({"index": "a"}, r", index: .* matching regex .*\[0-9\]\{1,5\}"),
        ({"index": "000001"}, ", index: .* matching regex"),
        ({"index": True}, ", index: Expected `int | str | null`, got `bool`"),
        ({"index": "٣"}, ", index: .* matching regex"),
        ({"index": "../1"}, ", index: .* matching regex"),
        ({"index": 0}, r": index: '00000' is taken by .*, line 1"),
    ],
)
def test_a_wrong_line_is_refused(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    """File, line and field are named."""
    path = write(tmp_path, LINE, LINE | change)
    with pytest.raises(DatasetError, match=rf"metadata\.jsonl, line 2{message}"):
        load_geneval(path)


@pytest.mark.parametrize("field", ["tag", "include", "prompt"])
def test_a_missing_field_is_refused(tmp_path: Path, field: str) -> None:
    """By its name."""
    line = {name: value for name, value in LINE.items() if name != field}
    with pytest.raises(
        DatasetError,
        match=rf"line 2: ({field}: .*missing|.* missing .*`{field}`)",
    ):
        load_geneval(write(tmp_path, LINE, line))


def test_a_line_without_a_detailed_caption_is_refused(tmp_path: Path) -> None:
    """GenEval's own file has none."""
    with pytest.raises(DatasetError, match=r"line 1: Object missing .*`detailed_caption`"):
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


def test_the_released_layout_gives_prompts_by_atomicity(tmp_path: Path) -> None:
    """The folder or its file; ids by line; skills as kinds of facts."""
    dataset = load_geneval2(write_geneval2(tmp_path, [CUPS, ONE_DOG]))
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
    assert load_geneval2(write_geneval2(tmp_path, [ONE_DOG, CUPS])).identity != dataset.identity


def test_images_of_one_prompt_are_a_cluster(tmp_path: Path) -> None:
    """They tell less than as many prompts."""
    dataset = load_geneval2(write_geneval2(tmp_path, [CUPS, ONE_DOG]), images_per_prompt=2)
    assert [(s.id, s.cluster) for s in dataset.samples] == [
        ("00000-0", "00000"), ("00000-1", "00000"), ("00001-0", "00001"), ("00001-1", "00001"),
    ]  # fmt: skip
    with pytest.raises(DatasetError, match=r"images_per_prompt must be in 1\.\.100, got 0"):
        load_geneval2(tmp_path, images_per_prompt=0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"vqa_list": [["Any cups?"]], "skills": ["object"]},
            r", vqa_list\[0\]: Expected `array`",
        ),
        (
            {"vqa_list": [["Any cups?", ""]], "skills": ["object"]},
            r", vqa_list\[0\]\[1\]: a text is",
        ),
        ({"vqa_list": []}, ", vqa_list: Expected `array` of length >= 1"),
        ({"vqa_list": None}, ", vqa_list: Expected `array`, got `null`"),
        ({"skills": ["count"]}, ": skills: one for each of 6 questions is expected, got 1"),
        ({"skills": ["colour"] * 6}, r": skills\[0\]: unknown skill 'colour'"),
        ({"skills": [[]] * 6}, r", skills\[0\]: Expected `str`, got `array`"),
        ({"atom_count": 0}, ", atom_count: Expected `int` >= 1"),
        ({"atom_count": True}, ", atom_count: Expected `int`, got `bool`"),
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
