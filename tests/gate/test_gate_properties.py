"""What holds of every verdict, whatever the scores: through baseline files and `judge`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from math import fsum, inf
from random import Random
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pytest_cepbench.gate import (
    FreshMeasurement,
    Judgement,
    Measurement,
    Policy,
    Verdict,
    judge,
    present,
)
from tests.gate.build import accepted, measured, replace
from tests.optional import known

RISING = [Verdict.REGRESSED, Verdict.INCONCLUSIVE, Verdict.HELD, Verdict.IMPROVED]

MICRO = 1e-6
"""Scores are kept with six decimals: these are whole numbers of them."""

Micros = Mapping[str, Mapping[str, int]]


@dataclass(frozen=True)
class Comparison:
    """Scores of a baseline, a candidate and maybe an anchor, in millionths, and how to judge them.

    blocks: whether each category has one score and these are its jackknife pseudo-values.
    """

    before: Micros
    now: Micros
    policy: Policy
    anchor: Micros | None = None
    clusters: Mapping[str, str] = field(default_factory=dict)
    shares: bool = False
    blocks: bool = False
    higher: bool = True

    def measurement(self, scores: Micros, model: str) -> FreshMeasurement:
        """These scores as a measurement of a model."""
        plain = {c: {s: round(v * MICRO, 6) for s, v in part.items()} for c, part in scores.items()}
        extra: dict[str, Any] = {"shares": self.shares, "clusters": self.clusters}
        if self.blocks:
            whole = {c: {"set": round(fsum(p.values()) / len(p), 6)} for c, p in plain.items()}
            extra = {"blocks": plain, "sizes": {c: 10 * len(p) for c, p in plain.items()}}
            plain = whole
        return measured(plain, model={"identity": model}, higher_is_better=self.higher, **extra)

    @cached_property
    def _records(self) -> tuple[FreshMeasurement, Measurement, Measurement | None]:
        """The candidate, and baseline and anchor from their files."""
        anchor = None if self.anchor is None else accepted(self.measurement(self.anchor, "anchor"))
        baseline = accepted(self.measurement(self.before, "baseline"))
        return self.measurement(self.now, "candidate"), baseline, anchor

    def judged(self, policy: Policy | None = None, **changes: Any) -> Judgement:
        """The verdict, with fields of this comparison changed."""
        it = replace(self, **changes) if changes else self
        candidate, baseline, anchor = it._records
        return judge(candidate, baseline, policy or it.policy, anchor=anchor)


def raised(scores: Micros, by: int) -> Micros:
    """All scores, higher by the same amount."""
    return {c: {s: v + by for s, v in part.items()} for c, part in scores.items()}


POLICIES = st.builds(
    Policy,
    gate=st.sampled_from(["regression", "noninferiority", "threshold"]),
    tolerance=st.sampled_from([0.0, 0.01, 0.05]),
    alpha=st.sampled_from([0.5, 0.05, 0.05 / 14, 0.001]),
)

_ROOM = 300_000  # that every score has above it, and above 0 below it
_LOW, _HIGH = 300_000, 400_000

DIFFERENCES = st.one_of(
    st.integers(-_ROOM, _ROOM), st.integers(-30_000, 30_000), st.sampled_from([0, -10_000])
)


@st.composite
def comparisons(draw: st.DrawFn) -> Comparison:
    """Few or many samples, alike or not, in one category or several, alone or in clusters."""
    runs = draw(st.lists(st.tuples(DIFFERENCES, st.integers(1, 25)), min_size=1, max_size=6))
    differences = [difference for difference, times in runs for _ in range(times)]
    categories = draw(st.integers(1, 3))
    twice = draw(st.booleans())
    blocks = draw(st.sampled_from([False, False, False, True]))
    levels = draw(st.lists(st.integers(_LOW, _HIGH), min_size=1, max_size=4))
    before: dict[str, dict[str, int]] = {}
    now: dict[str, dict[str, int]] = {}
    for i, difference in enumerate(differences):
        first = min(i, categories - 1)
        for category in {first, (i * i) % categories if twice else first}:
            before.setdefault(f"c{category}", {})[f"s{i}"] = levels[i % len(levels)]
            now.setdefault(f"c{category}", {})[f"s{i}"] = levels[i % len(levels)] + difference
    size = draw(st.integers(1, 3))
    steps = draw(st.none() | st.integers(-50_000, 50_000))
    policy = draw(POLICIES)
    return Comparison(
        before,
        now,
        policy,
        anchor=None if steps is None else raised(before, steps),
        clusters={f"s{i}": f"k{i // size}" for i in range(len(differences))} if size > 1 else {},
        shares=draw(st.booleans()),
        blocks=blocks,
        higher=draw(st.booleans()),
    )


def numbers(judgement: Judgement) -> tuple[Any, ...]:
    """Verdict and everything that it rests on."""
    since = judgement.since_anchor
    return (
        judgement.verdict,
        judgement.difference,
        judgement.p,
        judgement.low,
        judgement.high,
        judgement.units,
        judgement.method,
        None if since is None else numbers(since),
    )


@given(comparisons(), st.integers(0, 99).map(Random))
def test_the_order_of_samples_has_no_say(it: Comparison, random: Random) -> None:
    """Samples and categories in any order give the same verdict and bounds, to the last bit."""
    categories = random.sample(list(it.now.items()), len(it.now))
    now = {c: dict(random.sample(list(part.items()), len(part))) for c, part in categories}
    assert numbers(it.judged(now=now)) == numbers(it.judged())


ONE_UNIT = {"c0": {f"s{i}": 300_000 for i in range(3)}}
"""Three scores of one cluster: their differences' spread is 0, or what rounding makes of it."""


