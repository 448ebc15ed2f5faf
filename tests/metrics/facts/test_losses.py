"""When facts are lost and by which role: half-lives, the 2 x 2 table, losses by role."""

from __future__ import annotations

from math import nan

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_cepbench.metrics.fact_losses import (
    Role,
    attribute_losses,
    truth_table,
)
from pytest_cepbench.metrics.facts import half_life

UNIT = st.floats(0, 1)


def test_a_known_decay_has_its_half_life() -> None:
    """A share of 0.8, 0.6, 0.4 crosses one half between generations 2 and 3, at 2.5."""
    found = half_life(np.tile([0.8, 0.6, 0.4], (500, 1)), [1, 2, 3])
    assert found.value == pytest.approx(2.5)
    assert found.low is not None
    assert found.high is not None
    assert found.low < 2.5 < found.high
    assert str(found) == f"2.5 ({found.low:.1f} to {found.high:.1f})"


def test_nothing_is_extrapolated() -> None:
    """A share that never falls to one half has a half-life of more than the chain."""
    found = half_life(np.tile([0.99, 0.9], (400, 1)), [2, 4])
    assert (found.value, found.low, found.high) == (None, None, None)
    assert str(found) == "more than 4"


def test_few_samples_leave_the_bound_open() -> None:
    """Three samples that lost a third: the half-life may lie within the chain, and it may not."""
    found = half_life(np.array([[1.0, 1.0], [1.0, 0.0], [1.0, 1.0]]), [1, 2])
    assert found.value is None
    assert found.low is not None
    assert str(found).startswith("more than 2 (from ")


def test_facts_without_an_answer_are_left_out() -> None:
    """Samples that were not answered at a generation do not stand for others there."""
    found = half_life(np.array([[1.0, nan], [0.0, nan], [nan, nan]]), [1, 2])
    assert found.units == 2
    assert found.last == 1
    assert found.value == pytest.approx(1.0)
    with pytest.raises(ValueError, match="no fact of the kind"):
        half_life(np.array([[nan]]), [1])


@pytest.mark.parametrize("generations", [[2, 1], [0, 1], [1]])
def test_generations_rise_from_one(generations: list[int]) -> None:
    """The start is no generation, and each column has one."""
    with pytest.raises(ValueError, match="rising generations"):
        half_life(np.ones((2, 2)), generations)


@given(st.lists(st.lists(UNIT, min_size=3, max_size=3), min_size=1, max_size=8))
def test_the_interval_holds_the_value(shares: list[list[float]]) -> None:
    """Low <= value <= high, with "more than the chain" as the largest, and all within the chain."""
    found = half_life(np.array(shares), [1, 3, 5])
    low, value, high = (5.5 if end is None else end for end in (found.low, found.value, found.high))
    assert 0 < low <= value <= high
    assert all(end is None or end <= 5 for end in (found.low, found.value, found.high))


@given(st.lists(st.lists(UNIT, min_size=2, max_size=2), min_size=1, max_size=6))
def test_more_of_the_same_samples_only_narrow_the_interval(shares: list[list[float]]) -> None:
    """The value does not depend on how many there are; the interval never grows."""
    few, many = half_life(np.array(shares), [1, 2]), half_life(np.array(shares * 20), [1, 2])
    assert (many.value is None) == (few.value is None)
    beyond = [9.0 if end is None else end for end in (few.low, many.low, many.high, few.high)]
    assert beyond[0] <= beyond[1] + 1e-9
    assert beyond[2] <= beyond[3] + 1e-9


def test_the_interval_covers() -> None:
    """Of 400 studies of 30 chains whose share halves at 2.5, at least 95 % hold that."""
    rng = np.random.default_rng(21)
    level = np.array([0.8, 0.6, 0.4])
    covered = 0
    for _ in range(400):
        alive = rng.random((30, 1)) < level  # each chain loses all its facts at one moment
        found = half_life(alive.astype(float), [1, 2, 3])
        covered += (found.low or 9) <= 2.5 <= (found.high or 9)
    assert covered >= 0.95 * 400


def test_the_table_by_hand() -> None:
    """Each fact is in one cell; one without an answer on a side is in none."""
    table = truth_table(np.array([1.0, 1.0, 0.0, 0.0, nan]), np.array([1.0, 0.0, 1.0, 0.0, 1.0]))
    assert (table.both, table.read, table.drawn, table.neither) == (1, 1, 1, 1)
    assert table.total == 4
    assert table.discordant == 0.5
    assert truth_table(np.array([nan]), np.array([1.0])).discordant == 0


PAIRS = st.lists(st.tuples(UNIT, UNIT), min_size=1, max_size=10)


@given(PAIRS)
def test_exchanging_the_sides_exchanges_the_off_diagonal(pairs: list[tuple[float, float]]) -> None:
    """And the four cells always add up to the facts."""
    read, drawn = np.array(pairs).T
    table, turned = truth_table(read, drawn), truth_table(drawn, read)
    assert (table.read, table.drawn) == pytest.approx((turned.drawn, turned.read))
    assert (table.both, table.neither) == pytest.approx((turned.both, turned.neither))
    assert table.total == pytest.approx(len(pairs))


def test_the_role_that_loses_is_known() -> None:
    """Every loss at a describing step is the describer's; what comes back is counted apart."""
    answers = np.array([[1.0, 1.0, 0.0, 0.0], [0.0, 0.0, 0.0, 1.0], [1.0, 1.0, 1.0, 1.0]])
    roles: tuple[Role, ...] = ("describer", "generator", "describer", "generator")
    describer, generator = attribute_losses([answers], roles)
    assert (describer.role, describer.steps, describer.right, describer.lost) == (
        "describer", 2, 5, 2,
    )  # fmt: skip
    assert describer.share == pytest.approx(2 / 5)
    assert (generator.right, generator.lost, generator.wrong, generator.regained) == (3, 0, 3, 1)
    assert generator.share == 0


def test_no_share_where_nothing_was_right() -> None:
    """A role that never got a right fact lost none, which is no share of 0."""
    _, generator = attribute_losses([np.array([[0.0, 0.0]])], ("describer", "generator"))
    assert generator.share is None


def test_tables_of_other_lengths_are_refused() -> None:
    """Each column belongs to a step."""
    with pytest.raises(ValueError, match="expected answers after 2 steps"):
        attribute_losses([np.ones((1, 3))], ("describer", "generator"))
    with pytest.raises(ValueError, match="same facts"):
        truth_table(np.ones(2), np.ones(3))


@given(st.lists(st.lists(st.sampled_from([0.0, 1.0, nan]), min_size=4, max_size=4), min_size=1))
def test_what_is_right_after_a_step_was_kept_or_regained(rows: list[list[float]]) -> None:
    """Right before, less lost, plus regained is right after, where all was answered."""
    table = np.array(rows)
    roles: tuple[Role, ...] = ("generator", "describer", "generator", "describer")
    if np.isnan(table).any():
        table = np.where(np.isnan(table), 0.0, table)
    losses = attribute_losses([table], roles)
    kept = sum(loss.right - loss.lost + loss.regained for loss in losses)
    assert kept == pytest.approx(table.sum())
    assert sum(loss.right + loss.wrong for loss in losses) == table.size
