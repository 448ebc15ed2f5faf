"""Measurements and baselines as the gate's tests need them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hypothesis import strategies as st

from pytest_cepbench.gate import Baseline, CaseKey, Measurement, dump_baseline, load_baseline

KEY = CaseKey("shapes", "color", "gc")

Scores = Mapping[str, Mapping[str, float]]

SCORE = st.floats(-1, 1).map(lambda x: round(x, 6))

NAMES = st.text(max_size=12)
"""Any text that a file can hold: quotes, backslashes, line ends, controls, DEL, emoji, nothing."""

SCORES = st.dictionaries(
    NAMES, st.dictionaries(NAMES, SCORE, min_size=1, max_size=6), min_size=1, max_size=3
)


def measured(scores: Scores | None = None, **changes: Any) -> Measurement:
    """A measurement of these scores; fields can be changed by name."""
    fields: dict[str, Any] = {
        "key": KEY,
        "label": "GC@3",
        "higher_is_better": True,
        "scores": scores or {"color": {"a.png": 0.5, "b.png": 0.75}},
        "identity": {"suite": "shapes/1", "samples": "2 0123456789abcdef"},
        "model": {"spec": "shapes:"},
    }
    return Measurement(**(fields | changes))


def accepted(measurement: Measurement) -> Baseline:
    """The baseline that accepting this measurement leaves, through its file's text."""
    return load_baseline(dump_baseline(measurement), measurement.key, "baseline.toml")
