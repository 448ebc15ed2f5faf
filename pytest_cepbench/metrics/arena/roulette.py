"""Roulette matching: which models meet over which question, and how soon all have met."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from itertools import combinations
from math import comb, fsum


@dataclass(frozen=True)
class Pairing:
    """Two models that answer the same question; `first` is shown to the judge first."""

    question: str
    first: str
    second: str


def roulette(
    models: Sequence[str], tasks: Mapping[str, Sequence[str]], rounds: int = 2, seed: int = 0
) -> list[Pairing]:
    """The battles of a panel: `rounds` for each question, no pair twice for the same question.

    models: two or more different names.
    tasks: task -> ids of its questions, in order.
    rounds: at least 1 and at most the number of pairs.
    Each task puts the models on a ring, in an order that follows from seed and task alone, so that
    every process draws the same. Round r joins the models that stand r apart; strides below half
    of the ring have no pair in common. Further rounds take the pairs that are left, by digest.
    Source: OpenING, section 4.1, whose code repeats pairs and doubles the battles in each round.
    Raises ValueError for other arguments.
    """
    pairs = comb(len(models), 2)
    if len(set(models)) < len(models) or len(models) < 2:
        raise ValueError(f"expected two or more different models, got {list(models)}")
    if not 1 <= rounds <= pairs:
        raise ValueError(
            f"expected 1 to {pairs} rounds: {len(models)} models make {pairs} pairs; got {rounds}"
        )
    battles = []
    for task, questions in tasks.items():
        ring = sorted(models, key=lambda name: _digest(seed, task, name))
        offset = _digest(seed, task, "offset") % len(ring)
        for i, question in enumerate(questions):
            for left, right in _pairs(ring, offset + i, rounds, (seed, question)):
                swapped = _digest(seed, question, *sorted((left, right))) % 2
                first, second = sorted((left, right), reverse=bool(swapped))
                battles.append(Pairing(question, first, second))
    return battles


def _pairs(
    ring: Sequence[str], position: int, rounds: int, key: tuple[object, ...]
) -> Iterator[tuple[str, str]]:
    """The pairs of one question: by strides, then those that are left."""
    size = len(ring)
    strides = range(1, max((size - 1) // 2, 1) + 1)
    made = [
        (ring[position % size], ring[(position + stride) % size]) for stride in strides[:rounds]
    ]
    yield from made
    if rounds > len(made):
        met = {frozenset(pair) for pair in made}
        left = [pair for pair in combinations(sorted(ring), 2) if frozenset(pair) not in met]
        left.sort(key=lambda pair: _digest(*key, *pair))
        yield from left[: rounds - len(made)]


def _digest(*parts: object) -> int:
    return int.from_bytes(sha256("\0".join(map(str, parts)).encode()).digest()[:8])


def coverage_time(models: int) -> float:
    """Expected number of battles until each model has fought, pairs drawn uniformly at random.

    models: M, at least 2. Inclusion and exclusion over the j models that have not fought yet:
    sum over j of (-1)^(j+1) C(M, j) / (1 - C(M - j, 2) / C(M, 2)).
    `roulette` needs M - 1 battles of a task, with certainty. Source: OpenING, section 4.1 (coverage
    time; about M/2 times the harmonic number of M).
    Raises ValueError for fewer than 2 models.
    """
    if models < 2:
        raise ValueError(f"expected at least 2 models, got {models}")
    total = comb(models, 2)
    terms = (
        (-1) ** (j + 1) * comb(models, j) / (1 - comb(models - j, 2) / total)
        for j in range(1, models + 1)
    )
    return fsum(terms)
