"""Which files of a data set are read, and how locations are typed."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_cepbench.datasets.sources.hub import HubLocation, parse_hub_location
from pytest_cepbench.datasets.sources.open_table import Choice, find_files, read_card
from pytest_cepbench.errors import DatasetError, SpecError

TWO_CONFIGS: dict[str, Any] = {
    "configs": [
        {
            "config_name": "clean",
            "data_files": [
                {"split": "test", "path": "clean/test-*"},
                {"split": "train", "path": ["clean/train-*"]},
            ],
        },
        {"config_name": "noisy", "data_files": "noisy/*.parquet"},
    ]
}
FILES = [
    "README.md",
    "clean/test-00000-of-00001.parquet",
    "clean/train-00000-of-00001.parquet",
    "noisy/a.parquet",
]


@pytest.mark.parametrize(
    ("files", "card", "choice", "expected"),
    [
        (["a.parquet"], {}, Choice(), ("a.parquet", None, "train")),
        (["data/test-00000-of-00001.parquet"], {}, Choice(), (..., None, "test")),
        (["data/extra-00000-of-00001.parquet"], {}, Choice(), (..., None, "extra")),
        (["test/0.parquet", "x.csv"], {}, Choice(), ("test/0.parquet", None, "test")),
        (["val.parquet"], {}, Choice(), (..., None, "validation")),
        (["latest.parquet"], {}, Choice(), (..., None, "train")),
        (["default/test/0000.parquet", ".x/y.parquet"], {}, Choice(), (..., None, "test")),
        (FILES, TWO_CONFIGS, Choice(config="noisy"), ("noisy/a.parquet", "noisy", "train")),
        (FILES, TWO_CONFIGS, Choice("clean", split="test"), (FILES[1], None, "test")),
        (FILES, TWO_CONFIGS, Choice("noisy/a.parquet"), ("noisy/a.parquet", None, "train")),
        (FILES, TWO_CONFIGS, Choice("*/test-*"), (FILES[1], None, "test")),
        (
            ["data/test-00000-of-00001-0123abcd.parquet"],
            {},
            Choice(),
            (..., None, "test"),
        ),
        (["default/partial-test/0000.parquet"], {}, Choice(), (..., None, "partial-test")),
        (["b.arrow", "a.parquet", "c.tar"], {}, Choice(), ("a.parquet", None, "train")),
        (["a-00001-of-00002.tar"], {}, Choice("a-00001-of-00002.tar"), (..., None, "train")),
    ],
)
def test_the_shards_of_a_choice(
    files: list[str], card: dict[str, Any], choice: Choice, expected: tuple[Any, ...]
) -> None:
    """By the card, by the path that is named, and by folders and names."""
    found = find_files("d", files, card, choice)
    path, config, split = expected
    assert (found.config, found.split) == (config, split)
    assert found.paths == ((files[0],) if path is ... else (path,))


def test_other_formats_are_counted() -> None:
    """A folder may hold a set twice, or parts of it as archives: results say so."""
    files = ["a.parquet", "b.tar", "c.tar.gz"]
    expected = "d: 2 files of other formats than .parquet are passed over"
    assert find_files("d", files, {}, Choice()).note == expected
    assert find_files("d", files[:1], {}, Choice()).note == ""


def test_digests_in_names_do_not_part_numbered_shards() -> None:
    """As older versions of `datasets` wrote them: `test-00000-of-00002-DIGEST.parquet`."""
    names = [f"data/test-0000{k}-of-00002-{digest}.parquet" for k, digest in enumerate("ab")]
    assert find_files("d", names, {}, Choice()).whole
    with pytest.raises(DatasetError, match="1 of 2 shards are missing"):
        find_files("d", names[1:], {}, Choice())


def test_a_configuration_may_be_named_as_a_path() -> None:
    """Where no folder has its name."""
    card = {"configs": [{"config_name": "clean", "data_files": "a.parquet"}]}
    assert find_files("d", ["a.parquet"], card, Choice("clean")).config == "clean"


def test_the_default_configuration_is_taken() -> None:
    """The one that the card marks, or that is called so."""
    marked = {"configs": [dict(entry) for entry in TWO_CONFIGS["configs"]]}
    marked["configs"][1]["default"] = True
    assert find_files("d", FILES, marked, Choice()).config == "noisy"


@pytest.mark.parametrize(
    ("files", "card", "choice", "words"),
    [
        ([], {}, Choice(), r"d has no file that ends in \.parquet, \.arrow, \.tar"),
        (["a.parquet"], {}, Choice("x"), "d has no file under 'x'"),
        (FILES, TWO_CONFIGS, Choice(), r"several configs \(clean, noisy\): choose one with \?conf"),
        (FILES, TWO_CONFIGS, Choice(config="nosy"), "no config 'nosy'; .* Did you mean 'noisy'"),
        (FILES, TWO_CONFIGS, Choice(config="clean"), r"several splits \(test, train\)"),
        (FILES, {}, Choice(), r"several splits \(test, train\)"),
        (["a/test.parquet", "b/test.parquet"], {}, Choice(), r"several configs \(a, b\)"),
        (["a.parquet"], {}, Choice(split="test"), "no split 'test'; its splits: train"),
        (["a.parquet"], {}, Choice(config="x"), "has one configuration: leave out config=x"),
        ([*FILES[:1], "z.parquet"], TWO_CONFIGS, Choice(config="noisy"), "'noisy' are not there"),
        (
            ["t-00000-of-00001.parquet", "t-00000-of-00002.parquet", "t-00001-of-00002.parquet"],
            {},
            Choice(),
            r"the shards 't-\*\.parquet' of 1 and of 2 are there more than once",
        ),
        (
            ["t-00000-of-00001-aa.parquet", "t-00000-of-00001-bb.parquet"],
            {},
            Choice(),
            "of 1 are there more than once, as where a data set was written again: keep one state",
        ),
        (
            ["t-00000-of-00003.parquet", "t-00002-of-00003.parquet"],
            {},
            Choice(),
            "1 of 3 shards are missing, the first 't-00001-of-00003.parquet'",
        ),
    ],
)
def test_what_is_not_clear_is_one_line(
    files: list[str], card: dict[str, Any], choice: Choice, words: str
) -> None:
    """It lists what there is to choose from."""
    with pytest.raises(DatasetError, match=words) as error:
        find_files("d", files, card, choice)
    assert "\n" not in str(error.value)


def test_the_card_tells_how_many_rows_there_are() -> None:
    """Of the split of the configuration that is read."""
    card = read_card(
        "---\ndataset_info:\n  splits:\n  - name: test\n    num_examples: 7\n---\n# Photos\n"
    )
    assert find_files("d", ["test.parquet"], card, Choice()).rows == 7
    assert find_files("d", ["train.parquet"], card, Choice()).rows is None


@pytest.mark.parametrize("text", ["", "# no metadata", "---\n: [\n---\n", "---\n- list\n---\n"])
def test_a_card_that_cannot_be_read_tells_nothing(text: str) -> None:
    """Names of files decide then."""
    assert read_card(text) == {}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("hf://datasets/o/n", HubLocation("o/n")),
        ("hf://datasets/o/n@v1", HubLocation("o/n", "v1")),
        ("hf://datasets/o/n@v1/data/a.parquet", HubLocation("o/n", "v1", "data/a.parquet")),
        ("hf://datasets/o/n/data/*.parquet", HubLocation("o/n", None, "data/*.parquet")),
        ("hf://datasets/o/n@refs/convert/parquet", HubLocation("o/n", "refs/convert/parquet")),
        ("hf://datasets/o/n@refs/pr/3/a", HubLocation("o/n", "refs/pr/3", "a")),
        ("hf://datasets/o/n@my%2Fbranch", HubLocation("o/n", "my/branch")),
        (
            "hf://datasets/o/n@v1?config=c&split=s",
            HubLocation("o/n", "v1", "", config="c", split="s"),
        ),
    ],
)
def test_the_syntax_is_that_of_the_hub(text: str, expected: HubLocation) -> None:
    """As huggingface_hub and fsspec read it; configuration and split stand behind `?`."""
    assert parse_hub_location(text) == expected


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("s3://bucket/x", "cannot be read in place: a path or hf://datasets/OWNER/NAME"),
        ("hf://o/n", "is a model of the hub: hf://datasets/OWNER/NAME"),
        ("hf://datasets/n", "hf://datasets/OWNER/NAME"),
        ("hf://datasets/o/n@", "hf://datasets/OWNER/NAME"),
        ("hf://datasets/o/n/c@v1", "behind the name: hf://datasets/o/n@v1/c"),
        ("hf://datasets/o/n?slit=x", "unknown parameter 'slit'. Did you mean 'split'"),
        ("hf://datasets/o/n?split=", "split is empty"),
        ("hf://datasets/o/n?split=a&split=b", "a parameter is there twice"),
    ],
)
def test_other_texts_are_one_line(text: str, words: str) -> None:
    """What was given, and the form that is expected."""
    with pytest.raises(SpecError) as error:
        parse_hub_location(text)
    assert words in str(error.value)
    assert "\n" not in str(error.value)
