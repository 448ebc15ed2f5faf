"""Processes that die between the steps of answers: what they made is found, and asked for once."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from pytest_cepbench.chains.answers.answer_plan import AnswerPlan
from pytest_cepbench.chains.answers.answering import make_answers
from pytest_cepbench.store import Store
from tests.chains.answers.roles import picture, pipeline, questions, write_three
from tests.interruption import in_child

COUNT = 4

BATCH = 2


@dataclass
class LoggingWriter:
    """A writer that notes each question in a file, which outlives it."""

    log: Path

    def write(self, asked: Any, _: str, seeds: Any) -> Any:
        """One text for each question."""
        _note(self.log, [str(pieces[0]) for pieces in asked])
        return [write_three(*pair) for pair in zip(asked, seeds, strict=True)]


@dataclass
class LoggingGenerator:
    """A generator that notes each text; dies: as it begins that many-th call, if ever."""

    log: Path
    dies: int | None = None

    def generate(self, texts: Any, seeds: Any) -> Any:
        """One picture for each text."""
        if self.dies is not None:
            self.dies -= 1
            if not self.dies:
                os.kill(os.getpid(), signal.SIGKILL)
        _note(self.log, texts)
        return [picture(pair) for pair in zip(texts, seeds, strict=True)]


def _note(log: Path, lines: list[str]) -> None:
    with log.open("a", encoding="utf-8") as stream:
        stream.writelines(f"{line}\n" for line in lines)


def _lines(log: Path) -> list[str]:
    return log.read_text(encoding="utf-8").splitlines() if log.exists() else []


def _make(folder: Path, dies: int | None = None) -> dict[str, str]:
    writer, generator = LoggingWriter(folder / "texts"), LoggingGenerator(folder / "images", dies)
    with Store(folder / "store") as store:
        models = pipeline(store, writer, generator, batch_size=BATCH)
        made = make_answers(AnswerPlan(), questions(COUNT), models)
    return {own.sample.id: own.digest for own in made}


def _die(folder: Path, call: int) -> None:
    _make(folder, call)


@pytest.mark.parametrize("dies", [1, 2, 6])
def test_a_killed_run_goes_on(tmp_path: Path, dies: int) -> None:
    """SIGKILL before the first drawing, and between two: every text and every picture that was made
    is there afterwards, and the answers are those of a run in peace.
    """
    torn, calm = tmp_path / "torn", tmp_path / "calm"
    for folder in (torn, calm):
        folder.mkdir()
    assert in_child(lambda: _die(torn, dies)) == -signal.SIGKILL
    texts, images = _lines(torn / "texts"), _lines(torn / "images")
    assert (len(texts), len(images)) == (COUNT, BATCH * (dies - 1))
    made = _make(torn)
    assert _lines(torn / "texts") == texts
    drawn = _lines(torn / "images")
    assert len(set(drawn)) == 3 * COUNT
    assert len(drawn) - 3 * COUNT <= BATCH  # the batch that was being stored
    assert made == _make(calm)
