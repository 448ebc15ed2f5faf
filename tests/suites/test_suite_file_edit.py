"""A number in a suite's file is changed in place, or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_cepbench.errors import SuiteError
from pytest_cepbench.suites import load_suite
from pytest_cepbench.suites.definition import SuiteNumber, amended, amended_text
from tests.plugin.project import SHAPES
from tests.studies.toy import write_suite

SEED = SuiteNumber("chain", "seed", 7)


def changed(folder: Path, text: str, setting: SuiteNumber = SEED) -> str:
    """The text that the file would have."""
    return amended_text(load_suite(write_suite(folder, text)), setting)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("[chain]\niterations = 2\n", "[chain]\nseed = 7\niterations = 2\n"),
        ("[chain]\nseed = 0  # ours\n", "[chain]\nseed = 7  # ours\n"),
        ("[chain]  # short\nseeds = 2\nseed=+3\n", "[chain]  # short\nseeds = 2\nseed=7\n"),
        ("[chain]\r\nseed = 1_000\r\n", "[chain]\r\nseed = 7\r\n"),
        ("", None),
    ],
)
def test_only_the_number_changes(tmp_path: Path, before: str, after: str | None) -> None:
    """Comments, layout and all other tables stay; a table that is not there is added at the end."""
    text = SHAPES.replace("[chain]\niterations = 2\n", before)
    made = changed(tmp_path, text)
    if after is None:
        assert made == f"{text.rstrip()}\n\n[chain]\nseed = 7\n"
    else:
        assert made == text.replace(before, after)


def test_the_changed_file_is_the_changed_suite(tmp_path: Path) -> None:
    """What is written is read as what was meant, for both tables."""
    for setting in (SEED, SuiteNumber("data", "skip", 3)):
        suite = load_suite(write_suite(tmp_path, SHAPES))
        suite.file.write_text(amended_text(suite, setting))
        assert load_suite(suite.file).table == amended(suite, setting).table != suite.table


@pytest.mark.parametrize(
    "text",
    [
        SHAPES.replace("[chain]\niterations = 2\n", "").replace(
            "version = 1\n", "version = 1\nchain = { iterations = 2 }\n"
        ),
        SHAPES.replace('describe = "describe"', 'describe = """\n[chain]\nseed = 1\n"""').replace(
            "[chain]\niterations = 2\n[prompts]", "[prompts]"
        ),
    ],
    ids=["an inline table", "a table in a text"],
)
def test_what_cannot_be_changed_alone_is_refused(tmp_path: Path, text: str) -> None:
    """The message says what to write by hand."""
    with pytest.raises(SuiteError, match=r"set \[chain\] seed = 7 in it by hand"):
        changed(tmp_path, text)


def test_a_file_that_changed_meanwhile_is_refused(tmp_path: Path) -> None:
    """Nothing is written over a change that another program made."""
    suite = load_suite(write_suite(tmp_path, SHAPES))
    write_suite(tmp_path, SHAPES.replace("version = 1", "version = 2"))
    with pytest.raises(SuiteError, match="by hand"):
        amended_text(suite, SEED)
