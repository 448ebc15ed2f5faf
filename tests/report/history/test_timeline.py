"""The history case by case: what is selected, and where values stop to compare."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_cepbench.errors import HistoryError
from pytest_cepbench.report.history.file import History, append_run, read_history, run_record
from pytest_cepbench.report.history.timeline import (
    Selection,
    break_reasons,
    select_runs,
    timelines_of,
)
from tests.report.history.runs import judged, origin, recorded

RUNS = (
    recorded(1, judged(0.7), judged(0.2, part="shape")),
    recorded(2, judged(0.8, model={"role": "describer", "spec": "runs/b"})),
    recorded(3, judged(None, identity={}), judged(0.9, suite="other")),
)

HISTORY = History(Path("history"), RUNS)


def test_cases_over_their_runs() -> None:
    """Each case has the runs that judged it, in order; suites stand together."""
    timelines = timelines_of(RUNS, Selection())

    assert [t.case for t in timelines] == ["toy/color/gc", "toy/shape/gc", "other/color/gc"]
    assert [point.value for point in timelines[0].points] == [0.7, 0.8, None]
    assert timelines[0].runs == RUNS


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


def test_an_empty_history() -> None:
    """There is nothing to show, and the error says what makes a run."""
    with pytest.raises(HistoryError, match="has no run yet: run pytest"):
        select_runs(History(Path("history"), ()), Selection())


def test_breaks_are_where_the_measurement_became_another(tmp_path: Path) -> None:
    """The fields that changed are named; a run that measured nothing is no break."""
    identities = [
        {"samples": "50", "prompt": "describe"},
        {},
        {"samples": "50", "prompt": "describe"},
        {"samples": "60", "prompt": "tell"},
    ]
    for number, identity in enumerate(identities):
        result = judged(0.7 if identity else None, identity=identity)
        append_run(tmp_path, *run_record(origin(number), [result]))
    history = read_history(tmp_path)
    (timeline,) = timelines_of(history.runs, Selection())

    assert dict(break_reasons(timeline, history)) == {3: "prompt, samples"}
    for path in (tmp_path / "identities").iterdir():
        path.unlink()
    assert dict(break_reasons(timeline, history)) == {3: "identity"}


def test_the_line_of_bars() -> None:
    """Higher is higher; what has no value is a point, a break is a bar of the line's height."""
    values = [0.0, 0.5, None, 1.0]
    runs = [recorded(i, judged(value)) for i, value in enumerate(values)]
    other = recorded(9, judged(1.0, identity={"samples": "60"}))
    (timeline,) = timelines_of([*runs, other], Selection())

    assert timeline.sparkline() == "▁▅.█|█"
    assert timeline.sparkline(2) == "▅|▅"
