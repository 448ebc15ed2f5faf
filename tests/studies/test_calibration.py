"""The noise of a model against itself, and what the doctor says of scores and damage."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_cepbench.artifacts import ImageArtifact, Sound
from pytest_cepbench.gate import CaseKey, Noise, Policy, judge, record_of
from pytest_cepbench.gate.sensitivity import design_of, power_of
from pytest_cepbench.gate.statistics.power import (
    Design,
    chance_to_hold,
    tolerance_that_holds,
    units_needed,
)
from pytest_cepbench.store import Store
from pytest_cepbench.studies.calibration import (
    Calibrated,
    Proposal,
    calibrate,
    noise_of,
    prepare_calibration,
    propose,
)
from pytest_cepbench.studies.doctor import (
    DAMAGE,
    Check,
    chance_floors,
    measurability,
    visible_drops,
)
from pytest_cepbench.suites import ModelPool, RoleChoices
from pytest_cepbench.suites.suite_run import CaseMeasurement
from tests.gate.build import replace
from tests.optional import known
from tests.studies.toy import TOY, write_suite

Scores = Mapping[str, Mapping[str, float]]

GATED = TOY.replace('gate = "threshold"', 'gate = "regression"')
"""The toy suite, judged by statistics."""

SET = '[metrics.fid]\npool = "samples"\n'
"""One distance over all images, not the mean of one for each category."""

SCORE = st.floats(-1, 1).map(lambda x: round(x, 6))


@st.composite
def seeds_of_one_category(draw: st.DrawFn) -> list[list[float]]:
    """Scores of the same samples under several seeds."""
    samples = draw(st.integers(2, 8))
    row = st.lists(SCORE, min_size=samples, max_size=samples)
    return draw(st.lists(row, min_size=2, max_size=5))


def measured(scores: Scores, **fields: Any) -> CaseMeasurement:
    """A measurement of these scores."""
    shared: dict[str, Any] = {
        "key": CaseKey("toy", "color", "gc"),
        "label": "GC@2",
        "higher_is_better": True,
        "identity": {},
        "model": {},
    }
    return CaseMeasurement.of(scores=scores, **(shared | fields))


def one_category(rows: Sequence[Sequence[float]]) -> list[CaseMeasurement]:
    """One measurement for each row."""
    return [measured({"c": {str(i): value for i, value in enumerate(row)}}) for row in rows]


def noise(measurements: Sequence[CaseMeasurement], **fields: Any) -> Noise:
    """The noise, which must be there."""
    actual = noise_of(measurements, **fields)
    assert isinstance(actual, Noise)
    return actual


@given(seeds_of_one_category())
def test_noise_of_one_category(rows: list[list[float]]) -> None:
    """sd^2 is the mean over all pairs of seeds of the variance of their differences."""
    actual = noise(one_category(rows))
    variances = [np.var(np.subtract(a, b), ddof=1) for a, b in combinations(rows, 2)]
    assert actual.sd == pytest.approx(np.sqrt(np.mean(variances)), abs=2e-6)
    assert actual.value_sd == pytest.approx(np.std(np.mean(rows, axis=1), ddof=1), abs=2e-6)
    assert (actual.seeds, actual.units) == (len(rows), len(rows[0]))


@given(seeds_of_one_category(), st.floats(-1, 1))
def test_a_shift_of_a_whole_seed_moves_the_value_only(
    rows: list[list[float]], shift: float
) -> None:
    """What all samples gain under a seed is no scatter of single samples."""
    shifted = [[value + shift * i for value in row] for i, row in enumerate(rows)]
    assert noise(one_category(shifted)).sd == pytest.approx(noise(one_category(rows)).sd, abs=3e-6)
    silent = noise(one_category([rows[0]] * 3))
    assert (silent.seeds, silent.units, silent.sd, silent.value_sd) == (3, len(rows[0]), 0.0, 0.0)


@pytest.mark.slow
def test_the_noise_predicts_how_values_scatter() -> None:
    """With categories of unlike size sd^2 / units is the variance of a difference of values."""
    generator = np.random.default_rng(7)
    sizes = {"small": 5, "large": 40}

    scores = [
        {
            name: {f"{name}{i}": x for i, x in enumerate(generator.normal(0, 0.2, size))}
            for name, size in sizes.items()
        }
        for _ in range(150)
    ]
    actual = noise([measured(own) for own in scores])
    assert actual.units == 45
    true = 0.2**2 * np.mean([1 / 5, 1 / 40]) / 2  # of a mean of two means
    assert actual.sd**2 / actual.units == pytest.approx(2 * true, rel=0.1)
    assert actual.value_sd**2 == pytest.approx(true, rel=0.35)


def test_seeds_of_one_sample_are_one_unit() -> None:
    """Replicates that move together say no more than one of them.

    Units of a set are its blocks: the spread is that of differences of pseudo-values, though the
    score is a single number.
    """
    alone = [[0.1, 0.5, 0.3], [0.4, 0.2, 0.9]]
    twice = [[value for value in row for _ in range(2)] for row in alone]
    clusters = {str(i): str(i // 2) for i in range(6)}
    doubled = [
        measured({"c": {str(i): value for i, value in enumerate(row)}}, clusters=clusters)
        for row in twice
    ]
    actual, plain = noise(doubled), noise(one_category(alone))
    assert actual.units == plain.units == 3
    assert actual.value_sd == plain.value_sd
    # Six pairs in three clusters: the plain variance of three, whatever the pairs within.
    assert actual.sd == pytest.approx(plain.sd, abs=1e-6)
    rows = [[4.0, 6.0, 5.0, 9.0], [5.0, 6.0, 7.0, 7.0], [4.0, 4.0, 4.0, 4.0]]
    actual = noise([whole_set(row, higher_is_better=False) for row in rows])
    variances = [np.var(np.subtract(a, b), ddof=1) for a, b in combinations(rows, 2)]
    assert actual.sd == pytest.approx(np.sqrt(np.mean(variances)), abs=1e-6)
    assert actual.units == 4


def whole_set(values: Sequence[float], **fields: Any) -> CaseMeasurement:
    """A score of a whole set with its blocks' pseudo-values."""
    blocks = {"all": {str(i): value for i, value in enumerate(values)}} if values else {}
    score = float(np.mean(values)) if len(values) else 1.0
    return measured({"all": {"all images": score}}, sizes={"all": 40}, blocks=blocks, **fields)


