"""The live lines of a run: on a terminal only, below what pytest writes, gone at the end."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from subprocess import Popen
from typing import TextIO

import pytest
from _pytest._io import TerminalWriter
from _pytest.terminal import TerminalReporter
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_cepbench.escapes import cut, width_of
from pytest_cepbench.plugin.terminal import live
from pytest_cepbench.plugin.terminal.live import (
    Block,
    ProgressSnapshot,
    forget,
    is_wanted,
    progress_lines,
    read_snapshots,
)
from pytest_cepbench.report.number_format import duration
from tests.plugin.scored_project import ScoredProject, scored_suite
from tests.plugin.terminal import Terminal, pytest_on, wait_for

SLOW = """\
import time
from pathlib import Path

import scored


class Describer(scored.Describer):
    calls = 0

    def describe(self, images, prompt, seeds):
        self.calls += 1
        until = time.monotonic() + (60 if self.calls > 2 else 0.15)
        while time.monotonic() < until and not Path("seen").exists():
            time.sleep(0.02)
        return super().describe(images, prompt, seeds)
"""
"""Does two calls, so that its pace is known, and the third one when the lines have been seen."""


WRITTEN = """\
import pytest


@pytest.hookimpl(trylast=True)
def pytest_configure(config):
    if hasattr(config, "workerinput"):
        return
    writer = config.get_terminal_writer()
    method = "write_raw" if hasattr(writer, "write_raw") else "write"
    write, log = getattr(writer, method), open("written", "w")

    def write_both(msg, *, flush=False, **markup):
        log.write(msg)
        log.flush()
        write(msg, flush=flush, **markup)

    setattr(writer, method, write_both)
