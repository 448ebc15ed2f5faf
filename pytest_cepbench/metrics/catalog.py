"""The metrics that a suite can name: how each turns traces into one score per sample."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from pytest_cepbench.metrics.gc import gc_at_t

FloatArray = npt.NDArray[np.floating[Any]]
BoolArray = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Metric:
    """One metric.

    name: its key in a suite's TOML. version: raised when its numbers change meaning.
    label: its name for people, with T filled in for {T}.
    higher_is_better: the direction; drifts are turned so that positive is better.
    per_category: whether categories and groups are cases of their own, or only the whole suite.
    scores: (traces (n, T), failed (n,)) -> (n,), one score per sample.
    """

    name: str
    version: int
    label: str
    higher_is_better: bool
    per_category: bool
    scores: Callable[[FloatArray, BoolArray], FloatArray]


_GC = Metric(
    name="gc",
    version=1,
    label="GC@{T}",
    higher_is_better=True,
    per_category=True,
    scores=lambda traces, _: gc_at_t(traces),
)

_LAST_STEP = Metric(
    name="s",
    version=1,
    label="s({T})",
    higher_is_better=True,
    per_category=True,
    scores=lambda traces, _: traces[:, -1],
)

_FAILURE_RATE = Metric(
    name="failures",
    version=1,
    label="failure rate",
    higher_is_better=False,
    per_category=False,
    scores=lambda _, failed: failed.astype(np.float64),
)

METRICS = {metric.name: metric for metric in (_GC, _LAST_STEP, _FAILURE_RATE)}
