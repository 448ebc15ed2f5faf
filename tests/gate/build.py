"""Measurements and baselines as the gate's tests need them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from statistics import NormalDist
from typing import Any, TypeVar, cast

import msgspec
from hypothesis import strategies as st

from pytest_cepbench.gate import (
    CaseKey,
    FreshMeasurement,
    Measurement,
    dump_baseline,
    load_baseline,
    record_of,
)
from pytest_cepbench.gate.measurement import value_of

KEY = CaseKey("shapes", "color", "gc")

MODEL = {"spec": "shapes:", "identity": "shapes/1 c0ff9ee5"}

Scores = Mapping[str, Mapping[str, float]]

SCORE = st.floats(-1, 1).map(lambda x: round(x, 6))

NAMES = st.text(max_size=12)
"""Any text that a file can hold: quotes, backslashes, line ends, controls, DEL, emoji, nothing."""

SCORES = st.dictionaries(
    NAMES, st.dictionaries(NAMES, SCORE, min_size=1, max_size=6), min_size=1, max_size=3
)


def measured(scores: Scores | None = None, **changes: Any) -> FreshMeasurement:
    """A measurement of these scores; fields can be changed by name."""
    fields: dict[str, Any] = {
        "key": KEY,
        "label": "GC@3",
        "higher_is_better": True,
        "scores": scores or {"color": {"a.png": 0.5, "b.png": 0.75}},
        "identity": {"suite": "shapes/1", "samples": "2 0123456789abcdef"},
        "model": MODEL,
    }
    return FreshMeasurement.of(**(fields | changes))


T = TypeVar("T")


def replace(record: T, **changes: Any) -> T:
    """A measurement, or another record, with other fields; scores bring their value and number."""
    if not isinstance(record, FreshMeasurement):
        return cast("T", dataclasses.replace(cast("Any", record), **changes))
    if "scores" in changes:
        scores = changes["scores"]
        changes |= {"value": value_of(scores), "n": sum(map(len, scores.values()))}
    return cast("T", msgspec.structs.replace(record, **changes))


def text_of(measurement: FreshMeasurement) -> str:
    """The baseline file that accepting this measurement writes."""
    return dump_baseline(record_of(measurement))


def accepted(measurement: FreshMeasurement) -> Measurement:
    """The baseline that accepting this measurement leaves, through its file's text."""
    return load_baseline(text_of(measurement), measurement.key, "baseline.toml")


def bell(n: int, mean: float, sd: float) -> list[float]:
    """(n,) numbers shaped like a normal sample, without a generator: their mean is exact."""
    normal = NormalDist()
    return [mean + sd * normal.inv_cdf((i + 0.5) / n) for i in range(n)]


def scored(values: Sequence[float], category: str = "color") -> dict[str, dict[str, float]]:
    """One category of samples s0000, s0001, ... with these scores."""
    return {category: {f"s{i:04d}": value for i, value in enumerate(values)}}


def drifted(
    differences: Sequence[float], now: Mapping[str, Any] | None = None, **both: Any
) -> tuple[FreshMeasurement, Measurement]:
    """A candidate whose samples differ by so much from those of an accepted model.

    differences: candidate - baseline, whatever direction is better. now: fields of the candidate
    alone. both: fields of both.
    """
    spread = bell(len(differences), 0.5, 0.2)
    after = [score + d for score, d in zip(spread, differences, strict=True)]
    candidate = {"model": {"spec": "step-8000", "identity": "another"}} | both | dict(now or {})
    return measured(scored(after), **candidate), accepted(measured(scored(spread), **both))
