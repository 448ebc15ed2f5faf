"""The generator of the prompt suite: the published file from its seed, suites of other seeds."""

from __future__ import annotations

import json
import re
from collections import Counter
from hashlib import sha256
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_cepbench.datasets.geneval import (
    OBJECTS,
    PUBLISHED_FILE,
    RandomStream,
    WrittenPrompt,
    plural,
    with_article,
    write_prompts,
)
from pytest_cepbench.errors import DatasetError
from pytest_cepbench.metrics.geneval import COLORS
from pytest_cepbench.metrics.geneval_prompts import TASKS, prompt_metadata

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