@pytest.mark.parametrize(
    ("measurements", "message"),
    [
        ([whole_set([]), whole_set([1.0, 2.0])], "too small to leave a block of samples out"),
        ([whole_set([1.0, 2.0]), whole_set([1.0, 2.0, 3.0])], "not the same blocks of samples"),
        (one_category([[1.0], [0.5]]), "one independent sample shows no spread"),
        ([measured({"c": {"a": 1.0}}), measured({"c": {"b": 1.0}})], "not the same samples"),
        ([measured({"c": {"a": 1.0}}), measured({"d": {"a": 1.0}})], "not the same samples"),
    ],
)
def test_noise_that_cannot_be_told(measurements: list[CaseMeasurement], message: str) -> None:
    """A sentence in the place of a number."""
    actual = noise_of(measurements)
    assert isinstance(actual, str)
    assert message in actual


# -- the suite -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With one store, in which later calibrations find the chains of earlier ones."""
    return tmp_path_factory.mktemp("calibration")


def calibrated(folder: Path, text: str = GATED) -> dict[str, Calibrated]:
    """What is found of every case of a suite, by PART/METRIC."""
    suite, choices = write_suite(folder, text), RoleChoices("shapes:?miss=0.3")
    with Store(folder / "store") as store:
        pool = ModelPool(store)
        cases = calibrate(prepare_calibration(suite, choices, 2, pool), pool, lambda _: None)
    return {f"{case.key.part}/{case.key.metric}": case for case in cases}


def test_cases_are_calibrated_as_in_a_run_of_the_suite(folder: Path) -> None:
    """Alpha is divided by weight among the cases that share it; the others keep theirs.

    FID of 16 images has 8 blocks of two, and noise.
    """
    primary = 'gate = "regression"\nalpha = 0.1\nprimary = ["gc", "failures"]'
    text = GATED.replace('gate = "regression"', primary)
    text = text.replace("tolerance = 0.0", 'tolerance = 0.0\ngate = "threshold"')
    text += '[metrics.s]\n[cases]\n"overall/gc" = { weight = 3.0 }\n"color/gc" = { alpha = 0.02 }\n'
    actual = calibrated(folder, text)
    alphas = {name: case.policy.alpha for name, case in actual.items() if name.endswith("/gc")}
    assert alphas.pop("color/gc") == 0.02
    assert alphas.pop("overall/gc") == pytest.approx(0.03)  # 3 of 10 weights: 7 categories and it
    assert list(alphas.values()) == pytest.approx([0.01] * 7)
    assert actual["overall/s"].policy.alpha == 0.1  # it can fail no run
    assert actual["overall/failures"].power is None  # judged without statistics
    assert actual["overall/gc"].power is not None
    case = calibrated(folder, GATED + SET)["overall/fid"]
    assert case.measured is not None
    assert case.noise is not None
    assert case.noise.units == sum(len(part) for part in case.measured.blocks.values())
    assert case.noise.sd > 0


