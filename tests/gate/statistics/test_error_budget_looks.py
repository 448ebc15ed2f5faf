"""Looking again: sizes of the looks and their shares of the error."""

from __future__ import annotations

from itertools import pairwise
from math import fsum

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_cepbench.gate.statistics import look_shares, look_sizes


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


@given(st.integers(1, 100_000), st.integers(1, 100))
def test_each_look_has_at_least_a_quarter_more(most: int, first: int) -> None:
    """The last is the most, none more than doubles but the last, which is below 2.5 times."""
    sizes = look_sizes(most, first)
    assert sizes[-1] == most
    assert all(1.25 * size <= larger < 2.5 * size for size, larger in pairwise(sizes))
    assert sizes[0] == first or (len(sizes) == 1 and most < 1.25 * first)


@given(st.integers(1, 30))
def test_shares_add_up(count: int) -> None:
    """To 1, half of it for the last look, the others alike."""
    shares = look_shares(count)
    assert len(shares) == count
    assert fsum(shares) == pytest.approx(1.0, abs=1e-12)
    assert shares[-1] == (1.0 if count == 1 else 0.5)
    assert len(set(shares[:-1])) <= 1


@pytest.mark.parametrize(("most", "first"), [(0, 25), (10, 0)])
def test_looks_at_nothing_are_refused(most: int, first: int) -> None:
    """Neither first nor last look is at no sample; nor are there no looks."""
    with pytest.raises(ValueError, match="at least 1 sample"):
        look_sizes(most, first)
    with pytest.raises(ValueError, match="at least 1 look"):
        look_shares(0)
