"""Simulated scores of a baseline and a candidate whose true drift is known.

Every world is made so that the difference of a unit scatters by roughly 0.05 (binary: 0.45), and
the expected drop is exactly the drift that was asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]

SD = 0.05
"""Standard deviation of a sample's difference, unless the world says otherwise."""

Shape = tuple[int, int, int, int]
"""Runs, cases of a run, units of a case, scores of a unit."""

Draw = Callable[[np.random.Generator, Shape, float], tuple[Array, Array]]
"""(generator, shape, drift) -> scores before and now, each of that shape."""


class Layout(NamedTuple):
    """Where the samples of a case stand. categories, clusters: (n,) of each sample, from 0."""

    categories: npt.NDArray[np.int64]
    clusters: npt.NDArray[np.int64]


@dataclass(frozen=True)
class World:
    """One way in which scores can come about.

    draw: see `Draw`. shares: whether scores are right or wrong. seeds: scores of one unit.
    correlated: whether the cases of a run share something of their samples. layout: of its
    samples, None for one category of samples that are their own clusters.
    """

    name: str
    draw: Draw
    shares: bool = False
    seeds: int = 1
    correlated: bool = False
    layout: Layout | None = None


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
            shared + generator.standard_gamma((1 - _ALIKE) * a, shape)
            for shared, a in zip(common, _BETA, strict=True)
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
    """Cases read the same samples: half a difference's variance is the sample's, in all cases."""
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


@dataclass(frozen=True)
class Hard:
    """A world that is hard on the bounds, at one number of samples.

    name: of the row. n: samples of a case. failures, passes: where false failures and false passes
    are counted, the worst of two mirror images each; None where there is nothing to count.
    promised: whether either of them is promised there.
    """

    name: str
    n: int
    failures: World | None
    passes: World | None
    fails_promised: bool = True
    passes_promised: bool = True


Values = Callable[[np.random.Generator, tuple[int, ...]], Array]
"""(generator, shape) -> values of mean 0 that have their long tail above."""


def _exponential(generator: np.random.Generator, shape: tuple[int, ...]) -> Array:
    return generator.standard_exponential(shape) - 1


