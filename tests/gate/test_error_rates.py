"""The measurement of the gate's error rates: it finds what is broken, and counts what judge says.

Few runs of each setting: what a broken promise looks like has to be far off.
"""

from __future__ import annotations

from math import sqrt
from pathlib import Path

import numpy as np
import pytest

from benchmarks import gate_error_rates
from benchmarks.error_rates import errors, power, trainings, verdicts
from benchmarks.error_rates.report import Promises
from benchmarks.error_rates.worlds import HARD, LOOKED, LOSSES, SERIES, WORLDS, World
from benchmarks.pages import table
from pytest_cepbench.gate import Policy, Verdict, judge, record_of
from pytest_cepbench.gate.compare import verdict_of
from pytest_cepbench.gate.statistics.bounds import Bounds, mean_bounds
from pytest_cepbench.gate.statistics.differences import Differences
from pytest_cepbench.metrics.uncertainty import t_upper_quantile

pytestmark = pytest.mark.slow

_ROOT = Path(__file__).resolve().parents[2]


def plain_t(d: Differences, alpha: float, **_: bool) -> Bounds:
    """Student's bounds, which know nothing of skewness: not what the gate promises to use."""
    step = t_upper_quantile(alpha, d.units - 1) * d.sd / sqrt(d.units)
    return Bounds(d.mean, d.mean - step, d.mean + step, alpha, "t", d.units)


def test_the_gate_keeps_its_promises_in_small() -> None:
    """No rate is beyond its alpha by more than chance, in any world."""
    promises = Promises()
    rows = [*errors.worlds(60, promises), *errors.hard(60, promises)]
    assert promises.broken == []
    assert promises.measured == 4 * len(rows) - 4  # two worlds promise no false passes
    assert {len(row) for row in rows} == {2 + len(errors.HEAD)}


def test_bounds_that_know_no_skewness_break_promises(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plain t on rare losses passes what it must not, many times as often as promised."""
    monkeypatch.setattr(verdicts, "mean_bounds", plain_t)
    promises = Promises()
    errors.row(LOSSES, 24, 1000, promises)
    assert any(sentence.startswith("false passes, exponential") for sentence in promises.broken)


def test_looks_that_each_take_the_whole_alpha_break_promises(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Looking again without dividing the error passes what it must not."""

    def broken() -> list[str]:
        promises = Promises()
        values, layout = verdicts.drawn(LOOKED[0], 192, 1500, 0.01)
        found, _ = verdicts.looks(values, layout, 0.01, 0.05)
        hits = np.array([verdict in verdicts.PASSES for verdict in found])
        promises.percent("false passes", hits, 0.05)
        return promises.broken

    assert broken() == []
    monkeypatch.setattr(verdicts, "look_shares", lambda count: (1.0,) * count)
    assert len(broken()) == 1


@pytest.mark.parametrize("world", WORLDS, ids=lambda world: world.name)
@pytest.mark.parametrize("times", [1, 4])
def test_judge_says_what_the_figures_count(world: World, times: int) -> None:
    """From scores to the verdict, the whole gate agrees with what is counted as its errors."""
    values, layout = verdicts.drawn(world, 24, 12, times * world.tolerance)
    fails = verdicts.failures(values, layout, world.tolerance)
    passes = verdicts.passes(values, layout, world.tolerance, shares=world.shares)
    flat = np.full(values.shape[1], 0.5)
    for run, row in enumerate(values):
        before = (row < 0) * 1.0 if world.shares else flat
        baseline = record_of(verdicts.measured(before, layout, "baseline", shares=world.shares))
        now = verdicts.measured(before + row, layout, "candidate", shares=world.shares)
        for level, failed, passed in zip(verdicts.LEVELS, fails, passes, strict=True):
            policy = Policy(tolerance=world.tolerance, alpha=level)
            verdict = judge(now, baseline, policy).verdict
            assert (verdict in verdicts.FAILS) == failed[run]
            assert (verdict in verdicts.PASSES) == passed[run]


@pytest.mark.parametrize("world", SERIES, ids=lambda world: world.name)
def test_a_series_proves_what_its_strict_rule_says(world: World) -> None:
    """The short way to an upper bound finds what the gate's bounds and table of verdicts do."""
    values, layout = verdicts.drawn(world, 24, 40, 3 * world.tolerance)
    hits = verdicts.proven(values, layout, world.tolerance, 0.05)
    for row, hit in zip(values, hits, strict=True):
        bounds = mean_bounds(Differences(row, *layout), 0.05)
        verdict = verdict_of(bounds, world.tolerance, strict=True)
        assert hit == (verdict is Verdict.REGRESSED)
    assert hits.any()


def test_power_is_promised_against_the_t_test(monkeypatch: pytest.MonkeyPatch) -> None:
    """A test without eyes breaks the promise; the gate's keeps it."""
    monkeypatch.setattr(power, "SUITES", power.SUITES[:1])
    kept, broken = Promises(), Promises()
    (row,) = power.embedded(100, kept)
    assert row[-1] == "yes"
    monkeypatch.setattr(power, "failures", lambda values, *_: np.zeros((2, len(values)), bool))
    (row,) = power.embedded(100, broken)
    assert row[-1] == "no"
    assert (kept.broken, len(broken.broken)) == ([], 3)  # too few drops are found at 0.05 / 14


def test_a_series_stops_bad_trainings_and_no_good_ones() -> None:
    """Good trainings go on by the rules that promise it; a large drop is found at once."""
    promises = Promises()
    rows = list(trainings.good(10, promises))
    assert promises.broken == []
    assert rows[0][2] == "(100.0±0.0)"  # single gates
    found = {(row[0], row[1]): row[2:4] for row in trainings.bad(10, Promises())}
    assert found["drop of 4 x", "192"] == ["100", "1"]


def test_the_script_prints_tables_and_exits_by_the_promises(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """0 while all is kept; 1, and the broken promises by name, when bounds are too narrow."""
    monkeypatch.setattr(errors, "HARD", HARD[9:11])
    page = tmp_path / "page.md"
    page.write_text("Rates.\n\n<!-- hard -->\n\n| a |\n| --- |\n| old |\n\nMore.\n", "utf-8")
    arguments = ["--runs", "500", "--part", "hard", "--page", str(page)]
    assert gate_error_rates.main(arguments) == 0
    assert ", 0 broken" in capsys.readouterr().out
    filled = page.read_text("utf-8")
    assert "| exponential | 8 |" in filled
    assert "old" not in filled
    assert filled.endswith("\n\nMore.\n")
    monkeypatch.setattr(verdicts, "mean_bounds", plain_t)
    assert gate_error_rates.main(arguments) == 1
    assert "broken: false passes, exponential, 8 units" in capsys.readouterr().out


def test_the_page_has_a_place_for_every_table() -> None:
    """Each table of the script stands behind its mark on the page, with the same columns."""
    page = (_ROOT / "benchmarks" / "results" / "gate-error-rates.md").read_text("utf-8")
    for part in gate_error_rates.PARTS:
        assert f"<!-- {part.name} -->\n\n{table(part.head, [])}\n| " in page
    assert len(page.split()) < 8000