def test_a_case_holds_good_checkpoints_from_one_tolerance_on(folder: Path) -> None:
    """Just below it they are often undecided."""
    case = calibrated(folder)["overall/gc"]
    assert case.noise is not None
    design = known(design_of(case.noise, case.noise.units))
    for factor, enough in ((0.99, False), (1.01, True)):
        tolerance = factor * tolerance_that_holds(design, case.policy.alpha)
        text = GATED.replace('gate = "regression"', f'gate = "regression"\ntolerance = {tolerance}')
        power = known(calibrated(folder, text)["overall/gc"].power)
        assert power.enough is enough


@pytest.mark.parametrize(
    ("rows", "shares", "gaffke"),
    [
        ([[0.1, 0.5, 0.3, 0.9], [0.4, 0.2, 0.9, 0.1]], False, False),
        ([[1.0, 0.0, 1.0, 0.0], [1.0, 1.0, 0.0, 0.0]], True, True),
        ([[0.1, 0.5, 0.3, 0.9], [0.1, 0.5, 0.3, 0.1]], False, True),
    ],
    ids=["spread", "shares", "lump"],
)
def test_noise_knows_which_bounds_the_gate_makes(
    rows: list[list[float]], shares: bool, gaffke: bool
) -> None:
    """Gaffke's know how much a unit can lose, and power is computed with that."""
    measurements = [
        measured({"c": {str(i): x for i, x in enumerate(row)}}, shares=shares) for row in rows
    ]
    actual = noise(measurements)
    assert actual.worst == (1.0 if gaffke else None)
    judged = judge(measurements[1], record_of(measurements[0]), Policy())
    assert (judged.method == "Gaffke") is gaffke
    design = known(design_of(actual, actual.units))
    assert judged.design is not None
    power, gates = power_of(design, Policy()), power_of(judged.design, Policy())
    assert power.visible == pytest.approx(gates.visible, rel=0.01)
    assert power.held == pytest.approx(gates.held, abs=0.01)


POLICY = Policy(gate="regression", tolerance=0.01, alpha=0.025)


def piloted(part: str, sd: float | None, units: int = 8, value: float | None = None) -> Calibrated:
    """A case of a pilot. value: of its scores, which chance puts at 0.1."""
    key = CaseKey("photos", part, "gc")
    noise = None if sd is None else Noise(seeds=3, units=units, sd=sd, value_sd=sd)
    measured = value and CaseMeasurement.of(
        key, "GC@3", True, {"c": {"s": value}}, {}, {}, floor=0.1
    )
    return Calibrated(key, "GC@3", POLICY, measured or None, noise, "" if noise else "too few")


def test_more_or_fewer_images_than_needed() -> None:
    """As many of each category as hold good checkpoints at 0.01 in the whole, and no more.

    Of fewer all are used, and the tolerance is the smallest of two digits that holds them. A
    category with fewer images gives all that it has; one image shows nothing. The numbers are the
    gate's own, of the samples that there are, at the proposed tolerance, and no others. Without
    noise the default stands.
    """
    needed = known(units_needed(Design.plain(0.05, 8), 0.01, POLICY.alpha))
    counts = {"a": 1000, "b": 1000}
    proposal = propose([piloted("overall", 0.05), piloted("a", 0.05)], counts, "gc")
    assert proposal.measured
    assert proposal.samples is not None
    assert 2 * proposal.samples - 2 < needed <= 2 * proposal.samples
    assert proposal.tolerance == 0.01
    assert proposal.cases == {"a/gc": pytest.approx(0.014, abs=0.002)}
    proposal = propose([piloted("overall", 0.2)], {"a": 20, "b": 20}, "gc")
    design = Design.plain(0.2, 8).scaled(40)
    assert proposal.samples is None
    held = [chance_to_hold(design, POLICY.alpha, proposal.tolerance - x) for x in (0.01, 0.0)]
    assert held[0] < 0.8 <= held[1]
    assert proposal.power["overall"].held_of_100 in (80, 81, 82, 83)
    cases = [piloted("overall", 0.05), piloted("a", 0.05), piloted("b", 0.05)]
    proposal = propose(cases, {"a": 5000, "b": 1}, "gc")
    assert proposal.samples == needed - 1
    assert "b/gc" not in proposal.cases
    assert "b" not in proposal.power
    cases = [piloted("overall", 0.2), piloted("a", 0.3), piloted("b", 0.01)]
    proposal = propose(cases, {"a": 12, "b": 20}, "gc")
    assert set(proposal.cases) == {"a/gc"}
    for case, units in zip(cases, (32, 12, 20), strict=True):
        assert case.noise is not None
        design = known(design_of(case.noise, units))
        tolerance = proposal.cases.get(case.key.within, proposal.tolerance)
        policy = replace(POLICY, tolerance=tolerance)
        assert proposal.power[case.key.part] == power_of(design, policy)
    for sd in (None, 0.0):  # it is not called measured, and the reason is named
        proposal = propose([piloted("overall", sd)], {"a": 20}, "gc")
        assert (proposal.measured, proposal.tolerance, proposal.samples) == (False, 0.01, None)
        assert "noise" in proposal.reasons[0]
    assert propose([], {"a": 20}, "gc").tolerance == Proposal().tolerance


