"""Runs that have not ended: what their files say, whoever wrote them and however they are left."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from pytest_cepbench.errors import HistoryError
from pytest_cepbench.report.history.running import (
    FORMAT,
    SILENT_SECONDS,
    RunningCase,
    RunningRun,
    RunningWork,
    RunState,
    list_running,
    own_process,
    remove_leftovers,
    remove_running,
    write_running,
)
from pytest_cepbench.report.history.site import Site
from tests.report.pages import read_page

RUN = f"{7:032x}"

HOSTILE = "<script>alert(1)</script>\u202e"


def running(**changes: Any) -> RunningRun:
    """A run of this process that was written just now."""
    process, space, started = own_process()
    fields: dict[str, Any] = {
        "format": FORMAT,
        "run": RUN,
        "started": time.time() - 60,
        "written": time.time(),
        "host": "host",
        "process": process,
        "process_space": space,
        "process_started": started,
        "checkpoint": "runs/a",
        "expected": 40,
        "judged": 12,
    }
    return RunningRun(**(fields | changes))


def state_of(folder: Path, **changes: Any) -> RunState:
    """What is found of a run."""
    write_running(folder, running(**changes))
    (entry,) = list_running(folder)
    return entry.state


def test_a_run_goes_on_as_long_as_its_process_is_there(tmp_path: Path) -> None:
    """Not by its id alone, which another process may have by now."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
        stat = Path(f"/proc/{other.pid}/stat").read_text().rpartition(")")[2].split()
        facts = {"process": other.pid, "process_started": int(stat[19])}
        assert state_of(tmp_path, **facts) == RunState.RUNNING
        assert state_of(tmp_path, **facts, written=time.time() - 120) == RunState.SILENT
        assert state_of(tmp_path, **facts | {"process_started": 1}) == RunState.ENDED
        other.kill()
        os.waitid(os.P_PID, other.pid, os.WEXITED | os.WNOWAIT)  # a zombie: none waited for it
        assert state_of(tmp_path, **facts) == RunState.ENDED
    assert state_of(tmp_path, **facts) == RunState.ENDED


@pytest.mark.parametrize(
    ("ago", "state"),
    [
        (0, RunState.RUNNING),
        (SILENT_SECONDS + 5, RunState.ENDED),
        (-SILENT_SECONDS - 5, RunState.ENDED),
    ],
)
def test_a_run_elsewhere_is_known_by_what_it_wrote(
    tmp_path: Path, ago: float, state: RunState
) -> None:
    """The process of another machine cannot be looked up, and clocks may differ."""
    written = time.time() - ago
    assert state_of(tmp_path, process_space="elsewhere:pid:[1]", written=written) == state


def test_files_of_others_are_left_out(tmp_path: Path) -> None:
    """Damaged ones, those of other names or versions, links, pipes, and impossible times."""
    folder = tmp_path / "running"
    write_running(tmp_path, running())
    whole = (folder / f"{RUN}.json").read_bytes()
    others = {
        f"{1:032x}.json": whole[:-9],
        f"{2:032x}.json": whole,
        f"{3:032x}.json": b"[" * 100_000,
        "name.json": whole,
    }
    for name, data in others.items():
        (folder / name).write_bytes(data)
    (folder / f"{4:032x}.json").symlink_to(folder / f"{RUN}.json")
    os.mkfifo(folder / f"{5:032x}.json")
    write_running(tmp_path, running(run=f"{6:032x}", format=FORMAT + 1))
    write_running(tmp_path, running(run=f"{8:032x}", started=1e300))

    assert [entry.run.run for entry in list_running(tmp_path)] == [RUN]


def test_what_a_run_leaves_is_removed(tmp_path: Path) -> None:
    """At its end with the folders that are empty then; a week after it was killed."""
    history = tmp_path / "history"
    write_running(history, running())
    remove_running(history, RUN)
    remove_running(history, RUN)
    assert not history.exists()

    old = f"{9:032x}"
    for run in (RUN, old):
        write_running(history, running(run=run))
    week_ago = time.time() - 8 * 86_400
    os.utime(history / "running" / f"{old}.json", (week_ago, week_ago))
    remove_leftovers(history)
    assert [entry.run.run for entry in list_running(history)] == [RUN]


def test_pages_show_hostile_texts_as_texts(tmp_path: Path) -> None:
    """Of models, cases, reasons, workers and machines; also in a project without a history."""
    case = RunningCase(HOSTILE, HOSTILE, 0.5, -0.1, passes=False, reason=HOSTILE)
    work = RunningWork(HOSTILE, HOSTILE, 3, 8, HOSTILE, rate=0.0, left=1e308)
    texts = {"checkpoint": HOSTILE, "host": HOSTILE, "counts": {HOSTILE: 1}}
    run = running(**texts, failing=[case], cases=[case], work=[work])
    write_running(tmp_path, run)
    site = Site(tmp_path)
    for page in (site.index(), site.running_page(f"{RUN}.html")):
        assert page is not None
        assert "<script>alert" not in page
        assert "\u202e" not in page
        assert page.count("&lt;script&gt;") >= 5
        assert read_page(page).values("data-state")


def test_without_history_and_runs_there_is_no_site(tmp_path: Path) -> None:
    """The error of the history."""
    with pytest.raises(HistoryError, match="cannot be read"):
        Site(tmp_path / "none").index()
    assert Site(tmp_path).running_page(f"{RUN}.html") is None
