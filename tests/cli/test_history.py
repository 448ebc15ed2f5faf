"""`cepbench history`: each case over the runs of a project, and the looks of a series."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from pytest_cepbench.gate.series.file import SeriesFile
from pytest_cepbench.gate.series.record import Entry
from pytest_cepbench.gate.statistics import Design
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
        run, identities = run_record(origin(number), [result])
        append_run(home.path / ".cepbench" / "history", run, identities)
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
    assert "2026-09-23 14:13: samples changed, in 1 case of toy" in ended.out


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


def _look(root: Path, step: str, verdict: str, spread: float | None = None) -> None:
    """One checkpoint of one case."""
    file = SeriesFile(root, "run-1")
    asked = Entry(look=0, run=step, case="toy/overall/gc", model=step, spec=step, alpha=0.05)
    _, entered = file.enter(asked)
    design = None if spread is None else Design.plain(spread, 400)
    judged = {"tolerance": 0.01, "anchor_tolerance": 0.02, "design": design}
    if verdict:
        file.settle(msgspec.structs.replace(entered, verdict=verdict, **judged), step)


def test_the_looks_and_the_delays(home: Home) -> None:
    """What was spent on which checkpoint, how it ended, and what the next ones would find."""
    root = home.path / "baselines"
    _look(root, "step-100", "no-baseline")
    _look(root, "step-200", "held", 0.05)
    _look(root, "step-300", "")
    ended = home.command("history", "--series=run-1")
    assert ended.code == 0
    rows = [line.split() for line in ended.out.splitlines()]
    assert ["1", "step-100", "2.44%", "1", "no-baseline"] in rows
    assert ["2", "step-200", "2.32%", "1", "held"] in rows
    assert ["3", "step-300", "2.21%", "1", "not", "ended"] in rows
    assert "the next is number 4 and has 2.11%" in ended.out
    delays = next(row for row in rows if row[:1] == ["toy/overall/gc"])
    assert delays[1:3] == ["0.0100", "400"]
    twice, fourfold, decline = map(int, delays[3:])
    assert 1 <= fourfold <= twice <= 3
    assert 5 <= decline <= 9


def test_nothing_compared_has_no_delays(home: Home) -> None:
    """A series that has just begun."""
    _look(home.path / "baselines", "step-100", "no-baseline")
    ended = home.command("history", "--series=run-1", "--baselines", "baselines")
    assert ended.code == 0
    assert "how soon" not in ended.out


@pytest.mark.parametrize(
    ("name", "message"),
    [("run-2", "unknown series 'run-2'. Did you mean 'run-1'?"), ("../run", "letters, digits")],
)
def test_another_name_is_one_line(home: Home, name: str, message: str) -> None:
    """The nearest one, or what a name is."""
    _look(home.path / "baselines", "step-100", "held")
    ended = home.command("history", f"--series={name}")
    ended.refused(message, lines=1)
    assert ended.out == ""


def test_a_damaged_record_is_one_line(home: Home) -> None:
    """Where it is damaged, and what to do."""
    root = home.path / "baselines"
    _look(root, "step-100", "held")
    path = root / "series" / "run-1.jsonl"
    path.write_text(path.read_text().replace('"look":1', '"look":5', 1))
    ended = home.command("history", "--series=run-1")
    assert ended.code == 2
    assert "run-1.jsonl: line 2: its digest is another one" in ended.err
    assert "A series goes on only with its whole record" in ended.err
