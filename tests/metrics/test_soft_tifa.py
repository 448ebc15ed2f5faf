"""Soft-TIFA: means of the probabilities of right answers, dependencies, control questions."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import gmean

from pytest_cepbench.metrics.facts import (
    ControlAccuracy,
    MeanName,
    fail_descendants,
    means_by_kind,
    soft_tifa,
)

PROBABILITIES = st.lists(st.floats(0, 1), min_size=1, max_size=12)

MEANS: tuple[MeanName, ...] = ("geometric", "arithmetic")


@given(PROBABILITIES)
def test_scores_are_those_of_the_released_code(atoms: list[float]) -> None:
    """GenEval 2's script takes SciPy's gmean for GM, and the plain mean for AM."""
    with np.errstate(divide="ignore"):
        expected = float(gmean(atoms))
    assert soft_tifa(atoms) == pytest.approx(expected, abs=1e-12)
    assert soft_tifa(atoms, "arithmetic") == pytest.approx(sum(atoms) / len(atoms), abs=1e-12)


@given(st.floats(0, 1), st.integers(1, 12), st.sampled_from(MEANS))
def test_chance_is_the_answerers_own(p: float, atoms: int, mean: MeanName) -> None:
    """A model that gives each right answer p, whatever it sees, scores p."""
    assert soft_tifa([p] * atoms, mean) == pytest.approx(p, abs=1e-12)


@pytest.mark.parametrize("atoms", [[], [1.5], [-0.1], [math.nan], [[0.5]]])
def test_what_is_no_probability_is_refused(atoms: list[float]) -> None:
    """Also no atom at all: a prompt that asks nothing is not met."""
    with pytest.raises(ValueError, match="expected"):
        soft_tifa(atoms)


def test_descendants_of_a_failed_atom_have_failed() -> None:
    """A color of a dog that is not there, and what stands beside it, however sure the model is."""
    parents = [(), (0,), (1,), (), (3,)]
    assert fail_descendants([0.4, 0.9, 0.9, 0.5, 0.2], parents) == (0.4, 0.0, 0.0, 0.5, 0.2)


@pytest.mark.parametrize("parents", [[(0,)], [(1,), ()], [(-1,)]])
def test_a_parent_stands_before_its_child(parents: list[tuple[int, ...]]) -> None:
    """So there are no circles."""
    with pytest.raises(ValueError, match="places before its own"):
        fail_descendants([1.0] * len(parents), parents)


def test_means_by_kind_are_of_atoms() -> None:
    """As GenEval 2 sums up skills: over all atoms of a kind, whatever their prompts."""
    kinds = ["object", "count", "object", "object"]
    assert means_by_kind(kinds, [1.0, 0.5, 0.0, 0.5]) == {"count": (0.5, 1), "object": (0.5, 3)}


@given(st.integers(10, 60), st.integers(10, 60), st.floats(0.51, 1.0))
def test_an_answer_that_is_always_the_same_shows(yes: int, no: int, least: float) -> None:
    """One that says yes to all has no absent right, one that says no to all no present one."""
    assert ControlAccuracy.of([1.0] * yes, [0.0] * no).below(least)
    assert ControlAccuracy.of([0.0] * yes, [1.0] * no).below(least)
    assert not ControlAccuracy.of([1.0] * yes, [1.0] * no).below(least)
    assert not ControlAccuracy.of((), [1.0] * no).below(least)
    # One half to every answer is no answer, and nothing below it is.
    assert ControlAccuracy.of([0.5] * yes, [0.5] * no) == ControlAccuracy((0, yes), (0, no))


def test_few_controls_are_refused_only_where_none_is_right() -> None:
    """Two of four wrong is no evidence against a model that is right nine times of ten."""
    assert not ControlAccuracy.of([1.0], [0.9, 0.9, 0.1, 0.1]).below(0.9)
    assert ControlAccuracy.of([1.0], [0.1, 0.1]).below(0.6)
    assert str(ControlAccuracy.of([1.0], [0.9, 0.1])) == (
        "1 of 1 about what is present (100.0%) and 1 of 2 about what is absent (50.0%)"
    )
