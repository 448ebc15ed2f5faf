"""Sines that tests play."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from pytest_cepbench.artifacts import Sound


def wave(hertz: float, seconds: float, rate: int) -> npt.NDArray[np.float64]:
    """The samples of a sine of half of full scale."""
    return 0.5 * np.sin(2 * np.pi * hertz * np.arange(round(seconds * rate)) / rate)


def tone(hertz: float, seconds: float = 0.5, rate: int = 16_000) -> Sound:
    """The same as a sound."""
    return Sound(wave(hertz, seconds, rate).astype(np.float32), rate)
