"""The benchmark of error rates in small: it measures the real gate; a broken promise fails it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from math import sqrt
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks import gate_error_rates
from benchmarks.error_rates import (
    collapsing,
    embedded,
    labelled,
    simulated,
    tables,
    verdicts,
)
from benchmarks.error_rates.figures import Cell, Figure
from benchmarks.error_rates.simulated import Settings
from benchmarks.error_rates.worlds import (
    BINARY,
    HARD,
    LOSSES,
    NORMAL,
    WORLDS,
    Hard,
    World,
    concentrated,
)
from pytest_cepbench.gate import Policy
from pytest_cepbench.gate.statistics import Bounds, Differences, mean_bounds
from pytest_cepbench.metrics.uncertainty import t_upper_quantile

pytestmark = pytest.mark.slow


SMALL = Settings(runs=40, sizes=(20,), cases=(1, 8))


@pytest.fixture(autouse=True)
def own_bounds() -> Iterator[None]:
    """Bounds of counts that are kept belong to the test that computed them."""
    verdicts.of_shares.cache_clear()
    yield
    verdicts.of_shares.cache_clear()


def plain_t(d: Differences, alpha: float, **_: bool) -> Bounds:
    """Student's bounds, which know nothing of skewness: not what the gate promises to use."""
    step = t_upper_quantile(alpha, d.units - 1) * d.sd / sqrt(d.units)
    return Bounds(d.mean, d.mean - step, d.mean + step, alpha, "t", d.units)


def undivided(d: Differences, alpha: float, *, shares: bool = False) -> Bounds:
    """The gate's bounds at four times the error that they were asked for."""
    return mean_bounds(d, min(0.5, 4 * alpha), shares=shares)


def broken(figures: Iterator[Figure]) -> list[Figure]:
    """Those that break a promise."""
    return [figure for figure in figures if figure.broken]


@pytest.mark.parametrize("world", WORLDS, ids=lambda world: world.name)
def test_the_gate_keeps_its_promises_in_small(world: World) -> None:
    """No rate is beyond its alpha by more than chance, and judge() says what the figures count."""
    figures = [*simulated.errors(world, 20, SMALL), *simulated.agreement(world, 20, SMALL)]
    assert sum(figure.promise is not None for figure in figures) >= 7
    assert broken(iter(figures)) == []


@pytest.mark.parametrize("row", HARD, ids=lambda row: row.name)
def test_the_gate_keeps_its_promises_where_it_is_hard(row: Hard) -> None:
    """Loud categories, heavy clusters, long tails, ties, jitter: what is promised there holds."""
    figures = list(simulated.hard(row, SMALL))
    assert broken(iter(figures)) == []
    promised = {figure.what.removesuffix(" of a case") for figure in figures if figure.promise}
    assert ("false failures" in promised) is (row.failures is not None and row.fails_promised)
    assert ("false passes" in promised) is (row.passes is not None and row.passes_promised)


def rate(row: Hard, what: str) -> float:
    """Of runs of one case, at the least tolerance it was measured at."""
    few = replace(SMALL, runs=20)
    figures = [f for f in simulated.hard(row, few) if f.what == what and f.cases == 1]
    return min(figures, key=lambda figure: figure.tolerance).value


def test_what_is_not_promised_does_happen() -> None:
    """Rare gains among ties and a chosen baseline's luck fail runs; the luck does not last."""
    rows = {row.name: row for row in HARD}
    assert rate(rows["86 % ties, 12 % lose 0.1, 2 % gain 0.6"], "false failures") > 0.1
    lucky = rate(rows["baseline the best of 5, n = 60"], "false failures")
    again = rate(rows["the same, measured again"], "false failures")
    assert lucky > 2 * again
    assert rate(rows["3 % drop, others jitter by 1e-4"], "false passes") == 0.0
    assert rate(rows["3 % drop, others differ by 0.02"], "false passes") > 0.05


