"""What a set-up can see: floors by chance, what is refused, and what does not hold in silence."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_cepbench.errors import BaselineError
from pytest_cepbench.gate import FreshMeasurement, Noise, Policy, Verdict, judge, load_baseline
from pytest_cepbench.gate.policy import Place, check_span
from pytest_cepbench.gate.sensitivity import (
    design_of,
    power_of,
    power_remark,
    remarks_on_accepting,
    units_to_decide,
    why_not_accepted,
)
from pytest_cepbench.gate.statistics.power import Design, smallest_visible
from tests.gate.build import KEY, accepted, bell, drifted, measured, replace, scored, text_of
from tests.optional import known

OTHER = {"spec": "step-8000", "identity": "another"}


def _at(value: float, n: int = 60, sd: float = 0.001, **fields: Any) -> FreshMeasurement:
    """Scores around a value; of another model they come in another order."""
    scores = bell(n, value, sd)
    return measured(scored(scores[::-1] if "model" in fields else scores), **fields)


@pytest.mark.parametrize(
    ("value", "refused", "warned"),
    [(0.2, True, True), (0.2252, True, True), (0.26, False, True), (0.42, False, False)],
)
def test_accepting_near_chance(value: float, refused: bool, warned: bool) -> None:
    """Below a twentieth of the range from 0.21 it is refused, below a quarter it is remarked on."""
    record = accepted(_at(value, floor=0.21))
    assert (why_not_accepted(record) is not None) is refused
    assert bool(list(remarks_on_accepting(record))) is warned
    assert why_not_accepted(accepted(_at(value))) is None  # no floor is known


def test_all_at_the_ceiling_is_remarked_on_and_accepted() -> None:
    """Drops are seen from there; a perfect model lies there by right."""
    perfect = accepted(measured(scored([1.0] * 4), floor=0.5))
    assert why_not_accepted(perfect) is None
    assert list(remarks_on_accepting(perfect)) == [
        "every sample is at the best there is, 1: drops are seen, gains are not"
    ]
    rounding = accepted(measured(scored([1.0, 1.0, 0.999999]), floor=0.5))
    assert list(remarks_on_accepting(rounding)) == list(remarks_on_accepting(perfect))
    nearly = accepted(measured(scored([1.0, 1.0, 0.999998]), floor=0.5))
    assert not list(remarks_on_accepting(nearly))
    failures = measured(scored([0.0] * 4), higher_is_better=False, shares=True)
    assert not list(remarks_on_accepting(accepted(failures)))


@pytest.mark.parametrize("gate", ["regression", "noninferiority", "threshold"])
def test_a_baseline_at_chance_holds_nothing(gate: Any) -> None:
    """What cannot lose as much as is tolerated does not hold: inconclusive, with the reason. Files
    of before floors were kept are no way around it.
    """
    before = accepted(_at(0.2152, floor=0.21))
    judgement = judge(_at(0.2152, model=OTHER, floor=0.21), before, Policy(gate=gate))
    assert judgement.verdict is Verdict.INCONCLUSIVE
    (reason,) = judgement.reasons
    assert reason == (
        "the baseline of 0.2152 can lose 0.0052 down to what chance gives, and 0.01 is tolerated: "
        "a regression could not be seen"
    )
    assert any(
        "baseline is close to what chance gives" in warning for warning in judgement.warnings
    )
    before = accepted(_at(0.2152))
    assert before.floor is None
    for floor, verdict in ((0.21, Verdict.INCONCLUSIVE), (None, Verdict.HELD)):
        now = _at(0.2152, model=OTHER, floor=floor)
        assert judge(now, before, Policy(gate=gate)).verdict is verdict


@pytest.mark.parametrize("gate", ["threshold", "regression"])
@pytest.mark.parametrize("rise", [0.0, 0.03])
def test_an_encoder_that_grew_dull_holds_nothing(gate: Any, rise: float) -> None:
    """Of one identity: all images are nearly alike to it now, so that chance gives what is seen."""
    before = accepted(_at(0.95, floor=0.21))
    now = _at(0.95 + rise, model=OTHER, floor=0.949 + rise)
    judgement = judge(now, before, Policy(gate=gate))
    assert judgement.verdict is Verdict.INCONCLUSIVE
    (reason,) = judgement.reasons
    most = 0.0 if rise else 0.001
    assert reason.startswith(
        f"the baseline of 0.95 can lose {most:g} down to what chance gives now"
    )
    few = accepted(_at(0.95, n=3, floor=0.21))  # undecided anyway, and fallen to chance
    fallen = judge(_at(0.22, n=3, sd=0.2, model=OTHER, floor=0.22), few, Policy(alpha=1e-4))
    assert (fallen.verdict, fallen.reasons) == (Verdict.INCONCLUSIVE, ())
    near = judge(
        _at(0.2152, n=3, sd=0.2, model=OTHER), accepted(_at(0.2152, n=3, floor=0.21)), Policy()
    )
    assert (near.verdict, near.needed) == (Verdict.INCONCLUSIVE, None)
    seeing = _at(0.95, model=OTHER, floor=0.9)
    assert judge(seeing, before, Policy(gate=gate)).verdict is Verdict.HELD


@pytest.mark.parametrize(
    ("value", "higher", "tolerance", "verdict"),
    [
        (0.0, True, 0.01, Verdict.INCONCLUSIVE),
        (0.005, True, 0.01, Verdict.INCONCLUSIVE),
        (0.01, True, 0.01, Verdict.INCONCLUSIVE),
        (0.010001, True, 0.01, Verdict.HELD),
        (1.0, False, 0.0, Verdict.INCONCLUSIVE),
        (0.99, False, 0.01, Verdict.INCONCLUSIVE),
        (0.989999, False, 0.01, Verdict.HELD),
        (0.0, False, 0.0, Verdict.HELD),
    ],
)
def test_shares_at_their_worst_hold_nothing_either(
    value: float, higher: bool, tolerance: float, verdict: Verdict
) -> None:
    """Nothing right, or all chains failed: there is nothing left to lose."""
    scores = scored([value] * 60)
    before = accepted(measured(scores, shares=True, higher_is_better=higher))
    now = measured(scores, shares=True, higher_is_better=higher, model=OTHER)
    policy = Policy(gate="threshold", tolerance=tolerance)
    assert judge(now, before, policy).verdict is verdict


def test_a_floor_is_kept_in_the_file() -> None:
    """One line, rounded as scores are; files without it are read as before, nonsense is refused."""
    text = text_of(_at(0.5, floor=0.12345678))
    assert "floor = 0.123457\n" in text
    assert load_baseline(text, KEY, "b.toml").floor == 0.123457
    assert "floor" not in text_of(_at(0.5))
    assert load_baseline(text_of(_at(0.5)), KEY, "b.toml").floor is None
    for wrong in ("2.0", "nan", "-inf"):
        with pytest.raises(BaselineError, match="says floor = "):
            load_baseline(text.replace("0.123457", wrong), KEY, "b.toml")


def test_samples_with_which_good_checkpoints_are_often_undecided() -> None:
    """How many are held, what is found all the same, and how many would do; else nothing. Units
    that decide are as many; with that many already, planned for the difference as observed.
    """
    design, policy = Design.plain(0.1, 24), Policy()
    remark = power_remark(design, policy)
    power = power_of(design, policy)
    assert remark == (
        "with 24 independent samples and a tolerance of 0.01 a checkpoint as good as its baseline "
        f"is held in {power.held_of_100} of 100 runs, undecided else, and a drop of "
        f"{power.visible:.4f} fails in 80; about {power.needed} would do"
    )
    assert power.held_of_100 <= 100 * power.held < power.held_of_100 + 1
    needed = known(power.needed)
    assert power_remark(design.scaled(needed), policy) is None
    assert power_remark(design.scaled(needed - 1), policy) is not None
    assert power_remark(design, Policy(tolerance=0.5)) is None
    assert power_remark(design, Policy(gate="threshold")) is None
    assert "would do" not in known(power_remark(design, Policy(tolerance=0.0)))
    assert units_to_decide(design, 0.0, policy) == needed
    enough = design.scaled(needed)
    assert known(units_to_decide(enough, -0.004, policy)) > needed
    assert units_to_decide(enough, -0.01, policy) is None  # at the very tolerance
    assert 24 < known(units_to_decide(design, -0.03, policy)) < needed
    assert units_to_decide(design, 0.0, Policy(tolerance=0.0)) is None
    assert units_to_decide(replace(design, worst=0.5), 0.0, Policy(tolerance=0.5)) is None
    # Where no unit differs, n units exclude a loss of 1 - alpha^(1/n): 0.99^299 < 0.05 < 0.99^298
    assert units_to_decide(Design(0.0, 24, 24.0, 23.0, worst=1.0), 0.0, policy) == 299


@pytest.mark.parametrize("series", [None, Place("train", look=1, expected=40, alpha=0.05)])
def test_the_gate_says_of_a_comparison_what_is_planned_for_it(series: Place | None) -> None:
    """The same number for the same design, also where an upper bound has its own share."""
    differences = [*bell(30, 0.0, 0.1)[::-1], *bell(30, 0.0, 0.02)]
    policy = Policy(series=series)
    judgement = judge(*drifted(differences), policy)
    level = 0.05 if series is None else 0.05 * series.share_beside(None)
    design = known(judgement.design)
    visible = smallest_visible(design, level, 0.01, strict=series is not None)
    assert judgement.visible == round(visible, 6)
    alone = power_of(design, Policy()).visible
    assert (judgement.visible > alone + 1e-3) is bool(series)


def test_a_tolerance_as_large_as_the_span_is_refused() -> None:
    """No drop exceeds it: everything would pass. Who said so is named."""
    for name, tolerance, source in (
        ("tolerance", 2.0, "--cep-tolerance"),
        ("tolerance", 1e9, "[gate]"),
        ("anchor_tolerance", 2.5, "[metrics.gc]"),
    ):
        policy = replace(Policy(origins={name: source}), **{name: tolerance})
        with pytest.raises(ValueError, match="spans 2, so no drop exceeds it") as raised:
            check_span(policy, 2.0, "toy/overall/gc (GC@3)")
        assert str(raised.value).startswith(f"{name} = {tolerance:g} from {source}: toy/overall/gc")


NOISE = Noise(seeds=3, units=24, sd=0.05, value_sd=0.01)


def test_measured_noise_is_planned_with() -> None:
    """With its strata where the file has them, as one category where it is of an earlier version.

    Neither where a model repeats itself, nor of a single sample, is there anything to plan.
    """
    assert design_of(NOISE, 96) == Design.plain(0.05, 96)
    kept = Noise(3, 24, 0.05, 0.01, effective=18.0, degrees=14.0)
    assert design_of(kept, 96) == Design(0.05, 96, 72.0, 68.0)
    assert design_of(Noise(3, 24, 0.0, 0.0), 96) is None
    assert design_of(Noise(3, 1, 0.05, 0.01), 96) is None
    assert design_of(NOISE, 1) is None
