"""Many cases: shares of the error, Holm's procedure, and the claim that all held."""

from __future__ import annotations

from math import fsum

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_cepbench.gate.statistics import alpha_shares, holm

P_VALUES = st.dictionaries(st.text(max_size=2), st.floats(0, 0.1), max_size=8)
WEIGHT = st.floats(0.1, 10)


@given(st.dictionaries(st.text(max_size=2), WEIGHT, min_size=1), st.floats(0.001, 0.5))
def test_shares_follow_the_weights(weights: dict[str, float], alpha: float) -> None:
    """They add up to alpha, and a case of twice the weight has twice the share."""
    shares = alpha_shares(weights, alpha)
    assert shares.keys() == weights.keys()
    assert fsum(shares.values()) == pytest.approx(alpha)
    per_weight = {share / weights[case] for case, share in shares.items()}
    assert max(per_weight) == pytest.approx(min(per_weight))


def plain_holm(p_values: dict[str, float], alpha: float) -> set[str]:
    """As Holm states it: the ordered p-values against alpha / (m - rank)."""
    rejected: set[str] = set()
    for rank, case in enumerate(sorted(p_values, key=lambda name: p_values[name])):
        if p_values[case] > alpha / (len(p_values) - rank):
            break
        rejected.add(case)
    return rejected


@given(P_VALUES, st.floats(0.01, 0.2))
def test_equal_weights_give_holms_procedure(p_values: dict[str, float], alpha: float) -> None:
    """The same cases as by ordered p-values, whatever the ties."""
    rejected = holm(
        lambda case, level: p_values[case] <= level, dict.fromkeys(p_values, 1.0), alpha
    )
    assert rejected == plain_holm(p_values, alpha)


@given(P_VALUES, st.floats(0.01, 0.2), st.lists(WEIGHT, min_size=8, max_size=8))
def test_what_bonferroni_rejects_holm_does_too(
    p_values: dict[str, float], alpha: float, weights: list[float]
) -> None:
    """With any weights: showing both costs no further error."""
    weighted = dict(zip(p_values, weights, strict=False))
    shares = alpha_shares(weighted, alpha)
    rejected = holm(lambda case, level: p_values[case] <= level, weighted, alpha)
    assert {case for case, share in shares.items() if p_values[case] <= share} <= rejected


def rejected_of(rng: np.random.Generator) -> set[int]:
    """What Holm rejects at 0.1 of ten cases, of which the first five are clearly false."""
    p_values = {str(i): float(rng.random() * (1e-4 if i < 5 else 1)) for i in range(10)}
    weights = dict.fromkeys(p_values, 1.0)
    return {int(case) for case in holm(lambda case, p: p_values[case] <= p, weights, 0.1)}


def test_holm_errs_no_more_often_than_promised() -> None:
    """Half of ten cases have drifted: any of the others is rejected in at most alpha of runs."""
    rng = np.random.default_rng(0)
    runs = 4000
    rejected = [rejected_of(rng) for _ in range(runs)]
    false = sum(any(case >= 5 for case in members) for members in rejected)
    assert all({0, 1, 2, 3, 4} <= cases for cases in rejected)
    # With Bonferroni's 0.01 for each of the five it would be 0.05.
    assert 0.07 < false / runs <= 0.1 + 3 * np.sqrt(0.1 * 0.9 / runs)


@pytest.mark.parametrize(
    ("weights", "alpha", "message"),
    [
        ({"a": 0.0}, 0.05, "the weight of 'a' is 0.0"),
        ({"a": float("inf")}, 0.05, "expected a number above 0"),
        ({"a": 1.0}, 0.0, "alpha is the error of the whole run"),
        ({"a": 1.0}, 1.0, "alpha is the error of the whole run"),
    ],
)
def test_other_numbers_are_refused(weights: dict[str, float], alpha: float, message: str) -> None:
    """A case without weight would have no error to spend, a run without error no verdicts."""
    with pytest.raises(ValueError, match=message):
        alpha_shares(weights, alpha)
    with pytest.raises(ValueError, match=message):
        holm(lambda _case, _level: True, weights, alpha)
