"""`cepbench history`: the table, the page, and what it refuses."""

from __future__ import annotations

import pytest

from pytest_cepbench.report.history.file import append_run, run_record
from tests.cli.conftest import Home
from tests.report.history.runs import judged, origin


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