"""
"""Keeps what pytest itself writes, and no more."""


LINE = re.compile(
    r"(gw\d )?scored (a|b|overall) GC@1 +\d+/(40|80) samples  \S.*"
    r"(?<= )(steps/s|s/step)  (\d+ min )?\d+ s left"
)


@pytest.fixture
def slow(tmp_path: Path) -> ScoredProject:
    """A project without baselines, so that its cases fail, whose describer waits to be seen."""
    suite = scored_suite(categories=("a", "b")).replace("scored:Describer", "slow:Describer")
    project = ScoredProject.make(tmp_path / "slow", suite)
    (project.path / "slow.py").write_text(SLOW)
    (project.path / "conftest.py").write_text(WRITTEN)
    return project


def _lines(terminal: Terminal) -> list[str]:
    return [row for row in terminal.rows if LINE.fullmatch(row)]


def _as_written(project: ScoredProject) -> list[str]:
    """What the terminal would show if pytest had it for itself."""
    terminal = Terminal()
    os.write(terminal.side, (project.path / "written").read_bytes())
    terminal.finish()
    return terminal.everything


@pytest.mark.slow
@pytest.mark.parametrize(
    "args", [("-p", "no:xdist"), ("-v", "-n", "2")], ids=["single", "workers, verbose"]
)
def test_lines_come_and_leave_no_trace(slow: ScoredProject, args: tuple[str, ...]) -> None:
    """One per running case; in the end the terminal shows what pytest wrote, no more, no less."""
    terminal = Terminal()
    workers = 2 if "-n" in args else 1
    with pytest_on(terminal, slow.path, *args) as process:
        wait_for(lambda: len(_lines(terminal)) == workers, 60)
        _, row = terminal.cursor
        above, below = terminal.rows[: row + 1], terminal.rows[row + 1 :]
        assert not any(map(LINE.fullmatch, above))
        assert all(map(LINE.fullmatch, below[:workers]))
        assert not any(below[workers:])
        (slow.path / "seen").touch()
        assert process.wait(60) == pytest.ExitCode.TESTS_FAILED
    terminal.finish()
    assert terminal.everything == _as_written(slow)
    assert "3 failed" in terminal.everything[-1]
    assert not any(map(LINE.search, terminal.everything))
    assert not (slow.path / ".cepbench" / "runs").exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    "args", [("-p", "no:xdist"), ("-n", "2", "-W", "default")], ids=["single", "workers"]
)
def test_lines_are_gone_after_an_interrupt(slow: ScoredProject, args: tuple[str, ...]) -> None:
    """Ctrl-C, which a terminal sends to all processes of the run."""
    terminal = Terminal()
    with pytest_on(terminal, slow.path, *args) as process:
        wait_for(lambda: bool(_lines(terminal)), 60)
        os.killpg(process.pid, signal.SIGINT)
        assert process.wait(60) == pytest.ExitCode.INTERRUPTED
    terminal.finish()
    assert "KeyboardInterrupt" in "\n".join(terminal.everything)
    assert not any(map(LINE.search, terminal.everything))
    if "-n" not in args:  # workers say a word of their own to the terminal
        assert terminal.everything == _as_written(slow)


@pytest.mark.parametrize(
    ("args", "env", "wanted"),
    [
        ((), {}, True),
        (("-q",), {}, False),
        (("-q", "-q"), {}, False),
        (("-s",), {}, False),
        (("--capture=tee-sys",), {}, False),
        (("--pdb",), {}, False),
        ((), {"CI": "true"}, False),
        ((), {"TERM": "dumb"}, False),
        ((), {"TERM": None}, False),
    ],
)
def test_lines_are_for_people(
    pytester: pytest.Pytester,
    monkeypatch: pytest.MonkeyPatch,
    args: tuple[str, ...],
    env: dict[str, str | None],
    wanted: bool,
) -> None:
    """Not in the log of a CI job, nor where pytest is not alone on the terminal."""
    for name, value in {"CI": None, "BUILD_NUMBER": None, "TERM": "xterm", **env}.items():
        monkeypatch.delenv(name, raising=False)
        if value is not None:
            monkeypatch.setenv(name, value)
    config = pytester.parseconfig(*args)
    terminal = Terminal()
    with open(os.dup(terminal.side), "w", encoding="utf-8") as file:  # noqa: PTH123
        reporter = TerminalReporter(config, file)
        config.pluginmanager.register(reporter, "terminalreporter")
        assert is_wanted(config) is wanted
    terminal.finish()


@pytest.mark.slow
@pytest.mark.parametrize(("args", "told"), [((), True), (("-q",), False)], ids=["log", "quiet"])
def test_a_log_is_told_now_and_then(slow: ScoredProject, args: tuple[str, ...], told: bool) -> None:
    """A line that says the case, samples done and pace; nothing with -q."""
    (slow.path / "conftest.py").write_text(
        "from pytest_cepbench.plugin.terminal import live\n\nlive.LOG_PAUSE = 0.2\n"
    )
    (slow.path / "seen").unlink(missing_ok=True)
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("CEPBENCH_", "PYTEST_"))}
    log = slow.path / "log"
    with (
        log.open("wb") as file,
        Popen(
            [sys.executable, "-m", "pytest", "-p", "no:xdist", *args],
            cwd=slow.path, env=clean, stdout=file, stderr=file,
        ) as process,
    ):  # fmt: skip
        line = re.compile(r"^cepbench: scored a GC@1 +\d+/\d+ samples  .*", re.MULTILINE)
        if told:
            wait_for(lambda: line.search(log.read_text()) is not None, 60)
        (slow.path / "seen").touch()
        assert process.wait(60) == pytest.ExitCode.TESTS_FAILED
    assert bool(line.search(log.read_text())) is told
    # No result of a test behind it, a capital letter.
    ended = re.compile(r"^cepbench: scored a GC@1 .*[a-z]$", re.MULTILINE)
    assert bool(ended.search(log.read_text())) is told


def test_lines_are_for_terminals(pytester: pytest.Pytester) -> None:
    """Not where the output goes to a file, nor where there is no terminal reporter."""
    config = pytester.parseconfig()
    assert not is_wanted(config)
    with (pytester.path / "log").open("w") as file:
        config.pluginmanager.register(TerminalReporter(config, file), "terminalreporter")
        assert not is_wanted(config)


# -- what they say ---------------------------------------------------------------------------------


NOW = ProgressSnapshot(
    worker="gw0",
    case="sdp overall MCD",
    samples=5,
    of_samples=100,
    step="generation 3 of 6, describer",
    steps=30,
    of_steps=1200,
    waiting=False,
    rate=12.34,
    left=3723.0,
)


def test_a_line_says_how_far_a_case_is() -> None:
    """Worker, case, samples, step, rate, time left; the columns below one another."""
    other = replace(NOW, worker="gw12", case="shapes color GC@3", samples=100, rate=0.25, left=None)
    assert progress_lines([NOW, other], 120) == [
        (
            "gw0 sdp overall MCD       5/100 samples  generation 3 of 6, describer  "
            "12.3 steps/s  1 h 2 min left"
        ),
        "gw12 shapes color GC@3  100/100 samples  generation 3 of 6, describer  4.0 s/step",
    ]
    waiting = replace(NOW, waiting=True)
    assert progress_lines([waiting], 120) == [
        "gw0 sdp overall MCD    5/100 samples  waiting for another worker"
    ]
    assert progress_lines([replace(waiting, holder="process 7 (pytest)")], 120) == [
        "gw0 sdp overall MCD    5/100 samples  waiting for process 7 (pytest)"
    ]
    starting = replace(NOW, server="starting vLLM, 35 s")
    assert progress_lines([starting], 120) == [
        "gw0 sdp overall MCD    5/100 samples  starting vLLM, 35 s"
    ]
    helping = replace(NOW, case="cases of other workers", samples=0, of_samples=0)
    assert progress_lines([helping], 120) == [
        "gw0 cases of other workers  generation 3 of 6, describer  12.3 steps/s"
    ]
    (paid,) = progress_lines([replace(NOW, cost=1.2345)], 120)
    assert paid.endswith("12.3 steps/s  1 h 2 min left  cost 1.23")
    assert progress_lines([], 120) == []


@pytest.mark.parametrize(("columns", "name"), [(160, 82), (100, 24), (40, 24)])
def test_a_long_name_is_cut_before_what_changes(columns: int, name: int) -> None:
    """Figures stay on a narrow terminal; what a data set calls its parts cannot move the cursor."""
    named = replace(NOW, case="sdp \x1b[2J漢" + "字" * 80 + " MCD")
    (line,) = progress_lines([named], columns)
    assert line.startswith(r"gw0 sdp \x1b[2J漢字")
    figures = "    5/100 samples  generation 3 of 6, describer  12.3 steps/s  1 h 2 min left"
    assert line.endswith(figures)
    assert "\x1b" not in line
    assert width_of(line.removesuffix(figures)) in (name - 1, name)  # no half of a character


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (0.4, "0 s"),
        (59.4, "59 s"),
        (59.6, "1 min 0 s"),
        (200, "3 min 20 s"),
        (3599, "59 min 59 s"),
        (3600, "1 h 0 min"),
        (18_120, "5 h 2 min"),
    ],
)
def test_times_have_two_units(seconds: float, shown: str) -> None:
    """The largest that they have."""
    assert duration(seconds) == shown


def test_words_of_workers_are_read_as_they_come(tmp_path: Path) -> None:
    """By number; a word not whole or of another version is left out, as is that of the dead."""

    def write(name: str, text: str) -> None:
        (tmp_path / name).write_text(text)

    for worker in ("gw10", "gw2", "gw1"):
        moment = asdict(replace(NOW, worker=worker))
        write(f"{worker}.progress", json.dumps(moment))
    write("gw3.progress", "{")
    write("gw4.progress", '{"worker": "gw4"}')
    write("gw5.progress", "[]")
    assert [snapshot.worker for snapshot in read_snapshots(tmp_path)] == ["gw1", "gw2", "gw10"]
    forget(tmp_path, "gw2")
    forget(tmp_path, "gw7")
    assert [snapshot.worker for snapshot in read_snapshots(tmp_path)] == ["gw1", "gw10"]
    assert read_snapshots(tmp_path / "absent") == []


def test_a_ticker_acts_until_it_is_closed() -> None:
    """Again and again, then clears up once."""
    acts: list[str] = []
    ticker = live.Ticker(lambda: acts.append("act"), lambda: acts.append("end"), 0.001)
    wait_for(lambda: len(acts) > 2)
    ticker.close()
    ticker.close()

    assert acts.count("end") == 1
    assert acts[-1] == "end"


COLUMNS, ROWS = 20, 8


Act = str | tuple[str, ...]
"""What pytest writes, or the lines that are shown from then on."""


SCREENED = st.one_of(
    st.text("ab .", min_size=1, max_size=45),
    st.sampled_from(["\n", "\r1 of 3", "漢字漢字", "\x1b[31mred\x1b[0m", "x" * COLUMNS, "y\n\nz"]),
)


SHOWN = st.lists(st.sampled_from(["GC@1", "漢" * 15, "long " * 9]), max_size=9).map(tuple)


def _file(terminal: Terminal) -> TextIO:
    return open(os.dup(terminal.side), "w", buffering=1, encoding="utf-8")  # noqa: PTH123


def _after(acts: Sequence[Act], *, shown: bool) -> tuple[list[str], int]:
    """All that is on a terminal after the acts, and the column where pytest would go on."""
    terminal = Terminal(COLUMNS, ROWS)
    with _file(terminal) as file:
        writer = TerminalWriter(file)
        block = Block(writer, os.dup(terminal.side))
        for act in acts:
            if isinstance(act, str):
                writer.write(act)
            elif shown:
                block.show(act)
        block.close()
        writer.write("|", flush=True)
    terminal.finish()
    return terminal.everything, terminal.cursor[0]


@settings(max_examples=40, deadline=None)
@given(st.lists(SCREENED | SHOWN, max_size=12))
def test_nothing_that_pytest_writes_is_lost_or_moved(acts: list[Act]) -> None:
    """After any writing and showing, the terminal is as if nothing had ever been shown."""
    assert _after(acts, shown=True) == _after(acts, shown=False)


def test_lines_stand_below_and_are_cut_to_the_terminal() -> None:
    """Below pytest's line, in their order, at most as many as fit, none wider than the terminal."""
    terminal = Terminal(COLUMNS, ROWS)
    with _file(terminal) as file:
        writer = TerminalWriter(file)
        writer.write("above\ntest_a.py ")
        block = Block(writer, os.dup(terminal.side))
        block.show(["one " * 9, "漢" * 15, *(f"line {k}" for k in range(9))])
        writer.write("..", flush=True)
        terminal.settle()
        assert terminal.rows == [
            "above",
            "test_a.py ..",
            ("one " * 9)[: COLUMNS - 1],
            "漢" * ((COLUMNS - 1) // 2),
            *(f"line {k}" for k in range(4)),
        ]
        assert terminal.cursor == (12, 1)
        block.close()
    terminal.finish()
    assert terminal.rows[:3] == ["above", "test_a.py ..", ""]


def test_lines_are_shown_and_taken_away_at_once() -> None:
    """They do not wait for what pytest writes next."""
    terminal = Terminal(COLUMNS, ROWS)
    with _file(terminal) as file:
        writer = TerminalWriter(file)
        writer.write("test_a.py ", flush=True)
        block = Block(writer, os.dup(terminal.side))
        for shown in (["one", "two"], ["three"], []):
            block.show(shown)
            terminal.settle()
            rows = [row.rstrip() for row in terminal.rows[: len(shown) + 2]]
            assert rows == ["test_a.py", *shown, ""]
        block.close()
    terminal.finish()


def test_width_counts_columns_of_a_terminal() -> None:
    """Wide characters take two columns, marks above letters none; a cut never exceeds its width."""
    assert width_of("a漢é") == 4
    assert cut("漢字", 3) == "漢"
    assert cut("abc", 0) == ""
