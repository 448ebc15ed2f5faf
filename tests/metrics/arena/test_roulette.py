"""Roulette matching: no pair twice for a question, all models alike, the same in every process."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from itertools import pairwise
from math import comb, isclose

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_cepbench.metrics.battles import coverage_time, roulette

DRAW = [
    ("0101001", "e", "c"),
    ("0101001", "c", "d"),
    ("0101001", "e", "b"),
    ("0101002", "e", "d"),
    ("0101002", "b", "e"),
    ("0101002", "c", "a"),
]


def names(count: int) -> list[str]:
    """Models."""
    return [f"model-{i}" for i in range(count)]


@given(st.integers(2, 14), st.data())
def test_no_pair_meets_twice_over_a_question(count: int, data: st.DataObject) -> None:
    """Each question has a battle per round, all of different pairs, in any number of rounds."""
    rounds = data.draw(st.integers(1, comb(count, 2)))
    battles = roulette(names(count), {"t": ["q1", "q2", "q3"]}, rounds)

    assert Counter(battle.question for battle in battles) == dict.fromkeys(
        ("q1", "q2", "q3"), rounds
    )
    met = {(battle.question, frozenset((battle.first, battle.second))) for battle in battles}
    assert len(met) == len(battles)


@pytest.mark.parametrize("count", range(3, 15))
def test_strides_below_half_of_the_ring_are_disjoint(count: int) -> None:
    """With as many questions as models each round shows every model twice."""
    strides = (count - 1) // 2
    questions = [f"q{i}" for i in range(count)]
    shown = Counter(
        name
        for battle in roulette(names(count), {"t": questions}, strides)
        for name in (battle.first, battle.second)
    )

    assert set(shown.values()) == {2 * strides}


def test_the_ring_covers_all_models_soon() -> None:
    """After one battle less than there are models, all have fought."""
    questions = [f"q{i}" for i in range(20)]
    for count in (3, 8, 20):
        battles = roulette(names(count), {"t": questions}, 1)[: count - 1]
        assert len({name for battle in battles for name in (battle.first, battle.second)}) == count


def test_models_are_first_about_equally_often() -> None:
    """Of 2,000 battles no model's share of first places is far from a half."""
    battles = roulette(names(6), {f"t{i}": [f"q{i}-{j}" for j in range(40)] for i in range(25)}, 2)
    first = Counter(battle.first for battle in battles)
    shown = first + Counter(battle.second for battle in battles)

    assert len(battles) == 2000
    assert all(0.44 < first[name] / shown[name] < 0.56 for name in names(6))


def test_seed_and_task_change_the_draw() -> None:
    """Another seed or task is another ring; the order in which models are named is not."""
    questions = [f"q{i}" for i in range(8)]
    draws = [
        roulette(names(8), {"t": questions}, 1, seed=0),
        roulette(names(8), {"t": questions}, 1, seed=1),
        roulette(names(8), {"u": questions}, 1, seed=0),
    ]
    assert all(one_draw != other for one_draw, other in pairwise([*draws, draws[0]]))
    assert roulette(names(8)[::-1], {"t": questions}, 1) == draws[0]


def test_a_draw_stays_what_it_is() -> None:
    """Stored verdicts are of these battles: another version must arrange the same ones."""
    battles = roulette(list("abcde"), {"0101": ["0101001", "0101002"]}, 3)

    assert [(b.question, b.first, b.second) for b in battles] == DRAW


def test_it_is_the_same_in_every_process() -> None:
    """Whatever the hash seed of strings is."""
    script = (
        "from pytest_cepbench.metrics.battles import roulette;"
        "print(roulette(list('abcdef'), {'t': ['q1', 'q2']}, 4))"
    )
    printed = {
        subprocess.run(
            [sys.executable, "-c", script],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert printed == {f"{roulette(list('abcdef'), {'t': ['q1', 'q2']}, 4)}\n"}


@pytest.mark.parametrize(
    ("models", "rounds", "message"),
    [
        (["a"], 1, "two or more different models"),
        (["a", "b", "a"], 1, "two or more different models"),
        (["a", "b", "c"], 0, "1 to 3 rounds: 3 models make 3 pairs; got 0"),
        (["a", "b", "c"], 4, "got 4"),
    ],
)
def test_refused(models: list[str], rounds: int, message: str) -> None:
    """Fewer than two models, one twice, more rounds than pairs."""
    with pytest.raises(ValueError, match=message):
        roulette(models, {"t": ["q"]}, rounds)


@pytest.mark.parametrize(
    ("models", "battles"),
    [(3, 2.50), (5, 5.33), (8, 10.40), (11, 16.07), (14, 22.17), (20, 35.30)],
)
def test_coverage_time(models: int, battles: float) -> None:
    """Computed once by other code."""
    assert round(coverage_time(models), 2) == battles
    with pytest.raises(ValueError, match="at least 2 models, got 1"):
        coverage_time(1)


def test_coverage_time_is_the_mean_of_draws() -> None:
    """Pairs drawn until all of five models have fought, 20,000 times."""
    rng = np.random.default_rng(0)
    draws = rng.random((20_000, 60, 5)).argsort(axis=2)[:, :, :2]
    shown = np.zeros((20_000, 60, 5), dtype=bool)
    np.put_along_axis(shown, draws, values=True, axis=2)
    times = np.logical_or.accumulate(shown, axis=1).all(axis=2).argmax(axis=1) + 1

    assert isclose(times.mean(), coverage_time(5), rel_tol=0.02)
