"""The page on training curves: its tables and plots are of the figures that are shipped."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.curves.figures import digest, read
from benchmarks.curves.lineups import find_series
from benchmarks.curves.tables import fill_in, fill_in_shipped
from benchmarks.training_curves import PAGE, PLOTS, RESULTS, SHIPPED
from tests.docs.markdown import ROOT

LARGEST = 100_000  # bytes of a plot


def test_tables_are_those_of_the_shipped_figures() -> None:
    """Filling the page in again changes nothing."""
    page = PAGE.read_text(encoding="utf-8")

    assert fill_in(page, read(RESULTS)) == page
    assert fill_in_shipped(page, read(SHIPPED)) == page


def test_figures_are_of_the_shipped_checkpoints() -> None:
    """Both series have every checkpoint that is shipped, whatever further steps they have."""
    shipped = find_series(ROOT / "reference" / "checkpoints")

    figures = read(RESULTS).series

    for own, expected in zip(read(SHIPPED).series, shipped, strict=True):
        assert own.steps == expected.steps
    for published, expected in zip(figures, shipped, strict=True):
        assert published.role == expected.role
        assert set(published.steps) >= set(expected.steps)
        assert published.fixed == expected.fixed


def test_plots_are_of_the_shipped_figures() -> None:
    """Every plot is linked, names the figures it was drawn from, no date, and is small."""
    linked = set(re.findall(r"\((plots/[^)]+)\)", PAGE.read_text(encoding="utf-8")))
    mark = digest(read(RESULTS))

    assert linked == {f"plots/{path.name}" for path in PLOTS.iterdir()}
    for path in PLOTS.iterdir():
        text = path.read_text(encoding="utf-8")
        assert f"figures {mark}" in text, f"{path.name} shows other figures: draw it again"
        assert len(text) <= LARGEST
        assert "<dc:date>" not in text


@pytest.mark.slow
def test_drawing_twice_gives_the_same_files(tmp_path: Path) -> None:
    """No plot holds anything that differs between two runs."""
    pytest.importorskip("matplotlib", reason="the plots need matplotlib (dependency group: plots)")
    from benchmarks.curves.plots import draw_all

    figures = read(RESULTS)
    figures = replace(figures, series=figures.series[1:])

    first, second = draw_all(figures, tmp_path / "one"), draw_all(figures, tmp_path / "two")

    assert [path.name for path in first] == ["curves-generators.svg", "curves-truth.svg"]
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in second]
