"""Checks of scores: what was measured, how far above chance, which drop shows; and the damage."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pytest_cepbench.artifacts import ImageArtifact, Sound
from pytest_cepbench.gate import CaseKey, Noise, Policy
from pytest_cepbench.gate.sensitivity import power_of
from pytest_cepbench.gate.statistics.power import Design, tolerance_that_holds
from pytest_cepbench.studies.calibration import Calibrated
from pytest_cepbench.studies.doctor import (
    DAMAGE,
    Check,
    chance_floors,
    measurability,
    visible_drops,
)
from pytest_cepbench.suites.suite_run import CaseMeasurement
from tests.gate.build import replace

POLICY = Policy(tolerance=0.1, alpha=0.05)

NOISE = Noise(seeds=2, units=16, sd=0.02, value_sd=0.01)

DESIGN = Design.plain(NOISE.sd, NOISE.units)

HOLDING = tolerance_that_holds(DESIGN, POLICY.alpha)
"""The smallest tolerance that holds good checkpoints above that noise: about 0.015."""


def measured(value: float, part: str = "overall", **fields: Any) -> CaseMeasurement:
    """A measurement of one score."""
    shared: dict[str, Any] = {"identity": {"samples": "1"}, "model": {"identity": "m"}}
    key = CaseKey("toy", part, "gc")
    return CaseMeasurement.of(key, "GC@2", True, {"c": {"s": value}}, **(shared | fields))


def case(part: str = "overall", value: float = 0.8, **fields: Any) -> Calibrated:
    """A calibrated case; fields of the calibration or of the measurement can be changed by name."""
    known = set(Calibrated.__dataclass_fields__)
    own = {name: field for name, field in fields.items() if name in known}
    measurement = measured(value, part, **{n: f for n, f in fields.items() if n not in known})
    shared: dict[str, Any] = {"policy": POLICY, "measured": measurement, "noise": NOISE}
    return Calibrated(CaseKey("toy", part, "gc"), "GC@2", **(shared | own))


def only(check: Check) -> dict[Any, tuple[Any, ...]]:
    """The rows of the check's table, by their first cell."""
    assert all(len(row) == len(check.head) for row in check.rows)
    return {row[0]: row[1:] for row in check.rows}


# -- measurement -----------------------------------------------------------------------------------


def test_cases_that_could_not_be_measured_are_named() -> None:
    """The first five with reasons, the others counted; measured under one seed is not enough.

    Stopped chains and warnings are remarks: the case with most stopped chains is named first, then
    each warning once, five in all. Where all cases were measured and no chain stopped, there is
    nothing to do.
    """
    cases = [case(name, reason=f"no {name}", measured=None, noise=None) for name in "abcdef"]
    check = measurability([case("z", broken=True, reason="no second seed"), *cases, case()])
    assert check.status == "problem"
    assert check.said[0] == "z/gc: no second seed"
    assert check.said[1:5] == tuple(f"{name}/gc: no {name}" for name in "abcd")
    assert check.said[5:] == ("and 2 more cases",)
    assert len(check.advice) == 1
    assert len(measurability(cases[:5]).said) == 5
    check = measurability([case("a"), case()])
    assert (check.status, check.advice) == ("pass", ())
    assert check.said == ("all 2 cases were measured, no chain stopped",)
    few = case("a", failures={"timeout": 2}, warnings=("w1", "w2"))
    many = case("b", failures={"timeout": 1, "empty-text": 4}, warnings=("w2", "w3", "w4", "w5"))
    check = measurability([few, many, case()])
    assert check.status == "remark"
    assert check.said == (
        "chains stopped (b/gc: 4 empty-text, 1 timeout): each counts as 0 from there on",
        "w1", "w2", "w3", "w4",
    )  # fmt: skip
    assert check.advice == ("look at why chains stop before you accept scores",)
    warned = measurability([case(warnings=("w1",))])
    assert (warned.status, warned.said, warned.advice) == ("remark", ("w1",), ())


# -- chance ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "tolerance", "status", "sentence"),
    [
        (0.61, 0.01, "pass", "every similarity lies at least 25% of the way from chance to 1"),
        (0.59, 0.01, "remark", "near chance: overall/gc: 0.59 of a range from 0.48 (chance) to 1"),
        (0.507, 0.01, "remark", "near chance"),
        (0.505, 0.01, "problem", "at chance: overall/gc: 0.505 of a range"),
        (0.9, 0.43, "problem", "at chance"),
        (0.9, 0.42, "problem", "at chance"),
        (0.9, 0.41, "pass", "every similarity"),
        (0.3, 0.0, "problem", "at chance"),
    ],
)
def test_scores_are_seen_beside_chance(
    value: float, tolerance: float, status: str, sentence: str
) -> None:
    """Below a quarter of the range is a remark, below a twentieth or the tolerance a problem."""
    check = chance_floors([case(value=value, floor=0.48, policy=Policy(tolerance=tolerance))])
    assert check.status == status
    assert check.said[0].startswith(sentence)
    assert len(check.advice) == (status != "pass")
    shown, floor, share = only(check)["overall/gc"]
    assert (shown, floor) == (value, 0.48)
    assert share == pytest.approx((value - 0.48) / 0.52, abs=1e-6)


