"""Cosine similarity of a chain's artifacts to its start."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.floating[Any]]

_BLOCK = 256  # chains at once: float64 copies of larger blocks leave the CPU's cache


def cosine_to_start(start: FloatArray, later: FloatArray) -> npt.NDArray[np.float64]:
    """Similarity of each chain's later artifacts to its start.

    start: (n_chains, dimension); later: (n_chains, T, dimension); any float type, any length.
    Returns (n_chains, T) float64 in [-1, 1]: enc(X0) . enc(Xt) / (|enc(X0)| |enc(Xt)|).
    Source: GenCeption, Eq. 2.
    Raises ValueError for shapes that do not fit, and for vectors that are zero or not finite: they
    have no direction, and the caller must have counted them as failures.
    """
    if start.ndim != 2 or later.ndim != 3 or start.shape != (later.shape[0], later.shape[2]):
        msg = f"expected (n, d) and (n, T, d), got {start.shape} and {later.shape}"
        raise ValueError(msg)
    similarity = np.empty(later.shape[:2], dtype=np.float64)
    for low in range(0, len(start), _BLOCK):
        block = slice(low, low + _BLOCK)
        similarity[block] = np.einsum("nd,ntd->nt", _unit(start[block]), _unit(later[block]))
    return similarity.clip(-1.0, 1.0)


def _unit(vectors: FloatArray) -> npt.NDArray[np.float64]:
    wide = vectors.astype(np.float64)
    # Scaled by the largest entry first, so that squares neither overflow nor vanish.
    largest = np.abs(wide).max(axis=-1, keepdims=True, initial=0.0)
    if not np.isfinite(largest).all() or (largest == 0.0).any():
        msg = "a vector is zero or not finite"
        raise ValueError(msg)
    wide /= largest
    unit: npt.NDArray[np.float64] = wide / np.linalg.norm(wide, axis=-1, keepdims=True)
    return unit
