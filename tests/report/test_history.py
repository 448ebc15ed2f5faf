"""The history: whole lines from any number of processes and machines, cases over runs, its page."""

from __future__ import annotations

import multiprocessing
import re
from pathlib import Path
from urllib.parse import unquote

import msgspec
import pytest

from pytest_cepbench.errors import HistoryError, WriteError
from pytest_cepbench.report.history import (
    History,
    HistoryRun,
    append_run,
    read_history,
    report_digest,
    run_record,
    select_runs,
    timelines_of,
)
from pytest_cepbench.report.history_page import MOST_MARKS, history_page
from pytest_cepbench.report.result import SeriesShown
from tests.interruption import in_child, limit_files
from tests.report.pages import read_page
from tests.report.results import judged, origin, recorded, replace

PROCESSES, RUNS = 3, 12


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

    def append_some(process: int) -> None:
        for number in range(RUNS):
            append_run(tmp_path, recorded(process * RUNS + number))

    fork = multiprocessing.get_context("fork")
    processes = [fork.Process(target=append_some, args=(i,)) for i in range(PROCESSES)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()

    history = read_history(tmp_path)
    assert len({run.run for run in history.runs}) == len(history.runs) == PROCESSES * RUNS
    assert history.remarks == ()


def test_lines_that_are_left_out(tmp_path: Path) -> None:
    """A killed process spoils no line but its own; of other versions, and of a run in two files.

    Without room for a whole line the system writes a part of it: the part is removed, and the run
    is told.
    """
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
    with path.open("ab") as stream:
        stream.write(b"{}\n" * 9)
    assert read_history(tmp_path).remarks[3:] == (f"{path}: 9 more lines were left out",)
    before = path.read_bytes()

    def append() -> None:
        limit_files(len(before) + 100)
        with pytest.raises(WriteError, match="No space left on device"):
            append_run(tmp_path, recorded(2))

    assert in_child(append) == 0
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


def test_cases_over_their_runs_and_a_selection() -> None:
    """Each case has the runs that judged it, in order; suites stand together. Suites are selected
    by name, cases and models by pattern, the latest runs by number.
    """
    timelines = timelines_of(MADE)

    assert [t.case for t in timelines] == ["toy/color/gc", "toy/shape/gc", "other/color/gc"]
    assert [point.value for point in timelines[0].points] == [0.7, 0.8, None]
    assert timelines[0].runs == list(MADE)

    def cases(runs: list[HistoryRun], **selection: list[str]) -> list[str]:
        return [timeline.case for timeline in timelines_of(runs, **selection)]

    every, last = select_runs(HISTORY), select_runs(HISTORY, last=1)
    other = select_runs(HISTORY, ["*/b"])
    assert (len(every), len(last), len(other)) == (3, 1, 1)
    assert cases(every, suites=["other"]) == ["other/color/gc"]
    assert cases(every, cases=["*/shape/*"]) == ["toy/shape/gc"]
    assert cases(last) == ["toy/color/gc", "other/color/gc"]
    assert cases(other) == ["toy/color/gc"]
    # The error names what is like what was asked for.
    with pytest.raises(HistoryError, match=r"no suite 'toi'\. Did you mean 'toy'\?"):
        cases(every, suites=["toi"])
    with pytest.raises(HistoryError, match=r"no case 'toy/colour/gc'\. Did you mean 'toy/color"):
        cases(every, cases=["toy/colour/gc"])
    with pytest.raises(HistoryError, match=r"no model 'runs/c'\. Did you mean 'runs/"):
        select_runs(HISTORY, ["runs/c"])


def test_breaks_are_where_the_measurement_became_another() -> None:
    """With the fields that changed, where both runs have them; no run without a measurement.

    In the line of bars higher is higher; what has no value is a point, a break is a bar of the
    line's height.
    """
    same, other = {"samples": "50", "prompt": "describe"}, {"samples": "60", "under test": "x"}
    runs = [
        recorded(number, judged(0.7 if identity else None, identity=identity))
        for number, identity in enumerate((same, {}, same, other))
    ]
    (timeline,) = timelines_of(runs)
    assert timeline.breaks == {3: "prompt, samples, under test"}
    told = {**same, "references": "x"}  # by later versions alone
    added = [recorded(n, judged(0.7, identity=own)) for n, own in enumerate((same, told))]
    assert timelines_of(added)[0].breaks == {}
    page = history_page(History(Path("history"), ()), runs, [timeline], Path())
    assert "measured otherwise from here: prompt, samples, under test changed" in page
    (earlier,) = runs[2].cases  # as versions wrote it that kept one digest alone
    runs[2] = replace(runs[2], cases=[replace(earlier, fields={})])
    assert timelines_of(runs)[0].breaks == {3: ""}
    values = [0.0, 0.5, None, 1.0]
    runs = [recorded(i, judged(value)) for i, value in enumerate(values)]
    runs.append(recorded(9, judged(1.0, identity={"samples": "60"})))
    (timeline,) = timelines_of(runs)

    assert timeline.sparkline() == "▁▅.█|█"
    assert timeline.sparkline(2) == "▅|▅"
    (odd,) = timelines_of([recorded(i, judged(value)) for i, value in enumerate((-1e308, 1e308))])
    assert odd.sparkline() == "▁█"


# -- the page: every verdict is seen, reports are linked, nothing is loaded ------------------------


def page_of(history: History, folder: Path = Path("/somewhere")) -> str:
    """The page of all that a history holds."""
    timelines = timelines_of(history.runs)
    return history_page(history, history.runs, timelines, folder)


def marks(html: str, kind: str) -> int:
    """Number of marks of a verdict in the plots, the legend's left out."""
    plots = "".join(re.findall(r'<svg class="timeline".*?</svg>', html, re.DOTALL))
    return len(re.findall(rf'class="mark {kind}\b', plots))


def test_each_run_has_a_mark_that_says_its_verdict() -> None:
    """Also one that is informational, that was accepted, or that measured nothing. Of many runs the
    latest are drawn.

    Bounds are drawn as far as they exclude anything: an open end goes on to the edge of the plot;
    the model of the baseline has no bounds.
    """
    runs = (
        recorded(0, judged(0.75, accepted=True)),
        recorded(1, judged(0.5, verdict="regressed", primary=False)),
        recorded(2, judged(0.74)),
        recorded(3, judged(None)),
    )
    html = page_of(History(Path("history"), runs))

    assert {k: marks(html, k) for k in ("accepted", "regressed", "held", "error")} == dict.fromkeys(
        ("accepted", "regressed", "held", "error"), 1
    )
    assert "runs/a, 2026-09-21 14:13: accepted, 0.7500" in html
    many = [recorded(i, judged(0.75)) for i in range(MOST_MARKS + 60)]
    many[10] = recorded(10, judged(0.2, verdict="regressed"))
    many[200] = recorded(200, judged(None))
    html = page_of(History(Path("history"), tuple(many)))
    assert (marks(html, "held"), marks(html, "regressed"), marks(html, "error")) == (239, 0, 1)
    bounds = (
        recorded(0, judged(0.6)),
        recorded(1, judged(0.6, low=None)),
        recorded(2, judged(0.75, p=None, low=None, high=None, method="same model")),
    )
    html = page_of(History(Path("history"), bounds))
    (plot,) = re.findall(r'<svg class="timeline".*?</svg>', html, re.DOTALL)
    drawn = re.findall(r'class="bounds" x1="[\d.]+" y1="([\d.]+)" x2="[\d.]+" y2="([\d.]+)"', plot)
    (low, high), (edge, same) = (map(float, ends) for ends in drawn)
    assert edge > low > high == same
    assert plot.count('class="beyond"') == 1
    assert "change -0.1500 [below any, -0.1300], p 0.00042, n = 50" in html
    assert "change +0.0000 same model, n = 50" in html
    assert '<td class="number wide">same model</td><td class="number wide">-</td>' in html


def test_a_training_has_an_axis_of_its_own() -> None:
    """The checkpoints of a series stand by their numbers, apart from other runs of the case."""
    case = judged(0.7, series=SeriesShown("train-7", 3, 10, 0.001))
    series = recorded(1, case)
    later = recorded(2, replace(case, series=SeriesShown("train-7", 5, 10, 0.001)))
    assert (series.series, series.look) == ("train-7", 3)
    runs = (recorded(0, judged(0.75)), series, later, recorded(3, judged(0.74)))
    timelines = timelines_of(runs)
    assert [(t.name, len(t.points)) for t in timelines] == [
        ("toy/color/gc", 2), ("toy/color/gc in train-7", 2)
    ]  # fmt: skip
    html = page_of(History(Path("history"), runs))
    _, plot = re.findall(r'<svg class="timeline".*?</svg>', html, re.DOTALL)
    marks = [float(x) for x in re.findall(r'class="mark[^"]*" cx="([\d.]+)"', plot)]
    left, right = 64.0, 948.0
    assert marks == pytest.approx([left + (n - 0.5) / 5 * (right - left) for n in (3, 5)], abs=0.1)
    assert "5: runs/a" in read_page(html).text


def test_reports_are_linked_from_where_the_page_lies(tmp_path: Path) -> None:
    """The page of the report, at a path that is relative and may have any letters."""
    report = tmp_path / "my runs" / "a#1.json"
    report.parent.mkdir()
    report.write_text("{}")
    report.with_suffix(".html").write_text("page")
    facts = {"report": "../my runs/a#1.json", "digest": report_digest(b"{}")}
    append_run(tmp_path / "history", run_record(origin(1, **facts), [judged(0.7)]))
    (tmp_path / "pages").mkdir()
    html = page_of(read_history(tmp_path / "history"), tmp_path / "pages")

    addresses = {a for a in read_page(html).values("href") if not a.startswith("#")}
    (address,) = addresses
    assert (tmp_path / "pages" / unquote(address)).read_text() == "page"


@pytest.mark.parametrize("value", [1e300, -1e300, 1e-300, 5e-324, 0.0])
def test_numbers_beyond_reason(value: float) -> None:
    """A damaged file spoils no page."""
    run = recorded(1, judged(value, low=-1e308, high=1e308, tolerance=1e300))
    assert "timeline" in page_of(History(Path("history"), (run, recorded(2))))
    tiny = recorded(1, judged(value, low=None, high=None, difference=0.0, baseline=value))
    assert "timeline" in page_of(History(Path("history"), (tiny,)))
