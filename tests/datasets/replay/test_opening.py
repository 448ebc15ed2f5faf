"""Answers in OpenING's layout as a replay: found by looking, and never taken for chains."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_cepbench.datasets.replay import ANSWER_LAYOUTS, LAYOUTS, open_answers, open_replay
from pytest_cepbench.datasets.sample import Sample
from pytest_cepbench.errors import DatasetError, SpecError
from tests.datasets.opening.files import png, put_answer
from tests.datasets.replay.files import put

STEPS = [{"text": "It ran.", "image": "0101001-o-0.jpg"}]


def answers_of(folder: Path) -> Path:
    """A model's folder with one answer."""
    put_answer(folder, "0101001", STEPS)
    (folder / "0101001-o-0.jpg").write_bytes(png(3))
    return folder


@pytest.mark.parametrize("layout", [None, "opening"])
def test_answers_are_recognised(tmp_path: Path, layout: str | None) -> None:
    """By looking, and the same when the layout is named."""
    folder = answers_of(tmp_path / "SEED-X_output")
    answers = open_answers(str(folder), layout, {})

    assert (answers.name, answers.model, answers.path) == ("opening", "SEED-X", folder)
    assert not answers.partial


def test_a_part_of_the_answers_is_asked_for(tmp_path: Path) -> None:
    """With the layout's only parameter."""
    folder = answers_of(tmp_path / "SEED-X_output")
    questions = [Sample(uid, ("c",), question=("?",)) for uid in ("0101001", "0101002")]
    open_answers(str(folder), None, {"partial": "true"}).check(questions)
    with pytest.raises(DatasetError, match="1 of 2 answers are missing"):
        open_answers(str(folder), None, {"partial": "false"}).check(questions)
    with pytest.raises(SpecError, match="the parameter partial is true or false, got 'yes'"):
        open_answers(str(folder), None, {"partial": "yes"})
    with pytest.raises(SpecError, match="unknown parameter of layout 'opening' 'part'"):
        open_answers(str(folder), None, {"part": "true"})


@pytest.mark.parametrize("layout", [None, "opening"])
def test_chain_suites_refuse_answers(tmp_path: Path, layout: str | None) -> None:
    """In one line, whether the layout was named or found."""
    folder = answers_of(tmp_path / "SEED-X_output")
    with pytest.raises(SpecError, match=r"layout opening is of answers.*suites that have \[answer"):
        open_replay(str(folder), layout, {})


@pytest.mark.parametrize("layout", [None, *LAYOUTS])
def test_answer_suites_refuse_chains(tmp_path: Path, layout: str | None) -> None:
    """Likewise, for every layout of chains."""
    put(tmp_path, "gen-1/0.png")
    with pytest.raises(SpecError, match=r"is of chains.*suites that have \[chain\]"):
        open_answers(str(tmp_path), layout, {})


def test_what_is_neither(tmp_path: Path) -> None:
    """Both kinds of layouts are named, whatever was expected."""
    put(tmp_path, "holiday.jpg")
    for opened in (open_replay, open_answers):
        with pytest.raises(DatasetError, match="which is no known layout") as raised:
            opened(str(tmp_path), None, {})
        for name in (*LAYOUTS, *ANSWER_LAYOUTS):
            assert f"\n  {name}: " in str(raised.value)
    with pytest.raises(DatasetError, match=r"gone: there is no such file or folder"):
        open_answers(str(tmp_path / "gone"), "opening", {})
    with pytest.raises(SpecError, match=r"unknown layout 'openign'\. Did you mean 'opening'\?"):
        open_answers(str(tmp_path), "openign", {})


def test_answers_between_chains_must_be_told_apart(tmp_path: Path) -> None:
    """No silent choice."""
    answers_of(tmp_path)
    put(tmp_path, "gen-1/0.png")
    for opened in (open_replay, open_answers):
        with pytest.raises(DatasetError, match="looks like mgg and opening: say which with"):
            opened(str(tmp_path), None, {})
    assert open_answers(str(tmp_path), "opening", {}).name == "opening"
    assert open_replay(str(tmp_path), "mgg", {}).name == "mgg"