@pytest.mark.parametrize(
    "world", [LOSSES, HARD[0].failures, HARD[5].passes], ids=lambda world: world.name
)
def test_cases_that_are_not_judged_would_not_have_counted(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bounds of every case find what those of the far ones alone find."""
    n = 24 if world.layout is None else len(world.layout.clusters)
    settings = Settings(runs=5, cases=(1, 14))
    some = list(simulated.errors(world, n, settings))
    monkeypatch.setattr(verdicts, "NEAREST", -100.0)
    assert list(simulated.errors(world, n, settings)) == some


def test_bounds_that_know_no_skewness_break_promises(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plain t on rare losses passes what it must not, many times as often as promised."""
    monkeypatch.setattr(verdicts, "mean_bounds", plain_t)
    exceeded = broken(simulated.errors(LOSSES, 20, SMALL))
    assert {figure.what for figure in exceeded} >= {"false passes", "false passes of a case"}


@pytest.mark.parametrize("world", [NORMAL, BINARY], ids=lambda world: world.name)
def test_too_much_alpha_breaks_promises(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Errors of a bound that is given more alpha than its share are seen on either side."""
    monkeypatch.setattr(verdicts, "mean_bounds", undivided)
    exceeded = broken(simulated.errors(world, 200, SMALL))
    assert {figure.what for figure in exceeded} >= {"false failures", "false passes"}
    assert "promised at most 0.05" in str(exceeded[0])


def test_looks_that_each_take_the_whole_alpha_break_promises(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Looking again without dividing the error passes what it must not."""
    settings = Settings(runs=600, cases=(1,))
    assert broken(simulated.looks(NORMAL, 400, settings)) == []
    monkeypatch.setattr(verdicts, "look_shares", lambda count: (1.0,) * count)
    exceeded = broken(simulated.looks(NORMAL, 400, settings))
    assert "false passes" in {figure.what for figure in exceeded}


def test_looks_stop_when_decided(monkeypatch: pytest.MonkeyPatch) -> None:
    """A large drift needs fewer samples than none, and all of them are the most that are used."""
    settings = Settings(runs=20, cases=(1,))
    used = {
        figure.drift: figure.value
        for figure in simulated.looks(NORMAL, 200, settings)
        if figure.what == "samples used"
    }
    assert 25 <= used[0.04] < used[0.0] <= 200


def test_the_pooled_verdict_finds_no_less() -> None:
    """Holm's procedure finds every case that was found at its share, and more where many drift."""
    rates = {
        (figure.what, figure.rule, round(figure.drift / figure.tolerance)): figure.value
        for figure in simulated.pooled(NORMAL, 60, Settings(runs=20), m=8)
    }
    for (what, rule, times), share in rates.items():
        if rule == "Holm":
            assert share >= rates[what, "regression", times]
    assert (
        rates["found, all cases drift", "Holm", 2]
        > rates["found, all cases drift", "regression", 2]
    )


@given(st.sampled_from(WORLDS), st.floats(0, 0.04), st.integers(0, 99))
def test_worlds_drift_as_they_say(world: World, drift: float, seed: int) -> None:
    """The mean drop of many samples is the drift that was asked for, within 5 standard errors."""
    shape = (1, 1, 4000, world.seeds)
    before, now = world.draw(np.random.default_rng(seed), shape, drift)
    drops = (before - now).mean(-1).ravel()
    assert abs(drops.mean() - drift) < 5 * drops.std() / sqrt(len(drops)) + 1e-12


@given(st.floats(0.02, 0.5), st.integers(0, 99))
def test_a_concentrated_drift_is_that_of_few(share: float, seed: int) -> None:
    """The share of samples that lose is the one asked for, and their loss makes up the drift."""
    shape = (1, 1, 4000, 1)
    before, now = concentrated(share)(np.random.default_rng(seed), shape, 0.1)
    drops = (before - now).ravel()
    hit = float((drops > 0.1).mean())
    assert abs(hit - share) < 5 * sqrt(share * (1 - share) / 4000)
    assert abs(drops.mean() - 0.1) < 5 * drops.std() / sqrt(4000)


def test_a_rate_beyond_three_errors_is_broken() -> None:
    """One run in ten against a promise of one in twenty: chance at 100 runs, broken at 2,000."""
    cell = Cell("regression", "normal", 20, 1, 0.0, 0.01)
    few, many = (cell.rate("false failures", np.arange(n) % 10 == 0, 0.05) for n in (100, 2000))
    assert few.error == pytest.approx(0.03)
    assert not few.broken
    assert many.broken
    assert not cell.rate("detected", np.arange(2000) % 10 == 0).broken


@pytest.fixture(scope="module")
def played() -> list[embedded.Population]:
    """Chains of the embedded world, few of them."""
    return embedded.populations(6)


def test_the_embedded_world_keeps_the_promises(played: list[embedded.Population]) -> None:
    """Real chains with ties and ceilings go through judge(); each kind of population is there."""
    figures = [f for p in played for f in embedded.figures(p, 20, 1, Settings(runs=30))]
    assert broken(iter(figures)) == []
    assert {figure.world for figure in figures} == {population.name for population in played}
    assert len({figure.world for figure in figures}) == 10


def test_embedded_runs_without_drift_have_none(played: list[embedded.Population]) -> None:
    """Pairs of scores, turned around at random, have no drift; as they are, the population's."""
    generator, policy = np.random.default_rng(0), Policy(gate="threshold", tolerance=0.0)
    population = played[0]
    fails = {
        drifts: sum(
            population.verdict(generator, 400, policy, drifts=drifts) in verdicts.FAILS
            for _ in range(40)
        )
        for drifts in (False, True)
    }
    assert 5 < fails[False] < 35
    assert fails[True] >= 38


def test_a_population_without_drift_is_refused() -> None:
    """A drift of nothing cannot be a tolerance: the message says what to do."""
    scores = np.full((4, 1), 0.5)
    with pytest.raises(ValueError, match="play more of them"):
        embedded.Population("same", scores, scores)


def test_sets_of_ends_keep_the_promises() -> None:
    """Diversity of drawn sets goes through judge() with its blocks; a collapse is a drift."""
    figures = [
        figure
        for sets in collapsing.end_sets(8)
        for figure in collapsing.figures(sets, 24, Settings(runs=80))
    ]
    assert broken(iter(figures)) == []
    assert {figure.world for figure in figures} == {
        "embedded Vendi(3)",
        "embedded pairwise distance(3)",
    }
    assert max(figure.value for figure in figures if figure.what == "detected") > 0.2


def test_the_script_prints_tables_and_exits_by_the_promises(
    tmp_path: Path,
    played: list[embedded.Population],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """0 while all is kept; 1, and the broken promises by name, when bounds are too narrow."""
    monkeypatch.setattr(gate_error_rates, "WORLDS", (LOSSES,))
    monkeypatch.setattr(gate_error_rates, "QUICK", SMALL)
    monkeypatch.setattr(embedded, "populations", lambda _: played[-1:])
    monkeypatch.setattr(collapsing, "end_sets", lambda _: [])
    monkeypatch.setattr(gate_error_rates, "_EMBEDDED_QUICK", (20,))
    file = tmp_path / "rates.json"
    arguments = ["--quick", "--runs", "30", "--json", str(file)]
    assert gate_error_rates.main(arguments) == 0
    kept = capsys.readouterr().out
    assert "| skewed, rare losses | 20 |" in kept
    assert "| embedded failures | 20 |" in kept
    assert ", 0 broken" in kept
    figures = json.loads(file.read_text(encoding="utf-8"))["figures"]
    assert {figure["broken"] for figure in figures} == {False}
    monkeypatch.setattr(verdicts, "mean_bounds", plain_t)
    assert gate_error_rates.main(arguments) == 1
    assert "broken: false passes by noninferiority, skewed, rare losses" in capsys.readouterr().out


def test_it_is_run_by_its_path(tmp_path: Path) -> None:
    """As a script, from any folder; too few runs are refused with the least that can be used."""
    script = Path(gate_error_rates.__file__)
    done = subprocess.run(
        [sys.executable, str(script), "--runs", "1"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert "at least 2 runs, got 1" in done.stderr


def test_every_figure_has_its_place() -> None:
    """A table has rows in the order they came, a dash where nothing was measured, all columns."""
    cell = Cell("regression", "normal", 20, 1, 0.0, 0.01)
    figure = cell.rate("false failures", np.arange(100) % 4 == 0, 0.05)
    (text,) = tables.report([figure], [], Settings()).values()
    assert "| normal | 20 | 25.0 ± 4.3 | - | - | - | - | - |" in text


def test_what_is_not_promised_stands_in_brackets() -> None:
    """Rows of hard worlds have a table of their own, without the mark in their names."""
    cell = Cell("regression", "hard: ties", 60, 1, 0.0, 0.0)
    hits = np.arange(100) % 4 == 0
    figures = [
        cell.rate("false failures", hits),
        replace(cell, cases=14).rate("false failures", hits, 0.05),
    ]
    (text,) = tables.report(figures, [], Settings()).values()
    assert "| ties | 60 | (25.0 ± 4.3) | 25.0 ± 4.3 | - |" in text


def test_power_is_compared_with_an_earlier_version() -> None:
    """In points, for what both have measured at the same n, drift and number of cases."""
    cell = Cell("regression", "normal", 60, 1, 0.02, 0.01)
    before = cell.rate("detected", np.arange(100) % 4 == 0)
    after = replace(before, value=0.2)
    other = replace(before, n=61)
    text = tables.report([after, other], [before], Settings())[
        "Power against an earlier version, in points"
    ]
    assert "| normal | 60 | " in text
    assert " -5.0 |" in text
    assert "| 61 |" not in text


def test_a_page_is_filled_by_the_columns_of_its_tables() -> None:
    """The rows are replaced, the prose stays; a page without such a table is refused."""
    page = "Rates.\n\n| a | b |\n| --- | --- |\n| old | 1 |\n\nMore.\n"
    new = "| a | b |\n| --- | --- |\n| new | 2 |\n| new | 3 |"
    assert tables.fill(page, {"Rates": new}) == f"Rates.\n\n{new}\n\nMore.\n"
    with pytest.raises(ValueError, match="one table with the columns of 'Rates', found 0"):
        tables.fill("Rates.\n", {"Rates": new})


def test_the_page_has_a_place_for_every_table() -> None:
    """What the script prints can be put into the docs: no table of the page has other columns."""
    page = Path(gate_error_rates.__file__).parent / "results" / "gate-error-rates.md"
    figures = list(simulated.hard(HARD[7], replace(SMALL, cases=(1, 14, 40), runs=2)))
    earlier = gate_error_rates.power(Settings(runs=2, sizes=(24,)))
    moved = list(earlier)
    report = tables.report([*figures, *moved], moved, Settings())
    assert len(report) >= 4
    assert tables.fill(page.read_text(encoding="utf-8"), report)


def test_labels_keep_the_promise_that_a_judge_alone_breaks() -> None:
    """A judge with a lean errs all the time; the errors of the labelled rule are promised."""
    few = replace(Settings(), runs=40)
    figures = list(labelled.figures(few, quick=True))
    alone = [f for f in figures if "judge alone" in f.rule and f.cases == 1]
    promised = [f for f in figures if f.promise is not None]
    assert len(promised) == len(figures) / 2 == 16
    assert not any(figure.broken for figure in promised)
    assert sum(figure.value > 0.9 for figure in alone) == 3