@pytest.mark.slow
@settings(max_examples=200)
@given(comparisons(), st.integers(0, _ROOM))
@example(
    Comparison(
        ONE_UNIT, raised(ONE_UNIT, -5), Policy(), clusters=dict.fromkeys(ONE_UNIT["c0"], "k0")
    ),
    2,
)
def test_better_scores_never_make_a_verdict_worse(it: Comparison, by: int) -> None:
    """Raising all scores of the candidate by one amount never makes the verdict worse."""
    better = it.judged(now=raised(it.now, by if it.higher else -by))
    assert RISING.index(better.verdict) >= RISING.index(it.judged().verdict)


@given(comparisons())
def test_less_error_decides_no_more(it: Comparison) -> None:
    """What is left open at one alpha is left open at every smaller one; a decision never turns.

    Also where the smaller one has four times as many flips made, as at 0.0488.
    """
    judged = [
        it.judged(policy=replace(it.policy, alpha=alpha)).verdict
        for alpha in (0.5, 0.05, 0.0489, 0.0487, 0.05 / 14, 0.05 / 40, 1e-6)
    ]
    for more, less in pairwise(judged):
        if more is Verdict.IMPROVED:
            assert less in (Verdict.IMPROVED, Verdict.HELD, Verdict.INCONCLUSIVE)
        else:
            assert less in (more, Verdict.INCONCLUSIVE)


@given(comparisons())
def test_exactly_one_row_of_the_table_holds(it: Comparison) -> None:
    """Improved, held, regressed and inconclusive exclude each other, and the true one is given."""
    judgement = it.judged(anchor=None)
    tolerance, difference = it.policy.tolerance, known(judgement.difference)
    if not it.policy.statistical:
        regressed = round(difference + tolerance, 6) < 0
        assert judgement.verdict is (Verdict.REGRESSED if regressed else Verdict.HELD)
        return
    low = -inf if judgement.low is None else judgement.low
    p = 1.0 if judgement.p is None else judgement.p
    rows = {
        Verdict.IMPROVED: low > tolerance,
        Verdict.HELD: -tolerance < low <= tolerance,
        Verdict.REGRESSED: difference < -tolerance and p <= it.policy.alpha,
    }
    assert sum(rows.values()) <= 1
    verdicts = [verdict for verdict, holds in rows.items() if holds]
    assert judgement.verdict is (verdicts[0] if verdicts else Verdict.INCONCLUSIVE)


@given(comparisons())
def test_noninferiority_passes_only_what_it_has_excluded(it: Comparison) -> None:
    """A pass means that the bound is above the tolerated drop, from baseline and from anchor."""
    judgement = it.judged(policy=replace(it.policy, gate="noninferiority"))
    if present(judgement.verdict, strict=True).passes:
        assert known(judgement.low) > -it.policy.tolerance
        since = judgement.since_anchor
        if since is not None:
            assert known(since.low) > -it.policy.since_anchor
