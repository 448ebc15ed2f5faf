"""docs/studies.md: every option of the command, and what it says of the files."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest

from pytest_cepbench.cli import main
from pytest_cepbench.studies import Agreement, Cell, Grid, ModelSpread, Study, Weighting
from pytest_cepbench.studies.question import STUDIES

PAGE = Path(__file__).parents[2] / "docs" / "studies.md"


def options(study: str, capsys: pytest.CaptureFixture[str]) -> set[str]:
    """The options that the command's own help lists."""
    assert main(["study", study, "--help"]) == 0
    return set(re.findall(r"(?<![\w-])--[a-z]+", capsys.readouterr().out)) - {"--help"}


def test_every_option_is_documented(capsys: pytest.CaptureFixture[str]) -> None:
    """The table of options has every option of every study, and no other."""
    known = set().union(*(options(study, capsys) for study in STUDIES))
    listed = re.findall(r"^\| `(--[a-z]+)", PAGE.read_text(), re.MULTILINE)
    assert sorted(listed) == sorted(known)


def test_every_study_has_a_section() -> None:
    """One heading each, in the order of the command's help."""
    headings = re.findall(r"^## `cepbench study (\w+)`$", PAGE.read_text(), re.MULTILINE)
    assert headings == list(STUDIES)


@pytest.mark.parametrize("kind", [Study, Grid, Cell, ModelSpread, Agreement, Weighting])
def test_fields_of_the_file_are_documented(kind: type) -> None:
    """The page names every field of the JSON file."""
    named = set(re.findall(r"`(\w+)`", PAGE.read_text()))
    assert {field.name for field in dataclasses.fields(kind)} <= named
