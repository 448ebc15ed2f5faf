"""The script behind the coverage of intervals of agreement, and the figures that it wrote."""

from __future__ import annotations

import json

import pytest

from benchmarks import agreement_intervals as script


def test_the_page_has_the_figures_of_the_file() -> None:
    """Both were written by one run of the script."""
    document = json.loads((script.RESULTS / "agreement_intervals.json").read_text("utf-8"))
    written = (script.RESULTS / "agreement_intervals.md").read_text("utf-8")
    assert written == script.page(document["rows"])
    assert len(document["rows"]) == len(script.COEFFICIENTS) * len(script.SIZES)


def test_a_small_part_is_measured_again() -> None:
    """Equal votes of 50 items: most of 40 intervals have the true share inside."""
    document = json.loads((script.RESULTS / "agreement_intervals.json").read_text("utf-8"))
    truth = next(r["true"] for r in document["rows"] if r["coefficient"] == "equal votes")
    again = script.figures("equal votes", 50, truth, runs=40)
    assert again["covered"] > 0.8
    assert again["half width"] == pytest.approx(0.1, abs=0.03)
