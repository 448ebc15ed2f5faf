"""The page of the history: every verdict is seen, reports are linked, nothing is loaded."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import unquote

import pytest

from pytest_cepbench.report import SeriesShown
from pytest_cepbench.report.history import (
    History,
    Selection,
    append_run,
    read_history,
    report_digest,
    run_record,
    timelines_of,
)
from pytest_cepbench.report.history_page import MOST_MARKS, history_page
from tests.report.pages import read_page
from tests.report.results import replace
from tests.report.runs import judged, origin, recorded


def page_of(history: History, folder: Path = Path("/somewhere")) -> str:
    """The page of all that a history holds."""
    timelines = timelines_of(history.runs, Selection())
    return history_page(history, history.runs, timelines, folder)


def marks(html: str, kind: str) -> int:
    """Number of marks of a verdict in the plots, the legend's left out."""
    plots = "".join(re.findall(r'<svg class="timeline".*?</svg>', html, re.DOTALL))
    return len(re.findall(rf'class="mark {kind}\b', plots))


def test_each_run_has_a_mark_that_says_its_verdict() -> None:
    """Also one that is informational, that was accepted, or that measured nothing."""
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


def test_bounds_are_drawn_as_far_as_they_exclude_anything() -> None:
    """An open end goes on to the edge of the plot; the model of the baseline has no bounds."""
    runs = (
        recorded(0, judged(0.6)),
        recorded(1, judged(0.6, low=None)),
        recorded(2, judged(0.75, p=None, low=None, high=None, method="same model")),
    )
    html = page_of(History(Path("history"), runs))
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
    timelines = timelines_of(runs, Selection())
    assert [(t.name, len(t.points)) for t in timelines] == [
        ("toy/color/gc", 2), ("toy/color/gc in train-7", 2)
    ]  # fmt: skip
    html = page_of(History(Path("history"), runs))
    _, plot = re.findall(r'<svg class="timeline".*?</svg>', html, re.DOTALL)
    marks = [float(x) for x in re.findall(r'class="mark[^"]*" cx="([\d.]+)"', plot)]
    left, right = 64.0, 948.0
    assert marks == pytest.approx([left + (n - 0.5) / 5 * (right - left) for n in (3, 5)], abs=0.1)
    assert "5: runs/a" in read_page(html).text


def test_of_many_runs_the_latest_are_drawn() -> None:
    """Each with its mark."""
    runs = [recorded(i, judged(0.75)) for i in range(MOST_MARKS + 60)]
    runs[10] = recorded(10, judged(0.2, verdict="regressed"))
    runs[200] = recorded(200, judged(None))
    html = page_of(History(Path("history"), tuple(runs)))

    assert (marks(html, "held"), marks(html, "regressed"), marks(html, "error")) == (239, 0, 1)


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
