"""Baselines that are means over several measurements: how they are made, kept and compared with."""

from __future__ import annotations

from statistics import fmean, stdev

import pytest

from pytest_cepbench.errors import BaselineError, MeasurementError
from pytest_cepbench.gate import (
    FreshMeasurement,
    Judgement,
    Measurement,
    Policy,
    Verdict,
    dump_baseline,
    judge,
    load_baseline,
    record_of,
)
from pytest_cepbench.gate.baseline import averaged
from tests.gate.build import KEY, Scores, bell, measured, replace

SHIFTS = (0.02, -0.02, 0.01, -0.01, 0.0)
"""By how much each measurement of the accepted model lies off, in all samples of a category."""

OTHER = {"spec": "step-8000", "identity": "another"}


def shifted(shift: float, jitter: float = 0.001, n: int = 60) -> Scores:
    """Two categories: the first moves as a whole, the second hardly."""
    values = bell(n, 0.5, 0.2)
    return {
        "moving": {f"m{i}": score + shift + jitter * (-1) ** i for i, score in enumerate(values)},
        "still": {f"s{i}": score + shift / 100 for i, score in enumerate(values)},
    }


def baseline(shifts: tuple[float, ...] = SHIFTS) -> Measurement:
    """The mean of several measurements, through its file."""
    text = dump_baseline(averaged([record_of(measured(shifted(shift))) for shift in shifts]))
    return load_baseline(text, KEY, "baseline.toml")


def dropped(drop: float) -> Judgement:
    """Another model whose samples all lost about so much."""
    scores = {
        name: {s: score - drop - 0.004 * (i % 3 - 1) for i, (s, score) in enumerate(part.items())}
        for name, part in shifted(0.0).items()
    }
    return judge(measured(scores, model=OTHER), baseline(), Policy())


def test_the_baseline_has_means_and_the_spread_of_each_category() -> None:
    """Of the first measurement it keeps everything else, and a digest of its scores."""
    kept = baseline()
    first = record_of(measured(shifted(SHIFTS[0])))
    expected = [shifted(shift)["moving"]["m3"] for shift in SHIFTS]
    assert kept.scores["moving"]["m3"] == pytest.approx(fmean(expected), abs=1e-6)
    assert kept.spread is not None
    assert kept.spread.seeds == 5
    assert kept.spread.deviations["moving"] == pytest.approx(stdev(SHIFTS), abs=1e-6)
    assert kept.spread.deviations["still"] == pytest.approx(stdev(SHIFTS) / 100, abs=1e-6)
    assert (kept.identity, kept.model, kept.n) == (first.identity, first.model, first.n)
    assert averaged([first]) is first


def test_a_drop_within_the_spread_does_not_fail() -> None:
    """Every sample lost, and the accepted model loses as much from one measurement to the next."""
    once = judge(measured(shifted(-0.03), model=OTHER), record_of(measured(shifted(0.0))), Policy())
    several = dropped(0.015)
    assert once.verdict is Verdict.REGRESSED
    assert several.verdict is Verdict.INCONCLUSIVE
    assert several.p is not None
    assert several.p > 0.05
    assert any("5 measurements of the accepted model" in s for s in several.statements)
    assert dropped(0.06).verdict is Verdict.REGRESSED


def test_what_is_visible_counts_the_spread() -> None:
    """A drop as large as the one that is said fails, one well below does not."""
    visible = dropped(0.0).visible
    assert visible is not None
    assert 0.02 < visible < 0.06


def test_the_accepted_model_holds_by_its_first_measurement() -> None:
    """Runs measure it under that seed, where it does not have the mean."""
    again = measured(shifted(SHIFTS[0]))
    judgement = judge(again, baseline(), Policy())
    assert judgement.verdict is Verdict.HELD
    assert judgement.method == "same model"
    assert any("as in the first of its measurements" in s for s in judgement.statements)
    other = judge(measured(shifted(SHIFTS[1])), baseline(), Policy())
    assert other.method != "same model"
    assert judge(replace(again, model=OTHER), baseline(), Policy()).method != "same model"


def test_fewer_samples_spread_more() -> None:
    """A quarter of each category: at most twice the deviation is what they can have."""
    quarter = {name: dict(list(part.items())[:15]) for name, part in shifted(-0.012, 0.002).items()}
    whole = measured(shifted(-0.012, 0.002), model=OTHER)
    few = judge(measured(quarter, model=OTHER), baseline(), Policy(), pairing="common")
    all_of_them = judge(whole, baseline(), Policy())
    assert few.low is not None
    assert all_of_them.low is not None
    assert few.difference is not None
    assert all_of_them.difference is not None
    reach = few.difference - few.low
    assert reach == pytest.approx(2 * (all_of_them.difference - all_of_them.low), rel=0.01)


def test_categories_that_share_samples_have_the_spread_of_the_value() -> None:
    """As have those whose samples share a cluster, and scores of whole sets."""
    shared = [
        record_of(measured({"a": {"x": 0.5 + s, "y": 0.4}, "b": {"x": 0.5 + s}})) for s in SHIFTS
    ]
    in_clusters = [
        record_of(measured({"a": {"x": 0.5 + s}, "b": {"y": 0.5}}, clusters={"x": "u", "y": "u"}))
        for s in SHIFTS
    ]
    sets = [
        record_of(
            measured(
                {"a": {"set": 30 + s}, "b": {"set": 20 - s}},
                sizes={"a": 8, "b": 8},
                blocks={name: {"0": 3 + s, "1": 4.0} for name in ("a", "b")},
            )
        )
        for s in SHIFTS
    ]
    for records, deviation in ((shared, 0.75), (in_clusters, 0.5), (sets, 0.0)):
        spread = averaged(records).spread
        assert spread is not None
        assert spread.deviations == {KEY.part: pytest.approx(deviation * stdev(SHIFTS), abs=1e-6)}
    assert averaged(sets).blocks["a"] == {"0": 3.0, "1": 4.0}
    assert averaged(sets).n == 16


def test_samples_count_that_every_measurement_scored() -> None:
    """One that lacks a score under one seed is left out; a category needs one."""
    full = measured({"a": {"x": 0.5, "y": 0.4}})
    lacks: FreshMeasurement = measured({"a": {"x": 0.3}})
    kept = averaged([record_of(full), record_of(lacks)])
    assert kept.scores == {"a": {"x": 0.4}}
    assert (kept.n, kept.value) == (1, 0.4)
    with pytest.raises(MeasurementError, match="no sample with a score under each of 2 seeds"):
        averaged([record_of(lacks), record_of(measured({"a": {"y": 0.3}}))])


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"seeds" = 5', '"seeds" = 1'),
        ('"moving" = 0.015811', '"moving" = -0.1'),
        ('"moving" = 0.015811', '"other" = 0.1'),
    ],
)
def test_a_spread_that_was_edited_is_refused(old: str, new: str) -> None:
    """With what it says."""
    text = dump_baseline(baseline())
    assert old in text
    with pytest.raises(BaselineError, match="says of its spread"):
        load_baseline(text.replace(old, new), KEY, "baseline.toml")
