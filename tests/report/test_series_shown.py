"""A series of gates in reports: its promise, the place of each case, how soon drops are found."""

from __future__ import annotations

from pytest_cepbench.report import CaseResult, SeriesShown
from pytest_cepbench.report.case_table import figures_of
from pytest_cepbench.report.text import explain
from pytest_cepbench.report.totals import error_lines
from pytest_cepbench.report.writers import properties_of
from tests.report.results import FULL, replace

PLACE = SeriesShown(
    name="run-1",
    look=7,
    expected=40,
    alpha=0.0003,
    level=2.5e-05,
    anchor_level=1.5e-04,
    baseline=5,
    delays=[None, 3, 1],
    decline=9,
)

SERIAL = replace(FULL, series=PLACE)


def test_the_promise_is_that_of_the_series() -> None:
    """In the place of the promise of a run; cases without a part in it keep theirs."""
    series, others = error_lines([SERIAL, SERIAL, replace(FULL, gate="noninferiority")])
    assert series == (
        "2.5 % false failures at most per series, however long, of checkpoints that lost no more "
        "than the tolerance, over 2 cases; checkpoint 7 of series run-1, alpha 0.0006 of 0.025"
    )
    assert "of runs at most pass with a drop larger than tolerated" in others


def test_each_look_has_its_line() -> None:
    """Cases that were looked at before keep their number beside new ones."""
    lines = error_lines([SERIAL, replace(SERIAL, series=replace(PLACE, look=9))])
    assert [line.partition("; ")[2].partition(" of")[0] for line in lines] == [
        "checkpoint 7",
        "checkpoint 9",
    ]


def _figure(result: CaseResult, label: str) -> str:
    return next((f"{f.shown} {f.remark}" for f in figures_of(result) if f.label == label), "")


def test_the_figures_say_what_was_spent_and_what_is_found() -> None:
    """Of the case's alpha, by whom it is divided, and after how many checkpoints."""
    assert _figure(SERIAL, "series") == (
        "0.0003 of 0.0125 for checkpoint 7 of run-1, 2.5e-05 of the upper bound against "
        "checkpoint 5, 0.00015 since the anchor"
    )
    assert _figure(SERIAL, "found after") == (
        "3 checkpoints, a drop of 2 tolerances with 80 % power; of 4: 1; of 1: tolerated; a "
        "decline of half a tolerance at each: 9"
    )
    alpha = _figure(replace(SERIAL, level=0.003), "alpha")
    assert alpha.startswith("0.0125 0.003 of the lower bound, divided among")
    assert "found after" in explain(SERIAL)


def test_what_is_not_known_is_left_out() -> None:
    """A case without bounds has no delays; one that is found late says so."""
    bare = replace(SERIAL, series=SeriesShown(name="run-1", look=1, expected=40, alpha=0.001))
    assert _figure(bare, "series") == "0.001 of 0.0125 for checkpoint 1 of run-1"
    assert _figure(bare, "found after") == ""
    late = replace(SERIAL, series=replace(PLACE, delays=[None, None, 20], decline=None))
    assert _figure(late, "found after").startswith("over 20 checkpoints")
    assert _figure(FULL, "series") == ""


def test_programs_read_it_as_properties() -> None:
    """Of a case in a series, and of no other."""
    properties = dict(properties_of(SERIAL))
    assert properties["cepbench_series"] == "run-1"
    assert properties["cepbench_series_checkpoint"] == "7"
    assert float(properties["cepbench_series_alpha"]) == 0.0003
    assert not any("series" in name for name, _ in properties_of(FULL))
