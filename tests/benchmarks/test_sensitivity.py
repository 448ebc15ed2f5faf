"""Sensitivity in small: thresholds, power and cost with known answers, the script and its page."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks import sensitivity
from benchmarks.sensitivity_figures.figures import Document, merged, read
from benchmarks.sensitivity_figures.lineups import UNCHANGED, World, instrument
from benchmarks.sensitivity_figures.playing import Sampling, chain_calls, play
from benchmarks.sensitivity_figures.power import (
    Array,
    Need,
    Threshold,
    alarm_rate,
    bounds,
    calibrate,
    drops_between,
    samples_needed,
)
from benchmarks.sensitivity_figures.tables import all_tables, cheapest
from pytest_cepbench.chains import ChainPlan
from pytest_cepbench.suites.measures.base import RequiredFeatures

# -- thresholds ------------------------------------------------------------------------------------


def test_a_threshold_is_the_quantile_of_the_null() -> None:
    """Of 1..100, five lie beyond 95, and a run at 95 itself never alarms."""
    assert calibrate(np.arange(1.0, 101.0)) == Threshold(95.0, 0.0)


def test_ties_alarm_as_often_as_makes_the_same_false_alarm() -> None:
    """Where no drop but 0 and 1 occurs, a share of the runs at the threshold alarms."""
    null = np.array([1.0] * 2 + [0.0] * 98)

    threshold = calibrate(null)

    assert threshold.drop == 0.0
    assert threshold.tie == pytest.approx(0.03 / 0.98)


@given(st.lists(st.integers(-3, 3), min_size=1, max_size=60), st.floats(0.01, 0.5))
def test_false_alarm_is_equal_for_all_metrics(drops: list[int], alpha: float) -> None:
    """Whatever values a metric can have: of the null itself, exactly alpha alarms."""
    null = np.array(drops, dtype=float)

    assert alarm_rate(calibrate(null, alpha), null) == pytest.approx(alpha)


@given(
    st.lists(st.floats(-1, 1), min_size=2, max_size=40),
    st.lists(st.floats(-1, 1), min_size=1, max_size=40),
    st.floats(0.5, 8),
)
def test_power_does_not_depend_on_the_unit(
    null: list[float], drops: list[float], scale: float
) -> None:
    """A metric in hundredths sees what the same metric in wholes sees."""
    coarse = np.round(np.array(null), 3), np.round(np.array(drops), 3)
    plain, scaled = (
        alarm_rate(calibrate(times * coarse[0]), times * coarse[1]) for times in (1.0, scale)
    )

    assert scaled == pytest.approx(plain)


def test_a_run_without_a_value_is_seen() -> None:
    """It fails in the gate, so its drop is infinite."""
    assert alarm_rate(Threshold(0.1, 0.0), np.array([np.inf, 0.0])) == 0.5


@pytest.mark.parametrize("bad", [np.empty(0), np.array([np.nan])])
def test_numbers_that_are_none_are_refused(
    bad: Array,
) -> None:
    """No threshold and no power come from nothing."""
    with pytest.raises(ValueError, match="expected"):
        calibrate(bad)
    with pytest.raises(ValueError, match="expected"):
        alarm_rate(Threshold(0.0, 0.0), bad)


def test_no_run_stands_against_itself() -> None:
    """Of two undamaged runs there are two drops, one the other turned around."""
    runs = [np.array([1.0]), np.array([0.25])]

    assert drops_between(runs, runs, 1).tolist() == [0.75, -0.75]
    assert drops_between(runs, [np.array([0.0])], -1).tolist() == [-1.0, -0.25]


# -- power and cost --------------------------------------------------------------------------------


def test_power_of_a_normal_shift() -> None:
    """A shift of 2 standard deviations is seen in 64 % of the runs at 5 % false alarm."""
    generator = np.random.default_rng(0)
    threshold = calibrate(generator.standard_normal(200_000))

    power = alarm_rate(threshold, generator.standard_normal(200_000) + 2)

    assert threshold.drop == pytest.approx(1.645, abs=0.02)
    assert power == pytest.approx(0.639, abs=0.01)


def test_bounds_are_those_of_clopper_and_pearson() -> None:
    """8 of 10: [.444, .975], as printed in tables; nothing of none is known."""
    assert bounds(0.8, 10) == pytest.approx((0.4439, 0.9748), abs=1e-4)
    assert bounds(0.0, 10) == pytest.approx((0.0, 0.3085), abs=1e-4)
    assert bounds(1.0, 10) == pytest.approx((0.6915, 1.0), abs=1e-4)


@given(st.floats(0, 1), st.floats(0.5, 500))
def test_bounds_hold_the_rate(rate: float, independent: float) -> None:
    """For counts that are no whole numbers, too."""
    low, high = bounds(rate, independent)

    assert 0 <= low <= rate + 1e-9
    assert rate - 1e-9 <= high <= 1


@pytest.mark.parametrize(
    ("rates", "need"),
    [
        ({8: 0.9, 16: 1.0}, Need(8.0, "at most")),
        ({8: 0.1, 16: 0.7}, Need(16.0, "over")),
        ({8: 0.6, 32: 1.0}, Need(16.0)),
        ({8: 0.7, 16: 0.4, 32: 0.9}, Need(2**4.5)),  # what was seen with fewer is seen with more
    ],
)
def test_samples_to_the_target(rates: dict[int, float], need: Need) -> None:
    """Between two numbers by the logarithm, and never beyond what was tried."""
    actual = samples_needed(rates)

    assert actual.samples == pytest.approx(need.samples)
    assert actual.bound == need.bound


def test_calls_are_those_of_the_chain_as_far_as_it_is_read() -> None:
    """SIM reads an iteration, a mapping to texts stops at the last text, and both starts add up."""
    image = ChainPlan("image", 8, "d", "{description}")
    text = replace(image, start="text")

    def calls(*required: tuple[ChainPlan, tuple[int, ...]]) -> dict[str, int]:
        return chain_calls([RequiredFeatures(plan, read, "encoder") for plan, read in required])

    assert calls((image, (0, 2))) == {"describer": 1, "generator": 1}
    assert calls((image, (0, 1, 3, 5, 7))) == {"describer": 4, "generator": 3}
    assert calls((text, (0, 1))) == {"describer": 0, "generator": 1}
    assert calls((image, (0, 8)), (text, (0, 8)), (text, (0, 2))) == {
        "describer": 8,
        "generator": 8,
    }


# -- the script ------------------------------------------------------------------------------------


def small_world(name: str, copies: Path, *, quick: bool) -> World:
    """The instrument with its control and two damages, one of which nothing can miss."""
    world = instrument(Sampling(4, (1, 2), 6), (0, 1, 2), (10,))
    wanted = (UNCHANGED, "miss", "blank")
    return replace(world, damages=tuple(d for d in world.damages if d.name in wanted))


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Document]:
    """The folder that the script was run in, with its store, and the figures that it wrote."""
    folder = tmp_path_factory.mktemp("sensitivity")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sensitivity, "make_world", small_world)
        places = ["--json", str(folder / "figures.json"), "--store", str(folder / "store")]
        assert sensitivity.main(["--quick", "--write", *places]) == 0
    return folder, read(folder / "figures.json")


@pytest.mark.slow
def test_every_metric_of_the_suite_is_asked(measured: tuple[Path, Document]) -> None:
    """The list comes from the registry: a metric of the suite's text has its rates and its cost."""
    (world,) = measured[1].worlds
    costs = {metric.name: metric.cost for metric in world.metrics}

    assert costs["gc"] == 6
    assert costs["sim"] == costs["fid"] == 2
    assert costs["mcd"] == 6
    assert costs["described mirror"] == 2  # the start, and the start edited
    for damage in world.damages:
        assert [sight.metric for sight in damage.sights] == [m.key for m in world.metrics]
        assert all([r.samples for r in sight.rates] == [8, 16] for sight in damage.sights)


