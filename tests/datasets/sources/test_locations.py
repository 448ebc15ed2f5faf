"""Locations on the hub as they are typed."""

from __future__ import annotations

import pytest

from pytest_cepbench.datasets.sources.hub import HubLocation, parse_hub_location
from pytest_cepbench.errors import SpecError


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
