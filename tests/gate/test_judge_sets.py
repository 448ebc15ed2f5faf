"""Metrics of whole sets (FID): one score, bounds from jackknife blocks, no bounds without them."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_cepbench.gate import FreshMeasurement, Judgement, Policy, Verdict, judge
from pytest_cepbench.gate.statistics import HALL
from tests.gate.build import MODEL, accepted, bell, measured

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


def _apart(
    drop: float, sd: float, blocks: int = 24, policy: Policy | None = None, **changes: Any
) -> Judgement:
    """A set metric, lower is better, that got worse by a drop; its blocks differ by about that."""
    before = bell(blocks, 12.0, 1.0)
    steps = bell(blocks, drop, sd)
    now = _set(12.0 + drop, [b + s for b, s in zip(before, steps, strict=True)], **changes)
    then = accepted(_set(12.0, before, model=MODEL))
    return judge(now, then, policy or Policy(tolerance=0.1))


@pytest.mark.parametrize(
    ("drop", "sd", "verdict"),
    [
        (0.5, 0.2, Verdict.REGRESSED),
        (0.5, 2.0, Verdict.INCONCLUSIVE),
        (0.0, 0.1, Verdict.HELD),
        (-0.5, 0.2, Verdict.IMPROVED),
    ],
)
def test_the_bounds_of_a_set_are_those_of_its_blocks(
    drop: float, sd: float, verdict: Verdict
) -> None:
    """A distance that rose is a drop; each block counts as one unit."""
    judgement = _apart(drop, sd)
    assert (judgement.verdict, judgement.units, judgement.method) == (verdict, 24, HALL)
    assert judgement.difference == pytest.approx(-drop)
    assert judgement.low is not None
    assert judgement.high is not None
    assert judgement.low < -drop < judgement.high
    assert judgement.low + judgement.high == pytest.approx(-2 * drop, abs=1e-5)


def test_the_difference_is_that_of_the_scores() -> None:
    """Pseudo-values are biased each in its own way: they say how wide, not where."""
    before, drops = bell(24, 12.0, 1.0), bell(24, 0.9, 0.2)
    pseudo = [b + d for b, d in zip(before, drops, strict=True)]
    judgement = judge(_set(12.5, pseudo), accepted(_set(12.0, before)), Policy(tolerance=0.1))
    assert judgement.difference == -0.5
    assert judgement.low is not None
    assert judgement.high is not None
    assert judgement.low + judgement.high == pytest.approx(-1.0, abs=1e-5)
    assert judgement.high - judgement.low < 0.2


@pytest.mark.parametrize(
    ("before", "now"), [(None, None), (None, [12.0, 12.1, 12.3]), ([12.0, 12.2, 12.1], None)]
)
def test_without_blocks_on_both_sides_nothing_can_be_told(
    before: list[float] | None, now: list[float] | None
) -> None:
    """However large the difference is, the verdict is open and says why."""
    judgement = judge(_set(99.0, now, n=3), accepted(_set(12.0, before, n=3)), Policy())
    assert (judgement.verdict, judgement.statements) == (Verdict.INCONCLUSIVE, (NO_BOUNDS,))
    assert (judgement.low, judgement.high, judgement.units, judgement.method) == (None, None, 0, "")
    assert (judgement.difference, judgement.alpha) == (-87.0, 0.05)


def test_blocks_that_all_differ_alike_give_no_bounds() -> None:
    """Their spread of 0 would promise certainty."""
    before = [round(b, 1) for b in bell(24, 12.0, 1.0)]
    judgement = judge(_set(12.5, [b + 0.5 for b in before]), accepted(_set(12.0, before)), Policy())
    assert (judgement.verdict, judgement.low, judgement.high) == (Verdict.INCONCLUSIVE, None, None)
    assert (judgement.p, judgement.design, judgement.visible) == (None, None, None)
    assert judgement.statements == (
        "all blocks of samples differ alike: their spread says nothing",
    )


def test_blocks_of_two_categories_are_units_of_their_own() -> None:
    """Block 0 of one and block 0 of the other are other samples, in spite of the name."""
    blocks = {c: {str(i): v for i, v in enumerate(bell(12, 12.0, 1.0))} for c in ("a", "b")}
    moved = {
        c: {k: v + (0.1 * (-1) ** int(k)) for k, v in part.items()} for c, part in blocks.items()
    }
    scores, sizes = {"a": {"all": 12.0}, "b": {"all": 12.0}}, {"a": 120, "b": 120}
    then = accepted(measured(scores, sizes=sizes, blocks=blocks))
    now = measured(scores, sizes=sizes, blocks=moved, model=OTHER)
    assert judge(now, then, Policy()).units == 24
