"""`cepbench history`: each case over the runs of a project, and the looks of a series."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_cepbench.gate.series import Entry, SeriesFile
from pytest_cepbench.report.history import append_run, run_record
from tests.cli.conftest import Home
from tests.report.runs import judged, origin


@pytest.fixture
def history(home: Home) -> Home:
    """Three runs; the last one has other samples."""
    results = [
        judged(0.75, accepted=True),
        judged(0.5, verdict="regressed"),
        judged(0.9, verdict="incomparable", identity={"samples": "60", "prompt": "describe"}),
    ]
    for number, result in enumerate(results):
        run = run_record(origin(number), [result])
        append_run(home.path / ".cepbench" / "history", run)
    return home


def test_the_table(history: Home) -> None:
    """The latest numbers and the course of each case, and from when on it is another."""
    ended = history.command("history")
    assert (ended.code, ended.err) == (0, "")
    (row,) = [line for line in ended.out.splitlines() if line.startswith("toy/color/gc ")]
    assert row.split() == [
        "toy/color/gc",
        "incomparable",
        "0.9000",
        "0.7500",
        "+0.1500",
        "3",
        "▅▁|█",
    ]
    assert "2026-09-23 14:13: 1 case of toy measured otherwise" in ended.out


def test_the_page(history: Home) -> None:
    """It is written where it is asked for; a damaged line is told of."""
    (path,) = (history.path / ".cepbench" / "history").glob("*.jsonl")
    with path.open("a") as stream:
        stream.write("no JSON\n")
    ended = history.command("history", "--html=pages/h.html", "--last=2")
    assert ended.code == 0
    assert ended.out == "written: pages/h.html (1 case over 2 runs)\n"
    assert "line 4 was left out" in ended.err
    assert "History of 2 runs" in (history.path / "pages" / "h.html").read_text()


@pytest.mark.parametrize(
    ("argv", "code", "message"),
    [
        (["--history=none"], 2, "history 'none' cannot be read: No such file"),
        (["--last=0"], 2, "--last '0': a number of at least 1 is expected"),
        (["--suite=toi"], 2, "the history has no suite 'toi'. Did you mean 'toy'?"),
        (["--case=color"], 2, "the history has no case 'color'."),
        (["--html=suite.toml/h.html"], 1, "could not be written"),
    ],
)
def test_refused(history: Home, argv: list[str], code: int, message: str) -> None:
    """One line that says what is wrong."""
    ended = history.command("history", *argv)
    assert (ended.code, ended.out, ended.err.count("\n")) == (code, "", 1)
    assert message in ended.err


def _look(root: Path, step: str) -> None:
    """One checkpoint of one case."""
    file = SeriesFile(root, "run-1")
    file.enter(Entry(look=0, run=step, case="toy/overall/gc", model=step, spec=step, alpha=0.05))


def test_the_looks(home: Home) -> None:
    """What was spent on which checkpoint."""
    root = home.path / "baselines"
    for step in ("step-100", "step-200"):
        _look(root, step)
    ended = home.command("history", "--series=run-1")
    assert ended.code == 0
    rows = [line.split() for line in ended.out.splitlines()]
    assert ["1", "step-100", "2.44%", "1"] in rows
    assert ["2", "step-200", "2.32%", "1"] in rows
    assert "the next is number 3 and has 2.21%" in ended.out


@pytest.mark.parametrize(
    ("name", "message"),
    [("run-2", "unknown series 'run-2'. Did you mean 'run-1'?"), ("../run", "letters, digits")],
)
def test_another_name_is_one_line(home: Home, name: str, message: str) -> None:
    """The nearest one, or what a name is."""
    _look(home.path / "baselines", "step-100")
    ended = home.command("history", f"--series={name}")
    ended.refused(message, lines=1)
    assert ended.out == ""


def test_a_damaged_record_is_one_line(home: Home) -> None:
    """Where it is damaged, and what to do."""
    root = home.path / "baselines"
    _look(root, "step-100")
    path = root / "series" / "run-1.jsonl"
    path.write_text(path.read_text().replace('"look":1', '"look":5', 1))
    ended = home.command("history", "--series=run-1")
    assert ended.code == 2
    assert "run-1.jsonl: line 2: its digest is another one" in ended.err
    assert "A series goes on only with its whole record" in ended.err
