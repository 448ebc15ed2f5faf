"""Spending of a series' error: every comparison that can be made has a share, and all sum to 1."""

from __future__ import annotations

from itertools import pairwise
from math import fsum

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_cepbench.gate.statistics import checkpoint_share, reference_share


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


def test_all_pairs_of_a_long_training_stay_within_alpha() -> None:
    """Each of 300 checkpoints against each one before it, and what was there before."""
    spent = fsum(
        checkpoint_share(number) * reference_share(number, reference)
        for number in range(1, 301)
        for reference in (None, *range(number))
    )
    assert 0.8 < spent < 1


@pytest.mark.parametrize(
    ("number", "expected"), [(0, 40), (-1, 40), (1, 0)], ids=["none", "negative", "no length"]
)
def test_other_checkpoints_have_no_share(number: int, expected: int) -> None:
    """They are counted from 1."""
    with pytest.raises(ValueError, match="from 1 on"):
        checkpoint_share(number, expected)


@pytest.mark.parametrize("reference", [-1, 5, 6])
def test_a_checkpoint_is_compared_with_earlier_ones_only(reference: int) -> None:
    """A later one would be another comparison, which has no share here."""
    with pytest.raises(ValueError, match="checkpoint 5 is compared with earlier ones"):
        reference_share(5, reference)
