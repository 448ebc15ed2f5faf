"""What the store's tests put into it: every kind of result, and equality over all of them."""

from __future__ import annotations

import numpy as np
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from pytest_cepbench.artifacts import Detection, Detections, Failure, Mask
from pytest_cepbench.artifacts.outcome import FAILURE_KINDS
from pytest_cepbench.store import ArtifactRef, Result

PATIENT = settings(suppress_health_check=[HealthCheck.too_slow])
"""For texts: in a fresh checkout the first one builds a table of Unicode, which takes seconds on a
busy machine."""

KEYS = st.binary(min_size=32, max_size=32).map(bytes.hex)

TEXTS = st.text(st.characters(codec=None), max_size=40)

VECTORS = hnp.arrays(
    np.float32,
    st.integers(1, 40),
    elements=st.floats(width=32, allow_nan=True, allow_infinity=True),
)

PLACES = st.floats(allow_nan=False, allow_infinity=False)

BOXES = st.tuples(PLACES, PLACES, PLACES, PLACES).map(
    lambda box: (*map(min, box[:2], box[2:]), *map(max, box[:2], box[2:]))
)

MASKS = hnp.arrays(np.bool_, hnp.array_shapes(min_dims=2, max_dims=2, max_side=9)).map(
    Mask.from_array
)

DETECTIONS = st.lists(
    st.builds(
        Detection,
        query=TEXTS,
        score=st.floats(0.0, 1.0),
        box=BOXES,
        mask=st.none() | MASKS,
        color=st.none() | TEXTS,
    ),
    max_size=4,
).map(Detections.sort)

RESULTS: st.SearchStrategy[Result] = st.one_of(
    TEXTS,
    KEYS.map(ArtifactRef),
    VECTORS,
    DETECTIONS,
    st.builds(Failure, st.sampled_from(sorted(FAILURE_KINDS)), st.text(max_size=30)),
)


def same(first: Result, second: Result) -> bool:
    """Equal in kind and in every bit; NaN equals NaN."""
    if isinstance(first, np.ndarray) and isinstance(second, np.ndarray):
        return first.dtype == second.dtype and bool(np.array_equal(first, second, equal_nan=True))
    return type(first) is type(second) and bool(first == second)
