"""The files of the history: whole lines, from any number of processes and machines."""

from __future__ import annotations

import multiprocessing
import resource
import signal
from pathlib import Path

import msgspec
import pytest

from pytest_cepbench.errors import HistoryError, WriteError
from pytest_cepbench.report.history import (
    History,
    Selection,
    append_run,
    read_history,
    report_digest,
    run_record,
    select_runs,
    timelines_of,
)
from pytest_cepbench.report.history_page import history_page
from tests.report.results import replace
from tests.report.runs import judged, origin, recorded

PROCESSES, RUNS = 3, 12


def append_some(folder: Path, process: int) -> None:
    """What one of several processes does."""
    for number in range(RUNS):
        append_run(folder, recorded(process * RUNS + number))


def append_without_room(folder: Path, most: int) -> None:
    """Append where files may have so many bytes and no more; fails unless the run is told."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
    with pytest.raises(WriteError, match="No space left on device"):
        append_run(folder, recorded(2))


def test_what_is_written_is_read(tmp_path: Path) -> None:
    """Runs come back as they were, in the order of time."""
    for number in (2, 1):
        append_run(tmp_path, run_record(origin(number), [judged(0.7), judged(None)]))
    history = read_history(tmp_path)

    assert [run.run for run in history.runs] == [origin(1).run, origin(2).run]
    first, second = history.runs[0].cases
    assert first.value == 0.7
    assert (first.low, first.high) == pytest.approx((-0.07, -0.03))
    assert (first.p, first.method) == (0.00042, "Hall")
    assert (second.value, second.verdict, second.low) == (None, "error", None)
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


def test_lines_that_are_left_out(tmp_path: Path) -> None:
    """A killed process spoils no line but its own; of other versions, and of a run in two files."""
    path = append_run(tmp_path, recorded(1))
    with path.open("ab") as stream:
        stream.write(msgspec.json.encode(recorded(2))[:40])
    append_run(tmp_path, recorded(3))
    append_run(tmp_path, replace(recorded(4), format=3))
    append_run(tmp_path, replace(recorded(5), started=1e30))  # no calendar has its time
    (tmp_path / "other.jsonl").write_bytes(msgspec.json.encode(recorded(3)) + b"\n")
    history = read_history(tmp_path)

    assert [run.run for run in history.runs] == [origin(1).run, origin(3).run]
    cut, *others = history.remarks
    assert "line 2 was left out" in cut
    assert [" left out: of another version" in remark for remark in others] == [True] * 2


def test_no_room_for_the_whole_line(tmp_path: Path) -> None:
    """The system writes a part of it: the part is removed, and the run is told."""
    path = append_run(tmp_path, recorded(1))
    before = path.read_bytes()
    fork = multiprocessing.get_context("fork")
    process = fork.Process(target=append_without_room, args=(tmp_path, len(before) + 100))
    process.start()
    process.join()

    assert process.exitcode == 0
    assert path.read_bytes() == before


def test_a_report_that_a_later_run_replaced(tmp_path: Path) -> None:
    """Only the run whose report lies there has it, also where both are of one size."""
    data = b'{"run": 2}'
    (tmp_path / "report.json").write_bytes(data)
    facts = {"report": "../report.json"}
    folder = tmp_path / "history"
    append_run(folder, recorded(1, **facts, digest=report_digest(b'{"run": 1}')))
    append_run(folder, recorded(2, **facts, digest=report_digest(data)))
    append_run(folder, recorded(3, report="../gone.json", digest="a"))
    history = read_history(folder)

    assert [history.report_of(run) for run in history.runs] == [
        None,
        tmp_path / "report.json",
        None,
    ]


# -- case by case ----------------------------------------------------------------------------------

MADE = (
    recorded(1, judged(0.7), judged(0.2, part="shape")),
    recorded(2, judged(0.8, model={"role": "describer", "spec": "runs/b"})),
    recorded(3, judged(None, identity={}), judged(0.9, suite="other")),
)

HISTORY = History(Path("history"), MADE)


def test_cases_over_their_runs() -> None:
    """Each case has the runs that judged it, in order; suites stand together."""
    timelines = timelines_of(MADE, Selection())

    assert [t.case for t in timelines] == ["toy/color/gc", "toy/shape/gc", "other/color/gc"]
    assert [point.value for point in timelines[0].points] == [0.7, 0.8, None]
    assert timelines[0].runs == list(MADE)


@pytest.mark.parametrize(
    ("selection", "cases", "runs"),
    [
        (Selection(suites=["other"]), ["other/color/gc"], 3),
        (Selection(cases=["*/shape/*"]), ["toy/shape/gc"], 3),
        (Selection(models=["*/b"]), ["toy/color/gc"], 1),
        (Selection(last=1), ["toy/color/gc", "other/color/gc"], 1),
    ],
)
def test_a_selection(selection: Selection, cases: list[str], runs: int) -> None:
    """Suites by name, cases and models by pattern, the latest runs."""
    selected = select_runs(HISTORY, selection)

    assert len(selected) == runs
    assert [t.case for t in timelines_of(selected, selection)] == cases


@pytest.mark.parametrize(
    ("selection", "message"),
    [
        (Selection(suites=["toi"]), "no suite 'toi'. Did you mean 'toy'?"),
        (Selection(cases=["toy/colour/gc"]), "no case 'toy/colour/gc'. Did you mean 'toy/color"),
        (Selection(models=["runs/c"]), "no model 'runs/c'. Did you mean 'runs/"),
    ],
)
def test_nothing_is_like_it(selection: Selection, message: str) -> None:
    """The error names what is like it."""
    with pytest.raises(HistoryError) as raised:
        timelines_of(select_runs(HISTORY, selection), selection)
    assert message in str(raised.value)


def test_breaks_are_where_the_measurement_became_another() -> None:
    """With the fields that changed, where both runs have them; no run without a measurement."""
    same, other = {"samples": "50", "prompt": "describe"}, {"samples": "60", "under test": "x"}
    runs = [
        recorded(number, judged(0.7 if identity else None, identity=identity))
        for number, identity in enumerate((same, {}, same, other))
    ]
    (timeline,) = timelines_of(runs, Selection())
    assert timeline.breaks == {3: "prompt, samples, under test"}
    page = history_page(History(Path("history"), ()), runs, [timeline], Path())
    assert "measured otherwise from here: prompt, samples, under test changed" in page
    (earlier,) = runs[2].cases  # as versions wrote it that kept one digest alone
    runs[2] = replace(runs[2], cases=[replace(earlier, fields={})])
    assert timelines_of(runs, Selection())[0].breaks == {3: ""}


def test_the_line_of_bars() -> None:
    """Higher is higher; what has no value is a point, a break is a bar of the line's height."""
    values = [0.0, 0.5, None, 1.0]
    runs = [recorded(i, judged(value)) for i, value in enumerate(values)]
    other = recorded(9, judged(1.0, identity={"samples": "60"}))
    (timeline,) = timelines_of([*runs, other], Selection())

    assert timeline.sparkline() == "▁▅.█|█"
    assert timeline.sparkline(2) == "▅|▅"
