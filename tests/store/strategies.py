"""What the store's tests put into it: every kind of result, and equality over all of them."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from pytest_cepbench.artifacts import Failure
from pytest_cepbench.artifacts.outcome import FAILURE_KINDS
from pytest_cepbench.store import ImageRef, Result

KEYS = st.binary(min_size=32, max_size=32).map(bytes.hex)

TEXTS = st.text(st.characters(codec=None), max_size=40)

VECTORS = hnp.arrays(
    np.float32,
    st.integers(1, 40),
    elements=st.floats(width=32, allow_nan=True, allow_infinity=True),
)

RESULTS: st.SearchStrategy[Result] = st.one_of(
    TEXTS,
    KEYS.map(ImageRef),
    VECTORS,
    st.builds(Failure, st.sampled_from(sorted(FAILURE_KINDS)), st.text(max_size=30)),
)


def same(first: Result, second: Result) -> bool:
    """Equal in kind and in every bit; NaN equals NaN."""
    if isinstance(first, np.ndarray) and isinstance(second, np.ndarray):
        return first.dtype == second.dtype and bool(np.array_equal(first, second, equal_nan=True))
    return type(first) is type(second) and bool(first == second)