@pytest.mark.slow
def test_sets_are_measured_on_the_drawn_samples(measured: tuple[Path, Document]) -> None:
    """A draw of every sample gives the value of the whole, with and without scores per sample."""
    folder, _ = measured
    world = small_world("instrument", folder, quick=True)

    played = play(world.settings[0], 0, Sampling(4, (4,), 2), folder / "store")

    assert not played.refused
    for run in played.metrics.values():
        assert run.value is not None
        assert run.values[32] == pytest.approx([run.value] * 2, abs=2e-6), run.name


@pytest.mark.slow
def test_the_tables_hold_what_was_measured(measured: tuple[Path, Document]) -> None:
    """Each damage has its row, the cheapest comes first, and the control is in the power alone."""
    _, figures = measured
    tables = all_tables(figures)

    assert "`blank`" in tables["instrument-first"]
    assert UNCHANGED not in tables["instrument-first"]
    assert UNCHANGED in tables["instrument-power"]
    for damage in figures.worlds[0].damages:
        calls = [calls for _, calls, _ in cheapest(figures.worlds[0], damage)]
        assert calls == sorted(calls)


@pytest.mark.slow
def test_figures_of_one_world_stand_beside_the_others(measured: tuple[Path, Document]) -> None:
    """Measuring a world again replaces its figures and keeps those of the others."""
    (world,) = measured[1].worlds
    other, again = replace(world, name="arena"), replace(world, seconds=1.0)

    both = merged(Document(0.05, 0.8, (world, other)), [again])

    assert [(each.name, each.seconds) for each in both] == [
        ("instrument", 1.0),
        ("arena", other.seconds),
    ]


def test_what_is_missing_is_said_in_a_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Figures that are none end with exit code 2 and no traceback; a world that is none too."""
    (tmp_path / "figures.json").write_text("{}")

    assert sensitivity.main(["--read", "--json", str(tmp_path / "figures.json")]) == 2
    assert "measure the figures again" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        sensitivity.main(["moon"])
    assert "no world 'moon'" in capsys.readouterr().err


def test_the_page_has_a_place_for_every_table() -> None:
    """What the shipped figures say can be written into the shipped page."""
    page = sensitivity.PAGE.read_text(encoding="utf-8")
    for world in sensitivity.WORLDS:
        for name in ("run", "metrics", "summary", "first", "calls", "samples", "power"):
            assert page.count(f"<!-- figures: {world}-{name} -->") == 1


def test_a_refusal_names_no_folder(tmp_path: Path) -> None:
    """A checkpoint that is none ends its runs in an error, which is kept without its place."""
    (tmp_path / "broken").mkdir()
    base = instrument(Sampling(1, (1,), 1), (0, 1), (10,)).settings[0]
    broken = replace(base, roles={**base.roles, "describer": f"{tmp_path / 'broken'}"})

    played = play(broken, 0, Sampling(1, (1,), 1), tmp_path / "store")

    assert not played.metrics
    assert "broken" in played.refused
    assert str(tmp_path) not in played.refused
