"""Panels of battles that tests draw or simulate."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import numpy as np
from hypothesis import strategies as st
from scipy.special import expit

from pytest_cepbench.artifacts.outcome import WINNERS, Winner
from pytest_cepbench.metrics.battles import FloatArray, JudgedBattle

MODELS = ("ada", "bob", "cyd", "dot")

SWAPPED: dict[Winner, Winner] = {"A": "B", "Tie(A)": "Tie(B)", "Tie(B)": "Tie(A)", "B": "A"}


@st.composite
def panels(draw: st.DrawFn, most: int = 30) -> list[JudgedBattle]:
    """Battles of up to four models over a few questions, none twice in the same order."""
    orders = [(a, b) for pair in combinations(MODELS, 2) for a, b in (pair, pair[::-1])]
    keys = st.tuples(st.integers(0, 5), st.sampled_from(orders))
    drawn = draw(st.lists(keys, min_size=1, max_size=most, unique=True))
    winners = draw(st.lists(st.sampled_from(WINNERS), min_size=len(drawn), max_size=len(drawn)))
    return [
        JudgedBattle(f"q{question}", first, second, winner)
        for (question, (first, second)), winner in zip(drawn, winners, strict=True)
    ]


def swap(battles: Sequence[JudgedBattle]) -> list[JudgedBattle]:
    """The same verdicts with first and second exchanged."""
    return [JudgedBattle(b.question, b.second, b.first, SWAPPED[b.winner]) for b in battles]


def simulate(
    ratings: FloatArray,
    count: int,
    rng: np.random.Generator,
    *,
    threshold: float = 0.8,
    order_effect: float = 0.3,
    per_question: int = 4,
) -> list[JudgedBattle]:
    """Verdicts by the ordered logit; a question's battles are of different pairs."""
    pairs = np.array(list(combinations(range(len(ratings)), 2)))
    battles = []
    for start in range(0, count, per_question):
        for first, second in rng.permuted(rng.permutation(pairs)[:per_question], axis=1).tolist():
            x = ratings[first] - ratings[second] + order_effect
            ends = expit([x - threshold, x, x + threshold])
            winner = WINNERS[int((rng.random() > ends).sum())]
            battles.append(JudgedBattle(f"q{start}", f"m{first:02}", f"m{second:02}", winner))
    return battles
