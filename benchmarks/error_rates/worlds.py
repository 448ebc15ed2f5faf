"""Simulated scores of a baseline and a candidate whose true drift is known.

Every world is made so that the difference of a unit scatters by roughly 0.05 (binary: 0.45), and the
expected drop is exactly the drift that was asked for.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]

SD = 0.05
"""Standard deviation of a sample's difference, unless the world says otherwise."""

Shape = tuple[int, int, int, int]
"""Runs, cases of a run, units of a case, scores of a unit."""

Draw = Callable[[np.random.Generator, Shape, float], tuple[Array, Array]]
"""(generator, shape, drift) -> scores before and now, each of that shape."""


@dataclass(frozen=True)
class World:
    """One way in which scores can come about.

    draw: see `Draw`. shares: whether scores are right or wrong. seeds: scores of one unit.
    correlated: whether the cases of a run share something of their samples.
    """

    name: str
    draw: Draw
    shares: bool = False
    seeds: int = 1
    correlated: bool = False


def _before(generator: np.random.Generator, shape: Shape) -> Array:
    return 0.6 + 0.1 * generator.standard_normal(shape)


def _normal(generator: np.random.Generator, shape: Shape, drift: float) -> tuple[Array, Array]:
    before = _before(generator, shape)
    return before, before - drift + SD * generator.standard_normal(shape)


def _losses(generator: np.random.Generator, shape: Shape, drift: float) -> tuple[Array, Array]:
    """Differences with skewness -2: most gain a little, few lose much."""
    before = _before(generator, shape)
    return before, before - drift + SD * (1 - generator.standard_exponential(shape))


def _gains(generator: np.random.Generator, shape: Shape, drift: float) -> tuple[Array, Array]:
    """Differences with skewness 2."""
    before = _before(generator, shape)
    return before, before - drift + SD * (generator.standard_exponential(shape) - 1)


_EASY = 0.6
_ALIKE = 0.8
_BETA = (6.0, 2.0)


def _bounded(generator: np.random.Generator, shape: Shape, drift: float) -> tuple[Array, Array]:
    """Six of ten samples are at the ceiling of 1 before and now; the others are Beta(6, 2).

    Hard samples correlate by the gamma variables that their two scores share, and lose an equal
    share of their score, such that the mean of all drops by the drift.
    """
    easy = generator.random(shape) < _EASY
    common = [generator.standard_gamma(_ALIKE * a, shape) for a in _BETA]

    def scores() -> Array:
        up, down = (
            one + generator.standard_gamma((1 - _ALIKE) * a, shape)
            for one, a in zip(common, _BETA, strict=True)
        )
        return np.asarray(up / (up + down))

    lost = drift / ((1 - _EASY) * _BETA[0] / sum(_BETA))
    return np.where(easy, 1.0, scores()), np.where(easy, 1.0, scores() * (1 - lost))


def _binary(generator: np.random.Generator, shape: Shape, drift: float) -> tuple[Array, Array]:
    """Right or wrong: the two agree on eight of ten samples, and six of ten are right in both."""
    u = generator.random(shape)
    lost = 0.1 + drift / 2
    before = u < 0.6 + lost
    now = (u < 0.6) | ((u >= 0.6 + lost) & (u < 0.8))
    return before.astype(np.float64), now.astype(np.float64)


def _clustered(generator: np.random.Generator, shape: Shape, drift: float) -> tuple[Array, Array]:
    """Scores of one unit share an effect of it, in level and in difference."""
    of_units = (*shape[:3], 1)
    before = _before(generator, of_units) + 0.05 * generator.standard_normal(shape)
    effect = 0.04 * generator.standard_normal(of_units)
    return before, before - drift + effect + 0.05 * generator.standard_normal(shape)


def _correlated(generator: np.random.Generator, shape: Shape, drift: float) -> tuple[Array, Array]:
    """Cases read the same samples: half of a difference's variance is the sample's, in all cases."""
    before = _before(generator, shape)
    common = generator.standard_normal((shape[0], 1, *shape[2:]))
    own = generator.standard_normal(shape)
    return before, before - drift + SD * np.sqrt(0.5) * (common + own)


def concentrated(share: float) -> Draw:
    """A drift that only this share of the samples has, on top of normal differences of 0.02."""

    def draw(generator: np.random.Generator, shape: Shape, drift: float) -> tuple[Array, Array]:
        before = _before(generator, shape)
        hit = generator.random(shape) < share
        return before, before + 0.02 * generator.standard_normal(shape) - hit * drift / share

    return draw


NORMAL = World("normal", _normal)

LOSSES = World("skewed, rare losses", _losses)

BINARY = World("binary", _binary, shares=True)

BOUNDED = World("bounded, at a ceiling", _bounded)

CLUSTERED = World("clustered, 3 seeds", _clustered, seeds=3)

WORLDS = (
    NORMAL,
    LOSSES,
    World("skewed, rare gains", _gains),
    BOUNDED,
    BINARY,
    CLUSTERED,
    World("normal, cases correlated", _correlated, correlated=True),
)
