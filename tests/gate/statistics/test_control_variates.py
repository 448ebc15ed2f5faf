"""Two-phase means: what a proxy may change, and what it may not."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_cepbench.gate.statistics import Differences, mean_bounds
from pytest_cepbench.gate.statistics.control_variates import (
    TWO_PHASE,
    TwoPhaseSample,
    two_phase_bounds,
    two_phase_mean,
)

_CATEGORIES = ("a", "b")


def _sample(
    seed: int, *, n: int = 80, m: int = 160, noise: float = 0.3, shift: float = 0.0
) -> TwoPhaseSample:
    """Two categories of normal proxies, and whole differences that are these with noise."""
    generator = np.random.default_rng(seed)
    whole: dict[str, dict[str, float]] = {}
    proxy: dict[str, dict[str, float]] = {}
    for category in _CATEGORIES:
        f = generator.normal(-0.02, 0.1, m // 2)
        y = f + generator.normal(0, noise * 0.1, m // 2)
        proxy[category] = {f"{category}{i}": float(value) + shift for i, value in enumerate(f)}
        whole[category] = {f"{category}{i}": float(value) for i, value in enumerate(y[: n // 2])}
    return TwoPhaseSample(whole, proxy, dict.fromkeys(_CATEGORIES, 0.5))


@given(st.integers(0, 2**32 - 1), st.floats(-0.5, 0.5))
def test_proxies_may_be_off_by_any_amount(seed: int, shift: float) -> None:
    """A proxy counts by how it moves: one that is too high throughout changes nothing."""
    plain, _ = two_phase_bounds(_sample(seed), 0.05, span=1.0)
    moved, _ = two_phase_bounds(_sample(seed, shift=shift), 0.05, span=1.0)
    assert plain.method == TWO_PHASE
    assert (moved.low, moved.mean, moved.high) == pytest.approx(
        (plain.low, plain.mean, plain.high), abs=1e-9
    )


@given(st.integers(0, 2**32 - 1), st.floats(0.25, 4.0))
def test_the_unit_of_a_proxy_has_no_say(seed: int, scale: float) -> None:
    """A proxy that moves twice as far is followed half as much."""
    sample = _sample(seed)
    stretched = {
        name: {s: scale * value for s, value in part.items()} for name, part in sample.proxy.items()
    }
    other = TwoPhaseSample(sample.whole, stretched, sample.shares)
    plain, scaled = two_phase_mean(sample), two_phase_mean(other)
    if scaled.lam < 4.0 and plain.lam < 4.0:
        assert scaled.mean == pytest.approx(plain.mean, abs=1e-9)
        assert scaled.error == pytest.approx(plain.error, rel=1e-6)


@given(st.integers(0, 2**32 - 1))
def test_the_order_of_samples_has_no_say(seed: int) -> None:
    """Neither that of categories."""
    sample = _sample(seed)

    def turned(parts: Mapping[str, Mapping[str, float]]) -> dict[str, dict[str, float]]:
        return {c: dict(list(parts[c].items())[::-1]) for c in list(parts)[::-1]}

    other = TwoPhaseSample(turned(sample.whole), turned(sample.proxy), sample.shares)
    plain, _ = two_phase_bounds(sample, 0.05, span=1.0)
    again, _ = two_phase_bounds(other, 0.05, span=1.0)
    assert (again.low, again.high) == pytest.approx((plain.low, plain.high), abs=1e-12)


def test_a_good_proxy_narrows_the_bounds_and_a_useless_one_does_not_widen_them_much() -> None:
    """By a quarter of the width or more; with noise alone it costs less than a tenth."""
    sample = _sample(0, m=400)
    alone = mean_bounds(Differences.of(sample.whole), 0.05)
    good, estimate = two_phase_bounds(sample, 0.05, span=1.0)
    assert alone.low is not None
    assert good.low is not None
    assert good.mean - good.low < 0.75 * (alone.mean - alone.low)
    assert estimate.factor > 1.5
    generator = np.random.default_rng(1)
    noise = {
        name: dict(zip(part, generator.normal(0, 0.1, len(part)).tolist(), strict=True))
        for name, part in sample.proxy.items()
    }
    useless, _ = two_phase_bounds(
        TwoPhaseSample(sample.whole, noise, sample.shares), 0.05, span=1.0
    )
    assert useless.low is not None
    assert useless.mean - useless.low < 1.1 * (alone.mean - alone.low)


def test_few_chains_and_constant_proxies_decide_alone() -> None:
    """Bounds are those of the whole differences, as they are without a proxy."""
    few = _sample(0, n=40)
    constant = _sample(0)
    flat = {name: dict.fromkeys(part, 0.5) for name, part in constant.proxy.items()}
    for sample in (few, TwoPhaseSample(constant.whole, flat, constant.shares)):
        bounds, estimate = two_phase_bounds(sample, 0.05, span=1.0)
        assert estimate.lam == 0
        assert bounds == mean_bounds(Differences.of(sample.whole), 0.05)


def test_what_is_no_sample_of_two_phases_is_refused() -> None:
    """A whole difference without a proxy, a stratum without a share, and shares beyond one."""
    with pytest.raises(ValueError, match="without a proxy"):
        TwoPhaseSample({"a": {"x": 0.1}}, {"a": {"y": 0.1}}, {"a": 1.0})
    with pytest.raises(ValueError, match="needs a share"):
        TwoPhaseSample({"a": {"x": 0.1}}, {}, {"b": 1.0})
    with pytest.raises(ValueError, match="add up to 1"):
        TwoPhaseSample({"a": {"x": 0.1}}, {}, {"a": 0.5})
