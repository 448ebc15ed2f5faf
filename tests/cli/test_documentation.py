"""docs/studies.md and the pages of other commands: every option, and what is said of the files."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import msgspec
import pytest

from pytest_cepbench.cli import main
from pytest_cepbench.ratings.records import Vote
from pytest_cepbench.studies import Grid, ModelSpread, Study, StudyCell, VariantAgreement, Weighting
from pytest_cepbench.studies.doctor import Check, CheckTable, Diagnosis
from pytest_cepbench.studies.study_data import STUDIES

PAGE = Path(__file__).parents[2] / "docs" / "studies.md"
ACCEPTING = PAGE.with_name("accepting.md")
STORE = PAGE.with_name("store.md")
DOCTOR = PAGE.with_name("doctor.md")
LEADERBOARDS = PAGE.with_name("leaderboards.md")
JUDGES = PAGE.with_name("judges.md")
PEOPLE = PAGE.with_name("people.md")
FIRST_SUITE = PAGE.with_name("first-suite.md")


def options(command: list[str], capsys: pytest.CaptureFixture[str]) -> set[str]:
    """The options that a command's own help lists."""
    assert main([*command, "--help"]) == 0
    return set(re.findall(r"^ +(--[a-z-]+)", capsys.readouterr().out, re.MULTILINE))


def test_every_option_is_documented(capsys: pytest.CaptureFixture[str]) -> None:
    """The table of options has every option of every study, and no other."""
    known = options(["study"], capsys)
    listed = re.findall(r"^\| `(--[a-z]+)", PAGE.read_text(), re.MULTILINE)
    assert sorted(listed) == sorted(known)


@pytest.mark.parametrize("command", ["accept", "prune", "calibrate"])
def test_every_option_of_a_command_is_documented(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The table of each command's section has all of its options, and no other."""
    text = ACCEPTING.read_text(encoding="utf-8")
    section = text.partition(f"\n## `cepbench {command}`\n")[2].partition("\n## ")[0]
    listed = re.findall(r"^\| `(--[a-z-]+)", section, re.MULTILINE)
    assert sorted(listed) == sorted(options([command], capsys))


@pytest.mark.parametrize("action", ["stats", "verify", "gc", "pull"])
def test_every_option_of_the_store_is_documented(
    action: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The table of each action's section has all of its options, and no other."""
    text = STORE.read_text(encoding="utf-8")
    section = text.partition(f"\n## `cepbench store {action}`\n")[2].partition("\n## ")[0]
    listed = re.findall(r"^\| `(--[a-z-]+)", section, re.MULTILINE)
    assert sorted(listed) == sorted(options(["store", action], capsys))


@pytest.mark.parametrize("command", ["arena leaderboard"])
def test_every_option_of_a_leaderboard_is_documented(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The table of each command's section has all of its options, and no other."""
    text = LEADERBOARDS.read_text(encoding="utf-8")
    section = text.partition(f"\n## `cepbench {command}`\n")[2].partition("\n## ")[0]
    listed = re.findall(r"^\| `(--[a-z-]+)", section, re.MULTILINE)
    assert sorted(listed) == sorted(options(command.split(), capsys))


def test_every_option_of_a_judges_card_is_documented(capsys: pytest.CaptureFixture[str]) -> None:
    """The table of its section has all of its options, and no other."""
    section = JUDGES.read_text(encoding="utf-8").partition("\n## `cepbench agree judges`\n")[2]
    listed = re.findall(r"^\| `(--[a-z-]+)", section.partition("\n## ")[0], re.MULTILINE)
    assert sorted(listed) == sorted(options(["agree", "judges"], capsys))


def test_every_option_of_init_is_documented(capsys: pytest.CaptureFixture[str]) -> None:
    """The table of its section has all of its options, and no other."""
    listed = re.findall(r"^\| `(--[a-z-]+)", FIRST_SUITE.read_text(encoding="utf-8"), re.MULTILINE)
    assert sorted(listed) == sorted(options(["init"], capsys))


def test_every_study_has_a_section() -> None:
    """One heading each, in the order of the command's help."""
    headings = re.findall(r"^## `cepbench study --vary=(\w+)`$", PAGE.read_text(), re.MULTILINE)
    assert headings == list(STUDIES)


@pytest.mark.parametrize("kind", [Study, Grid, StudyCell, ModelSpread, VariantAgreement, Weighting])
def test_fields_of_the_file_are_documented(kind: type) -> None:
    """The page names every field of the JSON file."""
    named = set(re.findall(r"`(\w+)`", PAGE.read_text()))
    assert {field.name for field in dataclasses.fields(kind)} <= named


def test_every_option_of_the_doctor_is_documented(capsys: pytest.CaptureFixture[str]) -> None:
    """The table of options has every option, and no other."""
    listed = re.findall(r"^\| `(--[a-z]+)", DOCTOR.read_text(), re.MULTILINE)
    assert sorted(listed) == sorted(options(["doctor"], capsys))


@pytest.mark.parametrize("kind", [Diagnosis, Check, CheckTable])
def test_fields_of_the_diagnosis_are_documented(kind: type) -> None:
    """The page names every field of the JSON file."""
    named = set(re.findall(r"`(\w+)`", DOCTOR.read_text()))
    assert {field.name for field in dataclasses.fields(kind)} <= named


def test_every_option_of_a_rating_is_documented(capsys: pytest.CaptureFixture[str]) -> None:
    """The table of its section has all of its options, and no other."""
    section = PEOPLE.read_text(encoding="utf-8").partition("\n## `cepbench rate ask`\n")[2]
    listed = re.findall(r"^\| `(--[a-z-]+)", section.partition("\n## ")[0], re.MULTILINE)
    assert sorted(listed) == sorted(options(["rate", "ask"], capsys))


def test_fields_of_ratings_are_documented() -> None:
    """The page names every field of a vote."""
    page = PEOPLE.read_text(encoding="utf-8")
    named = set(re.findall(r"`(\w+)`", page)) | set(re.findall(r'"(\w+)":', page))
    assert {field.name for field in msgspec.structs.fields(Vote)} <= named