def test_cases_without_a_floor_are_left_out() -> None:
    """What has no value by chance, and what was not measured, is not judged by it."""
    none = [case("a"), case("b", measured=None, noise=None)]
    assert chance_floors(none).status == "not done"
    check = chance_floors([*none, case(floor=0.1)])
    assert (check.status, list(only(check))) == ("pass", ["overall/gc"])


# -- visible drops ---------------------------------------------------------------------------------


def test_a_visible_tolerance_passes() -> None:
    """The table has the noise, the policy, and what follows from both."""
    check = visible_drops([case(floor=0.1)])
    known = power_of(DESIGN, POLICY)
    assert (check.status, check.advice) == ("pass", ())
    assert check.said == (
        "a checkpoint as good as its baseline is held in 80 of 100 runs or more, in every case",
    )
    assert only(check)["overall/gc"] == (
        16, 0.02, 0.05, 0.1, known.visible, known.held_of_100, known.needed,
    )  # fmt: skip
    # A threshold knows no noise, and what was not measured has none.
    threshold = case(policy=replace(POLICY, gate="threshold"))
    unmeasured = case(measured=None, noise=None)
    assert visible_drops([threshold, unmeasured]).status == "not done"
    assert list(only(visible_drops([threshold, case("a")]))) == ["a/gc"]


@pytest.mark.parametrize(("share", "status"), [(0.9, "remark"), (1.0, "pass"), (1.1, "pass")])
def test_a_tolerance_that_does_not_hold_is_a_remark(share: float, status: str) -> None:
    """Said with how many units the most demanding case needs."""
    tolerance = share * HOLDING
    policy = replace(POLICY, tolerance=tolerance)
    check = visible_drops(
        [case("a", policy=policy), case(policy=replace(policy, tolerance=2 * tolerance))]
    )
    assert check.status == status
    if status == "remark":
        needed = power_of(DESIGN, policy).needed
        assert check.said == (
            "a checkpoint as good as its baseline would often be undecided: a/gc",
        )
        assert f"more units (up to {needed} units), by samples" in check.advice[0]


@pytest.mark.parametrize(
    ("part", "floor", "status"),
    [("overall", 0.79, "problem"), ("color", 0.79, "remark"), ("overall", 0.7, "remark")],
)
def test_a_fall_to_chance_that_does_not_show(part: str, floor: float, status: str) -> None:
    """Of the whole suite it is a problem; of a part, a remark."""
    policy = replace(POLICY, tolerance=0.001)
    check = visible_drops([case(part, floor=floor, policy=policy), case("z", policy=policy)])
    assert check.status == status
    blind = f"could not detect even a drop to the worst score: {part}/gc"
    assert (check.said[0] == blind) is (floor == 0.79)
    assert check.said[-1].endswith(f"would often be undecided: z/gc, {part}/gc")


def test_noise_that_is_not_known_is_said() -> None:
    """Seeds that change nothing show no noise; a case without noise says why."""
    silent = Noise(2, 16, 0.0, 0.0)
    cases = [case(name, noise=silent) for name in "abcdef"]
    unknown = case(noise=None, reason="one sample"), case("g", noise=None, reason="x")
    check = visible_drops([*cases, *unknown])
    assert check.status == "remark"
    unchanged = "not known, since the seeds change nothing"
    assert check.said == (
        f"{unchanged}: f/gc, e/gc, d/gc, c/gc, b/gc and 1 more",
        "not known: g/gc, overall/gc (one sample)",
    )
    assert only(check)["overall/gc"] == (None, None, 0.05, 0.1, None, None, None)
    assert only(check)["a/gc"] == (16, 0.0, 0.05, 0.1, None, None, None)
    # Of two units each of four flips is as likely. A drop without end is no number of the table.
    check = visible_drops([case(noise=Noise(2, 2, 0.02, 0.01), floor=0.1)])
    assert only(check)["overall/gc"][4] is None
    assert check.status == "problem"


# -- damage ----------------------------------------------------------------------------------------


def test_damage_is_what_it_is_called() -> None:
    """Channels in turn, the longest word gone, the second half silent."""
    plain = ImageArtifact(np.full((3, 3, 3), (10, 20, 30), np.uint8))
    assert tuple(DAMAGE["image"]["colors exchanged"](plain).pixels[0, 0]) == (30, 10, 20)
    drop_word = DAMAGE["text"]["word dropped"]
    assert drop_word("a red, enormous cat's-eye circle") == "a red, enormous circle"
    assert drop_word("cat") == "cat"
    sound = DAMAGE["sound"]["second half silent"](Sound(np.ones(5, np.float32), 8000))
    assert sound.samples.tolist() == pytest.approx([1, 1, 1, 0, 0], abs=1e-4)
