"""Ranks of models on a leaderboard, with the ties that printed numbers have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.floating[Any]]


def shared_ranks(
    values: Sequence[float], *, higher_is_better: bool, decimals: int | None = None
) -> tuple[int, ...]:
    """Rank of each value as leaderboards print it: 1 is best, ties share the best of their ranks.

    After two models that share rank 2 comes rank 4.
    decimals: values are rounded to so many digits first, so that numbers that look the same rank
    the same; None ranks them as they are.
    Source: GenCeption, Table 4, where the means are ranked as printed, with three decimals (GPT-4o
    and GPT-4V share rank 2 with Imagen 2, mPLUG-Owl2 and LLaVA-13B share rank 5). The two 5s in
    the visual MME ranks of Table 2 are no tie but a misprint: LLaVA-7B is 4th.
    Raises ValueError for values that are not a list of finite numbers.
    """
    numbers = _one_dimensional(values).tolist()
    shown = numbers if decimals is None else [round(value, decimals) for value in numbers]
    ordered = sorted(shown, reverse=higher_is_better)
    return tuple(ordered.index(value) + 1 for value in shown)


def rank_table(
    scores: Mapping[str, Sequence[float]],
    higher_is_better: Mapping[str, bool],
    *,
    decimals: int | None = None,
) -> dict[str, tuple[int, ...]]:
    """Ranks of the same models on several benchmarks, each in its own direction.

    scores: benchmark -> one value per model, the models in the same order in each.
    higher_is_better: benchmark -> direction; distances such as FID rank from the smallest.
    Returns benchmark -> one rank per model; see `shared_ranks`.
    Raises ValueError when a direction is missing or the benchmarks differ in their models.
    """
    lengths = {name: len(values) for name, values in scores.items()}
    if len(set(lengths.values())) > 1:
        msg = f"expected one value per model on every benchmark, got {lengths}"
        raise ValueError(msg)
    if missing := sorted(set(scores) - set(higher_is_better)):
        msg = f"no direction is given for {', '.join(missing)}: say whether higher is better"
        raise ValueError(msg)
    return {
        name: shared_ranks(values, higher_is_better=higher_is_better[name], decimals=decimals)
        for name, values in scores.items()
    }


def _one_dimensional(values: FloatArray | Sequence[float]) -> npt.NDArray[np.float64]:
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 1 or not np.isfinite(array).all():
        msg = f"expected (n,) finite numbers to rank, got shape {array.shape}: {array.tolist()}"
        raise ValueError(msg)
    return array
