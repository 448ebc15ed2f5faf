"""Coverage of the bounds of distances of sets: what is drawn, counted, and called broken."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
import pytest

from benchmarks.set_distance_bounds import (
    METHODS,
    METRICS,
    WORLDS,
    broken,
    cover,
    differences,
    draw,
    main,
    tables,
)


@pytest.mark.parametrize("world", WORLDS)
def test_a_world_gives_starts_and_two_sets_of_images(world: str) -> None:
    """Of one size, rectified, and the same for the same seed."""
    rows = draw(30, 5, world, 7)
    assert [part.shape for part in rows] == [(30, 5)] * 3
    assert all((part >= 0).all() and part.dtype == np.float32 for part in rows)
    assert all(np.array_equal(a, b) for a, b in zip(rows, draw(30, 5, world, 7), strict=True))


@pytest.mark.parametrize("metric", METRICS)
def test_both_ways_differ_alike(metric: str) -> None:
    """The plain difference is the same; scores of samples have it as their mean."""
    by_method = differences(METRICS[metric], *draw(40, 4, "drift", 1))
    (by_blocks, _), (by_influence, values) = by_method["jackknife"], by_method["influence"]
    assert by_blocks == pytest.approx(by_influence, rel=1e-9)
    assert values.mean() == pytest.approx(by_influence, rel=1e-9)


def test_a_rate_above_the_promise_is_broken() -> None:
    """Of exchangeable checkpoints alone, and beyond three standard errors."""
    cell = {"metric": "fid", "world": "null", "dimension": 4, "n": 9, "runs": 1000}
    rates = {"below": {"influence": (0.08, 0.08)}, "above": {"influence": (0.06, 0.06)}}
    assert broken({"cells": [cell | rates], "costs": []}) == ["fid, null, D = 4, N = 9: below 8.0%"]
    assert broken({"cells": [cell | rates | {"world": "drift"}], "costs": []}) == []


def test_cells_become_tables() -> None:
    """One for each metric, with the rates of every method."""
    options = argparse.Namespace(runs=8, least=4, seconds=0.5)
    cell = cover("fid", "null", 4, 12, options)
    assert cell.runs >= 4
    document = {"cells": [json.loads(json.dumps(cell.__dict__))], "costs": []}
    ((name, text),) = tables(document)
    assert name == "coverage fid"
    assert text.count("errs") == len(METHODS)


@pytest.mark.slow
def test_the_quick_run_prints_and_joins(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Figures of a run can be joined into the tables of a page."""
    file, page = tmp_path / "a.json", tmp_path / "page.md"
    assert main(["--quick", "--seconds", "1", "--json", str(file)]) == 0
    marks = ("coverage fid", "coverage kid", "cost")
    page.write_text("".join(f"<!-- figures: {name} -->\n<!-- end -->\n" for name in marks))
    assert main(["--measured", str(file), "--page", str(page)]) == 0
    assert page.read_text().count("| metric | D | N |") == 1
    assert "## coverage fid" in capsys.readouterr().out