def _lognormal(generator: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Of a normal variable of variance 1: skewness 6.2, a standard deviation of 2.2."""
    return np.asarray(np.exp(generator.standard_normal(shape)) - np.exp(0.5))


def _plain(generator: np.random.Generator, shape: tuple[int, ...]) -> Array:
    return generator.standard_normal(shape)


def _both(name: str, n: int, values: Values, scales: Array, layout: Layout | None = None) -> Hard:
    """Differences that gain much, where failures are false, and lose much, where passes are.

    scales: of the samples, (n,), or of the clusters where the layout has some.
    """

    def towards(sign: int) -> Draw:
        def draw(generator: np.random.Generator, shape: Shape, drift: float) -> tuple[Array, Array]:
            before = _before(generator, shape)
            apart = scales[:, None] * values(generator, (*shape[:2], len(scales), 1))
            if layout is not None:
                apart = apart[:, :, layout.clusters]
            return before, before - drift + sign * apart

        return draw

    return Hard(
        name,
        n,
        World(f"{name}, gains", towards(1), layout=layout),
        World(f"{name}, losses", towards(-1), layout=layout),
    )


def _categories(sizes: Sequence[int]) -> Layout:
    """So many samples in each category, each its own cluster."""
    return Layout(np.repeat(np.arange(len(sizes)), sizes), np.arange(sum(sizes)))


def _clusters(sizes: Sequence[int]) -> Layout:
    """One category, so many samples in each cluster."""
    return Layout(np.zeros(sum(sizes), np.int64), np.repeat(np.arange(len(sizes)), sizes))


def _loud(name: str, sizes: Sequence[int], times: Sequence[float]) -> Hard:
    """Exponential differences, categories so many times louder than 0.01."""
    scales = 0.01 * np.repeat(np.asarray(times, np.float64), sizes)
    return _both(name, sum(sizes), _exponential, scales, _categories(sizes))


def _heavy(name: str, sizes: Sequence[int]) -> Hard:
    """The samples of a cluster lose or gain together."""
    return _both(name, sum(sizes), _plain, np.full(len(sizes), SD), _clusters(sizes))


def _few(name: str, n: int, values: Values) -> Hard:
    return _both(f"{name}, n = {n}", n, values, np.full(n, SD))


def _rare(generator: np.random.Generator, shape: Shape, drift: float) -> tuple[Array, Array]:
    """86 % have no difference, 12 % lose 0.1, 2 % gain 0.6: no drift, and no symmetry."""
    before = _before(generator, shape)
    u = generator.random(shape)
    return before, before - drift - 0.1 * (u < 0.12) + 0.6 * (u > 0.98)


def behind_jitter(share: float, jitter: float) -> Draw:
    """A drift that only this share of the samples has, the others differing by such noise."""

    def draw(generator: np.random.Generator, shape: Shape, drift: float) -> tuple[Array, Array]:
        before = _before(generator, shape)
        hit = generator.random(shape) < share
        noise = jitter * generator.standard_normal(shape)
        return before, before + noise - hit * drift / share

    return draw


def best_of(count: int, *, again: bool) -> Draw:
    """The baseline is the best of so many equal checkpoints.

    again: whether what is kept of it is a second measurement, not the one that made it the best.
    """

    def draw(generator: np.random.Generator, shape: Shape, drift: float) -> tuple[Array, Array]:
        sample = _before(generator, shape)
        noise = SD * np.sqrt(0.5)
        tried = noise * generator.standard_normal((count, *shape))
        best = tried.mean((-2, -1)).argmax(0)
        kept = np.take_along_axis(tried, best[None, ..., None, None], 0)[0]
        if again:
            kept = noise * generator.standard_normal(shape)
        now = sample - drift + noise * generator.standard_normal(shape)
        return sample + kept, now

    return draw


def _chosen(name: str, *, again: bool, promised: bool) -> Hard:
    world = World(name, best_of(5, again=again))
    return Hard(name, 60, world, world, fails_promised=promised)


HARD = (
    _loud("6 categories of 4, one 10 times louder", [4] * 6, [10, 1, 1, 1, 1, 1]),
    _loud("13 categories of 10, one 10 times louder", [10] * 13, [10] + [1] * 12),
    _loud("13 categories of 10, one 5 times louder", [10] * 13, [5] + [1] * 12),
    _loud("10 samples 3 times louder, 100 quiet", [10, 100], [3, 1]),
    _loud("20 categories of 2", [2] * 20, [5] * 20),
    _heavy("20 clusters, one of 60, others of 2", [60] + [2] * 19),
    _heavy("40 singles, 3 clusters of 10", [1] * 40 + [10] * 3),
    *(_few("exponential", n, _exponential) for n in (5, 8, 12, 19)),
    *(_few("lognormal(1)", n, _lognormal) for n in (10, 19)),
    replace(_few("lognormal(1)", 60, _lognormal), fails_promised=False, passes_promised=False),
    Hard(
        "86 % ties, 12 % lose 0.1, 2 % gain 0.6",
        60,
        World("rare gains among ties", _rare),
        World("rare gains among ties", _rare),
        fails_promised=False,
    ),
    Hard("3 % drop, others jitter by 1e-4", 60, None, World("jitter", behind_jitter(0.03, 1e-4))),
    Hard(
        "3 % drop, others differ by 0.02",
        60,
        None,
        World("noise", behind_jitter(0.03, 0.02)),
        passes_promised=False,
    ),
    _chosen("baseline the best of 5, n = 60", again=False, promised=False),
    _chosen("the same, measured again", again=True, promised=True),
)
"""Layouts, tails and baselines that break bounds which look sound on even samples."""
