"""A user's folder with a suite, in which the command is run, and results as runs report them."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from pytest_cepbench.cli import main
from pytest_cepbench.gate import FreshMeasurement
from tests.cli.reports import GATED, Measured, measure_toy
from tests.studies.toy import write_suite

MODELS = (
    "--model=a=shapes:?miss=0.1",
    "--model=b=shapes:?miss=0.3",
    "--model=c=shapes:?recolor=0.5",
)


@dataclass(frozen=True)
class Ended:
    """How a command ended: its exit code and what it printed."""

    code: int
    out: str
    err: str

    @property
    def flat(self) -> str:
        """What was printed, without its line breaks."""
        return " ".join(self.out.split())

    def row(self, case: str) -> list[str]:
        """The cells of a case in the table."""
        (words,) = [line.split() for line in self.out.splitlines() if line.startswith(f"{case} ")]
        return words[1:]

    def refused(self, *pieces: str, code: int = 2, lines: int | None = None) -> None:
        """What was wrong is said last, with all of these pieces, and no traceback.

        lines: of stderr, where nothing but the complaint is printed, and nothing to stdout.
        """
        assert self.code == code, self.err
        assert [piece for piece in pieces if piece not in self.err] == [], self.err
        assert self.err.splitlines()[-1].startswith("cepbench: "), self.err
        assert "Traceback" not in self.err
        assert lines is None or (self.out, self.err.count("\n")) == ("", lines), self.err


@dataclass(frozen=True)
class Home:
    """The folder, and the command in it. shared: the store of the studies of all tests."""

    path: Path
    capture: pytest.CaptureFixture[str]
    shared: Path

    def command(self, *argv: str) -> Ended:
        """`cepbench` with these arguments, in this process."""
        code = main(argv)
        printed = self.capture.readouterr()
        return Ended(code, printed.out, printed.err)

    def study(self, vary: str, *argv: str, models: Sequence[str] = MODELS) -> Ended:
        """`cepbench study` with these arguments."""
        return self.command("study", f"--vary={vary}", f"--store={self.shared}", *argv, *models)

    def document(self, name: str) -> dict[str, Any]:
        """The JSON file of a study."""
        text = (self.path / ".cepbench" / "studies" / f"{name}-toy.json").read_text("utf-8")
        content: dict[str, Any] = json.loads(text)
        return content

    def grid(self, name: str, metric: str = "gc") -> dict[str, Any]:
        """The table of one metric over the whole suite."""
        grids: list[dict[str, Any]] = self.document(name)["grids"]
        (grid,) = [g for g in grids if (g["metric"], g["part"]) == (metric, "overall")]
        return grid


@pytest.fixture(scope="session")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Measured:
    """Measurements of the toy suite by models under test, made when they are first asked for."""
    root = tmp_path_factory.mktemp("measured")
    known: dict[str, tuple[FreshMeasurement, ...]] = {}

    def of(model: str = "shapes:") -> tuple[FreshMeasurement, ...]:
        if model not in known:
            known[model] = tuple(measure_toy(root, model))
        return known[model]

    return of


@pytest.fixture(scope="session")
def shared_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store for what several tests compute."""
    return tmp_path_factory.mktemp("shared") / "store"


@pytest.fixture
def home(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    shared_store: Path,
) -> Home:
    """A folder with the toy suite, where the command is run; a terminal of 100 columns."""
    write_suite(tmp_path, GATED)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setattr(sys, "path", list(sys.path))  # the command adds the suite's folder
    return Home(tmp_path, capsys, shared_store)
