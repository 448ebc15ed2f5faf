"""Division of the error: among cases, among looks at more samples, among checkpoints."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import pairwise
from math import fsum

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_cepbench.gate.statistics.error_budget import (
    alpha_shares,
    checkpoint_share,
    holm,
    look_shares,
    look_sizes,
    reference_share,
)


@pytest.mark.parametrize(
    ("most", "sizes"),
    [
        (1, (1,)),
        (25, (25,)),
        (31, (31,)),
        (32, (25, 32)),
        (50, (25, 50)),
        (110, (25, 50, 110)),
        (125, (25, 50, 100, 125)),
        (1284, (25, 50, 100, 200, 400, 800, 1284)),
    ],
)
def test_looks_double_up_to_the_most(most: int, sizes: tuple[int, ...]) -> None:
    """A last step of less than a quarter replaces the look before it."""
    assert look_sizes(most) == sizes


@given(st.integers(1, 30))
def test_shares_add_up(count: int) -> None:
    """To 1, half of it for the last look, the others alike."""
    shares = look_shares(count)
    assert len(shares) == count
    assert fsum(shares) == pytest.approx(1.0, abs=1e-12)
    assert shares[-1] == (1.0 if count == 1 else 0.5)
    assert len(set(shares[:-1])) <= 1


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


@given(P_VALUES, st.floats(0.01, 0.2))
def test_equal_weights_give_holms_procedure(p_values: dict[str, float], alpha: float) -> None:
    """As Holm states it: the ordered p-values against alpha / (m - rank), whatever the ties."""
    rejected = holm(
        lambda case, level: p_values[case] <= level, dict.fromkeys(p_values, 1.0), alpha
    )
    expected: set[str] = set()
    for rank, case in enumerate(sorted(p_values, key=lambda name: p_values[name])):
        if p_values[case] > alpha / (len(p_values) - rank):
            break
        expected.add(case)
    assert rejected == expected


@given(expected=st.integers(1, 10_000), count=st.integers(1, 400))
def test_the_shares_of_checkpoints_never_exceed_the_whole(expected: int, count: int) -> None:
    """The first K of N expected have K / (K + N) together, so that all of them have 1."""
    shares = [checkpoint_share(number, expected) for number in range(1, count + 1)]
    assert fsum(shares) == pytest.approx(count / (count + expected), rel=1e-9)
    assert all(earlier > later > 0 for earlier, later in pairwise(shares))


@given(number=st.integers(1, 2_000))
def test_the_parts_of_references_never_exceed_their_checkpoint(number: int) -> None:
    """The first baseline, one from before, every earlier checkpoint: any of them is compared."""
    earlier = (reference_share(number, reference) for reference in range(number))
    assert fsum([reference_share(number, None), *earlier]) <= 1
    # The nearest two have half of what the first baseline leaves: 1 / 6 and 1 / 12 of the whole.
    assert reference_share(number, number - 1) == pytest.approx(1 / 6)


@pytest.mark.parametrize(
    ("share", "numbers", "message"),
    [
        (look_sizes, (0,), "at least 1 sample"),
        (look_shares, (0,), "at least 1 look"),
        (checkpoint_share, (0, 40), "from 1 on"),
        (checkpoint_share, (-1, 40), "from 1 on"),
        (checkpoint_share, (1, 0), "from 1 on"),
        (reference_share, (5, -1), "checkpoint 5 is compared with earlier ones"),
        (reference_share, (5, 5), "checkpoint 5 is compared with earlier ones"),
        (reference_share, (5, 6), "checkpoint 5 is compared with earlier ones"),
        *(
            (divide, own, message)
            for divide in (alpha_shares, partial(holm, lambda _case, _level: True))
            for *own, message in (
                ({"a": 0.0}, 0.05, "the weight of 'a' is 0.0"),
                ({"a": float("inf")}, 0.05, "expected a number above 0"),
                ({"a": 1.0}, 0.0, "alpha is the error of the whole run"),
                ({"a": 1.0}, 1.0, "alpha is the error of the whole run"),
            )
        ),
    ],
)
def test_what_is_not_there_has_no_share(
    share: Callable[..., object], numbers: tuple[object, ...], message: str
) -> None:
    """Looks at nothing, checkpoints before the first, comparisons with later ones, a case without
    weight and a run without error, which would have no verdicts.
    """
    with pytest.raises(ValueError, match=message):
        share(*numbers)
