"""The files of the history: whole lines, from any number of processes and machines."""

from __future__ import annotations

import multiprocessing
import os
import resource
import signal
from pathlib import Path

import msgspec
import pytest

from pytest_cepbench.errors import HistoryError, WriteError
from pytest_cepbench.report.history.file import (
    IDENTITIES,
    append_run,
    host_name,
    read_history,
    report_digest,
    run_record,
)
from tests.report.history.runs import judged, origin, recorded
from tests.report.results import replace

PROCESSES, RUNS = 4, 25


def append_some(folder: Path, process: int) -> None:
    """What one of several processes does."""
    for number in range(RUNS):
        append_run(folder, recorded(process * RUNS + number), {})


def append_without_room(folder: Path, most: int) -> None:
    """Append where files may have so many bytes and no more; fails unless the run is told."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
    with pytest.raises(WriteError, match="No space left on device"):
        append_run(folder, recorded(2), {})


def test_what_is_written_is_read(tmp_path: Path) -> None:
    """Runs come back as they were, in the order of time, with the identities of their cases."""
    for number in (2, 1):
        run, identities = run_record(origin(number), [judged(0.7), judged(None)])
        append_run(tmp_path, run, identities)
    history = read_history(tmp_path)

    assert [run.run for run in history.runs] == [origin(1).run, origin(2).run]
    first, second = history.runs[0].cases
    assert first.value == 0.7
    assert (first.low, first.high) == pytest.approx((-0.07, -0.03))
    assert (first.p, first.method) == (0.00042, "Hall")
    assert (second.value, second.verdict, second.low) == (None, "error", None)
    assert history.identity(first.identity) == {"samples": "50", "prompt": "describe"}
    assert history.runs[0].checkpoint == "runs/a"
    assert history.remarks == ()


def test_processes_at_once(tmp_path: Path) -> None:
    """Each run of each process is there once, in a line of its own."""
    fork = multiprocessing.get_context("fork")
    processes = [fork.Process(target=append_some, args=(tmp_path, i)) for i in range(PROCESSES)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()

    history = read_history(tmp_path)
    assert len({run.run for run in history.runs}) == len(history.runs) == PROCESSES * RUNS
    assert history.remarks == ()


def test_folders_of_machines_copied_together(tmp_path: Path) -> None:
    """A run that lies in two files counts once."""
    append_run(tmp_path, recorded(1), {})
    own = (tmp_path / f"{host_name()}.jsonl").read_bytes()
    (tmp_path / "other-machine.jsonl").write_bytes(own + msgspec.json.encode(recorded(2)) + b"\n")

    assert [run.run for run in read_history(tmp_path).runs] == [origin(1).run, origin(2).run]


def test_a_line_that_was_cut_off(tmp_path: Path) -> None:
    """A killed process spoils no line but its own, neither those before nor those after."""
    path = append_run(tmp_path, recorded(1), {})
    with path.open("ab") as stream:
        stream.write(msgspec.json.encode(recorded(2))[:40])
    append_run(tmp_path, recorded(3), {})
    history = read_history(tmp_path)

    assert [run.run for run in history.runs] == [origin(1).run, origin(3).run]
    (remark,) = history.remarks
    assert "line 2 was left out" in remark


def test_lines_of_a_newer_version_are_left_out(tmp_path: Path) -> None:
    """What its fields mean is not known here, and the reader says so."""
    append_run(tmp_path, recorded(1), {})
    append_run(tmp_path, replace(recorded(2), format=2), {})
    history = read_history(tmp_path)

    assert len(history.runs) == 1
    assert "1 runs were left out: a newer pytest-cepbench" in history.remarks[0]


def test_an_unsound_line_is_left_out(tmp_path: Path) -> None:
    """A case that names a model which is not there, and a time that no calendar has."""
    run = recorded(1)
    wrong = replace(run.cases[0], model=7)
    append_run(tmp_path, replace(run, cases=[wrong]), {})
    append_run(tmp_path, replace(run, started=1e30), {})

    assert read_history(tmp_path).runs == ()


def test_no_room_for_the_whole_line(tmp_path: Path) -> None:
    """The system writes a part of it: the part is removed, and the run is told."""
    path = append_run(tmp_path, recorded(1), {})
    before = path.read_bytes()
    fork = multiprocessing.get_context("fork")
    process = fork.Process(target=append_without_room, args=(tmp_path, len(before) + 100))
    process.start()
    process.join()

    assert process.exitcode == 0
    assert path.read_bytes() == before


@pytest.mark.parametrize("special", ["pipe", "link"])
def test_special_files_are_not_written(tmp_path: Path, special: str) -> None:
    """A named pipe would block, a link could lead anywhere."""
    path = tmp_path / f"{host_name()}.jsonl"
    if special == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(WriteError, match="could not be written"):
        append_run(tmp_path, recorded(1), {})
    assert not (tmp_path / "elsewhere").exists()


def test_identities_are_looked_up_by_digest_only(tmp_path: Path) -> None:
    """A damaged line names no other file; an identity that is gone is not known."""
    run, identities = run_record(origin(1), [judged(0.7)])
    append_run(tmp_path, run, identities)
    (tmp_path / "secret.json").write_text('{"key": "value"}')
    history = read_history(tmp_path)
    digest = run.cases[0].identity

    assert history.identity("../secret") is None
    assert history.identity(digest) is not None
    (tmp_path / IDENTITIES / f"{digest}.json").unlink()
    assert history.identity(digest) is None


def test_a_report_that_a_later_run_replaced(tmp_path: Path) -> None:
    """Only the run whose report lies there has it, also where both are of one size."""
    data = b'{"run": 2}'
    (tmp_path / "report.json").write_bytes(data)
    facts = {"report": "../report.json", "report_bytes": len(data)}
    folder = tmp_path / "history"
    append_run(folder, recorded(1, **facts, digest=report_digest(b'{"run": 1}')), {})
    append_run(folder, recorded(2, **facts, digest=report_digest(data)), {})
    append_run(folder, recorded(3, report="../gone.json", report_bytes=3, digest="a"), {})
    history = read_history(folder)

    assert [history.report_of(run) for run in history.runs] == [
        None,
        tmp_path / "report.json",
        None,
    ]


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    """The error names it and what makes one."""
    with pytest.raises(HistoryError, match="every run of pytest with a cepbench case adds to it"):
        read_history(tmp_path / "none")