@pytest.mark.parametrize("value", [0.2, 0.9])
def test_a_tolerance_leaves_a_drop_to_see(value: float) -> None:
    """Where the one that holds would hide a fall to chance, half of that fall is proposed."""
    cases = [piloted("overall", 0.1), piloted("a", 0.1, value=value)]
    proposal = propose(cases, {"a": 10, "b": 90}, "gc")
    said = [reason for reason in proposal.reasons if reason.startswith("a can lose 0.1, ")]
    held = proposal.power["a"].held
    if value == 0.2:
        assert proposal.cases == {"a/gc": 0.05}
        assert held < 0.8
        held_of_100 = proposal.power["a"].held_of_100
        assert f"is held in {held_of_100} of 100 runs, undecided else" in said[0]
        assert said[0].endswith(f"about {proposal.power['a'].needed} would do")
    else:
        assert proposal.cases["a/gc"] > 0.1
        assert held >= 0.8
        assert not said


# -- checks of the doctor: what was measured, chance, which drop shows -----------------------------


TOLERANT = Policy(tolerance=0.1, alpha=0.05)

NOISE = Noise(seeds=2, units=16, sd=0.02, value_sd=0.01)

DESIGN = Design.plain(NOISE.sd, NOISE.units)

HOLDING = tolerance_that_holds(DESIGN, TOLERANT.alpha)
"""The smallest tolerance that holds good checkpoints above that noise: about 0.015."""


def scored(value: float, part: str = "overall", **fields: Any) -> CaseMeasurement:
    """A measurement of one score."""
    shared: dict[str, Any] = {"identity": {"samples": "1"}, "model": {"identity": "m"}}
    key = CaseKey("toy", part, "gc")
    return CaseMeasurement.of(key, "GC@2", True, {"c": {"s": value}}, **(shared | fields))


def case(part: str = "overall", value: float = 0.8, **fields: Any) -> Calibrated:
    """A calibrated case; fields of the calibration or of the measurement can be changed by name."""
    known = set(Calibrated.__dataclass_fields__)
    own = {name: field for name, field in fields.items() if name in known}
    measurement = scored(value, part, **{n: f for n, f in fields.items() if n not in known})
    shared: dict[str, Any] = {"policy": TOLERANT, "measured": measurement, "noise": NOISE}
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
    known = power_of(DESIGN, TOLERANT)
    assert (check.status, check.advice) == ("pass", ())
    assert check.said == (
        "a checkpoint as good as its baseline is held in 80 of 100 runs or more, in every case",
    )
    assert only(check)["overall/gc"] == (
        16, 0.02, 0.05, 0.1, known.visible, known.held_of_100, known.needed,
    )  # fmt: skip
    # A threshold knows no noise, and what was not measured has none.
    threshold = case(policy=replace(TOLERANT, gate="threshold"))
    unmeasured = case(measured=None, noise=None)
    assert visible_drops([threshold, unmeasured]).status == "not done"
    assert list(only(visible_drops([threshold, case("a")]))) == ["a/gc"]


@pytest.mark.parametrize(("share", "status"), [(0.9, "remark"), (1.0, "pass"), (1.1, "pass")])
def test_a_tolerance_that_does_not_hold_is_a_remark(share: float, status: str) -> None:
    """Said with how many units the most demanding case needs."""
    tolerance = share * HOLDING
    policy = replace(TOLERANT, tolerance=tolerance)
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
    policy = replace(TOLERANT, tolerance=0.001)
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
