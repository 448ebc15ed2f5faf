"""`cepbench accept` and what stands behind a baseline: its anchor, its calibration."""

from __future__ import annotations

import tomllib
from pathlib import Path

from pytest_cepbench.gate import Noise
from pytest_cepbench.gate.baseline import anchor_path, baseline_path
from tests.cli.accepting import WORSE, accept, row
from tests.cli.conftest import Home
from tests.cli.reports import (
    GATED,
    Measured,
    accept_by_hand,
    measure_toy,
    result_of,
)
from tests.plugin.project import contents


def test_what_was_accepted_first_stays_as_the_anchor(home: Home, measured: Measured) -> None:
    """The second acceptance freezes the first, byte by byte; the third leaves it alone."""
    root, measurement = home.path / "baselines", measured()[0]
    target, anchor = baseline_path(root, measurement.key), anchor_path(root, measurement.key)
    accept(home, [result_of(measurement)])
    first = target.read_bytes()
    assert not anchor.exists()
    second = accept(home, [result_of(measured(WORSE)[0])])
    third = accept(home, [result_of(measured("shapes:?miss=0.9")[0])])
    assert [row(ended.out, "toy/color/gc")[-1] for ended in (second, third)] == ["frozen", "kept"]
    assert anchor.read_bytes() == first != target.read_bytes()
    assert "stays as the anchor" in second.out


def test_the_anchor_moves_when_told_to(home: Home, measured: Measured) -> None:
    """`--move-anchor` makes it what is accepted now, also of a baseline that stays; once."""
    root, key = home.path / "baselines", measured()[0].key
    for model in ("shapes:", WORSE, "shapes:?miss=0.9"):
        ended = accept(home, [result_of(measured(model)[0])])
    last = [result_of(measured("shapes:?miss=0.9")[0])]
    moved = accept(home, last, "--move-anchor", "--reason=the steps were meant")
    assert row(ended.out, "toy/color/gc")[-1] == "kept"
    assert row(moved.out, "toy/color/gc")[-1] == "moved"
    assert anchor_path(root, key).read_text() == baseline_path(root, key).read_text()
    before = contents(root)
    again = accept(home, last, "--move-anchor", "--reason=once more")
    assert again.out.endswith("nothing changed\n")
    assert contents(root) == before


def test_without_an_anchor_there_is_none_to_move(home: Home, measured: Measured) -> None:
    """A first baseline is its own anchor, and stays as it is."""
    results = [result_of(measured()[0])]
    accept(home, results)
    assert accept(home, results, "--move-anchor").out.endswith("nothing changed\n")


def test_something_else_than_before(home: Home, measured: Measured, tmp_path: Path) -> None:
    """The fields that differ are named, no difference is shown, and an old anchor moves along."""
    accept(home, [result_of(measurement) for measurement in measured()])
    accept(home, [result_of(measurement) for measurement in measured(WORSE)])
    seeded = GATED.replace("iterations = 2", "iterations = 2\nseed = 7")
    others = tuple(measure_toy(tmp_path, "shapes:?miss=0.5", seeded))
    ended = accept(home, [result_of(measurement) for measurement in others])
    cells = row(ended.out, "toy/overall/gc")
    assert (cells[2], cells[-1]) == ("-", "moved")
    flat = " ".join(ended.out.split())
    assert "not comparable with what was accepted before (chain): toy/" in flat
    assert "and 5 more" in flat


def test_a_calibration_stays(home: Home, measured: Measured) -> None:
    """Accepting another checkpoint keeps the noise of a case that is measured as before."""
    root, key = home.path / "baselines", measured()[0].key
    accept_by_hand(root, measured()[:1], noise=Noise(5, 2, 0.25, 0.125))
    accept(home, [result_of(measured(WORSE)[0])])
    table = tomllib.loads(baseline_path(root, key).read_text())
    assert table["noise"] == {"seeds": 5, "units": 2, "sd": 0.25, "value_sd": 0.125}
