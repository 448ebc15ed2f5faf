"""The fact score that chance gives: each sample's facts against what others' artifacts claim."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from pytest_cepbench.metrics.facts.fact import Fact, order_kinds

Array = npt.NDArray[np.float64]


def chance_f1(
    starts: Sequence[Collection[Fact]],
    claims: Sequence[Sequence[Collection[Fact]]],
    homes: Sequence[str],
) -> Array | None:
    """The mean macro-F1 of each sample's facts in the artifacts of other samples.

    starts: (n,) the facts of each sample.
    claims: (n, n_artifacts) the facts that each artifact claims, empty where it is not there.
    homes: (n,) the category within which a sample is exchanged; where no other sample there starts
    differently, it is exchanged within all of them.
    Returns (n,) in [0, 1]; None where all samples have the same facts. It is exact: every other
    sample with other facts counts once.
    """
    sets = [frozenset(facts) for facts in starts]
    if len(set(sets)) < 2:
        return None
    scores = _score_table(sets, claims)
    differ = np.array([[own != other for other in sets] for own in sets])
    same_home = np.equal.outer(np.array(homes), np.array(homes))
    allowed = differ & same_home
    allowed = np.where(allowed.any(axis=1, keepdims=True), allowed, differ)
    chance: Array = (scores * allowed).sum(axis=1) / allowed.sum(axis=1)
    return chance


def _score_table(
    starts: Sequence[frozenset[Fact]], claims: Sequence[Sequence[Collection[Fact]]]
) -> Array:
    """(n, n) mean over artifacts of the macro-F1 of start i in the artifacts of sample j."""
    every = {fact for facts in starts for fact in facts}
    every |= {fact for row in claims for facts in row for fact in facts}
    artifacts = len(claims[0])
    total = np.zeros((len(starts), len(starts)))
    kinds = order_kinds(fact.kind for fact in every)
    words = {kind: [fact for fact in every if fact.kind == kind] for kind in kinds}
    there = {kind: _table(starts, words[kind]) for kind in kinds}
    for column in range(artifacts):
        scores, present = np.zeros_like(total), np.zeros_like(total)
        for kind in kinds:
            claimed = _table([row[column] for row in claims], words[kind])
            sizes = there[kind].sum(axis=1)[:, None] + claimed.sum(axis=1)[None, :]
            scores += 2 * (there[kind] @ claimed.T) / np.maximum(sizes, 1)
            present += sizes > 0
        total += scores / np.maximum(present, 1)
    mean: Array = total / artifacts
    return mean


def _table(sets: Sequence[Collection[Fact]], columns: Sequence[Fact]) -> npt.NDArray[Any]:
    """(n, n_columns) 1 where the set has the fact."""
    place = {fact: i for i, fact in enumerate(columns)}
    table = np.zeros((len(sets), len(columns)))
    for row, facts in zip(table, sets, strict=True):
        row[[place[fact] for fact in facts if fact in place]] = 1.0
    return table
