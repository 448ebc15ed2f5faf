"""The table of verdicts over differences of a known shape, what is said beside it, and anchors."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest

from pytest_cepbench.gate import FreshMeasurement, Judgement, Policy, Verdict, judge, load_baseline
from pytest_cepbench.gate.baseline import anchor_path, apply, baseline_path, propose
from pytest_cepbench.gate.compare import SAME_MODEL, verdict_of
from pytest_cepbench.gate.policy import Place
from pytest_cepbench.gate.statistics.bounds import GAFFKE, HALL, Bounds
from tests.gate.build import KEY, MODEL, accepted, bell, drifted, measured, scored
from tests.optional import known

ONE_MODEL = {"model": MODEL}


def _judged(differences: list[float], policy: Policy | None = None, **both: Any) -> Judgement:
    return judge(*drifted(differences, **both), policy or Policy())


TABLE = [
    (0.02, 0.05, 200, Verdict.IMPROVED),
    (0.0, 0.05, 200, Verdict.HELD),
    (0.02, 0.5, 5000, Verdict.HELD),
    (-0.003, 0.05, 200, Verdict.HELD),
    (-0.008, 0.05, 200, Verdict.INCONCLUSIVE),
    (-0.02, 0.05, 200, Verdict.REGRESSED),
    (-0.02, 0.1, 20, Verdict.INCONCLUSIVE),
    (0.02, 0.5, 200, Verdict.INCONCLUSIVE),
    (-0.009, 0.01, 2000, Verdict.HELD),
    (-0.0095, 0.05, 2000, Verdict.INCONCLUSIVE),
]
"""Mean, spread and number of the differences, and what the table of design 4 says of them."""


@pytest.mark.parametrize("higher", [True, False])
@pytest.mark.parametrize(("mean", "sd", "n", "verdict"), TABLE)
def test_every_row_of_the_table(
    mean: float, sd: float, n: int, verdict: Verdict, higher: bool
) -> None:
    """In either direction; differences are turned for the reader."""
    sign = 1 if higher else -1
    judgement = _judged([sign * d for d in bell(n, mean, sd)], higher_is_better=higher)
    assert judgement.verdict is verdict
    assert judgement.difference == pytest.approx(mean, abs=1e-6)
    assert known(judgement.low) < mean < known(judgement.high)
    assert (judgement.alpha, judgement.method, judgement.units) == (0.05, HALL, n)


@pytest.mark.parametrize(
    ("mean", "low", "high", "p", "verdict"),
    [
        (0.02, 0.010001, 0.03, 1.0, Verdict.IMPROVED),
        (0.02, 0.01, 0.03, 1.0, Verdict.HELD),
        (0.02, 0.0100004, 0.03, 1.0, Verdict.HELD),
        (0.0, -0.009999, 0.01, 0.5, Verdict.HELD),
        (-0.005, -0.009999, -0.001, 0.01, Verdict.HELD),
        (0.0, -0.01, 0.01, 0.5, Verdict.INCONCLUSIVE),
        (0.0, -0.0099996, 0.01, 0.5, Verdict.INCONCLUSIVE),
        (-0.010001, -0.02, 0.01, 0.05, Verdict.REGRESSED),
        (-0.010001, None, None, 0.05, Verdict.REGRESSED),
        (-0.010001, -0.02, -0.001, 0.050001, Verdict.INCONCLUSIVE),
        (-0.01, -0.02, -0.001, 0.001, Verdict.INCONCLUSIVE),
        (-0.0100004, -0.02, -0.001, 0.001, Verdict.INCONCLUSIVE),
        (-0.010001, -0.02, -0.000001, None, Verdict.REGRESSED),
        (-0.010001, -0.02, 0.0, None, Verdict.INCONCLUSIVE),
        (-0.010001, -0.02, -0.0000004, None, Verdict.INCONCLUSIVE),
        (-0.010001, -0.02, None, None, Verdict.INCONCLUSIVE),
        (0.02, None, 0.03, 1.0, Verdict.INCONCLUSIVE),
        (0.02, 0.010001, None, 1.0, Verdict.IMPROVED),
    ],
)
def test_what_lies_exactly_at_the_tolerance_is_not_beyond_it(
    mean: float, low: float | None, high: float | None, p: float | None, verdict: Verdict
) -> None:
    """A bound decides where it is past the tolerance by a millionth, p where it is alpha."""
    bounds = Bounds(mean, low, high, 0.05, HALL, 60, p=p)
    assert verdict_of(bounds, 0.01) is verdict
    if verdict is Verdict.REGRESSED:  # not by the strict rule, whatever p is
        assert verdict_of(bounds, 0.01, strict=True) is Verdict.INCONCLUSIVE


@pytest.mark.parametrize(("high", "lost"), [(-0.010001, True), (-0.01, False), (None, False)])
@pytest.mark.parametrize("p", [0.001, 0.5, None])
def test_the_strict_rule_asks_the_upper_bound_alone(
    high: float | None, lost: bool, p: float | None
) -> None:
    """Beyond the tolerance without doubt."""
    verdict = verdict_of(Bounds(-0.03, None, high, 0.05, HALL, 60, p=p), 0.01, strict=True)
    assert verdict is (Verdict.REGRESSED if lost else Verdict.INCONCLUSIVE)


@pytest.mark.parametrize("n", [1, 2, 7, 40])
def test_the_same_model_with_the_same_scores_holds_at_any_number(n: int) -> None:
    """Nothing has changed, so nothing needs to be shown by samples; the judgement says so."""
    judgement = _judged([0.0] * n, Policy(tolerance=0.0), now=ONE_MODEL)
    assert (judgement.verdict, judgement.difference) == (Verdict.HELD, 0.0)
    assert (judgement.method, judgement.units) == (SAME_MODEL, n)
    assert (judgement.low, judgement.high, judgement.p, judgement.design) == (None,) * 4
    assert "the same model as the baseline's gave the same scores" in judgement.statements


@pytest.mark.parametrize(
    ("lost", "then", "verdict", "told"),
    [
        (0.0005, "torch 2.6.0", Verdict.HELD, False),
        (0.002, "torch 2.6.0", Verdict.INCONCLUSIVE, True),
        (0.05, "torch 2.6.0", Verdict.INCOMPARABLE, True),
        (0.05, "torch 2.15.0", Verdict.REGRESSED, False),
        (0.05, "", Verdict.REGRESSED, False),
    ],
)
def test_what_other_libraries_moved_is_no_drift(
    lost: float, then: str, verdict: Verdict, told: bool
) -> None:
    """It is told from a tenth of the tolerance on, and fails by another name."""
    now = {"model": {**MODEL, "libraries": "torch 2.15.0"}}
    model = {**MODEL, "libraries": then}
    judgement = _judged([-lost] * 300, Policy(tolerance=0.01), now=now, model=model)
    other = {"model": {**now["model"], "identity": "other weights"}}
    drop = _judged([-0.05] * 300, Policy(tolerance=0.01), now=other, model=model)
    assert drop.verdict is Verdict.REGRESSED
    words = " ".join((*judgement.statements, *judgement.reasons))
    assert judgement.verdict is verdict
    assert (
        f"same weights, other library versions: torch 2.15.0; the baseline's: {then}" in words
    ) is told


@pytest.mark.parametrize(
    ("n", "verdict"),
    [
        (1, Verdict.INCONCLUSIVE),
        (20, Verdict.INCONCLUSIVE),
        (298, Verdict.INCONCLUSIVE),
        (299, Verdict.HELD),
        (1284, Verdict.HELD),
    ],
)
@pytest.mark.parametrize("shares", [False, True])
def test_equal_scores_of_another_model_tell_by_their_number(
    n: int, verdict: Verdict, *, shares: bool
) -> None:
    """A rare loss may hide in what few samples show: the rule of three needs 299 for 1 %."""
    judgement = _judged([0.0] * n, shares=shares)
    assert judgement.verdict is verdict
    assert (judgement.method, judgement.p) == (GAFFKE, 1.0)
    assert judgement.low == pytest.approx(-1 + 0.05 ** (1 / n), abs=1e-6)
    assert judgement.needed == (299 if verdict is Verdict.INCONCLUSIVE and n > 1 else None)
    if not shares:  # which are always bounded so
        end = "the bounds allow for rare others" if n > 1 else "others may show"
        assert judgement.statements[0].endswith(end)


def test_the_same_model_on_another_processor_holds() -> None:
    """Equal weights whose scores moved by a tenth of the tolerance are no new model."""
    moved = [0.0, -0.0004, 0.001, 0.0]
    judgement = _judged(moved, now=ONE_MODEL)
    assert judgement.verdict is Verdict.HELD
    assert judgement.difference == pytest.approx(0.00015)
    assert any(
        "the same scores, within 0.001000" in statement for statement in judgement.statements
    )
    others = (
        _judged([*moved, -0.001001], now=ONE_MODEL),
        _judged(moved, Policy(tolerance=0.0), now=ONE_MODEL),
        _judged(moved),
    )
    assert not any("same scores" in statement for other in others for statement in other.statements)
    before = measured(model={"spec": "x"})  # which says nothing of its weights
    assert judge(before, accepted(before), Policy()).verdict is Verdict.INCONCLUSIVE


def test_the_smallest_drop_that_can_be_seen_is_said() -> None:
    """It is above the tolerance, falls with the number of samples, and is absent without spread."""
    four, few, many = (_judged(bell(n, 0.0, 0.05)).visible for n in (4, 25, 400))
    assert four is None  # of four units no p value is below 1 / 16
    assert known(few) > known(many) > 0.01
    assert _judged([0.0] * 50).visible is None


def test_seeds_of_one_sample_count_once() -> None:
    """A hundred samples of four seeds each are a hundred units, and their bounds are wider."""
    differences = [d for d in bell(100, -0.012, 0.08) for _ in range(4)]
    clusters = {f"s{i:04d}": f"unit {i // 4}" for i in range(400)}
    alone, together = _judged(differences), _judged(differences, clusters=clusters)
    assert (alone.units, together.units) == (400, 100)
    assert (alone.verdict, together.verdict) == (Verdict.REGRESSED, Verdict.INCONCLUSIVE)
    assert alone.difference == together.difference


def test_categories_that_are_all_lost_alike_regress() -> None:
    """A bound at the end of what a mean can be says nothing; the test of a drop still does."""
    before = {c: {f"{c}{i}": 1.0 for i in range(n)} for c, n in (("tiny", 2), ("large", 22))}
    now = {c: dict.fromkeys(part, 0.6) for c, part in before.items()}
    judgement = judge(measured(now, model={"spec": "other"}), accepted(measured(before)), Policy())
    assert (judgement.verdict, judgement.low, judgement.method) == (Verdict.REGRESSED, None, GAFFKE)
    assert judgement.p == 2**-11


@pytest.mark.parametrize(
    ("lost", "recovered", "tolerance", "verdict"),
    [
        (0, 0, 0.05, Verdict.HELD),
        (3, 0, 0.05, Verdict.INCONCLUSIVE),
        (6, 2, 0.05, Verdict.INCONCLUSIVE),
        (9, 0, 0.15, Verdict.INCONCLUSIVE),
        (6, 0, 0.05, Verdict.REGRESSED),
        (12, 2, 0.05, Verdict.REGRESSED),
    ],
)
def test_more_failures_fail_where_they_are_neither_tolerated_nor_chance(
    lost: int, recovered: int, tolerance: float, verdict: Verdict
) -> None:
    """Of 60 chains; a rise of exactly the tolerance has no number of samples that decides it."""
    rest = [0.0] * (60 - lost - recovered)
    before = [0.0] * lost + [1.0] * recovered + rest
    now = [1.0] * lost + [0.0] * recovered + rest
    shares: Any = {"higher_is_better": False, "shares": True}
    candidate = measured(scored(now), model={"spec": "step-8000"}, **shares)
    judgement = judge(
        candidate, accepted(measured(scored(before), **shares)), Policy(tolerance=tolerance)
    )
    assert judgement.verdict is verdict
    assert (judgement.needed is None) == (verdict is not Verdict.INCONCLUSIVE or lost == 9)


OTHER = {"spec": "step-8000", "identity": "another"}

NO_BOUNDS = "no blocks of samples were left out of both sets alike: there are no bounds"


def _set(
    value: float, pseudo: list[float] | None = None, n: int = 240, **changes: Any
) -> FreshMeasurement:
    """A set metric of one category, with jackknife pseudo-values or without."""
    fields: dict[str, Any] = {
        "higher_is_better": False,
        "sizes": {"color": n},
        "blocks": {"color": {str(i): v for i, v in enumerate(pseudo)}} if pseudo else {},
        "model": OTHER,
    }
    return measured({"color": {"all": value}}, **(fields | changes))


@pytest.mark.parametrize(
    ("drop", "moved", "sd", "verdict"),
    [
        (0.5, 0.5, 0.2, Verdict.REGRESSED),
        (0.5, 0.9, 0.2, Verdict.REGRESSED),
        (0.5, 0.5, 2.0, Verdict.INCONCLUSIVE),
        (0.0, 0.0, 0.1, Verdict.HELD),
        (-0.5, -0.5, 0.2, Verdict.IMPROVED),
    ],
)
def test_the_bounds_of_a_set_are_those_of_its_blocks(
    drop: float, moved: float, sd: float, verdict: Verdict
) -> None:
    """A distance that rose is a drop; each block counts as one unit. Pseudo-values are biased each
    in its own way: they say how wide, not where.
    """
    before, steps = bell(24, 12.0, 1.0), bell(24, moved, sd)
    now = _set(12.0 + drop, [b + s for b, s in zip(before, steps, strict=True)])
    then = accepted(_set(12.0, before, model=MODEL))
    judgement = judge(now, then, Policy(tolerance=0.1))
    assert (judgement.verdict, judgement.units, judgement.method) == (verdict, 24, HALL)
    assert judgement.difference == pytest.approx(-drop)
    low, high = known(judgement.low), known(judgement.high)
    assert low < -drop < high
    assert low + high == pytest.approx(-2 * drop, abs=1e-5)
    assert high - low < sd


THREE = [12.0, 12.2, 12.1]


@pytest.mark.parametrize(
    ("before", "now"), [(None, None), (None, THREE), (THREE, None), (THREE, [12.0, 12.1])]
)
def test_without_blocks_on_both_sides_nothing_can_be_told(
    before: list[float] | None, now: list[float] | None
) -> None:
    """However large the difference is, the verdict is open and says why."""
    judgement = judge(_set(99.0, now, n=3), accepted(_set(12.0, before, n=3)), Policy())
    assert (judgement.verdict, judgement.statements) == (Verdict.INCONCLUSIVE, (NO_BOUNDS,))
    assert (judgement.low, judgement.high, judgement.units, judgement.method) == (None, None, 0, "")
    assert (judgement.difference, judgement.alpha) == (-87.0, 0.05)


def test_blocks_of_two_categories_are_units_of_their_own() -> None:
    """Block 0 of one and block 0 of the other are other samples, in spite of the name."""
    blocks = {c: {str(i): v for i, v in enumerate(bell(12, 12.0, 1.0))} for c in ("a", "b")}
    moved = {
        c: {k: v + (0.1 * (-1) ** int(k)) for k, v in part.items()} for c, part in blocks.items()
    }
    scores, sizes = {"a": {"all": 12.0}, "b": {"all": 12.0}}, {"a": 120, "b": 120}
    then = accepted(measured(scores, sizes=sizes, blocks=blocks))
    now = measured(scores, sizes=sizes, blocks=moved, model=OTHER)
    judgement = judge(now, then, Policy())
    assert (judgement.units, judgement.verdict) == (24, Verdict.INCONCLUSIVE)
    assert judgement.needed is None  # of blocks there are never more


# -- a second, frozen baseline: small steps that are each tolerated must not add up unseen ---------


N = 200

NOISE = bell(N, 0.0, 0.003)
"""Small beside a step of 0.009: each comparison is decided."""


def _step(k: int, size: float = 0.009, **changes: Any) -> FreshMeasurement:
    """The k-th of a row of checkpoints, each worse than the one before by the same size."""
    mixed = Random(k).sample(NOISE, N)  # noise of its own: differences have a bell shape too
    scores = scored([0.8 - k * size + away for away in mixed])
    return measured(scores, model={"spec": f"step-{k}", "identity": f"{k}"}, **changes)


@pytest.mark.parametrize("gate", ["regression", "threshold"])
def test_ten_tolerated_steps_pass_the_last_baseline_and_fail_the_anchor(
    tmp_path: Path, gate: Any
) -> None:
    """Each loses nine tenths of the tolerance; together they lose nine times as much as it.

    Accepted as a team would: the first baseline is frozen, the later ones take its place.
    """
    policy, judgements = Policy(gate=gate), []
    for k in range(11):
        paths = [baseline_path(tmp_path, KEY), anchor_path(tmp_path, KEY)]
        assert [path.exists() for path in paths] == [k > 0, k > 1]
        baseline, anchor = (
            load_baseline(path.read_text(), KEY, path.name) if path.exists() else None
            for path in paths
        )
        judgements.append(judge(_step(k), baseline, policy, anchor=anchor))
        if baseline is not None:
            assert judge(_step(k), baseline, policy).verdict is Verdict.HELD
        apply([known(propose(KEY, accepted(_step(k)), tmp_path))], tmp_path)
    assert [judgement.verdict for judgement in judgements] == [
        *(Verdict.NO_BASELINE, Verdict.HELD, Verdict.HELD),
        *[Verdict.REGRESSED] * 8,
    ]
    last = judgements[-1]
    assert last.difference == pytest.approx(-0.009)
    assert known(last.since_anchor).difference == pytest.approx(-0.09)
    assert last.reasons == (
        "the steps since the anchor add up to -0.0900, and -0.0200 is tolerated",
    )
    assert last.reference == "anchor"


def test_alpha_is_halved_only_where_an_anchor_says_something_else() -> None:
    """Two comparisons share the error; an anchor that is the baseline itself is no second one."""
    baseline = accepted(_step(1))
    alone = judge(_step(2), baseline, Policy())
    same = judge(
        _step(2), baseline, Policy(), anchor=msgspec.structs.replace(baseline, model={"spec": "x"})
    )
    assert same == alone
    assert (alone.alpha, alone.since_anchor) == (0.05, None)
    both = judge(_step(2), baseline, Policy(), anchor=accepted(_step(0)))
    assert (both.alpha, known(both.since_anchor).alpha) == (0.025, 0.025)
    assert known(both.low) < known(alone.low)


def test_reasons_of_two_comparisons_are_told_apart() -> None:
    """An anchor of something else: a promised comparison that cannot be made is no pass; each
    reason says whose it is. The anchor adds nothing to a verdict that is as bad already.
    """
    anchor = accepted(_step(0, identity={"suite": "shapes/0", "samples": "another"}))
    judgement = judge(_step(1), accepted(_step(1)), Policy(), anchor=anchor)
    assert judgement.verdict is Verdict.INCOMPARABLE
    assert judgement.reasons == (
        "anchor: samples: baseline another, now 2 0123456789abcdef",
        "anchor: suite: baseline shapes/0, now shapes/1",
    )
    assert known(judgement.since_anchor).difference is None
    anchor = accepted(_step(0))
    other = accepted(_step(1, identity={"suite": "shapes/2"}))
    incomparable = judge(_step(9), other, Policy(), anchor=anchor)
    assert incomparable.verdict is Verdict.INCOMPARABLE
    assert not any(reason.startswith("anchor") for reason in incomparable.reasons)
    assert incomparable.since_anchor is not None
    regressed = judge(_step(9), accepted(_step(1)), Policy(), anchor=anchor)
    assert (regressed.verdict, regressed.reasons) == (Verdict.REGRESSED, ())
    assert regressed.reference == "baseline"


def test_an_anchor_that_cannot_tell_stops_noninferiority_only() -> None:
    """That gate passes what is excluded, and a drop since the anchor is not."""
    wide = bell(N, 0.0, 0.3)
    anchor = accepted(measured(scored([0.8 + away for away in wide])))
    now, last = _step(1, size=0.001), accepted(_step(0, size=0.001))
    regression = judge(now, last, Policy(), anchor=anchor)
    assert regression.verdict is Verdict.HELD
    assert known(regression.since_anchor).verdict is Verdict.INCONCLUSIVE
    noninferiority = judge(now, last, Policy(gate="noninferiority"), anchor=anchor)
    assert noninferiority.verdict is Verdict.INCONCLUSIVE
    assert noninferiority.reasons == (
        "a drop since the anchor that is larger than tolerated is not excluded",
    )
    assert judge(now, last, Policy(gate="noninferiority")).verdict is Verdict.HELD


def test_a_series_divides_the_error_of_saying_regressed() -> None:
    """What holds, holds as ever; what the visible drop says is found is found. Baseline and anchor
    have shares of their own, of alpha before it is halved; the lower bounds have a half each.
    """
    place = Place("train", look=2, expected=40, alpha=0.05, baseline=1)
    alone, series = (Policy(tolerance=0.01, alpha=0.05, series=own) for own in (None, place))
    candidate, baseline = drifted(bell(N, 0.0, 0.02))
    single, serial = judge(candidate, baseline, alone), judge(candidate, baseline, series)
    assert serial.verdict is single.verdict is Verdict.HELD
    assert (serial.low, serial.alpha) == (single.low, single.alpha)
    assert known(serial.high) > known(single.high)
    assert (single.upper_alpha, serial.upper_alpha) == (None, 0.05 * place.share_beside(1))
    assert serial.p is None
    candidate, baseline = drifted(bell(N, -0.012, 0.02))
    visible = known(judge(candidate, baseline, series).visible)
    assert visible > known(judge(candidate, baseline, alone).visible) > 0.01
    candidate, baseline = drifted(bell(N, -visible, 0.02))
    judgement = judge(candidate, baseline, series)
    assert judgement.verdict is Verdict.REGRESSED
    assert known(judgement.high) < -0.01
    candidate, baseline = drifted(bell(N, -0.004, 0.02))
    anchor = accepted(measured({"color": {f"s{i:04d}": 0.9 for i in range(N)}}))
    judgement = judge(candidate, baseline, series, anchor=anchor)
    since = known(judgement.since_anchor)
    assert judgement.alpha == since.alpha == 0.025
    assert judgement.upper_alpha == pytest.approx(0.05 * place.share_beside(1))
    assert since.upper_alpha == pytest.approx(0.05 * place.share_beside(None))
